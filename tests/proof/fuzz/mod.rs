//! Checks of everything that reads bytes from outside. Whatever the bytes are, rlock must not
//! panic, must not print what controls a terminal, and must read back what it writes.
//!
//! Each check takes any bytes and panics if a promise does not hold. `fuzz/` runs the checks under
//! libFuzzer. The tests run them on the corpus in `fuzz/corpus/`, and on random changes to it.

#![allow(clippy::expect_used, reason = "a check that cannot be made must not pass")]

mod command_lines;
mod lock_files;
mod prints;
mod promises;
mod replies;
mod requests;
mod server;
mod urls;
mod words;

#[cfg(test)]
mod corpus;

pub use command_lines::command_lines;
pub use lock_files::lock_files;
pub use replies::replies;
pub use server::server;
pub use urls::urls;
pub use words::words;
