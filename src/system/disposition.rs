//! What signals do to rlock: which of them it handles or ignores, and how that is set.

use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::rules::supervisor::STOPPING;

/// The signals that end a process that does not handle them. They end a wait, and rlock passes them
/// on to a command so that it does not end before the command. Timer signals are included, because
/// `perl -e 'alarm 60; exec …'` is a common way to limit a command's time. Excluded are the signals
/// of a fault in rlock itself, those that no process can handle, and SIGSTKFLT and the real-time
/// signals, which have no effect while a command runs.
pub(super) const ENDING: &[Signal] = &[
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
];

/// The other signals that matter only while a command runs.
pub(super) const RUNNING: [Signal; 3] = [Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGCHLD];

/// The signals that rlock ignores or sets to their default action for as long as it runs.
pub(super) const CHANGED: [Signal; 3] = [Signal::SIGCHLD, Signal::SIGPIPE, Signal::SIGXFSZ];

/// All signals that rlock listens for or whose action it changes.
pub(super) fn handled() -> impl Iterator<Item = Signal> {
    ENDING.iter().copied().chain(STOPPING).chain(RUNNING).chain(CHANGED)
}

pub(super) fn is_ignored(signal: Signal) -> Result<bool, Errno> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null pointer asks for the present action without changing it, and the other pointer
    // is valid for writes.
    let done = unsafe { libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) };
    Errno::result(done)?;
    // SAFETY: sigaction succeeded, so it has filled in the structure.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// Ignores a signal from now on, or gives it its default action.
pub(super) fn set_ignored(signal: Signal, is_ignored: bool) -> Result<(), Errno> {
    let handler = if is_ignored { SigHandler::SigIgn } else { SigHandler::SigDfl };
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: this only resets or ignores the signal, so no code of this program runs in a handler.
    unsafe { sigaction(signal, &action) }?;
    Ok(())
}

/// Ends the process by the signal with this number. Returns only if the kernel protects the process
/// from it.
pub(crate) fn die_by(signal: i32) {
    // A core dump of rlock would be mistaken for one of the command.
    let _ = nix::sys::prctl::set_dumpable(false);
    // SAFETY: the default action runs no code of this program, sigemptyset initializes the set
    // before it is used, and every pointer is null or points to the set.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
