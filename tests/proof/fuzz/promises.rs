//! What every check checks, and how it reads its input.

use std::borrow::Cow;

use rlock::text::is_unsafe;

/// What no message may show.
pub(super) const SECRET: &str = "S3CR3T";

pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The parts of an input that consists of several texts, with NUL between them.
pub(super) fn parts(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == 0)
}

/// Checks that a text can be shown as it is.
#[track_caller]
pub(super) fn printable(text: &str) {
    assert!(!text.contains(is_unsafe), "{text:?} can control a terminal");
}

/// Checks that a message is one line. What it quotes becomes printable when it is shown.
#[track_caller]
pub(super) fn one_line(message: &str) {
    assert!(!message.is_empty() && !message.contains(['\n', '\r']), "{message:?} is not one line");
}
