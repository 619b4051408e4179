//! Parses the replies of the scripts. `None` everywhere means that no script gives such a reply.

use std::time::Duration;

use crate::rules::model::lock::MAX_LISTED;
use crate::rules::{
    Answer, ClientInfo, Fence, Holder, Operator, Reason, Record, Release, Removal, Renewal,
    ServerTime, Slot, Stored, Ticket, Verdict, View, Waiter, variant,
};
use crate::store::wire::Value;

/// The longest text that scripts return, in bytes. What a hostile server adds must not take memory.
const LONGEST_TEXT: usize = 4_000;

/// The longest record, and how many of them a view has at most.
const LONGEST_RECORD: usize = 6 * LONGEST_TEXT;
const MOST_RECORDS: usize = 3 * MAX_LISTED;

/// Reads an array from front to back.
pub(in crate::store) struct Fields {
    values: Vec<Value>,
    next: usize,
}

impl Fields {
    pub(in crate::store) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Array(values) => Some(Self { values, next: 0 }),
            _ => None,
        }
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
        Some(ServerTime(self.text()?.parse().unwrap_or(0)))
    }

    fn record(&mut self) -> Option<String> {
        record(self.value()?)
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
        "revoked" => Removal::Revoked(Holder::of(&Record::of(&fields.record()?))?, fields.time()?),
        "removed" => Removal::Removed(Waiter::of(&Record::of(&fields.record()?)), fields.time()?),
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
    let records = Fields::of(reply)?.values;
    let records = Some(records).filter(|records| records.len() <= MOST_RECORDS)?;
    View::of(&records.into_iter().map(record).collect::<Option<Vec<_>>>()?)
}

fn record(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(lossy(&bytes, LONGEST_RECORD)),
        _ => None,
    }
}

/// The first bytes of a text.
fn lossy(text: &[u8], at_most: usize) -> String {
    String::from_utf8_lossy(&text[..text.len().min(at_most)]).into_owned()
}
