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
mod replies;
mod server;
mod urls;

#[cfg(test)]
mod corpus;

use std::borrow::Cow;

pub use command_lines::command_lines;
pub use durations::durations;
pub use enclosing_holds::enclosing_holds;
pub use lock_files::lock_files;
pub use names::names;
pub use prints::prints;
use prints::view;
pub use replies::replies;
pub use server::server;
pub use urls::urls;

use rlock::text::is_unsafe;

/// The input as text.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The parts of an input that consists of several texts, with NUL between them.
fn parts(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == 0)
}

/// Checks that a text can be shown as it is.
#[track_caller]
fn printable(text: &str) {
    assert!(!text.contains(is_unsafe), "{text:?} can control a terminal");
}

/// Checks that a message is one line. What it quotes becomes printable when it is shown.
#[track_caller]
fn one_line(message: &str) {
    assert!(!message.is_empty() && !message.contains(['\n', '\r']), "{message:?} is not one line");
}
