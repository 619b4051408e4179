//! The operating system: time, waiting, threads, signals, and the state that the caller passed on.

#[cfg(target_env = "musl")]
mod allocator;
pub(crate) mod call;
pub(crate) mod channel;
pub(crate) mod children;
pub(crate) mod clock;
pub(crate) mod continue_timer;
pub(crate) mod disposition;
pub(crate) mod environment;
pub(crate) mod inherited;
pub(crate) mod poll;
pub(crate) mod program;
pub(crate) mod random;
pub(crate) mod rights;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod thread;
pub(crate) mod wakeup;
