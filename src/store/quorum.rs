//! Locks on most of several servers that know nothing of each other (Redlock: Redis' documentation,
//! "Distributed Locks with Redis"). A minority of them may be dead, frozen or cut off.
//!
//! Nobody keeps an order among those who wait, since no server could alone: they come back after
//! random pauses.

mod apart;
mod ask;
mod attempt;
mod member;
mod merge;
mod replies;

use std::time::Duration;

use apart::require_apart;
use ask::{Asked, Votes, ask, if_idle, surely};
use member::{Member, Server};
use merge::{free_like, merge, most_common};

use super::pause::pause;
use super::wire::Address;
use super::{
    Answer, Failure, Fate, Interrupt, Listing, Release, Renewal, Request, Revocation, Seen, Store,
};
use crate::back_off::BackOff;
use crate::duration::Ttl;
use crate::lock::pattern::Pattern;
use crate::lock::view::{Outcome, Reason, State, View};
use crate::lock::{Fence, Key, Mode, Name, Prefix, Token};
use crate::report::Diagnostic;
use crate::system::clock::Instant;

/// Between two attempts at a lock that is busy. Half of each is up to chance, so that two who came
/// at the same time do not do so for ever.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(200), Duration::from_secs(2));

/// On how many of so many servers a hold of this mode has to be. Any two that exclude each other
/// then meet on one server at least. N slots are full on a server that N holds have reached, so
/// that N + 1 holds must not be able to divide all N slots of all servers among them.
fn needed(mode: Mode, servers: usize) -> usize {
    let slots = mode.slots().map_or(1, |slots| slots.get() as usize);
    (servers.saturating_mul(slots)) / (slots.saturating_add(1)) + 1
}

/// The first of the reasons that says something.
fn best_known(reasons: impl Iterator<Item = Reason>) -> Reason {
    reasons
        .reduce(|one, other| if one.is_known() { one } else { other })
        .unwrap_or(Reason::unknown())
}

/// Several servers.
pub(super) struct Quorum {
    members: Vec<Member>,
    io_timeout: Duration,
    back_off: BackOff,
    /// How often nobody has got the lock in a row, though it was free.
    splits: usize,
    granted: Option<Granted>,
    /// What a server may have released while too few others could be told.
    let_go: Option<Token>,
    diagnostics: Vec<Diagnostic>,
    /// Those that somebody has to mend, each of which is told once.
    warned: Vec<usize>,
    /// Has anything been asked that is not just a question?
    owes: bool,
    /// Has a member had all its time for an answer already?
    late: bool,
}

/// What was granted, to be put back on a server that has lost it.
struct Granted {
    request: Request,
    at: Instant,
}

impl Quorum {
    /// An error is a server that is named twice, a file for TLS that cannot be used, or a thread
    /// that cannot be had.
    pub(super) fn new(
        servers: &[Address],
        io_timeout: Duration,
        min_replicas: u32,
    ) -> Result<Self, String> {
        require_apart(servers, io_timeout / 4)?;
        let members = servers.iter().map(|server| Member::start(server, io_timeout, min_replicas));
        Ok(Self {
            members: members.collect::<Result<_, _>>()?,
            io_timeout,
            back_off: BACK_OFF,
            splits: 0,
            granted: None,
            let_go: None,
            diagnostics: Vec::new(),
            warned: Vec::new(),
            owes: false,
            late: false,
        })
    }

    fn majority(&self) -> usize {
        needed(Mode::Exclusive, self.members.len())
    }

    /// As the function of this name, with a diagnostic on each answer.
    fn ask<T: Send + 'static>(
        &mut self,
        whom: impl Fn(usize, &Member) -> Asked,
        question: impl Fn(&mut Server, Interrupt<'_>) -> Result<T, Failure> + Clone + Send + 'static,
        enough: impl Fn(&Votes<T>) -> bool,
        tell: impl Fn(&T) -> String,
        interrupt: Interrupt<'_>,
    ) -> Result<Votes<T>, Failure> {
        let Self { members, diagnostics, warned, .. } = self;
        let diagnostic = |number: usize, vote: &Result<T, Failure>, theirs: Vec<Diagnostic>| {
            diagnostics.extend(theirs);
            let name = members[number].name();
            diagnostics.push(match vote {
                Ok(value) => Diagnostic::Detail(format!("{name}: {}", tell(value))),
                Err(failure @ Failure::Misconfigured { .. }) if !warned.contains(&number) => {
                    warned.push(number);
                    Diagnostic::Warning(format!("{failure}; continuing without this server"))
                }
                Err(failure) => Diagnostic::Detail(failure.to_string()),
            });
        };
        let votes = ask(members, self.io_timeout, whom, question, enough, diagnostic, interrupt)?;
        self.late |= votes.late;
        Ok(votes)
    }

    /// Why too few members are of use, by what they said.
    fn too_few<T>(&self, useful: usize, needed: usize, votes: &Votes<T>) -> Failure {
        let servers = self.members.len();
        let lasting = |vote: &&Option<Result<T, Failure>>| {
            matches!(vote, Some(Err(Failure::Misconfigured { .. })))
        };
        // If so many have to be mended, waiting does not help.
        if servers - votes.votes.iter().filter(lasting).count() < needed
            && let Some(Some(Err(failure))) = votes.votes.iter().find(lasting)
        {
            return failure.clone();
        }
        let mut failures = Vec::new();
        for (member, vote) in self.members.iter().zip(&votes.votes) {
            match vote {
                Some(Ok(_)) => {}
                Some(Err(failure)) => failures.push(failure.to_string()),
                None => failures.push(format!("{} does not answer", member.name())),
            }
        }
        let why = failures.join("; ");
        let what = format!("{useful} of {servers} servers usable, {needed} required: {why}");
        let is_absent = |vote: &Option<Result<T, Failure>>| match vote {
            Some(vote) => vote.as_ref().is_err_and(Failure::is_unreachable),
            None => true,
        };
        if votes.votes.iter().all(is_absent) {
            Failure::Unreachable { what, fate: votes.fate() }
        } else {
            Failure::Unavailable(what)
        }
    }

    /// On how many servers this hold has to be.
    fn needed_by(&mut self, key: &Key, token: &Token) -> Result<usize, Failure> {
        let mode = match &self.granted {
            Some(granted) if granted.request.token == *token => granted.request.mode,
            _ => {
                let (asked, id) = (key.clone(), token.id());
                let own = |view: &View| {
                    view.holders.iter().find(|holder| holder.id == id).map(|holder| holder.mode)
                };
                let inspect = move |node: &mut Server, _: Interrupt<'_>| node.inspect(&asked);
                let found = |votes: &Votes<View>| votes.count(|view| own(view).is_some()) > 0;
                let votes = self.ask(if_idle, inspect, found, View::to_string, None)?;
                let found = votes.values().find_map(|(_, view)| own(view));
                found.unwrap_or(Mode::Exclusive)
            }
        };
        Ok(needed(mode, self.members.len()))
    }
}

impl Store for Quorum {
    fn acquire(
        &mut self,
        request: &Request,
        _seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        self.owes = true;
        self.attempt(request, interrupt)
    }

    fn keeps_places(&self) -> bool {
        false
    }

    fn sleep(
        &mut self,
        _request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure> {
        pause(at_most, interrupt)
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Option<Ttl>,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        let needed = self.needed_by(key, token)?;
        self.owes = true;
        let servers = self.members.len();
        let (asked, its_token) = (key.clone(), token.clone());
        let not_held = |renewal: &Renewal| matches!(renewal, Renewal::NotHeld(_));
        // A keeper comes again; to others, who have asked for the mode before, this is the only time.
        let comes_again = self.granted.is_some();
        let votes = self.ask(
            |number, member| if comes_again { if_idle(number, member) } else { Asked::Awaited },
            move |node, withdrawal| node.renew(&asked, &its_token, ttl, withdrawal),
            |votes| {
                votes.count(|renewal| !not_held(renewal)) >= needed
                    || votes.count(not_held) > servers - needed
            },
            |renewal| match renewal {
                Renewal::Renewed { fence, .. } => format!("renewed, fencing token {fence}"),
                Renewal::NotHeld(why) => format!("not held: it {why}"),
            },
            interrupt,
        )?;
        let fences: Vec<Fence> = votes
            .values()
            .filter_map(|(_, renewal)| match renewal {
                Renewal::Renewed { fence, .. } => Some(*fence),
                Renewal::NotHeld(_) => None,
            })
            .collect();
        if votes.count(not_held) > servers - needed {
            let reasons = votes.values().filter_map(|(_, renewal)| match renewal {
                Renewal::NotHeld(why) => Some(why.clone()),
                Renewal::Renewed { .. } => None,
            });
            return Ok(Renewal::NotHeld(best_known(reasons)));
        }
        match most_common(&fences) {
            Some(fence) if fences.len() >= needed => {
                let lost = votes.values().filter(|(_, renewal)| not_held(renewal));
                let lost: Vec<usize> = lost.map(|(number, _)| number).collect();
                self.put_back(token, ttl, &lost);
                let lefts = votes.values().filter_map(|(_, renewal)| match renewal {
                    Renewal::Renewed { left, .. } => Some(*left),
                    Renewal::NotHeld(_) => None,
                });
                Ok(Renewal::Renewed { fence, left: lefts.min().unwrap_or_default() })
            }
            _ => Err(self.too_few(fences.len(), needed, &votes)),
        }
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        self.owes = true;
        let needed = self.majority();
        let not_held = |release: &Release| matches!(release, Release::NotHeld(_));
        let (asked, its_token) = (key.clone(), token.clone());
        let servers = self.members.len();
        let votes = self.ask(
            // A renewal may be under way that nobody needs any more.
            |_, _| Asked::Awaited,
            move |node, _| node.release(&asked, &its_token, outcome),
            |votes| {
                votes.count(|release| !not_held(release)) >= needed
                    || votes.count(not_held) > servers - needed
            },
            |release| match release {
                Release::Released => "released".into(),
                Release::NotHeld(why) => format!("not held: it {why}"),
                Release::Unknown => "released before, or not held".into(),
            },
            None,
        )?;
        let released = votes.count(|release| *release == Release::Released);
        let before = self.let_go.take().is_some_and(|let_go| let_go == *token);
        if votes.count(not_held) > servers - needed {
            // It was on a majority if those that are silent had it too.
            self.granted = None;
            let reasons = votes.values().filter_map(|(_, release)| match release {
                Release::NotHeld(why) => Some(why.clone()),
                Release::Released | Release::Unknown => None,
            });
            let why = best_known(reasons);
            return Ok(if before { Release::Unknown } else { Release::NotHeld(why) });
        }
        let gone = votes.count(|_| true);
        if gone < needed {
            let may_be = before || released > 0 || votes.fate() != Fate::NotSent;
            self.let_go = may_be.then(|| token.clone());
            return Err(self.too_few(gone, needed, &votes));
        }
        self.granted = None;
        Ok(if released > 0 { Release::Released } else { Release::Unknown })
    }

    fn leave(&mut self, request: &Request) -> Result<View, Failure> {
        self.owes = true;
        self.granted = None;
        let asked = request.clone();
        let left = |_: &View| "taken back".into();
        let votes = self.ask(surely, move |node, _| node.leave(&asked), |_| false, left, None)?;
        self.merged(votes)
    }

    fn revoke(&mut self, key: &Key, revocation: Revocation, by: &str) -> Result<View, Failure> {
        self.owes = true;
        let (asked, by) = (key.clone(), by.to_owned());
        let revoke =
            move |node: &mut Server, _: Interrupt<'_>| node.revoke(&asked, revocation, &by);
        let votes = self.ask(surely, revoke, |_| false, View::to_string, None)?;
        self.merged(votes)
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        let asked = key.clone();
        let inspect = move |node: &mut Server, _: Interrupt<'_>| node.inspect(&asked);
        let votes = self.ask(if_idle, inspect, |_| false, View::to_string, None)?;
        self.merged(votes)
    }

    fn list(&mut self, prefix: &Prefix, pattern: Option<&Pattern>) -> Result<Listing, Failure> {
        let (prefix, pattern) = (prefix.clone(), pattern.cloned());
        let votes = self.ask(
            if_idle,
            move |node, _| {
                let mut listing = node.list(&prefix, pattern.as_ref())?;
                match listing.unseen.pop() {
                    Some(failure) => Err(failure),
                    None => Ok(listing.locks),
                }
            },
            |_| false,
            |locks| format!("{} locks", locks.len()),
            None,
        )?;
        let (told, majority) = (votes.count(|_| true), self.majority());
        if told < majority {
            return Err(self.too_few(told, majority, &votes));
        }
        let servers = self.members.len();
        let mut views = std::collections::BTreeMap::<Name, Vec<View>>::new();
        let mut listing = Listing::default();
        for (name, view) in votes.into_values().flatten() {
            match view {
                Ok(view) => views.entry(name).or_default().push(view),
                Err(failure) => listing.locks.push((name, Err(failure))),
            }
        }
        for (name, mut views) in views {
            // On the others that have told, it is free.
            views.resize(told, free_like(&views[0]));
            let view = merge(&views, servers, false);
            if view.state != State::Free {
                listing.locks.push((name, Ok(view)));
            }
        }
        listing.locks.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(listing)
    }

    fn hazards(&mut self) -> Vec<String> {
        let ask = |node: &mut Server, _: Interrupt<'_>| Ok(node.hazards());
        let votes = self.ask(if_idle, ask, |_| false, |_| "asked about its memory".into(), None);
        votes.map(|votes| votes.into_values().flatten().collect()).unwrap_or_default()
    }

    fn diagnostics(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.diagnostics)
    }
}

impl Quorum {
    /// The lock as a majority sees it.
    fn merged(&self, votes: Votes<View>) -> Result<View, Failure> {
        let (told, majority) = (votes.count(|_| true), self.majority());
        if told < majority {
            return Err(self.too_few(told, majority, &votes));
        }
        Ok(merge(&votes.into_values().collect::<Vec<_>>(), self.members.len(), false))
    }

    /// Puts a hold back on servers that have lost it, while enough others have it: so that the next
    /// one that fails does not end it. It is not waited for.
    fn put_back(&mut self, token: &Token, ttl: Option<Ttl>, servers: &[usize]) {
        let Some(Granted { request, at }) = &self.granted else { return };
        if request.token != *token {
            return;
        }
        let at_least = request.at_least.saturating_sub(Instant::now().since(*at));
        let ttl = ttl.unwrap_or(request.ttl);
        let request = Request { ttl, heartbeat: None, at_least, ..request.clone() };
        let Ok((reply_sender, _)) = replies::open() else { return };
        for &number in servers {
            let request = request.clone();
            self.members[number]
                .ask(number, &reply_sender, move |node, _| node.acquire(&request, &[], None));
        }
    }
}

impl Drop for Quorum {
    /// What servers that are slow still have to do is let arrive, for as long as one answer may
    /// take.
    fn drop(&mut self) {
        let rest = |_: usize, member: &Member| match member.is_busy() && self.owes {
            true => Asked::Awaited,
            false => Asked::Not,
        };
        // Some have had that already.
        let patience = if self.late { self.io_timeout / 4 } else { self.io_timeout };
        let _ = ask(&self.members, patience, rest, |_, _| Ok(()), |_| false, |_, _, _| {}, None);
    }
}
