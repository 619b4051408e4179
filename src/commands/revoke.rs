//! `rlock release --force`: revokes all holds, or one hold, or removes one waiter.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;

use super::retry::Retry;
use super::{identity, names, output};
use crate::cli::{HoldArgs, ReleaseArgs};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::{self, object};
use crate::inspect::problem::exists;
use crate::report::Report;
use crate::rules::{
    Ending, HoldKind, HoldState, Holder, Id, Instant, Key, Label, Operator, Prefix, Removal,
    Revocation, ServerTime, Standing, State, UserMessage, View, foreign, freeing, show,
};
use crate::store::{Force, Store};
use crate::system::inherited::Inherited;
use crate::system::poll::{Want, ready};
use crate::system::signals::Signals;
use crate::text::Line;

/// The pause between two checks for whether the revoked holders are gone. No message announces
/// that.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Revokes all holds or the one with the ID that the user gave, prints the holders, and waits until
/// they are gone; or removes the waiter with that ID.
pub(super) fn run(
    store: &mut dyn Store,
    options: &ReleaseArgs,
    prefix: &Prefix,
    key: &Key,
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    let mut operation = Operation { store, options, key, inherited, report };
    match &options.id {
        Some(id) => operation.revoke_one(id),
        None => operation.revoke_all(prefix),
    }
}

/// A `release --force`.
struct Operation<'a> {
    store: &'a mut dyn Store,
    options: &'a ReleaseArgs,
    key: &'a Key,
    inherited: Inherited,
    report: &'a Report,
}

impl Operation<'_> {
    fn revoke_all(&mut self, prefix: &Prefix) -> Result<Exit, Error> {
        let Self { key, options, report, .. } = *self;
        let force = force(options);
        let mut retry = Retry::of("not revoked");
        let before = retry.run(self.store, report, |store| store.revoke(key, &force))?;
        match (before.state, force.how) {
            (State::Foreign, Revocation::Graceful) => {
                let who = before.foreigner();
                let fault =
                    UserMessage::new(format!("held by {who}, which this rlock cannot stop"));
                let remedy = foreign(&before, &|words| self.typed(words));
                return Err(Error::Held(fault.with_remedy(remedy)));
            }
            (State::Foreign, Revocation::Now) => {
                report.note(format_args!("deleted the key of {}", before.foreigner()));
            }
            _ if before.is_unknown() => {
                let suggests = !report.is_quiet() && !options.hold.json;
                let unknown = names::unknown(self.store, prefix, &options.hold.name, suggests);
                report.note(format_args!("no hold to revoke: {unknown}"));
            }
            // It may be held again: no longer by those who held it when the revocation began.
            _ if before.holder_count() == 0 => report.note("no hold to revoke"),
            (State::Free | State::Held | State::Revoked | State::Cooling, _) => {}
        }
        self.finish(&before.holders, before.unlisted_holders, before.now)
    }

    fn revoke_one(&mut self, id: &Id) -> Result<Exit, Error> {
        let Self { key, options, report, .. } = *self;
        let force = force(options);
        let mut retry = Retry::of("not revoked");
        let removal = retry.run(self.store, report, |store| store.remove(key, id, &force))?;
        let wrong = |what: String, remedy: String, view: View| Error::Id {
            fault: UserMessage::new(what).with_remedy(remedy),
            view: Box::new(view),
        };
        let (removed, line) = match &removal {
            Removal::Unknown(view) => {
                let what = format!("no holder or waiter has the id '{id}' (the lock is {view})");
                return Err(wrong(what, format!("run {}", self.typed("inspect")), view.clone()));
            }
            Removal::Several(view) => {
                let what = format!("several clients have the id '{id}', so none was revoked");
                let remedy = "wait until only one of them is left".into();
                return Err(wrong(what, remedy, view.clone()));
            }
            Removal::Revoked(holder, now) => {
                return self.finish(std::slice::from_ref(holder), 0, *now);
            }
            Removal::Removed(waiter, now) => {
                let (client, waited) = (&waiter.client, show(now.since(waiter.since)));
                let removed = object! { removed: json::waiter(waiter, None, *now) };
                (Some(removed), format!("removed {client} from the queue after {waited}, id {id}"))
            }
            Removal::Gone => (None, format!("id {id} no longer holds or awaits the lock")),
        };
        self.line(&line)?;
        if options.hold.json {
            output::document(object! {
                status: if removed.is_some() { "removed" } else { "released" },
                name: options.hold.name.as_str(),
                #[serde(flatten)]
                removed: removed,
            })?;
        }
        Ok(Exit::Status(exit::OK))
    }

    /// Prints the revoked holders, waits until none of them has the lock, and tells how each hold
    /// ended. If there are `more`, waits for any other revoked hold too.
    fn finish(&mut self, holders: &[Holder], more: u64, now: ServerTime) -> Result<Exit, Error> {
        let Self { key, options, report, .. } = *self;
        for holder in holders {
            self.line(&revoked(holder, now))?;
        }
        if more > 0 {
            self.line(&format!("revoked {more} more"))?;
        }
        // A holder that has released the lock needs no wait.
        let mut awaited =
            Vec::from_iter(holders.iter().filter(|it| it.state != HoldState::Cooling));
        let mut endings: BTreeMap<&str, Ending> = BTreeMap::new();
        let (host, mut told) = (identity::host(), BTreeMap::new());
        if options.now {
            holders.iter().for_each(|holder| report_survivor(holder, &host, report));
        }
        let mut signals = Signals::listen(self.inherited).context("cannot listen for signals")?;
        while !options.now && (!awaited.is_empty() || more > 0) {
            let mut retry = Retry { signals: Some(&mut signals), ..Retry::of("not confirmed") };
            let view = retry.run(self.store, report, |store| store.inspect(key));
            let view = view.map_err(|failure| {
                failure.reworded(|what| format!("revoked, but not awaited: {what}"))
            })?;
            awaited.retain(|holder| {
                let still = view.holders.iter().any(|other| other.id == holder.id);
                if !still {
                    let entry = view.history.iter().rfind(|entry| entry.id == holder.id);
                    let ended = entry.and_then(|it| it.ending_of_revoked(holder.deadline));
                    endings.extend(ended.map(|ended| (holder.id.as_str(), ended)));
                    report_end(holder, ended, report);
                }
                still
            });
            let is_other = |holder: &&Holder| more > 0 && holder.state == HoldState::Revoked;
            let mut left = awaited.clone();
            if left.is_empty() {
                left.extend(view.holders.iter().filter(is_other));
            }
            if left.is_empty() {
                break;
            }
            let count = more + left.len() as u64;
            if told.is_empty() && count > 1 {
                let end = show(view.ttl.unwrap_or_default());
                report.note(format_args!("waiting up to {end} for {count} holders"));
            }
            let end = left.iter().map(|holder| holder.deadline.since(view.now)).max();
            for holder in left {
                let holder = view.holders.iter().find(|it| it.id == holder.id).unwrap_or(holder);
                let is_missing = exists(&holder.client, &host) == Some(false);
                let standing = Standing::of(holder, view.now, is_missing);
                if told.insert(holder.id.clone(), standing) != Some(standing) {
                    report.note(self.still_held(holder, standing, view.now));
                }
            }
            let until = Some(Instant::now() + CHECK_EVERY);
            ready([(signals.readable(), Want::Read)], until).context("cannot wait")?;
            if let Some(signal) = signals.first() {
                let end = show(end.unwrap_or_default());
                report.note(format_args!(
                    "stopped by {signal} while waiting; what was revoked ends within {end}"
                ));
                return Ok(Exit::Signal(signal as i32));
            }
        }
        if options.hold.json {
            let ended = |holder: &Holder| endings.get(holder.id.as_str()).copied();
            output::document(object! {
                status: "released",
                name: options.hold.name.as_str(),
                revoked: Vec::from_iter(holders.iter().map(|it| json::holder(it, now, ended(it)))),
            })?;
        }
        Ok(Exit::Status(exit::OK))
    }

    /// Prints a line for users.
    fn line(&self, line: &str) -> Result<(), Error> {
        let HoldArgs { name, json, .. } = &self.options.hold;
        let line = Line::new(&format!("{name}: {line}"));
        if *json { Ok(()) } else { output::text(&format!("{}\n", line.as_str())) }
    }

    /// What the operator reads about a hold that was revoked and still has the lock.
    fn still_held(&self, holder: &Holder, standing: Standing, now: ServerTime) -> String {
        let (client, end) = (&holder.client, show(holder.deadline.since(now)));
        let release = || format!("waiting up to {end} for {client} to release the lock");
        let wait = match standing {
            Standing::Fine | Standing::Terminating | Standing::NotRenewed => return release(),
            Standing::NotReleased => format!("{}, which is overdue", release()),
            Standing::NotFound => format!(
                "waiting up to {end} for the lease of {client} to expire, whose process is not found here"
            ),
            Standing::Closed => holder.closing(now),
            Standing::Unattended => format!(
                "nothing stops {client}, which used acquire; waiting up to {end} for its lease to expire"
            ),
        };
        format!("{wait}; {}", freeing(Some(holder), &|words| self.typed(words)))
    }

    /// A command for the user to type, on this lock.
    fn typed(&self, words: &str) -> String {
        self.options.common.typed(words, &self.options.hold.name)
    }
}

/// Tells how a revoked hold ended.
fn report_end(holder: &Holder, how: Option<Ending>, report: &Report) {
    let client = &holder.client;
    match how {
        _ if holder.is_closing() => report.note("the lock is no longer closed"),
        Some(Ending::Expired) => report.warn(format_args!(
            "{client} did not release the lock before its lease expired; check that nothing it \
             started still runs"
        )),
        Some(_) => {
            report.note(format_args!("{client} released the lock after its command had ended"));
        }
        None => report.note(format_args!("{client} no longer holds the lock")),
    }
}

/// What the operator reads about a hold that was revoked. A hold that is cooling was only in the
/// way.
fn revoked(holder: &Holder, now: ServerTime) -> String {
    let Holder { client, id, .. } = holder;
    if holder.state == HoldState::Cooling {
        let left = show(holder.deadline.since(now));
        return format!("freed early: --at-least of {client} had {left} left, id {id}");
    }
    if holder.is_closing() {
        return holder.closing(now);
    }
    let held = show(now.since(holder.acquired));
    format!("revoked {client}, held for {held}, id {id}")
}

/// How to revoke, and the operator with the reason.
fn force(options: &ReleaseArgs) -> Force {
    let how = if options.now { Revocation::Now } else { Revocation::Graceful };
    let reason = options.reason.as_ref().map(Label::to_string);
    Force { how, by: Operator { name: Some(identity::of_operator()), reason } }
}

/// Warns about a process whose hold was freed at once.
fn report_survivor(holder: &Holder, host: &str, report: &Report) {
    let client = &holder.client;
    let is_attended = client.kind != HoldKind::Acquire && holder.state != HoldState::Cooling;
    if is_attended && exists(client, host) == Some(true) {
        report.warn(format_args!(
            "process {} still runs on this host; check that it and all that it started end",
            client.pid
        ));
    }
}
