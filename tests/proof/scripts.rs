//! The scripts of `lua/` in the process of the test, on commands like those of Redis.

pub(crate) mod agreement;
pub(crate) mod redis;
pub(crate) mod sandbox;
pub(crate) mod shim;
pub(crate) mod stored;
pub(crate) mod twins;
