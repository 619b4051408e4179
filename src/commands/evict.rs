//! `rlock release --force`: a lock taken away from those who have it.

use std::time::Duration;

use super::identity;
use super::output::{self, Done};
use crate::clock::Instant;
use crate::duration::show;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::{Key, Name};
use crate::poll::ready;
use crate::report::Report;
use crate::store::{Eviction, Store};
use crate::view::{Holder, Standing, State};

/// Between two looks at whether those who were evicted are gone: nobody tells us.
const LOOK: Duration = Duration::from_millis(250);

/// Evicts all holders, says who they were, and waits until they are gone.
pub(super) fn run(
    store: &mut dyn Store,
    key: &Key,
    name: &Name,
    eviction: Eviction,
    json: bool,
    report: &Report,
) -> Result<Exit, Error> {
    let before = store.revoke(key, eviction, &identity::of_operator());
    report.remarks(store.remarks());
    let before = before?;
    match (before.state, eviction) {
        (State::Foreign, Eviction::WhenGone) => return Err(Error::Deaf),
        (State::Foreign, Eviction::Now) => report.note("deleted the key of another tool"),
        (State::Free, _) => report.note("nobody holds it"),
        (State::Held | State::Revoked | State::Cooling, _) => {}
    }
    if !json {
        let evicted = before.holders.iter().map(|holder| {
            let held = show(before.now.since(holder.acquired));
            format!("{name}: evicted {} after {held}, id {}\n", holder.about, holder.id)
        });
        output::text(&evicted.collect::<String>())?;
    }
    if eviction == Eviction::WhenGone {
        until_gone(store, key, &before.holders, report)?;
    }
    if json {
        output::document(&Done::new("released", name).with_evicted(&before))?;
    }
    Ok(Exit::Status(exit::OK))
}

/// The lock has moved on when none of these has it any more.
fn until_gone(
    store: &mut dyn Store,
    key: &Key,
    evicted: &[Holder],
    report: &Report,
) -> Result<(), Error> {
    // Who has let go already is not waited for.
    let mut left: Vec<&Holder> =
        evicted.iter().filter(|holder| holder.standing != Standing::Cooling).collect();
    let mut told = false;
    loop {
        let view = store.inspect(key)?;
        let (still, gone): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|holder| view.holders.iter().any(|other| other.id == holder.id));
        for holder in gone {
            report.note(format_args!("{} has let go", holder.about));
        }
        left = still;
        let Some(first) = left.first() else { return Ok(()) };
        if !told {
            let end = view.ttl.map_or("the end of the lease".into(), show);
            report.note(format_args!(
                "waiting for {} to let go, for {end} at most; if it is dead, --now",
                first.about
            ));
            told = true;
        }
        let soon = Instant::now() + LOOK;
        ready([], Some(soon)).map(|[]| ()).map_err(|error| Error::system("cannot wait", &error))?;
    }
}
