//! The operating system: time, waiting, threads, signals, and the state that the caller passed on.

pub(crate) mod call;
pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod continue_timer;
pub(crate) mod disposition;
pub(crate) mod environment;
pub(crate) mod inherited;
pub(crate) mod poll;
pub(crate) mod signals;
pub(crate) mod thread;
pub(crate) mod wakeup;
