//! Locks on most of several servers that know nothing of each other (Redlock: Redis' documentation,
//! "Distributed Locks with Redis"). A minority of them may be dead, frozen or cut off.
//!
//! Nobody keeps an order among those who wait, since no server could alone: they come back after
//! random pauses.

mod ask;
mod attempt;
mod ballot;
mod member;
mod merge;

use std::time::Duration;

use ask::{Asked, Votes, ask, if_idle, surely};
use member::{Member, Node};
use merge::{merge, most_common};

use super::address::Address;
use super::{
    Answer, Eviction, Failure, Fate, Interrupt, Listing, Release, Renewal, Request, Seen, Store,
};
use crate::back_off::BackOff;
use crate::clock::Instant;
use crate::duration::Ttl;
use crate::lock::{Fence, Key, Mode, Name, Prefix, Token};
use crate::pattern::Pattern;
use crate::poll::{Want, ready};
use crate::progress::Progress;
use crate::report::Remark;
use crate::view::{Outcome, State, View};

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

/// Several servers.
pub(super) struct Quorum {
    members: Vec<Member>,
    io_timeout: Duration,
    back_off: BackOff,
    /// What was granted, to be put back on a server that has lost it.
    granted: Option<Request>,
    remarks: Vec<Remark>,
    /// Those that somebody has to mend, each of which is told once.
    warned: Vec<usize>,
    /// Has anything been asked that is not just a question?
    owes: bool,
}

impl Quorum {
    /// An error is a file for TLS that cannot be used, or a thread that cannot be had.
    pub(super) fn new(
        servers: &[Address],
        io_timeout: Duration,
        min_replicas: u32,
    ) -> Result<Self, String> {
        let members = servers.iter().map(|server| Member::start(server, io_timeout, min_replicas));
        Ok(Self {
            members: members.collect::<Result<_, _>>()?,
            io_timeout,
            back_off: BACK_OFF,
            granted: None,
            remarks: Vec::new(),
            warned: Vec::new(),
            owes: false,
        })
    }

    fn majority(&self) -> usize {
        needed(Mode::Exclusive, self.members.len())
    }

    /// As the function of this name, with a remark on each answer.
    fn ask<T: Send + 'static>(
        &mut self,
        whom: impl Fn(usize, &Member) -> Asked,
        question: impl Fn(&mut Node) -> Result<T, Failure> + Clone + Send + 'static,
        enough: impl Fn(&Votes<T>) -> bool,
        tell: impl Fn(&T) -> String,
        interrupt: Interrupt<'_>,
    ) -> Result<Votes<T>, Failure> {
        let Self { members, remarks, warned, .. } = self;
        let remark = |number: usize, vote: &Result<T, Failure>| {
            let name = members[number].name();
            remarks.push(match vote {
                Ok(value) => Remark::Detail(format!("{name}: {}", tell(value))),
                Err(failure @ Failure::Misconfigured { .. }) if !warned.contains(&number) => {
                    warned.push(number);
                    Remark::Warning(format!("{failure}; doing without it"))
                }
                Err(failure) => Remark::Detail(failure.to_string()),
            });
        };
        ask(members, self.io_timeout, whom, question, enough, remark, interrupt)
    }

    /// Why too few members are of use, by what they said.
    fn too_few<T>(&self, useful: usize, needed: usize, votes: &Votes<T>) -> Failure {
        let mut failures = Vec::new();
        for (member, vote) in self.members.iter().zip(&votes.0) {
            match vote {
                Some(Ok(_)) => {}
                // If it has to be mended, waiting does not help.
                Some(Err(failure @ Failure::Misconfigured { .. })) => return failure.clone(),
                Some(Err(failure)) => failures.push(failure.to_string()),
                None => failures.push(format!("{} does not answer", member.name())),
            }
        }
        let first = failures.first().map_or(String::new(), |first| format!(": {first}"));
        let others = match failures.len() {
            0 | 1 => String::new(),
            more => format!("; and {} more", more - 1),
        };
        let servers = self.members.len();
        Failure::Unreachable {
            what: format!(
                "{useful} of {servers} servers are of use, {needed} are needed{first}{others}"
            ),
            fate: Fate::NotSent,
        }
    }

    /// On how many servers this hold has to be.
    fn needed_by(&mut self, key: &Key, token: &Token) -> Result<usize, Failure> {
        let mode = match &self.granted {
            Some(request) if request.token == *token => request.mode,
            _ => {
                let view = self.inspect(key)?;
                let id = token.id();
                let own = view.holders.iter().find(|holder| holder.id == id);
                own.map_or(Mode::Exclusive, |holder| holder.mode)
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

    fn sleep(
        &mut self,
        _request: &Request,
        at_most: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<(), Failure> {
        let until = Some(Instant::now() + at_most);
        let interrupted = match interrupt {
            Some(interrupt) => ready([(interrupt, Want::Read)], until).map(|[stopped]| stopped),
            None => ready([], until).map(|[]| false),
        };
        match interrupted {
            Ok(false) => Ok(()),
            Ok(true) => Err(Failure::Interrupted { sent: false }),
            Err(error) => Err(Failure::Unavailable(format!("cannot wait: {error}"))),
        }
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Ttl,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        let needed = self.needed_by(key, token)?;
        self.owes = true;
        let servers = self.members.len();
        let (asked, its_token) = (key.clone(), token.clone());
        let not_held = |renewal: &Renewal| *renewal == Renewal::NotHeld;
        let votes = self.ask(
            if_idle,
            move |node| node.renew(&asked, &its_token, ttl, None),
            |votes| {
                votes.count(|renewal| !not_held(renewal)) >= needed
                    || votes.count(not_held) > servers - needed
            },
            |renewal| match renewal {
                Renewal::Renewed { fence } => format!("renewed, fence {fence}"),
                Renewal::NotHeld => "not held".into(),
            },
            interrupt,
        )?;
        let fences: Vec<Fence> = votes
            .values()
            .filter_map(|(_, renewal)| match renewal {
                Renewal::Renewed { fence } => Some(*fence),
                Renewal::NotHeld => None,
            })
            .collect();
        if votes.count(not_held) > servers - needed {
            return Ok(Renewal::NotHeld);
        }
        match most_common(&fences) {
            Some(fence) if fences.len() >= needed => {
                let lost = votes.values().filter(|(_, renewal)| not_held(renewal));
                let lost: Vec<usize> = lost.map(|(number, _)| number).collect();
                self.put_back(token, ttl, &lost);
                Ok(Renewal::Renewed { fence })
            }
            _ => Err(self.too_few(fences.len(), needed, &votes)),
        }
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        self.owes = true;
        let needed = self.majority();
        let (asked, its_token) = (key.clone(), token.clone());
        let servers = self.members.len();
        let votes = self.ask(
            // A renewal may be under way that nobody needs any more.
            |_, _| Asked::Awaited,
            move |node| node.release(&asked, &its_token, outcome),
            |votes| {
                votes.count(|release| *release == Release::Released) >= needed
                    || votes.count(|release| *release == Release::NotHeld) > servers - needed
            },
            |release| match release {
                Release::Released => "released".into(),
                Release::NotHeld => "not held".into(),
                Release::Unknown => "released before, or not held".into(),
            },
            None,
        )?;
        self.granted = None;
        let not_held = votes.count(|release| *release == Release::NotHeld);
        let released = votes.count(|release| *release == Release::Released);
        // It was on a majority if those that are silent had it too.
        if not_held > servers - needed {
            Ok(Release::NotHeld)
        } else if released > 0 {
            Ok(Release::Released)
        } else if votes.count(|_| true) > 0 && not_held == 0 {
            Ok(Release::Unknown)
        } else {
            Err(self.too_few(released, needed, &votes))
        }
    }

    fn leave(&mut self, request: &Request) -> Result<View, Failure> {
        self.owes = true;
        self.granted = None;
        let asked = request.clone();
        let left = |_: &View| "taken back".into();
        let votes = self.ask(surely, move |node| node.leave(&asked), |_| false, left, None)?;
        self.merged(votes)
    }

    fn revoke(&mut self, key: &Key, eviction: Eviction, by: &str) -> Result<View, Failure> {
        self.owes = true;
        let (asked, by) = (key.clone(), by.to_owned());
        let revoke = move |node: &mut Node| node.revoke(&asked, eviction, &by);
        let votes = self.ask(surely, revoke, |_| false, View::to_string, None)?;
        self.merged(votes)
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        let asked = key.clone();
        let inspect = move |node: &mut Node| node.inspect(&asked);
        let votes = self.ask(if_idle, inspect, |_| false, View::to_string, None)?;
        self.merged(votes)
    }

    fn list(
        &mut self,
        prefix: &Prefix,
        pattern: Option<&Pattern>,
        progress: &Progress,
    ) -> Result<Listing, Failure> {
        let (prefix, pattern) = (prefix.clone(), pattern.cloned());
        let progress = progress.clone();
        let votes = self.ask(
            if_idle,
            move |node| {
                let mut listing = node.list(&prefix, pattern.as_ref(), &progress)?;
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
            let free =
                View { holders: Vec::new(), state: State::Free, ttl: None, ..views[0].clone() };
            views.resize(told, free);
            let view = merge(&views, servers, false);
            if view.state != State::Free {
                listing.locks.push((name, Ok(view)));
            }
        }
        listing.locks.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(listing)
    }

    fn hazards(&mut self) -> Vec<String> {
        let ask = |node: &mut Node| Ok(node.hazards());
        let votes = self.ask(if_idle, ask, |_| false, |_| "asked about its memory".into(), None);
        votes.map(|votes| votes.into_values().flatten().collect()).unwrap_or_default()
    }

    fn remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
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
    fn put_back(&mut self, token: &Token, ttl: Ttl, servers: &[usize]) {
        let Some(request) = self.granted.as_ref().filter(|request| request.token == *token) else {
            return;
        };
        let request = Request { ttl, heartbeat: None, at_least: Duration::ZERO, ..request.clone() };
        let Ok((ballot, _)) = ballot::open() else { return };
        for &number in servers {
            let request = request.clone();
            self.members[number]
                .ask(number, &ballot, move |node| node.acquire(&request, &[], None));
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
        let _ = ask(&self.members, self.io_timeout, rest, |_| Ok(()), |_| false, |_, _| {}, None);
    }
}
