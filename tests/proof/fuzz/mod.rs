//! Checks of everything that reads bytes from outside. Whatever the bytes are, rlock must not
//! panic, must not print what controls a terminal, and must read back what it writes.
//!
//! Each check takes any bytes and panics if a promise does not hold. `fuzz/` runs the checks under
//! libFuzzer. The tests run them on the corpus in `fuzz/corpus/`, and on random changes to it.

#![allow(clippy::expect_used, reason = "a check that cannot be made must not pass")]

mod command_lines;
mod durations;
mod enclosing_holds;
mod lock_files;
mod names;
mod prints;
mod promises;
mod replies;
mod server;
mod urls;

#[cfg(test)]
mod corpus;

pub use command_lines::command_lines;
pub use durations::durations;
pub use enclosing_holds::enclosing_holds;
pub use lock_files::lock_files;
pub use names::names;
pub use prints::prints;
pub use replies::replies;
pub use server::server;
pub use urls::urls;
