//! The processes that the command started, even those that left its group or session. rlock is
//! their subreaper: it becomes the parent of orphans among them, and can find them.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

use super::child::Child;
use super::event_loop::Remaining;
use super::process::{KILL_TIME, Kinship, Process, SEARCH_TIME, none_found, not_killed, pause};
use crate::rules::{Instant, Token};
use crate::system::call::Named;
use crate::system::children::ended;

/// A process ID that no process has.
const GONE: Pid = Pid::from_raw(0);

/// What to say of those that rlock can neither kill nor name.
const SOME_LEFT: &str = "cannot find all that it started; stop what still runs without the lock";

/// How long children are reaped before rlock looks at its other events again.
const REAP_TIME: Duration = Duration::from_millis(2);

/// Finds the descendants of the command.
pub(super) struct Descendants {
    /// Whether a wait for any child finds only the command and its orphans.
    is_alone: bool,
    /// Children that this process had before it became rlock. `exec` in a shell keeps its children.
    preexisting_children: Vec<Pid>,
    /// The environments of the command and its descendants contain it, unless they have replaced
    /// them; those of earlier children and of their orphans do not.
    token: Token,
    /// Earlier children, their orphans and what these had started, since rlock began to stop the
    /// command. Whatever becomes a child of rlock after that is the command's, because it may have
    /// replaced its environment.
    strangers: Option<HashSet<Pid>>,
    /// Whether orphans become children of rlock.
    adopts: bool,
}

impl Descendants {
    /// Makes rlock, rather than init, the parent of orphans among its descendants. Call this before
    /// the command starts. `leader` is that of the command's group.
    pub(super) fn adopt(token: Token, leader: Option<Pid>) -> io::Result<Self> {
        // A sandbox may refuse this. Only after a loss does it matter.
        let adopts = nix::sys::prctl::set_child_subreaper(true).is_ok();
        let (mut is_alone, mut preexisting_children) = (false, Vec::new());
        match ended(libc::P_ALL, 0, libc::WNOWAIT) {
            // There are none. To look for them at each start would take longer.
            Err(Errno::ECHILD) => is_alone = true,
            // Without this call, rlock would not see the command end.
            waited => {
                waited.named("waitid")?;
                preexisting_children = children(Instant::now() + SEARCH_TIME).unwrap_or_default();
                preexisting_children.retain(|child| Some(*child) != leader);
            }
        }
        Ok(Self { is_alone, preexisting_children, token, strangers: None, adopts })
    }

    /// Asks the command and all its descendants to end, even if they are stopped. Looks for them
    /// until a moment.
    pub(super) fn terminate(&mut self, command: &mut Child<'_>, until: Instant) {
        // A stopped process ends only once it is continued.
        let signals = [Signal::SIGTERM, Signal::SIGCONT];
        self.note_strangers(command, until);
        // The search may take long. Unless rlock adopts orphans, it comes first, because they are no
        // longer below a parent that has ended.
        if self.adopts {
            signals.iter().for_each(|&signal| command.signal(signal));
        }
        let found = self.find(command, until);
        if !self.adopts {
            signals.iter().for_each(|&signal| command.signal(signal));
        }
        for signal in signals {
            for process in found.iter().flatten().filter(|process| !command.includes(process)) {
                // Its process ID cannot have passed to another process meanwhile. Adopted children
                // keep their IDs until rlock reaps them. The ID of any other process is reused only
                // after all other IDs.
                let _ = kill(process.pid, signal);
            }
        }
    }

    /// Kills the command and all its descendants, including those started meanwhile. Returns what to
    /// say if some have not ended after a while.
    pub(super) fn kill_all(&mut self, command: &mut Child<'_>) -> Option<String> {
        // Unless that has been done, for a moment: nothing may delay the kill.
        self.note_strangers(command, Instant::now() + REAP_TIME);
        command.signal(Signal::SIGKILL);
        let (give_up, mut known) = (Instant::now() + KILL_TIME, Vec::new());
        loop {
            // First, and again at once, because a process that always starts the next and ends would
            // escape a longer search. When a child ends, what it started becomes a child of rlock.
            // The last is the newest, and the most likely to live.
            let children = self.children(command, give_up).unwrap_or_default();
            for child in children.iter().rev() {
                let _ = kill(*child, Signal::SIGKILL);
            }
            if command.has_ended() && self.in_sight(command, give_up) == Remaining::Nothing {
                return None;
            }
            let now = Instant::now();
            if now >= give_up {
                let until = now + KILL_TIME;
                let found = self.find(command, until);
                // A debugger may keep what has ended from being reaped.
                let are_dead = found.as_ref().is_some_and(Vec::is_empty) && Instant::now() < until;
                let problem = not_killed(&found.unwrap_or_default()).or_else(none_found);
                return problem.or_else(|| (!are_dead).then(|| SOME_LEFT.into()));
            }
            // Below a child that does not end, for example because it belongs to another user.
            if children == known {
                for process in self.find(command, give_up).iter().flatten() {
                    let _ = kill(process.pid, Signal::SIGKILL);
                }
                pause();
            }
            known = children;
        }
    }

    /// Notes who is not the command's, while that still shows. Looks until a moment.
    fn note_strangers(&mut self, command: &Child<'_>, until: Instant) {
        if self.is_alone || self.strangers.is_some() {
            return;
        }
        let Some(kinship) = Kinship::look(until) else { return };
        let Some(mut strangers) = kinship.children_of(getpid(), until) else { return };
        strangers.retain(|child| !self.is_of(command, *child));
        let below = kinship.below(&strangers, until).into_iter().map(|process| process.pid);
        self.strangers = Some(below.chain(strangers.iter().copied()).collect());
    }

    /// What remains after the end of the command, even in its group, until that has been killed: what
    /// rlock cannot see may be there.
    ///
    /// Reaps some of those that have ended, and looks until a moment.
    pub(super) fn reap_and_look(&mut self, command: &mut Child<'_>, until: Instant) -> Remaining {
        let remaining = self.in_sight(command, until);
        if self.out_of_reach().is_some() { Remaining::Living } else { remaining }
    }

    /// What remains as far as rlock can see: when a process ends, its children become those of rlock.
    /// Nothing if processes cannot be found at all.
    fn in_sight(&mut self, command: &mut Child<'_>, until: Instant) -> Remaining {
        let remaining = self.reap(command);
        let mut none = || match self.is_alone {
            true => !Process::can_be_found(),
            false => self.lists_none(command, until),
        };
        if remaining == Remaining::Living && none() { Remaining::Nothing } else { remaining }
    }

    /// Whether the list of rlock's children has no living descendant of the command.
    fn lists_none(&mut self, command: &mut Child<'_>, until: Instant) -> bool {
        let Some(first) = self.children(command, until) else { return !Process::can_be_found() };
        let lives = |child: &Pid| Process::read(*child).is_none_or(|process| !process.is_dead);
        // A process that has ended may have left another behind. The second list has it.
        !first.iter().any(lives)
            && self.children(command, until) == Some(first)
            && Instant::now() < until
    }

    /// Reaps adopted children that have ended, for [`REAP_TIME`]. Otherwise, a chain of processes
    /// that each start the next and end would use up the process IDs of the machine or the user.
    pub(super) fn reap(&mut self, command: &Child<'_>) -> Remaining {
        let until = Instant::now() + REAP_TIME;
        loop {
            match ended(libc::P_ALL, 0, libc::WNOWAIT) {
                Ok(Some(child)) if command.is(child) => return Remaining::More,
                // qemu-user does not hide it. It would be found again and again.
                Ok(Some(child)) if command.is_leader(child) => return Remaining::Living,
                Ok(Some(child)) if self.reap_one(child) => {}
                Ok(_) => return Remaining::Living,
                Err(_) => return Remaining::Nothing,
            }
            if Instant::now() >= until {
                return Remaining::More;
            }
        }
    }

    /// Why some of the descendants that a signal to the command does not reach cannot be found;
    /// `None` if all can.
    pub(super) fn out_of_reach(&self) -> Option<String> {
        let not_adopted = "cannot adopt orphans, so processes that the command started may keep \
            running; allow prctl(PR_SET_CHILD_SUBREAPER)";
        none_found().or_else(|| (!self.adopts).then(|| not_adopted.into()))
    }

    /// The command and its descendants, as far as they live. Looks until a moment; `None` if it
    /// cannot look.
    fn find(&mut self, command: &mut Child<'_>, until: Instant) -> Option<Vec<Process>> {
        let kinship = Kinship::look(until)?;
        let roots = self.children(command, until)?;
        // The newest first, as the most likely to live.
        let read = roots.iter().rev().take_while(|_| Instant::now() < until);
        let mut live = Vec::from_iter(read.filter_map(|root| Process::read(*root)));
        live.retain(|process| !process.is_dead);
        live.extend(kinship.below(&roots, until));
        Some(live)
    }

    /// The command and its orphans, dead or alive, the oldest first; `None` if they cannot be read.
    /// Reaps some first, to shorten the list, and reads it until a moment.
    fn children(&mut self, command: &mut Child<'_>, until: Instant) -> Option<Vec<Pid>> {
        command.has_ended();
        self.reap(command);
        let mut children = children(until)?;
        children.retain(|child| Instant::now() < until && self.is_of(command, *child));
        Some(children)
    }

    /// Whether this child of rlock is the command or, unless its environment shows that it is not, an
    /// orphan of it. Strangers leave orphans too.
    fn is_of(&self, command: &Child<'_>, child: Pid) -> bool {
        let is_included = || Process::read(child).is_some_and(|child| command.includes(&child));
        let is_new = || match &self.strangers {
            Some(strangers) => !strangers.contains(&child),
            None => Process::may_have_been_given(child, self.token.as_str()) || is_included(),
        };
        command.is(child)
            || self.is_alone
            || !self.preexisting_children.contains(&child) && is_new()
    }

    /// Reaps this child if it has ended, and returns whether it has.
    fn reap_one(&mut self, child: Pid) -> bool {
        if !matches!(ended(libc::P_PID, child.as_raw().unsigned_abs(), 0), Ok(Some(_))) {
            return false;
        }
        // From now on, the kernel may reuse the process ID. The orphans that the child left are now
        // children of rlock.
        self.preexisting_children.iter_mut().filter(|it| **it == child).for_each(|it| *it = GONE);
        if let Some(strangers) = &mut self.strangers {
            strangers.remove(&child);
        }
        true
    }
}

/// The children of rlock, dead or alive; `None` if they cannot be read.
fn children(until: Instant) -> Option<Vec<Pid>> {
    Kinship::look(until)?.children_of(getpid(), until)
}
