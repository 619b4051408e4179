//! Locks on a majority of several independent servers. A minority may be down, frozen or cut off.
//!
//! This is Redlock:
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>. It differs where a
//! shell script needs more than that page describes:
//!
//! - All servers are asked at once, under one timeout, so that a frozen one costs nothing.
//! - Each server runs the same scripts as a single server does, so modes, histories and reasons
//!   exist here too. A slot needs more servers than a majority: see `decision::required`.
//! - A majority agrees on one fencing token. The next grant needs a majority too, so it meets at
//!   least one server that has this token, which then gives a larger one.
//! - A restarted server does not vote until every lease that it may have forgotten has expired, so
//!   its restart need not be delayed: see `decision`.
//! - The next renewal restores holds that a minority of servers has lost.
//! - Waiters are served in one order, although no single server decides it: see
//!   `decision::Acquisition`.
//!
//! The holder's validity time, which is the TTL less the elapsed time and the clock drift, is the
//! same as for one server: see `Lease`.
//!
//! `decision` interprets the votes and is pure. `members` contains the threads and their messages.
//! `acquire` joins the two for a request.

mod acquire;
pub(crate) mod decision;
mod distinct;
mod members;

use std::time::Duration;

use acquire::{Attempt, leaving};
use decision::{
    ReleaseDecision, RenewalDecision, Votes, decide_release, decide_removal, decide_renewal,
    is_release_decided, is_renewal_decided, merge, merge_listings, required,
};
use distinct::require_distinct;
use members::{IfBusy, Member, MemberStore, Terms};

use super::server::Run;
use super::waiting::answered;
use super::wire::Address;
use super::{
    Answer, Asked, Failure, Interrupt, Listing, Part, Release, Removal, Renewal, Request,
    Revocation, Seen, Store,
};
use crate::duration::Ttl;
use crate::lock::pattern::Pattern;
use crate::lock::view::{Outcome, View};
use crate::lock::{Fence, Id, Key, Mode, Prefix, Token};
use crate::report::{Diagnostic, Fault};
use crate::system::clock::Instant;
use crate::system::wakeup::Wakeup;

/// The longest wait at the end of the process for members to send their last requests. Their replies
/// are not awaited, so this takes no time unless the host is overloaded.
const FAREWELL: Duration = Duration::from_millis(500);

/// The wait at the end of the process for replies that a majority has made unnecessary: a member that
/// is merely slower then keeps its connection until it has read the request.
const LAST_REPLIES: Duration = Duration::from_millis(10);

/// The locks on several independent servers.
pub(super) struct Quorum {
    members: Vec<Member>,
    io_timeout: Duration,
    attempt: Option<Attempt>,
    granted: Option<Granted>,
    /// A hold that some members may have released, though too few confirmed it.
    maybe_released: Option<Token>,
    diagnostics: Vec<Diagnostic>,
    /// The numbers of the members that rlock has warned about: once each.
    warned: Vec<usize>,
    /// Whether rlock has reported that two members are the same server.
    has_reported_duplicate: bool,
    /// Whether any request could change a lock, so that slow members must still receive it.
    has_written: bool,
    /// Becomes readable when a member becomes idle.
    idle: Wakeup,
}

/// The last grant, to restore it on a server that has lost it.
struct Granted {
    request: Request,
    fence: Fence,
    at: Instant,
}

impl Quorum {
    /// `io_timeout` bounds the replies to each request. A grant or a renewal counts on a server
    /// once `min_replicas` of its replicas have confirmed it.
    ///
    /// # Errors
    ///
    /// One line: two URLs lead to the same server, a TLS file cannot be used, or no thread can be
    /// started.
    pub(super) fn new(
        servers: &[Address],
        io_timeout: Duration,
        min_replicas: u32,
    ) -> Result<Self, String> {
        require_distinct(servers, io_timeout / 4)?;
        let idle = Wakeup::new().map_err(|error| format!("cannot query the servers: {error}"))?;
        let start = |server| Member::start(server, io_timeout, min_replicas, &idle);
        Ok(Self {
            members: servers.iter().map(start).collect::<Result<_, _>>()?,
            io_timeout,
            attempt: None,
            granted: None,
            maybe_released: None,
            diagnostics: Vec::new(),
            warned: Vec::new(),
            has_reported_duplicate: false,
            has_written: false,
            idle,
        })
    }

    fn majority(&self) -> usize {
        required(Mode::Exclusive, self.members.len())
    }

    /// `members::ask` with the I/O timeout. Adds a diagnostic for each reply.
    fn ask<T: Send + 'static>(
        &mut self,
        majority: Option<usize>,
        if_busy: IfBusy,
        request: impl Fn(&mut MemberStore, Interrupt<'_>) -> Result<T, Failure> + Clone + Send + 'static,
        enough: impl Fn(&Votes<T>) -> bool,
        describe: impl Fn(&T) -> String,
        interrupt: Interrupt<'_>,
    ) -> Result<Votes<T>, Failure> {
        let mut replies = Vec::new();
        let observe = |number: usize, answer: &Result<T, Failure>, own: Vec<Diagnostic>| {
            replies.push((number, answer.as_ref().map(&describe).map_err(Failure::clone), own));
        };
        let (members, terms) =
            (&self.members, Terms { timeout: self.io_timeout, majority, if_busy });
        let votes = members::ask(members, &terms, request, enough, observe, interrupt);
        for (number, answer, own) in replies {
            self.report(number, answer, own);
        }
        votes
    }

    /// Adds diagnostics for a member's reply.
    fn report(&mut self, number: usize, answer: Result<String, Failure>, own: Vec<Diagnostic>) {
        self.diagnostics.extend(own);
        self.diagnostics.push(match answer {
            Ok(what) => Diagnostic::Detail(format!("{}: {what}", self.members[number].name())),
            Err(Failure::Misconfigured { fault, .. }) if !self.warned.contains(&number) => {
                self.warned.push(number);
                let fault =
                    fault.reworded(|what| format!("{what} (continuing without this server)"));
                Diagnostic::Warning(fault.to_string())
            }
            Err(failure) => Diagnostic::Detail(failure.to_string()),
        });
    }

    fn granted(&mut self, request: &Request, fence: Fence) {
        self.granted = Some(Granted { request: request.clone(), fence, at: Instant::now() });
    }

    /// Posts to the members that are busy, because what they are busy with no longer matters. Returns
    /// their numbers: some may be idle again at once.
    fn post_if_busy<W: FnOnce(&mut MemberStore) + Send + 'static>(
        &self,
        act: impl Fn() -> W,
    ) -> Vec<usize> {
        let busy = self.members.iter().enumerate().filter(|(_, member)| member.is_busy());
        let busy: Vec<usize> = busy.map(|(number, _)| number).collect();
        busy.iter().for_each(|number| self.members[*number].post(act()));
        busy
    }

    fn too_few<T>(&self, useful: usize, required: usize, votes: &Votes<T>) -> Failure {
        votes.too_few(self.members.iter().map(Member::name), useful, required)
    }

    /// Two members that are the same server, as far as their replies have shown.
    fn duplicate(&self) -> Option<Fault> {
        let mut seen = Vec::<(Run, &str)>::new();
        for member in &self.members {
            let Some(run) = member.run() else { continue };
            if let Some((_, other)) = seen.iter().find(|(known, _)| known.id == run.id) {
                let fault =
                    Fault::new(format!("{other} and {} are the same server", member.name()));
                return Some(fault.with_remedy("list it once"));
            }
            seen.push((run, member.name()));
        }
        None
    }

    /// How many servers a hold needs. If this process did not acquire it, the servers are asked for
    /// its mode.
    fn required_for(&mut self, key: &Key, token: &Token) -> Result<usize, Failure> {
        let mode = match &self.granted {
            Some(granted) if granted.request.token == *token => granted.request.mode,
            _ => {
                let (key, id) = (key.clone(), token.id());
                let own = |view: &View| {
                    view.holders.iter().find(|holder| holder.id == id).map(|holder| holder.mode)
                };
                let inspect = move |store: &mut MemberStore, _: Interrupt<'_>| store.inspect(&key);
                let found = |votes: &Votes<View>| votes.count(|view| own(view).is_some()) > 0;
                let votes = self.ask(None, IfBusy::Queue, inspect, found, View::to_string, None)?;
                let found = votes.values().find_map(|(_, view)| own(view));
                found.unwrap_or(Mode::Exclusive)
            }
        };
        Ok(required(mode, self.members.len()))
    }

    /// The lock as a majority sees it. An error means that too few members answered.
    fn merged(&self, votes: Votes<View>) -> Result<View, Failure> {
        let (answered, majority) = (votes.count(|_| true), self.majority());
        if answered < majority {
            return Err(self.too_few(answered, majority, &votes));
        }
        Ok(merge(&votes.into_values().collect::<Vec<_>>(), self.members.len(), false))
    }

    /// Gives a hold to members that do not have it while the lease lasts, so that the loss of one more
    /// member does not end it. Does not wait for their replies.
    fn put_back(&mut self, token: &Token, ttl: Option<Ttl>, lost: &[usize]) {
        let Some(Granted { request, fence, at }) = &self.granted else { return };
        if request.token != *token || lost.is_empty() {
            return;
        }
        let at_least = request.at_least.saturating_sub(Instant::now().since(*at));
        let ttl = ttl.unwrap_or(request.ttl);
        let part = Some(Part::Restore(*fence));
        let request = Request { ttl, heartbeat: None, at_least, part, ..request.clone() };
        let Ok((reply_sender, _)) = members::open() else { return };
        for &number in lost {
            let request = request.clone();
            self.members[number]
                .ask(number, &reply_sender, move |store, _| store.acquire(&request, &[], None));
        }
    }
}

impl Store for Quorum {
    fn acquire(
        &mut self,
        request: &Request,
        _seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        self.has_written = true;
        self.attempt(request, interrupt)
    }

    fn sleep(
        &mut self,
        request: &Request,
        at_most: Duration,
        _seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Asked>, Failure> {
        self.rest(request, at_most, interrupt).map(|()| None)
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Option<Ttl>,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        let required = self.required_for(key, token)?;
        self.has_written = true;
        let (key, its_token) = (key.clone(), token.clone());
        // The process that acquired the lock renews it again soon, so a busy member can be skipped.
        // For `rlock renew` this is the only renewal, and it has just asked the members for the
        // mode.
        // Only the process that acquired the lock can restore a lost hold, so only it awaits members
        // that could report a loss after the others have decided.
        let (majority, if_busy, enough) = match self.granted {
            Some(_) => (Some(required), IfBusy::Skip, false),
            None => (None, IfBusy::Queue, true),
        };
        let votes = self.ask(
            majority,
            if_busy,
            move |store, withdrawal| store.renew(&key, &its_token, ttl, withdrawal),
            |votes| enough && is_renewal_decided(votes, required),
            |renewal| match renewal {
                Renewal::Renewed { fence, .. } => format!("renewed, fencing token {fence}"),
                Renewal::NotHeld(why) => format!("not held: the lock {why}"),
            },
            interrupt,
        )?;
        match decide_renewal(&votes, required) {
            RenewalDecision::Renewed { fence, left, lost } => {
                self.put_back(token, ttl, &lost);
                Ok(Renewal::Renewed { fence, left })
            }
            RenewalDecision::NotHeld(why) => Ok(Renewal::NotHeld(why)),
            RenewalDecision::TooFew { renewed, lost } => {
                // While the lease lasts, no other client can have a majority. The next attempt then
                // counts these.
                if renewed > 0 {
                    self.put_back(token, ttl, &lost);
                }
                Err(self.too_few(renewed, required, &votes))
            }
        }
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        self.has_written = true;
        let required = self.majority();
        let (key, its_token) = (key.clone(), token.clone());
        let posted = self.post_if_busy(|| {
            let (key, token) = (key.clone(), its_token.clone());
            move |store: &mut MemberStore| store.post_release(&key, &token, outcome)
        });
        let has_posted = !posted.is_empty();
        let votes = self.ask(
            None,
            IfBusy::SkipThese(posted),
            move |store, _| store.release(&key, &its_token, outcome),
            |votes| is_release_decided(votes, required),
            |release| match release {
                Release::Released => "released".into(),
                Release::NotHeld(why) => format!("not held: the lock {why}"),
                Release::Unknown => "already released, or not held".into(),
            },
            None,
        )?;
        let before = self.maybe_released.take().is_some_and(|released| released == *token);
        match decide_release(&votes, required, before) {
            ReleaseDecision::Decided(release) => {
                self.granted = None;
                Ok(release)
            }
            ReleaseDecision::TooFew { answered, maybe_released } => {
                self.maybe_released = (maybe_released || has_posted).then(|| token.clone());
                Err(self.too_few(answered, required, &votes))
            }
        }
    }

    fn leave(&mut self, request: &Request) -> Result<View, Failure> {
        self.has_written = true;
        self.granted = None;
        // Those that only listen for a message can be asked at once.
        self.members.iter().for_each(Member::withdraw);
        self.settle_down(LAST_REPLIES);
        let posted = self.post_if_busy(|| leaving(request));
        let request = request.clone();
        let leave = move |store: &mut MemberStore, _: Interrupt<'_>| store.leave(&request);
        let left = |_: &View| "request withdrawn".into();
        let majority = Some(self.majority());
        let votes = self.ask(majority, IfBusy::SkipThese(posted), leave, |_| false, left, None)?;
        self.merged(votes)
    }

    fn revoke(&mut self, key: &Key, revocation: Revocation, by: &str) -> Result<View, Failure> {
        self.has_written = true;
        let (key, by) = (key.clone(), by.to_owned());
        let revoke =
            move |store: &mut MemberStore, _: Interrupt<'_>| store.revoke(&key, revocation, &by);
        let majority = Some(self.majority());
        let votes = self.ask(majority, IfBusy::Queue, revoke, |_| false, View::to_string, None)?;
        self.merged(votes)
    }

    fn remove(
        &mut self,
        key: &Key,
        id: &Id,
        revocation: Revocation,
        by: &str,
    ) -> Result<Removal, Failure> {
        self.has_written = true;
        let (key, id, by) = (key.clone(), id.clone(), by.to_owned());
        let remove = move |store: &mut MemberStore, _: Interrupt<'_>| {
            store.remove(&key, &id, revocation, &by)
        };
        let describe = |removal: &Removal| match removal {
            Removal::Revoked(holder, _) => format!("revoked {}", holder.client),
            Removal::Removed(waiter, _) => format!("removed {} from the queue", waiter.client),
            Removal::Unknown(view) | Removal::Several(view) => view.to_string(),
        };
        let majority = Some(self.majority());
        let votes = self.ask(majority, IfBusy::Queue, remove, |_| false, describe, None)?;
        let (answered, majority) = (votes.count(|_| true), self.majority());
        if answered < majority {
            return Err(self.too_few(answered, majority, &votes));
        }
        Ok(decide_removal(&votes))
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        let key = key.clone();
        let inspect = move |store: &mut MemberStore, _: Interrupt<'_>| store.inspect(&key);
        let majority = Some(self.majority());
        let votes = self.ask(majority, IfBusy::Queue, inspect, |_| false, View::to_string, None)?;
        self.merged(votes)
    }

    fn list(&mut self, prefix: &Prefix, pattern: Option<&Pattern>) -> Result<Listing, Failure> {
        let (prefix, pattern) = (prefix.clone(), pattern.cloned());
        let majority = Some(self.majority());
        let votes = self.ask(
            majority,
            IfBusy::Queue,
            move |store, _| {
                let mut listing = store.list(&prefix, pattern.as_ref())?;
                match listing.failures.pop() {
                    Some(failure) => Err(failure),
                    None => Ok(listing.locks),
                }
            },
            |_| false,
            |locks| format!("locks: {}", locks.len()),
            None,
        )?;
        let (answered, majority) = (votes.count(|_| true), self.majority());
        if answered < majority {
            return Err(self.too_few(answered, majority, &votes));
        }
        Ok(merge_listings(votes.into_values().collect(), self.members.len()))
    }

    fn hazards(&mut self) -> Vec<String> {
        let ask = |store: &mut MemberStore, _: Interrupt<'_>| Ok(store.hazards());
        let asked = |_: &Vec<String>| "memory settings read".into();
        let majority = Some(self.majority());
        let votes = self.ask(majority, IfBusy::Skip, ask, |_| false, asked, None);
        votes.map(|votes| votes.into_values().flatten().collect()).unwrap_or_default()
    }

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        if !self.has_reported_duplicate
            && let Some(fault) = self.duplicate()
        {
            self.has_reported_duplicate = true;
            let fault = fault.reworded(|what| format!("{what}, which has one vote"));
            self.diagnostics.push(Diagnostic::Warning(fault.to_string()));
        }
        std::mem::take(&mut self.diagnostics)
    }
}

impl Quorum {
    /// Waits until no member is busy, up to this long.
    fn settle_down(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        while self.members.iter().any(Member::is_busy) {
            if !matches!(answered(&self.idle, None, until), Ok(true)) {
                break;
            }
            self.idle.clear();
        }
    }
}

impl Drop for Quorum {
    /// Gives members the time to send their last requests, without awaiting the replies.
    fn drop(&mut self) {
        if self.has_written {
            self.settle_down(LAST_REPLIES);
            self.members.iter().for_each(Member::withdraw);
            self.settle_down(FAREWELL);
        }
    }
}
