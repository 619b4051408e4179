//! A process that we have not started, under a lease: it is left alone, but stopped as a command
//! would be if the lease cannot be renewed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::unistd::Pid;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::keeper::{Channels, Keeper};
use super::machine::{Action, Event, Machine};
use super::process::Process;
use super::{Hold, Lock};
use crate::clock::{Alarm, Instant};
use crate::error::Error;
use crate::lock::Key;
use crate::notice::Notice;
use crate::policy::Parting;
use crate::poll::{Want, ready};
use crate::store::Store;
use crate::view::Ending;

/// A process, which stays the same one even if its number is given to another.
pub(crate) struct Watched {
    pid: Pid,
    process: OwnedFd,
    /// What it had started when it was told to end, and what those have started since.
    descendants: Vec<(Pid, OwnedFd)>,
    notice: Notice,
}

impl Watched {
    /// `process` is a pidfd of the process with this number.
    pub(crate) fn new(pid: Pid, process: OwnedFd, notice: Notice) -> Self {
        Self { pid, process, descendants: Vec::new(), notice }
    }

    /// Signals it and all that it has started.
    fn signal(&mut self, signals: &[Signal]) {
        self.find_descendants();
        for signal in signals {
            let _ = pidfd_send_signal(&self.process, *signal);
            for (_, process) in &self.descendants {
                let _ = pidfd_send_signal(process, *signal);
            }
        }
    }

    fn find_descendants(&mut self) {
        let itself = (self.pid, self.process.as_fd());
        let known = self.descendants.iter().map(|(pid, process)| (*pid, process.as_fd()));
        let alive =
            std::iter::once(itself).chain(known).filter(|(_, process)| !has_ended(*process));
        let found: Vec<Pid> = alive.flat_map(|(pid, _)| Process::descendants_of(pid)).collect();
        for pid in found {
            let number = rustix::process::Pid::from_raw(pid.as_raw());
            let known = self.descendants.iter().any(|(other, _)| *other == pid);
            if let (false, Some(number)) = (known, number)
                && let Ok(process) = pidfd_open(number, PidfdFlags::empty())
            {
                self.descendants.push((pid, process));
            }
        }
    }

    /// One of those that have not ended, itself first.
    fn alive(&self) -> Option<BorrowedFd<'_>> {
        let descendants = self.descendants.iter().map(|(_, process)| process);
        let all = std::iter::once(&self.process).chain(descendants);
        all.map(AsFd::as_fd).find(|process| !has_ended(*process))
    }
}

/// A pidfd is readable from the end of its process on.
pub(crate) fn has_ended(process: BorrowedFd<'_>) -> bool {
    ready([(process, Want::Read)], Some(Instant::now())).is_ok_and(|[ended]| ended)
}

/// Keeps the lease until the process has ended, or has released the lock itself. The store comes
/// back for the release.
pub(crate) fn run(
    mut watched: Watched,
    hold: Hold,
    store: Box<dyn Store>,
    parting: Parting,
) -> (Option<Box<dyn Store>>, Result<Lock, Error>) {
    let wires = Channels::open().and_then(|channels| Ok((channels, Alarm::new()?)));
    let (channels, alarm) = match wires {
        Ok(wires) => wires,
        Err(error) => {
            return (Some(store), Err(Error::system("cannot prepare for renewals", &error)));
        }
    };
    let mut machine = Machine::new(hold.lease, parting);
    let (key, id) = (hold.key.clone(), hold.token.id());
    let keeper = Keeper::new(store, hold.key, hold.token, hold.lease, channels);
    // One or the other: the keeper has the store while there is something to renew.
    let (mut keeper, mut store) = (Some(keeper), None);
    let mut lock = Lock::Kept;
    let mut events = vec![Event::Tick];
    loop {
        for event in events.drain(..) {
            if matches!(event, Event::NotHeld) {
                store = store.or(keeper.take().and_then(Keeper::stop));
                if store.as_mut().is_some_and(|store| is_released(&mut **store, &key, &id)) {
                    return (None, Ok(Lock::Kept));
                }
            }
            for action in machine.on(event, Instant::now()) {
                match action {
                    Action::Tell(_) => lock = Lock::Lost,
                    Action::Terminate => watched.signal(&[Signal::TERM, Signal::CONT]),
                    Action::Kill => watched.signal(&[Signal::KILL]),
                    // It has a terminal and signals of its own.
                    _ => {}
                }
            }
        }
        if watched.notice.is_given() {
            return (None, Ok(Lock::Kept));
        }
        if machine.is_over() {
            return (store.or(keeper.and_then(Keeper::stop)), Ok(lock));
        }
        match (machine.awaits_the_rest(), watched.alive()) {
            (false, _) if has_ended(watched.process.as_fd()) => events.push(Event::Ended),
            (true, None) => events.push(Event::Alone),
            (_, alive) => {
                let process = alive.unwrap_or(watched.process.as_fd());
                match next_events(&alarm, &machine, keeper.as_mut(), process, &watched.notice) {
                    Ok(next) => events = next,
                    Err(error) => {
                        watched.signal(&[Signal::KILL]);
                        let store = store.or(keeper.and_then(Keeper::stop));
                        return (store, Err(Error::system("cannot wait for events", &error)));
                    }
                }
            }
        }
    }
}

fn next_events(
    alarm: &Alarm,
    machine: &Machine,
    keeper: Option<&mut Keeper>,
    process: BorrowedFd<'_>,
    notice: &Notice,
) -> std::io::Result<Vec<Event>> {
    let renew_at = keeper.as_ref().and_then(|keeper| keeper.wake_at());
    alarm.set([machine.wake_at(), renew_at].into_iter().flatten().min())?;
    let (alarm, process) = ((alarm.as_fd(), Want::Read), (process, Want::Read));
    let notice = (notice.as_fd(), Want::Read);
    let mut events = Vec::new();
    match keeper {
        None => {
            ready([alarm, process, notice], None)?;
        }
        Some(keeper) => {
            let [_, _, _, kept] =
                ready([alarm, process, notice, (keeper.arrival(), Want::Read)], None)?;
            if kept {
                events = keeper.events();
            }
            events.extend(keeper.start_if_due(Instant::now()).err());
        }
    }
    events.push(Event::Tick);
    Ok(events)
}

/// Has the script released it by its token?
fn is_released(store: &mut dyn Store, key: &Key, id: &str) -> bool {
    let past = store.inspect(key).map(|view| view.past).unwrap_or_default();
    past.iter().any(|past| past.id == id && past.ending == Ending::Released)
}
