//! `rlock release --force`: revokes all holds, or one hold, or removes one waiter.

use std::time::Duration;

use anyhow::Context;

use super::identity;
use super::output::{self, Document};
use super::retry::Retry;
use crate::cli::{HoldArgs, Release};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::{HolderDocument, WaiterDocument};
use crate::report::Report;
use crate::rules::{
    HoldState, Holder, Id, Instant, Key, Kind, Label, Operator, Removal, Revocation, ServerTime,
    State, show,
};
use crate::store::Store;
use crate::system::poll::ready;
use crate::text::Line;

/// The pause between two checks for whether the revoked holders are gone. No message announces
/// that.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// A revocation, or the removal of one client, is not known to have happened yet.
const RETRY: Retry<'_> = Retry { pending: "not revoked", ends: None, signals: None };

/// Revokes all holds, prints the holders, and waits until they are gone.
pub(super) fn run(
    store: &mut dyn Store,
    options: &Release,
    key: &Key,
    report: &Report,
) -> Result<Exit, Error> {
    let (revocation, by) = how(options);
    let before = RETRY.run(store, report, |store| store.revoke(key, revocation, &by))?;
    match (before.state, revocation) {
        (State::Foreign, Revocation::Graceful) => return Err(Error::ForeignLock),
        (State::Foreign, Revocation::Now) => report.note("deleted the key of another tool"),
        // It may be held again: no longer by those who held it when the revocation began.
        _ if before.holder_count == 0 => report.note("no hold to revoke"),
        (State::Free | State::Held | State::Revoked | State::Cooling, _) => {}
    }
    for holder in &before.holders {
        report_line(&options.hold, &revoked(holder, before.now))?;
    }
    let listed = u64::try_from(before.holders.len()).unwrap_or(u64::MAX);
    let more = before.holder_count.saturating_sub(listed);
    if more > 0 {
        report_line(&options.hold, &format!("revoked {more} more"))?;
    }
    if revocation == Revocation::Graceful {
        until_gone(&before.holders, more == 0, store, key, report)?;
    }
    if options.hold.json {
        let revoked = Some(HolderDocument::all(&before));
        output::document(&Document { revoked, ..Document::new("released", &options.hold.name) })?;
    }
    Ok(Exit::Status(exit::OK))
}

/// Revokes one hold and waits until it is gone, or removes one waiter.
pub(super) fn run_for_one(
    store: &mut dyn Store,
    options: &Release,
    key: &Key,
    id: &Id,
    report: &Report,
) -> Result<Exit, Error> {
    let (revocation, by) = how(options);
    let removal = RETRY.run(store, report, |store| store.remove(key, id, revocation, &by))?;
    let done = Document::new("released", &options.hold.name);
    let done = match &removal {
        Removal::Unknown(view) => return Err(Error::UnknownId(id.clone(), Box::new(view.clone()))),
        Removal::Several(view) => {
            return Err(Error::AmbiguousId(id.clone(), Box::new(view.clone())));
        }
        Removal::Removed(waiter, now) => {
            let (client, waited) = (&waiter.client, show(now.since(waiter.since)));
            let line = format!("removed {client} from the queue after {waited}, id {id}");
            report_line(&options.hold, &line)?;
            let removed = Some(WaiterDocument::new(waiter, None, *now));
            Document { status: "removed", removed, ..done }
        }
        Removal::Gone => {
            let line = format!("id {id} no longer holds or awaits the lock");
            report_line(&options.hold, &line)?;
            done
        }
        Removal::Revoked(holder, now) => {
            report_line(&options.hold, &revoked(holder, *now))?;
            if revocation == Revocation::Graceful {
                until_gone(std::slice::from_ref(holder), true, store, key, report)?;
            }
            Document { revoked: Some(vec![HolderDocument::new(holder, *now)]), ..done }
        }
    };
    if options.hold.json {
        output::document(&done)?;
    }
    Ok(Exit::Status(exit::OK))
}

/// What the operator reads about a hold that was revoked. A hold that is cooling was only in the
/// way.
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
fn report_line(HoldArgs { name, json, .. }: &HoldArgs, line: &str) -> Result<(), Error> {
    if *json {
        return Ok(());
    }
    let line = Line::new(&format!("{name}: {line}"));
    output::text(&format!("{}\n", line.as_str()))
}

/// How to revoke, and the operator with the reason, as stores keep them.
fn how(options: &Release) -> (Revocation, String) {
    let revocation = if options.now { Revocation::Now } else { Revocation::Graceful };
    let reason = options.reason.as_ref().map(Label::to_string);
    (revocation, Operator { name: Some(identity::of_operator()), reason }.to_line())
}

/// Waits until none of the revoked holders has the lock. Unless they are `all`, waits for any other
/// revoked hold too.
fn until_gone(
    revoked: &[Holder],
    all: bool,
    store: &mut dyn Store,
    key: &Key,
    report: &Report,
) -> Result<(), Error> {
    // A holder that has released the lock needs no wait.
    let mut awaited: Vec<&Holder> =
        revoked.iter().filter(|holder| holder.state != HoldState::Cooling).collect();
    let mut announced = false;
    while !awaited.is_empty() || !all {
        let retry = Retry { pending: "not confirmed", ends: None, signals: None };
        let view = retry.run(store, report, |store| store.inspect(key)).map_err(|failure| {
            failure.reworded(|what| format!("revoked, but not awaited: {what}"))
        })?;
        let (still, gone): (Vec<_>, Vec<_>) = awaited
            .into_iter()
            .partition(|holder| view.holders.iter().any(|other| other.id == holder.id));
        for holder in gone {
            report.note(format_args!("{} released the lock", holder.client));
        }
        awaited = still;
        let is_other = |holder: &&Holder| !all && holder.state == HoldState::Revoked;
        let first = awaited.first().copied().or_else(|| view.holders.iter().find(is_other));
        let Some(first) = first else { return Ok(()) };
        if !announced {
            report.note(still_held(first, view.now));
            announced = true;
        }
        ready([], Some(Instant::now() + CHECK_EVERY)).context("cannot wait")?;
    }
    Ok(())
}

/// What the operator reads about a hold that was revoked and still has the lock.
fn still_held(holder: &Holder, now: ServerTime) -> String {
    let (client, end) = (&holder.client, show(holder.deadline.since(now)));
    let wait = match client.kind {
        Kind::Acquire => format!(
            "nothing tells {client}, because it used acquire; waiting up to {end} for its lease to \
             expire"
        ),
        Kind::Exec | Kind::WhilePid => {
            format!("waiting up to {end} for {client} to release the lock")
        }
    };
    format!("{wait}; if it is dead, use --now")
}
