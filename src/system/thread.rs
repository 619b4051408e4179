//! Threads other than the main one. Only the main thread receives signals.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::system::channel::{Receiver, channel};

/// Starts a thread that receives no signals. Fails if the system cannot create another thread.
///
/// The thread inherits its mask from this one. If it set the mask itself, it could receive a signal
/// first, such as a stop that the main thread awaits.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    without_signals(|| Builder::new().name(name.into()).spawn(run))?
}

/// Blocks all signals of this thread while `act` runs. They are delivered afterward.
pub(crate) fn without_signals<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let result = act();
    before.thread_set_mask()?;
    Ok(result)
}

/// Makes a call that has no timeout, on its own thread. If it takes too long, drop the receiver:
/// the thread then drops the result when the call returns.
pub(crate) fn call<T: Send + 'static>(
    name: &str,
    blocking: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (sender, result) = channel()?;
    start(name, move || sender.send(blocking()))?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_starts_with_all_signals_blocked_and_its_starter_keeps_its_mask() {
        let before = SigSet::thread_get_mask().unwrap();
        let blocked = start("masked", || SigSet::thread_get_mask().unwrap()).unwrap();
        // The kernel never blocks SIGKILL and SIGSTOP.
        let blocked = blocked.join().unwrap();
        assert!(blocked.iter().count() > before.iter().count());
        assert!(blocked.contains(nix::sys::signal::Signal::SIGTSTP));
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }
}
