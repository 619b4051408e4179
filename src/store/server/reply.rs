//! Parses the replies of the scripts. `None` everywhere means that no script gives such a reply.

use std::time::Duration;

use crate::rules::{
    Answer, ClientInfo, Ending, Fence, HistoryEntry, HoldState, Holder, Mode, Operator, Proposal,
    Reason, Release, Removal, Renewal, ServerTime, Slot, State, Ticket, Verdict, View, Waiter,
};
use crate::store::wire::Value;
use crate::text::printable;

/// Reads an array from front to back.
struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn of(value: Value) -> Option<Self> {
        match value {
            Value::Array(values) => Some(Self(values.into_iter())),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        match self.0.next()? {
            Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Value::SimpleString(text) => Some(text),
            // A detail can be lost, for instance if the server evicted the key.
            Value::Nil => Some(String::new()),
            _ => None,
        }
    }

    fn integer(&mut self) -> Option<i64> {
        match self.0.next()? {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    fn count(&mut self) -> Option<u64> {
        u64::try_from(self.integer()?).ok()
    }

    fn millis(&mut self) -> Option<Duration> {
        self.count().map(Duration::from_millis)
    }

    fn reason(&mut self) -> Option<Reason> {
        // Later versions of rlock may have more endings.
        let ending = Ending::named(&self.text()?);
        let ago = u64::try_from(self.integer()?).ok().map(Duration::from_millis);
        Some(Reason::new(ending, ago, Operator::from_line(&self.text()?)))
    }

    /// A number in the form of text; 0 if it was lost.
    fn number(&mut self) -> Option<u64> {
        Some(self.text()?.parse().unwrap_or(0))
    }

    /// A fencing token. Unlike other numbers, it must not be missing: 0 would be smaller than any
    /// token.
    fn fence(&mut self) -> Option<Fence> {
        self.text()?.parse().ok().map(Fence)
    }

    /// The number of a granted slot, if there is one. A command that relies on it must not get
    /// anything else.
    fn slot(&mut self) -> Option<Option<Slot>> {
        if self.0.as_slice().is_empty() {
            return Some(None);
        }
        self.text()?.parse().ok().map(Some)
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

    fn list<T>(&mut self, read: impl Fn(Value) -> Option<T>) -> Option<Vec<T>> {
        let values = Fields::of(self.0.next()?)?.0;
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
        "busy" => Answer::Busy(view(fields.0.next()?)?),
        "nested" => Answer::Nested,
        "upgrade" => Answer::Upgrade,
        "queued" => Answer::Queued {
            view: view(fields.0.next()?)?,
            position: fields.count()?,
            sleep: fields.millis()?,
            arrival: fields.text().and_then(|ticket| ticket.parse().ok()).map(Ticket),
            obstacle: None,
        },
        "ended" => Answer::Ended(fields.reason()?),
        "superseded" => Answer::Superseded(ClientInfo::from_lines(&fields.text()?)),
        "removed" => Answer::Removed(Operator::from_line(&fields.text()?)),
        "proposed" => {
            return Some(Verdict::Proposed(Proposal {
                view: view(fields.0.next()?)?,
                position: fields.count()?,
                sleep: fields.millis()?,
                ticket: Ticket(fields.fence()?.0),
                nominated: fields.text()?.parse().ok().map(Fence),
                kept_out: !fields.text()?.is_empty(),
            }));
        }
        "again" => return Some(Verdict::Again),
        "ahead" => {
            return Some(Verdict::FenceAhead { ahead: fields.millis()?, now: fields.time()? });
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
            mode: fields.mode()??,
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
    let before = match fields.0.next()? {
        Value::Array(none) if none.is_empty() => None,
        first => Some(view(first)?),
    };
    Some((before, if again { Some(fields.count()?) } else { None }))
}

/// Parses the reply of REMOVE. The inner error says where to continue.
pub fn removal(reply: Value) -> Option<Result<Removal, String>> {
    let mut fields = Fields::of(reply)?;
    Some(Ok(match fields.text()?.as_str() {
        "revoked" => Removal::Revoked(holder(fields.0.next()?)?, fields.time()?),
        "removed" => Removal::Removed(waiter(fields.0.next()?)?, fields.time()?),
        "unknown" => Removal::Unknown(view(fields.0.next()?)?),
        "several" => Removal::Several(view(fields.0.next()?)?),
        "again" => return Some(Err(fields.text()?)),
        _ => return None,
    }))
}

/// Parses a view, which is the reply of INSPECT and part of others.
pub fn view(reply: Value) -> Option<View> {
    let mut fields = Fields::of(reply)?;
    Some(View {
        now: fields.time()?,
        state: match fields.text()?.as_str() {
            "free" => State::Free,
            "held" => State::Held,
            "revoked" => State::Revoked,
            "cooling" => State::Cooling,
            "foreign" => State::Foreign,
            _ => return None,
        },
        mode: fields.mode()?,
        ttl: u64::try_from(fields.integer()?).ok().map(Duration::from_millis),
        fence: fields.text()?.parse().ok().map(Fence),
        generation: fields.text()?,
        holder_count: fields.count()?,
        holders: fields.list(holder)?,
        waiter_count: fields.count()?,
        waiters: fields.list(waiter)?,
        // Later versions of rlock may have more endings; skip those entries.
        history: Fields::of(fields.0.next()?)?.0.filter_map(history_entry).collect(),
    })
}

fn history_entry(reply: Value) -> Option<HistoryEntry> {
    match reply {
        Value::BulkString(lines) => HistoryEntry::from_lines(&String::from_utf8_lossy(&lines)),
        _ => None,
    }
}

fn holder(reply: Value) -> Option<Holder> {
    let mut fields = Fields::of(reply)?;
    let (id, owner) = (printable(&fields.text()?), fields.text()?);
    let mode = fields.mode()?.unwrap_or(Mode::Exclusive);
    let client = ClientInfo::from_lines(&fields.text()?);
    let (fence, acquired) = (Fence(fields.number()?), fields.time()?);
    Some(Holder {
        id,
        owner,
        mode,
        client,
        fence,
        acquired,
        renewed: fields.time()?,
        deadline: fields.time()?,
        state: match fields.text()?.as_str() {
            "" => HoldState::Held,
            "revoked" => HoldState::Revoked,
            "cooling" => HoldState::Cooling,
            _ => return None,
        },
        waited: waited(&fields.text()?, acquired),
        slot: fields.text()?.parse().ok(),
    })
}

fn waiter(reply: Value) -> Option<Waiter> {
    let mut fields = Fields::of(reply)?;
    Some(Waiter {
        id: printable(&fields.text()?),
        mode: fields.mode()?.unwrap_or(Mode::Exclusive),
        client: ClientInfo::from_lines(&fields.text()?),
        since: fields.time()?,
        next: !fields.text()?.is_empty(),
    })
}

/// How long a holder waited for its grant; `None` if the time of its first request is unknown.
fn waited(since: &str, acquired: ServerTime) -> Option<Duration> {
    since.parse().ok().map(|since| acquired.since(ServerTime(since)))
}
