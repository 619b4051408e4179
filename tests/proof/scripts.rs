//! The scripts of `lua/` in the process of the test, on commands like those of Redis.

mod bytecode;
pub(crate) mod redis;
pub(crate) mod sandbox;
pub(crate) mod shim;
pub(crate) mod stored;
pub(crate) mod twins;
