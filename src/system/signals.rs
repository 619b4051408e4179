//! Signals as events that rlock can wait for, each with its number.
//!
//! The signals are blocked, and a signalfd(2) reports them: handlers take ten times as long to set
//! up. rlock does not listen for signals that its caller ignores or blocks, so that nohup works.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::rules::supervisor::{STOPPING, stops};
use crate::system::call::Named;
use crate::system::continue_timer::ContinueTimer;
use crate::system::disposition::{ENDING, RUNNING, handled};
use crate::system::inherited::Inherited;

/// The signals that a terminal sends to its whole foreground group, except that a hangup reaches only
/// the leader of the session. The kernel sends other signals to one process only, for example when a
/// timer expires.
const OF_TERMINALS: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// How many signals are read before rlock looks at the time and its other events again.
const MOST: usize = 64;

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) signal: Signal,
    /// Whether the kernel sent it for the terminal: the whole foreground group has received it.
    pub(crate) by_terminal: bool,
    /// Whether the command may not have received it, because it did not exist yet.
    pub(crate) is_early: bool,
}

/// Whether this signal asks a process to end. The others that would end it mean something to a
/// command, not to rlock.
pub(crate) fn asks_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM)
}

/// Whether this process may signal the one of this pidfd. Sends it nothing.
pub(crate) fn test_signal(process: BorrowedFd<'_>) -> nix::Result<()> {
    let (none, no_details, no_flags) = (0, std::ptr::null::<libc::siginfo_t>(), 0);
    let (call, process) = (libc::SYS_pidfd_send_signal, process.as_raw_fd());
    // SAFETY: it takes numbers, and a pointer that may be null.
    Errno::result(unsafe { libc::syscall(call, process, none, no_details, no_flags) }).map(drop)
}

/// Drops the blocked signals that have arrived. Makes system calls only, so that it can be called
/// between fork and exec.
pub(crate) fn discard_arrived() {
    let signals: SigSet = handled().collect();
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let no_details = std::ptr::null_mut();
    // At most, because others may send them faster than this drops them.
    for _ in 0..MOST {
        // SAFETY: two pointers are valid, and the third may be null.
        let next = unsafe { libc::sigtimedwait(signals.as_ref(), no_details, &raw const at_once) };
        // It fails when none is left.
        if next <= 0 {
            break;
        }
    }
}

/// The signals that have arrived. A signal that rlock has listened for has no other effect, even
/// after this is dropped.
pub(crate) struct Signals {
    descriptor: SignalFd,
    listened: SigSet,
    inherited: Inherited,
    /// Read from the descriptor, but not returned by `pending` yet.
    kept: Vec<Arrived>,
}

impl Signals {
    /// Listens for the signals that should end a wait. Call this on the main thread.
    pub(crate) fn listen(inherited: Inherited) -> io::Result<Self> {
        let ending = ENDING.iter().copied();
        let listened: SigSet = ending.filter(|&signal| inherited.lets_through(signal)).collect();
        listened.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let descriptor = SignalFd::with_flags(&listened, flags).named("signalfd4")?;
        Ok(Self { descriptor, listened, inherited, kept: Vec::new() })
    }

    /// Also listens for the signals that concern a running command, and blocks all others: if one
    /// ended rlock, what the command has started would run on without the lock. A fault in rlock
    /// itself still ends it.
    pub(crate) fn listen_for_a_command(&mut self) -> io::Result<()> {
        let inherited = self.inherited;
        let listens =
            |signal: &Signal| *signal == Signal::SIGCHLD || inherited.lets_through(*signal);
        self.listened.extend(STOPPING.into_iter().chain(RUNNING).filter(listens));
        SigSet::all().thread_block()?;
        self.descriptor.set_mask(&self.listened).named("signalfd4")
    }

    /// Becomes readable when a signal arrives.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The first signal that has arrived. It stays in `pending`, but `readable` no longer
    /// announces it.
    pub(crate) fn first(&mut self) -> Option<Signal> {
        self.kept = self.pending();
        self.kept.first().map(|arrived| arrived.signal)
    }

    /// Whether `pending` has signals that `readable` no longer announces.
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Marks the signals that have arrived as early. Call this just after the command has started:
    /// they may have come before it existed, and one that has reached it has ended or stopped it, or
    /// is ignored by it, because a new program handles none.
    pub(crate) fn mark_early(&mut self) {
        self.kept = self.pending();
        self.kept.iter_mut().for_each(|arrived| arrived.is_early = true);
    }

    /// Stops this process by the default action of a signal that it listens for. Returns when the
    /// process is continued. Does nothing in an orphaned group, which no shell could continue: the
    /// kernel drops the signal. `timer` may have gone off just before.
    ///
    /// Call this on the main thread. Only that thread receives signals, so it stops before this
    /// returns.
    pub(crate) fn stop(&mut self, signal: Signal, timer: &mut ContinueTimer) -> io::Result<()> {
        self.kept = self.pending();
        // Raising the signal would drop a SIGCONT that is meant to end this stop.
        if !self.kept.iter().any(|arrived| arrived.signal == Signal::SIGCONT) {
            raise(signal)?;
            timer.set_again();
            let blocked = SigSet::from(signal).thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?;
            blocked.thread_set_mask()?;
        }
        // These have taken effect: a process that is continued has no stop signals left.
        self.kept = self.pending();
        self.kept.retain(|arrived| arrived.signal != Signal::SIGCONT && !stops(arrived.signal));
        Ok(())
    }

    /// The signals that have arrived since the last call, or some of them. Like the kernel, this
    /// reports a signal that arrived several times only once.
    pub(crate) fn pending(&mut self) -> Vec<Arrived> {
        let mut arrived = std::mem::take(&mut self.kept);
        for _ in 0..MOST {
            // Reading does not fail: without a signal, it returns `None`.
            let Ok(Some(information)) = self.descriptor.read_signal() else { break };
            let number = i32::try_from(information.ssi_signo).ok();
            let Some(Ok(signal)) = number.map(Signal::try_from) else { continue };
            // From a `ContinueTimer`, or sent by rlock to its whole group. It has had its effect.
            let is_own =
                information.ssi_code == libc::SI_TIMER || information.ssi_pid == std::process::id();
            if is_own && matches!(signal, Signal::SIGCONT | Signal::SIGHUP) {
                continue;
            }
            let by_kernel = information.ssi_code == libc::SI_KERNEL;
            let by_terminal = by_kernel && OF_TERMINALS.contains(&signal);
            let one = Arrived { signal, by_terminal, is_early: false };
            if !arrived.contains(&one) {
                arrived.push(one);
            }
        }
        arrived
    }
}
