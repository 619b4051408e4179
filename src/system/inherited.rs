//! What the caller handed us besides arguments and environment, to be handed on to the command:
//! ignored signals, blocked signals, closed descriptors.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::system::signals::ENDING;

/// Signals by which a terminal stops a process.
const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// Others whose action rlock changes for itself, besides those that end it.
const OTHERS: [Signal; 5] =
    [Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGCHLD, Signal::SIGPIPE, Signal::SIGXFSZ];

/// Signals whose action rlock changes for itself, and no others.
fn touched() -> impl Iterator<Item = Signal> {
    ENDING.iter().copied().chain(OTHERS).chain(STOPPING)
}

/// The state at the start of the process.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    blocked: SigSet,
    ignored: SigSet,
}

impl Inherited {
    /// Takes note of it, then sets up what rlock needs itself. To be called first of all, while
    /// there is one thread.
    pub(crate) fn capture() -> io::Result<Self> {
        let mut ignored = SigSet::empty();
        for signal in touched() {
            if is_ignored(signal)? {
                ignored.add(signal);
            }
        }
        let blocked = SigSet::thread_get_mask()?;
        // Without SIGCHLD we would not hear of the command's end, and ignored it would be reaped
        // unseen; SIGPIPE and SIGXFSZ would end us, holding a lock, for a closed stderr or a log
        // that has reached its limit.
        act(Signal::SIGCHLD, SigHandler::SigDfl)?;
        act(Signal::SIGPIPE, SigHandler::SigIgn)?;
        act(Signal::SIGXFSZ, SigHandler::SigIgn)?;
        SigSet::from(Signal::SIGCHLD).thread_unblock()?;
        occupy_standard_descriptors()?;
        Ok(Self { blocked, ignored })
    }

    pub(crate) fn ignores(&self, signal: Signal) -> bool {
        self.ignored.contains(signal)
    }

    /// Puts back what was taken over; for the child, between fork and exec. What was sent to it
    /// before that is dropped: whoever sent it to the whole group also sent it to rlock, which
    /// forwards it, and a stop would be one of rlock too, which waits for the exec. Makes system
    /// calls only, and may therefore run between fork and exec.
    pub(crate) fn restore(&self) -> Result<(), Errno> {
        for signal in touched() {
            act(signal, SigHandler::SigIgn)?;
            if !self.ignores(signal) {
                act(signal, SigHandler::SigDfl)?;
            }
        }
        self.blocked.thread_set_mask()
    }
}

fn is_ignored(signal: Signal) -> Result<bool, Errno> {
    let mut action = std::mem::MaybeUninit::<nix::libc::sigaction>::uninit();
    // SAFETY: a null pointer asks for the present action without changing it, and the other is
    // valid to be written to.
    let done =
        unsafe { nix::libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) };
    Errno::result(done)?;
    // SAFETY: sigaction succeeded, so it has filled the structure in.
    Ok(unsafe { action.assume_init() }.sa_sigaction == nix::libc::SIG_IGN)
}

/// Ignores a signal from now on; `restore` undoes it for the command.
pub(crate) fn ignore(signal: Signal) -> Result<(), Errno> {
    act(signal, SigHandler::SigIgn)
}

fn act(signal: Signal, handler: SigHandler) -> Result<(), Errno> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: only ever called with the default action and with ignoring, so no code of ours runs
    // in a handler.
    unsafe { sigaction(signal, &action) }?;
    Ok(())
}

/// A closed standard descriptor would be given to the next thing we open, and a message for people
/// would go to the server. It is occupied by something that fails when used, as a closed one does,
/// and is closed again for the command.
fn occupy_standard_descriptors() -> io::Result<()> {
    for descriptor in 0..=2 {
        // SAFETY: only looked at, and not kept.
        let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
        if fcntl(borrowed, FcntlArg::F_GETFD) == Err(Errno::EBADF) {
            // The lowest free descriptor is this one, since those below it are in use.
            let is_input = descriptor == 0;
            let null = OpenOptions::new().read(!is_input).write(is_input).open("/dev/null")?;
            let _stays_open = null.into_raw_fd();
        }
    }
    Ok(())
}
