//! What exec and acquire share: the steps from the options to a lock that is granted.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::Context;

use super::open;
use super::retry::Retry;
use crate::config::Terms;
use crate::error::Error;
use crate::report::Report;
use crate::rules::waiter::heartbeat;
use crate::rules::{
    BoundedDuration, ClientInfo, EnclosingHolds, Failure, Instant, Name, Outcome, Owner, Release,
    Request, Token, show,
};
use crate::store::Store;
use crate::supervise::Variables;
use crate::system::inherited::Inherited;
use crate::system::random;
use crate::system::signals::Signals;
use crate::wait::{self, Acquired, Bounds};

/// The variable with the number of the slot.
pub(super) const SLOT: &str = "RLOCK_SLOT";

/// A lock that was granted, and what rlock needs to renew and release it.
pub(super) struct Grant {
    pub(super) store: Box<dyn Store>,
    pub(super) request: Request,
    pub(super) acquired: Acquired,
    pub(super) signals: Signals,
}

impl Grant {
    /// Requests the lock with this token, and waits for it while the process of the pidfd
    /// `needed_by` lives. A token that already holds the lock keeps its hold.
    pub(super) fn obtain(
        terms: &Terms,
        token: Token,
        client: ClientInfo,
        needed_by: Option<BorrowedFd<'_>>,
        inherited: Inherited,
        report: &Report,
    ) -> Result<Self, Error> {
        let lock = &terms.lock;
        let key = terms.server.key(&lock.name);
        let waits = terms.wait_limit != Some(Duration::ZERO);
        let fresh_owner = Owner::new(random::bytes());
        let mut request = Request {
            mode: lock.mode(),
            at_least: lock.at_least.map_or(Duration::ZERO, BoundedDuration::get),
            owner: lock.owner.clone(),
            enclosing: enclosing_holds().of_key(&key),
            reentrant: lock.reentrant,
            next: lock.next,
            supersedes: lock.supersede,
            heartbeat: waits.then(|| heartbeat(terms.ttl.get())),
            client,
            ..Request::plain(key, token, fresh_owner, terms.ttl)
        };
        let mut store = open(&terms.server, report)?;
        let mut signals = Signals::listen(inherited).context("cannot listen for signals")?;
        let bounds = Bounds { wait: terms.wait_limit, start: terms.start_limit, needed_by };
        let acquired = wait::acquire(&mut *store, &mut request, bounds, &mut signals, report)?;
        Ok(Self { store, request, acquired, signals })
    }

    /// Releases the lock before anything has used it.
    pub(super) fn release_unused(&mut self, report: &Report) {
        let Self { store, request, acquired, signals } = self;
        let deadline = acquired.lease.deadline();
        let _ = release(&mut **store, request, Outcome::NotStarted, deadline, signals, report);
    }

    /// Returns the variables that tell the command or the script about the lock. `RLOCK_HELD` lists
    /// all holds that enclose it, the innermost last. A command must not inherit `RLOCK_SLOT` from
    /// an enclosing lock.
    pub(super) fn variables(&self, name: &Name) -> Variables {
        let token = self.request.token.as_str();
        let held = enclosing_holds().and(&self.request.key, &self.request.token);
        vec![
            ("RLOCK_NAME", Some(name.to_string())),
            ("RLOCK_TOKEN", Some(token.to_owned())),
            ("RLOCK_FENCE", Some(self.acquired.fence.to_string())),
            (EnclosingHolds::VARIABLE, Some(held)),
            (SLOT, self.acquired.slot.map(|slot| slot.to_string())),
        ]
    }
}

/// Releases the lock. What it was for has ended or has never begun, so a failure is only a warning.
pub(super) fn release(
    store: &mut dyn Store,
    request: &Request,
    outcome: Outcome,
    deadline: Instant,
    signals: &mut Signals,
    report: &Report,
) -> Result<Release, Failure> {
    let Request { key, token, .. } = request;
    let mut retry =
        Retry { pending: "not released", deadline: Some(deadline), signals: Some(signals) };
    let released = retry.run(store, report, |store| store.release(key, token, outcome));
    match &released {
        Ok(Release::Released | Release::Unknown) => report.detail("released"),
        Ok(Release::NotHeld(why)) => {
            report.detail(format_args!("nothing to release: the lock {why}"))
        }
        Err(failure) => {
            let left = deadline.since(Instant::now());
            let lease = match left.is_zero() {
                true => "the lease has expired".to_owned(),
                false => format!("the lease expires within {}", show(left)),
            };
            let failed = format!("not released ({lease}): {failure}");
            // After a loss, the loss is the news.
            if outcome == Outcome::Lost { report.detail(failed) } else { report.warn(failed) }
        }
    }
    released
}

fn enclosing_holds() -> EnclosingHolds {
    EnclosingHolds::parse(&std::env::var_os(EnclosingHolds::VARIABLE).unwrap_or_default())
}
