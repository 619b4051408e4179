//! `rlock release --force`: a lock taken away from those who have it.

use std::time::Duration;

use super::identity;
use super::output::{self, Done};
use super::reported::Reported;
use crate::duration::show;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::view::{HoldState, Holder, State};
use crate::lock::{Key, Name};
use crate::store::Revocation;
use crate::system::clock::Instant;
use crate::system::poll::ready;
use crate::text::printable;

/// Between two looks at whether those who were evicted are gone: nobody tells us.
const LOOK: Duration = Duration::from_millis(250);

/// Evicts all holders, says who they were, and waits until they are gone.
pub(super) fn run(
    store: &mut Reported<'_>,
    key: &Key,
    name: &Name,
    revocation: Revocation,
    json: bool,
) -> Result<Exit, Error> {
    let report = store.report();
    let by = identity::of_operator();
    let before = store.ask(|store| store.revoke(key, revocation, &by))?;
    match (before.state, revocation) {
        (State::Foreign, Revocation::WhenGone) => return Err(Error::ForeignLock),
        (State::Foreign, Revocation::Now) => report.note("deleted the key of another tool"),
        (State::Free, _) => report.note("nobody holds it"),
        (State::Held | State::Revoked | State::Cooling, _) => {}
    }
    if !json {
        let evicted = before.holders.iter().map(|holder| {
            let held = show(before.now.since(holder.acquired));
            let line =
                format!("{name}: revoked {}, held for {held}, id {}", holder.client, holder.id);
            printable(&line) + "\n"
        });
        let listed = u64::try_from(before.holders.len()).unwrap_or(u64::MAX);
        let more = match before.holder_count.saturating_sub(listed) {
            0 => String::new(),
            more => format!("{name}: revoked {more} more\n"),
        };
        output::text(&(evicted.collect::<String>() + &more))?;
    }
    if revocation == Revocation::WhenGone {
        until_gone(store, key, &before.holders)?;
    }
    if json {
        output::document(&Done::new("released", name).with_revoked(&before))?;
    }
    Ok(Exit::Status(exit::OK))
}

/// The lock has moved on when none of these has it any more.
fn until_gone(store: &mut Reported<'_>, key: &Key, evicted: &[Holder]) -> Result<(), Error> {
    let report = store.report();
    // Who has let go already is not waited for.
    let mut left: Vec<&Holder> =
        evicted.iter().filter(|holder| holder.standing != HoldState::Cooling).collect();
    let mut told = false;
    loop {
        let view = store.ask(|store| store.inspect(key))?;
        let (still, gone): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|holder| view.holders.iter().any(|other| other.id == holder.id));
        for holder in gone {
            report.note(format_args!("{} has released it", holder.client));
        }
        left = still;
        // Of those that were not listed, there is one as long as any is revoked.
        let revoked = |holder: &&Holder| holder.standing == HoldState::Revoked;
        let first = left.first().copied().or_else(|| view.holders.iter().find(revoked));
        let Some(first) = first else { return Ok(()) };
        if !told {
            let end = view.ttl.map_or("the end of the lease".into(), show);
            report.note(format_args!(
                "waiting up to {end} for {} to release it; if it is dead, use --now",
                first.client
            ));
            told = true;
        }
        let soon = Instant::now() + LOOK;
        ready([], Some(soon)).map(|[]| ()).map_err(|error| Error::system("cannot wait", &error))?;
    }
}
