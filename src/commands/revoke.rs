//! `rlock release --force`: revokes all holds, or one hold, or removes one waiter.

use std::time::Duration;

use anyhow::Context;

use super::identity;
use super::output::{self, Done};
use crate::config::{Force, Output, Release};
use crate::duration::show;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::{HolderDocument, WaiterDocument};
use crate::lock::view::{HoldState, Holder, Operator, ServerTime, State};
use crate::lock::{Id, Key, Kind, Name};
use crate::report::Report;
use crate::store::{Removal, Revocation, Store};
use crate::system::clock::Instant;
use crate::system::poll::ready;
use crate::text::Line;

/// The pause between two checks for whether the revoked holders are gone. No message announces
/// that.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Revokes all holds, prints the holders, and waits until they are gone.
pub(super) fn run(
    store: &mut dyn Store,
    options: &Release,
    force: &Force,
    report: &Report,
) -> Result<Exit, Error> {
    let Release { name, key, output, .. } = options;
    let revocation = force.revocation;
    let before = store.revoke(key, revocation, &operator(force))?;
    match (before.state, revocation) {
        (State::Foreign, Revocation::Graceful) => return Err(Error::ForeignLock),
        (State::Foreign, Revocation::Now) => report.note("deleted the key of another tool"),
        (State::Free, _) => report.note("the lock is not held"),
        (State::Held | State::Revoked | State::Cooling, _) => {}
    }
    for holder in &before.holders {
        report_line(*output, name, &revoked(holder, before.now))?;
    }
    let listed = u64::try_from(before.holders.len()).unwrap_or(u64::MAX);
    let more = before.holder_count.saturating_sub(listed);
    if more > 0 {
        report_line(*output, name, &format!("revoked {more} more"))?;
    }
    if revocation == Revocation::Graceful {
        until_gone(store, key, &before.holders, true, report)?;
    }
    if *output == Output::Json {
        output::document(&Done::new("released", name).with_revoked(HolderDocument::all(&before)))?;
    }
    Ok(Exit::Status(exit::OK))
}

/// Revokes one hold and waits until it is gone, or removes one waiter.
pub(super) fn run_for_one(
    store: &mut dyn Store,
    options: &Release,
    id: &Id,
    force: &Force,
    report: &Report,
) -> Result<Exit, Error> {
    let Release { name, key, output, .. } = options;
    let removal = store.remove(key, id, force.revocation, &operator(force))?;
    let done = Done::new("released", name);
    let done = match &removal {
        Removal::Unknown(view) => return Err(Error::UnknownId(id.clone(), Box::new(view.clone()))),
        Removal::Several(view) => {
            return Err(Error::AmbiguousId(id.clone(), Box::new(view.clone())));
        }
        Removal::Removed(waiter, now) => {
            let (client, waited) = (&waiter.client, show(now.since(waiter.since)));
            let line = format!("removed {client} from the queue after {waited}, id {id}");
            report_line(*output, name, &line)?;
            done.with_removed(WaiterDocument::removed(waiter, *now))
        }
        Removal::Revoked(holder, now) => {
            report_line(*output, name, &revoked(holder, *now))?;
            if force.revocation == Revocation::Graceful {
                until_gone(store, key, std::slice::from_ref(holder), false, report)?;
            }
            done.with_revoked(vec![HolderDocument::new(holder, *now)])
        }
    };
    if *output == Output::Json {
        output::document(&done)?;
    }
    Ok(Exit::Status(exit::OK))
}

/// What the operator reads about a hold that was revoked. A hold that is cooling was only in the way.
fn revoked(holder: &Holder, now: ServerTime) -> String {
    let Holder { client, id, .. } = holder;
    if holder.state == HoldState::Cooling {
        let left = show(holder.deadline.since(now));
        return format!("freed early: --at-least of {client} had {left} left, id {id}");
    }
    let held = show(now.since(holder.acquired));
    format!("revoked {client}, held for {held}, id {id}")
}

/// Prints a line for users.
fn report_line(output: Output, name: &Name, line: &str) -> Result<(), Error> {
    match output {
        Output::Json => Ok(()),
        Output::Human | Output::Shell => {
            let line = Line::new(&format!("{name}: {line}"));
            output::text(&format!("{}\n", line.as_str()))
        }
    }
}

/// This operator, as stores keep it.
fn operator(force: &Force) -> String {
    Operator::to_line(&identity::of_operator(), force.reason.as_ref())
}

/// Waits until none of these holders has the lock. If `all` is false, ignores other revoked holds.
fn until_gone(
    store: &mut dyn Store,
    key: &Key,
    revoked: &[Holder],
    all: bool,
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
        let first = left
            .first()
            .copied()
            .or_else(|| view.holders.iter().find(|holder| all && is_revoked(holder)));
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
