//! Signals as events that rlock can wait for, each with its number.
//!
//! signal-hook keeps the number of each signal, which a command must get unchanged. rlock listens
//! only to signals that its caller did not ignore, so that nohup has its effect.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::libc;
use nix::sys::signal::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use crate::system::call::Named;
use crate::system::disposition::{ENDING, RUNNING, ignore};
use crate::system::inherited::Inherited;

/// The signals that a terminal sends to its whole foreground group. The kernel sends other signals
/// to one process only, for example when a timer expires.
const OF_TERMINALS: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) signal: Signal,
    /// Whether the kernel sent it for the terminal, so that the whole foreground group received it.
    pub(crate) by_terminal: bool,
}

/// Whether this signal asks a process to end.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM)
}

/// The signals that have arrived. While this exists they have no other effect.
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithRawSiginfo>,
    inherited: Inherited,
    /// Received from signal-hook, but not returned by `pending` yet.
    kept: Vec<Arrival>,
}

impl Signals {
    /// Listens to the signals that should end a wait.
    pub(crate) fn listen(inherited: Inherited) -> io::Result<Self> {
        // signal-hook uses send(2) and recv(2), so these must be sockets.
        let (read, write) = UnixStream::pair().named("socketpair")?;
        let listened = ENDING.iter().copied().filter(|&signal| !inherited.ignores(signal));
        let numbers = listened.map(|signal| signal as i32);
        let delivery = SignalDelivery::with_pipe(read, write, WithRawSiginfo, numbers)?;
        Ok(Self { delivery, inherited, kept: Vec::new() })
    }

    /// Also listens to the signals that concern a running command. From now on rlock may be in the
    /// background of a terminal that it has lent, and a line on stderr must not stop it.
    pub(crate) fn listen_for_a_command(&self) -> io::Result<()> {
        ignore(Signal::SIGTTOU)?;
        for signal in RUNNING {
            if signal == Signal::SIGCHLD || !self.inherited.ignores(signal) {
                self.delivery.handle().add_signal(signal as i32)?;
            }
        }
        Ok(())
    }

    /// Becomes readable when a signal arrives.
    pub(crate) fn arrival(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// The first signal that has arrived. It stays in `pending`, but `arrival` no longer announces
    /// it.
    pub(crate) fn first(&mut self) -> Option<Signal> {
        self.kept = self.pending();
        self.kept.first().map(|arrival| arrival.signal)
    }

    /// Whether `pending` has signals that `arrival` no longer announces.
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether a signal that asks a process to end has arrived. Such signals are dropped; the
    /// others stay in `pending`.
    pub(crate) fn take_end_request(&mut self) -> bool {
        let (ending, others): (Vec<_>, Vec<_>) =
            self.pending().into_iter().partition(|arrival| ends(arrival.signal));
        self.kept = others;
        !ending.is_empty()
    }

    /// Drops a signal that arrived but has already taken effect.
    pub(crate) fn forget(&mut self, signal: Signal) {
        self.kept = self.pending();
        self.kept.retain(|arrival| arrival.signal != signal);
    }

    /// The signals that have arrived since the last call.
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
