//! Signals as things that can be waited for, each with its number.
//!
//! signal-hook, because what is forwarded to a command must keep its number; and only signals that
//! were not ignored when we started, so that nohup stays nohup.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::libc;
use nix::sys::signal::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use crate::system::inherited::{self, Inherited};

/// What ends a process that does not handle it, and therefore ends a wait; and what a command is
/// told of, so that rlock does not end before it. That of a timer too: `perl -e 'alarm 60; exec …'`
/// is a usual way to limit a command's time. What is missing is what a fault of our own raises, what
/// nobody can handle, and the real-time signals.
pub(crate) const ENDING: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGABRT,
    // Elsewhere there is no such signal.
    #[cfg(not(any(
        target_arch = "mips",
        target_arch = "mips32r6",
        target_arch = "mips64",
        target_arch = "mips64r6",
        target_arch = "sparc",
        target_arch = "sparc64"
    )))]
    Signal::SIGSTKFLT,
];

/// What a terminal sends to all of its foreground group. The kernel sends others as well, but to
/// one process: when its timer has run down, or its CPU time.
const OF_TERMINALS: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// What matters only once there is a command.
const RUNNING: [Signal; 4] = [Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGCHLD, Signal::SIGTSTP];

/// A signal that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) signal: Signal,
    /// Sent by the kernel, which is the terminal: all of its foreground group has it.
    pub(crate) by_terminal: bool,
}

/// Is it one by which people end a process?
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM)
}

/// The signals that have come. While this exists they have no other effect.
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithRawSiginfo>,
    inherited: Inherited,
    /// Taken from the delivery, but not asked for yet.
    kept: Vec<Arrival>,
}

impl Signals {
    /// Listens to what should end a wait.
    pub(crate) fn listen(inherited: Inherited) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let heard = ENDING.iter().copied().filter(|&signal| !inherited.ignores(signal));
        let numbers = heard.map(|signal| signal as i32);
        let delivery = SignalDelivery::with_pipe(read, write, WithRawSiginfo, numbers)?;
        Ok(Self { delivery, inherited, kept: Vec::new() })
    }

    /// Listens to what concerns a running command as well. From now on we may be in the background
    /// of a terminal that is lent to it, and must not be stopped for a line on stderr.
    pub(crate) fn listen_for_a_command(&self) -> io::Result<()> {
        inherited::ignore(Signal::SIGTTOU)?;
        for signal in RUNNING {
            if signal == Signal::SIGCHLD || !self.inherited.ignores(signal) {
                self.delivery.handle().add_signal(signal as i32)?;
            }
        }
        Ok(())
    }

    /// Becomes readable when a signal has come.
    pub(crate) fn arrival(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// Has something come that `arrival` does not tell any more?
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Has one come by which people end a process? It is answered thereby; all others stay to be
    /// asked for.
    pub(crate) fn is_to_end(&mut self) -> bool {
        let (ending, others): (Vec<_>, Vec<_>) =
            self.pending().into_iter().partition(|arrival| ends(arrival.signal));
        self.kept = others;
        !ending.is_empty()
    }

    /// Drops what has come of a signal that has been answered already.
    pub(crate) fn forget(&mut self, signal: Signal) {
        self.kept = self.pending();
        self.kept.retain(|arrival| arrival.signal != signal);
    }

    /// Those that have come since the last call.
    pub(crate) fn pending(&mut self) -> Vec<Arrival> {
        let mut kept = std::mem::take(&mut self.kept);
        let arrived = self.delivery.pending().filter_map(|info| {
            let signal = Signal::try_from(info.si_signo).ok()?;
            let by_kernel = info.si_code == libc::SI_KERNEL;
            Some(Arrival { signal, by_terminal: by_kernel && OF_TERMINALS.contains(&signal) })
        });
        kept.extend(arrived);
        kept
    }
}
