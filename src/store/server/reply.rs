//! Parses the replies of the scripts. `None` everywhere means that no script gives such a reply.

use std::time::Duration;

use crate::rules::model::lock::MAX_LISTED;
use crate::rules::{
    Answer, CLOSED, ClientInfo, Fence, HistoryEntry, HoldState, Holder, Mode, Operator, Owner,
    Reason, Release, Removal, Renewal, ServerTime, Skipped, Slot, Stored, Ticket, Verdict, View,
    Waiter, variant,
};
use crate::store::wire::Value;
use crate::text::{at_most, printable};

// The fields of a view, a holder and a waiter, by the names and in the order of `lua/view.lua`.
const VIEW: &[&str] = &[
    "now",
    "state",
    "mode",
    "left",
    "fence",
    "generation",
    "holder_count",
    "holders",
    "waiter_count",
    "waiters",
    "history",
    "skipped",
    "is_of_rlock",
];
const HOLDER: &[&str] = &[
    "id", "owner", "mode", "about", "fence", "acquired", "renewed", "deadline", "status", "since",
    "slot",
];
const WAITER: &[&str] = &["id", "mode", "about", "since", "next"];

/// The longest text that scripts return, in bytes. What a hostile server adds must not take memory.
const LONGEST_TEXT: usize = 4_000;

/// Reads an array from front to back, or the fields that have names in any order.
pub(in crate::store) struct Fields {
    values: Vec<Value>,
    names: &'static [&'static str],
    next: usize,
}

impl Fields {
    pub(in crate::store) fn of(value: Value) -> Option<Self> {
        Self::named(value, &[])
    }

    fn named(value: Value, names: &'static [&'static str]) -> Option<Self> {
        match value {
            Value::Array(values) => Some(Self { values, names, next: 0 }),
            _ => None,
        }
    }

    /// Continues at the field with this name.
    fn at(&mut self, name: &str) -> &mut Self {
        let at = self.names.iter().position(|other| *other == name);
        self.next = at.unwrap_or(usize::MAX);
        self
    }

    pub(in crate::store) fn value(&mut self) -> Option<Value> {
        let value = std::mem::replace(self.values.get_mut(self.next)?, Value::Nil);
        self.next += 1;
        Some(value)
    }

    pub(in crate::store) fn text(&mut self) -> Option<String> {
        match self.value()? {
            Value::BulkString(bytes) => Some(lossy(&bytes, LONGEST_TEXT)),
            Value::SimpleString(text) => Some(lossy(text.as_bytes(), LONGEST_TEXT)),
            // A detail can be lost, for instance if the server evicted the key.
            Value::Nil => Some(String::new()),
            _ => None,
        }
    }

    /// A text that is an identifier.
    fn identifier(&mut self) -> Option<String> {
        self.text().map(|text| at_most(255, &text).to_owned())
    }

    fn integer(&mut self) -> Option<i64> {
        match self.value()? {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    pub(in crate::store) fn count(&mut self) -> Option<u64> {
        u64::try_from(self.integer()?).ok()
    }

    pub(in crate::store) fn millis(&mut self) -> Option<Duration> {
        self.count().map(Duration::from_millis)
    }

    fn reason(&mut self) -> Option<Reason> {
        // Later versions of rlock may have more endings.
        let ending = variant(&self.text()?);
        let ago = u64::try_from(self.integer()?).ok().map(Duration::from_millis);
        Some(Reason::new(ending, ago, Operator::from_stored(&self.text()?)))
    }

    /// A number in the form of text; 0 if it was lost.
    fn number(&mut self) -> Option<u64> {
        Some(self.text()?.parse().unwrap_or(0))
    }

    /// A fencing token. Unlike other numbers, it must not be missing: 0 would be smaller than any
    /// token.
    pub(in crate::store) fn fence(&mut self) -> Option<Fence> {
        self.text()?.parse().ok().map(Fence)
    }

    /// The number of a granted slot, if there is one. A command that relies on it must not get
    /// anything else.
    fn slot(&mut self) -> Option<Option<Slot>> {
        match self.text()? {
            none if none.is_empty() => Some(None),
            number => number.parse().ok().map(Some),
        }
    }

    fn time(&mut self) -> Option<ServerTime> {
        self.number().map(ServerTime)
    }

    /// The inner `None` means that the mode was lost, or that there is none.
    fn mode(&mut self) -> Option<Option<Mode>> {
        match self.text()? {
            lost if lost.is_empty() => Some(None),
            mode => mode.try_into().ok().map(Some),
        }
    }

    fn array(&mut self) -> Option<Vec<Value>> {
        let values = Self::of(self.value()?)?.values;
        (values.len() <= MAX_LISTED).then_some(values)
    }

    fn list<T>(&mut self, read: impl Fn(Value) -> Option<T>) -> Option<Vec<T>> {
        let values = self.array()?;
        // Without spare capacity, because a list of locks has thousands of these.
        let mut list = Vec::with_capacity(values.len());
        for value in values {
            list.push(read(value)?);
        }
        Some(list)
    }
}

/// Parses the reply of ACQUIRE.
pub fn verdict(reply: Value) -> Option<Verdict> {
    let mut fields = Fields::of(reply)?;
    Some(Verdict::Answer(match fields.text()?.as_str() {
        "granted" => Answer::Granted { fence: fields.fence()?, slot: fields.slot()? },
        "busy" => Answer::Busy(view(fields.value()?)?),
        "nested" => Answer::Nested,
        "upgrade" => Answer::Upgrade,
        "queued" => Answer::Queued {
            view: view(fields.value()?)?,
            position: fields.count()?,
            sleep: fields.millis()?,
            arrival: fields.text().and_then(|ticket| ticket.parse().ok()).map(Ticket),
            obstacle: None,
        },
        "ended" => Answer::Ended(fields.reason()?),
        "superseded" => Answer::Superseded(ClientInfo::from_stored(&fields.text()?)),
        "removed" => Answer::Removed(Operator::from_stored(&fields.text()?)),
        "again" => return Some(Verdict::Again),
        "ahead" => {
            return Some(Verdict::AheadOfClock { ahead: fields.millis()?, now: fields.time()? });
        }
        _ => return None,
    }))
}

pub fn renewal(reply: Value) -> Option<Renewal> {
    let mut fields = Fields::of(reply)?;
    match fields.text()?.as_str() {
        "renewed" => Some(Renewal::Renewed {
            fence: fields.fence()?,
            left: fields.millis()?,
            slot: fields.slot()?,
            before: fields.millis()?,
        }),
        "not-held" => Some(Renewal::NotHeld(fields.reason()?)),
        _ => None,
    }
}

pub fn release(reply: Value) -> Option<Release> {
    let mut fields = Fields::of(reply)?;
    match fields.text()?.as_str() {
        "released" => Some(Release::Released),
        "not-held" => Some(Release::NotHeld(fields.reason()?)),
        _ => None,
    }
}

pub fn left(reply: Value) -> Option<()> {
    (Fields::of(reply)?.text()? == "left").then_some(())
}

/// Parses the reply of REVOKE: the lock as it was before, in the reply to the first call; and the
/// hold to continue from, if one call was not enough.
pub fn revoked(reply: Value) -> Option<(Option<View>, Option<u64>)> {
    let mut fields = Fields::of(reply)?;
    let again = match fields.text()?.as_str() {
        "revoked" => false,
        "again" => true,
        _ => return None,
    };
    let before = match fields.value()? {
        Value::Array(none) if none.is_empty() => None,
        first => Some(view(first)?),
    };
    Some((before, if again { Some(fields.count()?) } else { None }))
}

/// Parses the reply of REMOVE. The inner error says where to continue.
pub fn removal(reply: Value) -> Option<Result<Removal, String>> {
    let mut fields = Fields::of(reply)?;
    Some(Ok(match fields.text()?.as_str() {
        "revoked" => Removal::Revoked(holder(fields.value()?)?, fields.time()?),
        "removed" => Removal::Removed(waiter(fields.value()?)?, fields.time()?),
        "unknown" => Removal::Unknown(view(fields.value()?)?),
        "several" => Removal::Several(view(fields.value()?)?),
        "again" => return Some(Err(fields.text()?)),
        _ => return None,
    }))
}

/// Parses the reply of INSPECT: the lock with the first page of its holders and waiters.
pub fn page(reply: Value) -> Option<View> {
    // Of the first waiters, the page leaves out those that are dead.
    let view = view(reply)?;
    Some(View { unlisted_waiters: view.unlisted_waiters.saturating_sub(MAX_LISTED as u64), ..view })
}

/// Parses a view, which is part of other replies too. Those list no waiters.
pub fn view(reply: Value) -> Option<View> {
    let mut fields = Fields::named(reply, VIEW)?;
    let holder_count = fields.at("holder_count").count()?;
    let holders = fields.at("holders").list(holder)?;
    Some(View {
        now: fields.at("now").time()?,
        state: variant(&fields.at("state").text()?)?,
        mode: fields.at("mode").mode()?,
        ttl: u64::try_from(fields.at("left").integer()?).ok().map(Duration::from_millis),
        fence: fields.at("fence").text()?.parse().ok().map(Fence),
        generation: fields.at("generation").identifier()?,
        unlisted_holders: holder_count.saturating_sub(holders.len() as u64),
        holders,
        unlisted_waiters: fields.at("waiter_count").count()?,
        waiters: fields.at("waiters").list(waiter)?,
        // Later versions of rlock may have more endings; skip those entries.
        history: fields.at("history").array()?.into_iter().filter_map(history_entry).collect(),
        skipped: Skipped::from_lines(&fields.at("skipped").text()?).map(Box::new),
        is_of_rlock: !fields.at("is_of_rlock").text()?.is_empty(),
    })
}

fn history_entry(reply: Value) -> Option<HistoryEntry> {
    match reply {
        Value::BulkString(lines) => HistoryEntry::from_lines(&lossy(&lines, 6 * LONGEST_TEXT)),
        _ => None,
    }
}

/// The first bytes of a text.
fn lossy(text: &[u8], at_most: usize) -> String {
    String::from_utf8_lossy(&text[..text.len().min(at_most)]).into_owned()
}

fn holder(reply: Value) -> Option<Holder> {
    let mut fields = Fields::named(reply, HOLDER)?;
    let acquired = fields.at("acquired").time()?;
    let (id, owner) = (fields.at("id").identifier()?, fields.at("owner").identifier()?);
    let (owner, closed_for) = match owner {
        ids if id == CLOSED => (None, ids.split_whitespace().map(str::to_owned).collect()),
        lost if lost.is_empty() => (None, Vec::new()),
        owner => (Some(Owner::stored(owner)), Vec::new()),
    };
    Some(Holder {
        id: printable(&id),
        owner,
        closed_for,
        mode: fields.at("mode").mode()?.unwrap_or(Mode::Exclusive),
        client: ClientInfo::from_stored(&fields.at("about").text()?),
        fence: Fence(fields.at("fence").number()?),
        acquired,
        renewed: fields.at("renewed").time()?,
        deadline: fields.at("deadline").time()?,
        state: match fields.at("status").text()?.as_str() {
            "" => HoldState::Held,
            status => variant(status)?,
        },
        waited: waited(&fields.at("since").text()?, acquired),
        slot: fields.at("slot").text()?.parse().ok(),
    })
}

fn waiter(reply: Value) -> Option<Waiter> {
    let mut fields = Fields::named(reply, WAITER)?;
    Some(Waiter {
        id: printable(&fields.at("id").identifier()?),
        mode: fields.at("mode").mode()?.unwrap_or(Mode::Exclusive),
        client: ClientInfo::from_stored(&fields.at("about").text()?),
        since: fields.at("since").time()?,
        next: !fields.at("next").text()?.is_empty(),
    })
}

/// How long a holder waited for its grant; `None` if the time of its first request is unknown.
fn waited(since: &str, acquired: ServerTime) -> Option<Duration> {
    since.parse().ok().map(|since| acquired.since(ServerTime(since)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comments_of_a_script_name_the_fields_of_its_reply() {
        let script = include_str!("../../../lua/view.lua").replace("\n--     ", " ");
        let named = script.split("--   { ").skip(1).filter_map(|rest| rest.split_once(" }"));
        let named: Vec<Vec<&str>> = named.map(|(names, _)| names.split(", ").collect()).collect();
        assert_eq!(named, [WAITER, HOLDER, VIEW]);
    }
}
