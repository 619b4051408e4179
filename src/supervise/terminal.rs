//! The terminal, if there is one, and the stops that come from it.
//!
//! The command has a process group of its own, which the terminal does not know: as long as it does
//! not touch the terminal, ^C and ^Z go to rlock's group, which is the shell's job. When the command
//! does touch it the kernel stops it, and only then is the terminal lent to it.

use std::fs::{File, OpenOptions};
use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, killpg, raise, sigaction};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process, which may be none.
pub(super) struct Terminal {
    device: Option<File>,
    loan: Loan,
}

/// Whether the command has, or had when that mattered last, the terminal.
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

    /// Is there one at all?
    pub(super) fn exists(&self) -> bool {
        self.device.is_some()
    }

    /// Is it in the hands of our job, which is we or one of the groups it may be lent to?
    pub(super) fn is_ours(&self, lent_to: [Option<Pid>; 2]) -> bool {
        let holder = self.device.as_ref().and_then(|device| tcgetpgrp(device).ok());
        holder == Some(getpgrp()) || holder.is_some() && lent_to.contains(&holder)
    }

    /// Puts it in the hands of a group.
    pub(super) fn lend(&mut self, group: Option<Pid>) {
        if let (Some(device), Some(group)) = (&self.device, group) {
            self.loan = match tcsetpgrp(device, group) {
                Ok(()) => Loan::Lent,
                Err(_) => Loan::None,
            };
        }
    }

    /// Takes it back if it was lent. We are in the background then, and ignore the SIGTTOU by which
    /// the kernel would stop us for this.
    pub(super) fn take_back(&mut self) {
        self.loan = match (&self.device, self.loan) {
            (Some(device), Loan::Lent) => {
                let _ = tcsetpgrp(device, getpgrp());
                Loan::Returned
            }
            _ => Loan::None,
        };
    }

    /// Was there something to take back the last time?
    pub(super) fn was_lent(&self) -> bool {
        self.loan == Loan::Returned
    }
}

/// Who is stopped.
#[derive(Clone, Copy)]
pub(super) enum StopTarget {
    Process,
    Job,
}

/// Stops rlock, or its process group, as the terminal would have; returns when we are continued.
/// Does nothing in a group that no shell could continue: the kernel sees to that. To be called on
/// the only thread that does not block signals, which is then surely the one to stop.
pub(super) fn stop_ourselves(signal: Signal, scope: StopTarget) -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action is no handler of ours, so nothing can run in it.
    let before = unsafe { sigaction(signal, &default) }?;
    let stopped = match scope {
        StopTarget::Process => raise(signal),
        StopTarget::Job => killpg(getpgrp(), signal),
    };
    // SAFETY: it was the action until just now.
    unsafe { sigaction(signal, &before) }?;
    Ok(stopped?)
}
