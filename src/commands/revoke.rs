//! `rlock release --force`: revokes a lock from its holders.

use std::time::Duration;

use anyhow::Context;

use super::identity;
use super::output::{self, Done};
use crate::config::{Output, Release};
use crate::duration::show;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::view::{HoldState, Holder, State};
use crate::lock::{Key, Kind};
use crate::report::Report;
use crate::store::{Revocation, Store};
use crate::system::clock::Instant;
use crate::system::poll::ready;
use crate::text::printable;

/// The pause between two checks for whether the revoked holders are gone. No message announces
/// that.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Revokes all holds, prints the holders, and waits until they are gone.
pub(super) fn run(
    store: &mut dyn Store,
    options: &Release,
    revocation: Revocation,
    report: &Report,
) -> Result<Exit, Error> {
    let Release { name, key, output, .. } = options;
    let before = store.revoke(key, revocation, &identity::of_operator())?;
    match (before.state, revocation) {
        (State::Foreign, Revocation::Graceful) => return Err(Error::ForeignLock),
        (State::Foreign, Revocation::Now) => report.note("deleted the key of another tool"),
        (State::Free, _) => report.note("the lock is not held"),
        (State::Held | State::Revoked | State::Cooling, _) => {}
    }
    if *output != Output::Json {
        let revoked = before.holders.iter().map(|holder| {
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
        output::text(&(revoked.collect::<String>() + &more))?;
    }
    if revocation == Revocation::Graceful {
        until_gone(store, key, &before.holders, report)?;
    }
    if *output == Output::Json {
        output::document(&Done::new("released", name).with_revoked(&before))?;
    }
    Ok(Exit::Status(exit::OK))
}

/// Waits until none of these holders has the lock.
fn until_gone(
    store: &mut dyn Store,
    key: &Key,
    revoked: &[Holder],
    report: &Report,
) -> Result<(), Error> {
    // A holder that has released the lock needs no wait.
    let mut left: Vec<&Holder> =
        revoked.iter().filter(|holder| holder.state != HoldState::Cooling).collect();
    let mut announced = false;
    loop {
        let view = store.inspect(key)?;
        let (still, gone): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|holder| view.holders.iter().any(|other| other.id == holder.id));
        for holder in gone {
            report.note(format_args!("{} released the lock", holder.client));
        }
        left = still;
        // Not every holder was listed: any other revoked one counts too.
        let is_revoked = |holder: &&Holder| holder.state == HoldState::Revoked;
        let first = left.first().copied().or_else(|| view.holders.iter().find(is_revoked));
        let Some(first) = first else { return Ok(()) };
        if !announced {
            let end = view.ttl.map_or("the end of its lease".into(), show);
            report.note(match first.client.kind {
                Kind::Acquire => format!(
                    "nothing tells {}, because it used acquire; waiting up to {end} for its lease \
                     to expire; if it is dead, use --now",
                    first.client
                ),
                Kind::Exec | Kind::WhilePid => format!(
                    "waiting up to {end} for {} to release the lock; if it is dead, use --now",
                    first.client
                ),
            });
            announced = true;
        }
        let soon = Instant::now() + CHECK_EVERY;
        ready([], Some(soon)).context("cannot wait")?;
    }
}
