//! The operating system underneath: time, waiting, signals, and what the caller handed down.

pub(crate) mod clock;
pub(crate) mod disposition;
pub(crate) mod inherited;
pub(crate) mod poll;
pub(crate) mod signals;
