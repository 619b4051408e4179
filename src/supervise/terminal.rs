//! The terminal, if there is one, and the stops that come from it.
//!
//! The command has its own process group, which starts in the background of the terminal. Until the
//! command uses the terminal, ^C and ^Z go to rlock's group, which is the shell's job. When the
//! command does use it, the kernel stops the command, and only then rlock lends it the terminal.

use std::fs::{File, OpenOptions};
use std::io;

use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, killpg, raise, sigaction,
};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process, if it has one.
pub(super) struct Terminal {
    device: Option<File>,
    loan: Loan,
}

/// Whether the command has the terminal, or had it until rlock last took it back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loan {
    None,
    Lent,
    Returned,
}

impl Terminal {
    pub(super) fn open() -> Self {
        Self {
            device: OpenOptions::new().read(true).write(true).open("/dev/tty").ok(),
            loan: Loan::None,
        }
    }

    /// Whether this process has a terminal.
    pub(super) fn exists(&self) -> bool {
        self.device.is_some()
    }

    /// Whether this job is in the foreground of the terminal: rlock's group, or a group that may
    /// have borrowed it.
    pub(super) fn is_foreground(&self, lent_to: [Option<Pid>; 2]) -> bool {
        let holder = self.device.as_ref().and_then(|device| tcgetpgrp(device).ok());
        holder == Some(getpgrp()) || holder.is_some() && lent_to.contains(&holder)
    }

    /// Moves a group to the foreground of the terminal.
    pub(super) fn lend(&mut self, group: Option<Pid>) {
        if let (Some(device), Some(group)) = (&self.device, group) {
            self.loan = match tcsetpgrp(device, group) {
                Ok(()) => Loan::Lent,
                Err(_) => Loan::None,
            };
        }
    }

    /// Takes the terminal back if it was lent. rlock does this from the background, and ignores the
    /// SIGTTOU with which the kernel would stop it.
    pub(super) fn take_back(&mut self) {
        self.loan = match (&self.device, self.loan) {
            (Some(device), Loan::Lent) => {
                let _ = tcsetpgrp(device, getpgrp());
                Loan::Returned
            }
            _ => Loan::None,
        };
    }

    /// Whether the last `take_back` found the terminal lent.
    pub(super) fn was_lent(&self) -> bool {
        self.loan == Loan::Returned
    }
}

/// Selects which processes stop.
#[derive(Clone, Copy)]
pub(super) enum StopTarget {
    Process,
    Job,
}

/// Stops rlock, or its process group, as the terminal would have. Returns when rlock is continued.
/// Does nothing in an orphaned group, which no shell could continue: the kernel drops the signal.
/// Call this on the main thread. Only that thread receives signals, so it stops before this
/// returns.
pub(super) fn stop(signal: Signal, target: StopTarget) -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this program.
    let before = unsafe { sigaction(signal, &default) }?;
    let sent = match target {
        StopTarget::Process => raise(signal),
        StopTarget::Job => killpg(getpgrp(), signal),
    };
    // A blocked signal takes effect here. If it had arrived before, rlock still stops only once.
    let blocked = SigSet::from(signal).thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?;
    blocked.thread_set_mask()?;
    // SAFETY: this restores the previous action.
    unsafe { sigaction(signal, &before) }?;
    Ok(sent?)
}
