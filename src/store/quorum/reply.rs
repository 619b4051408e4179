//! Parses the replies of the scripts that only members of a quorum run.

use std::ops::ControlFlow::{Break, Continue};

use crate::rules::quorum::{Nomination, Proposal, Vote};
use crate::rules::{Fence, Slot, Ticket};
use crate::store::server::reply::{Fields, verdict, view};
use crate::store::wire::Value;

/// Parses the reply of PROPOSE or COMMIT.
pub fn vote(reply: Value) -> Option<Vote> {
    let mut fields = Fields::of(reply.clone())?;
    if fields.text()? != "proposed" {
        return verdict(reply).map(Break);
    }
    Some(Continue(Proposal {
        view: view(fields.value()?)?,
        position: fields.count()?,
        sleep: fields.millis()?,
        ticket: Ticket(fields.fence()?.0),
        nominated: match fields.value()? {
            Value::BulkString(text) => nomination(&text),
            _ => return None,
        },
        kept_out: !fields.text()?.is_empty(),
    }))
}

/// Parses a nomination, which is part of the reply of PROPOSE, and a message to a waiter. `None` if
/// it is none.
pub(super) fn nomination(text: &[u8]) -> Option<Nomination> {
    // Enough for half a million holders.
    (text.len() <= 64 * 1024).then_some(())?;
    let mut parts = text.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    let (fence, position) = (Fence(number()?), number()?);
    let numbers = (1..).filter_map(Slot::new);
    let bits = parts.next()?.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
    let taken = numbers.zip(bits).filter(|(_, is_taken)| *is_taken).map(|(number, _)| number);
    Some(Nomination { fence, position, taken: taken.collect() })
}
