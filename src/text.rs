//! Text that users read or paste: made safe to print, quoted for a shell, measured in columns.

use std::borrow::Cow;
use std::ffi::OsStr;

mod columns;
mod line;
mod printable;
mod shell;

pub use columns::{columns, cut, cut_middle};
pub use line::Line;
pub(crate) use line::masked;
pub(crate) use printable::is_invisible;
pub use printable::{is_unsafe, printable};
pub use shell::quoted;

/// The longest beginning of a text that fits into this many bytes and does not split a character.
pub fn at_most(bytes: usize, text: &str) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    &text[..ends.find(|&end| text.is_char_boundary(end)).unwrap_or(0)]
}

/// `a, b or c`, with this word before the last one.
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>, last: &str) -> String {
    let all = Vec::from_iter(words).join(", ");
    match all.rsplit_once(", ") {
        Some((others, end)) => format!("{others} {last} {end}"),
        None => all,
    }
}

/// Whether a message may repeat a value that the user gave. A value in the wrong place can be a
/// password or contain one, in any form, so only what looks like a mistyped word or number is
/// repeated: letters with what joins words and paths, or digits with at most three letters.
pub(crate) fn is_harmless(value: &str) -> bool {
    let count = |is: fn(&u8) -> bool| value.bytes().filter(is).count();
    let (letters, digits) = (count(u8::is_ascii_alphabetic), count(u8::is_ascii_digit));
    let others = count(|byte| b"-_./+".contains(byte))
        + if letters == 0 { count(|byte| b",:".contains(byte)) } else { 0 };
    letters + digits + others == value.len()
        && (digits == 0 && value.len() <= 24 || letters <= 3 && value.len() <= 12)
}

/// A value that the user gave, in a message.
pub(crate) fn shown(value: &str) -> String {
    format!("'{}'", if is_harmless(value) { value } else { "***" })
}

/// A program in a message, and as others see it. A URL, an assignment or a whole command line in its
/// place may contain a password.
pub(crate) fn shown_program(program: &OsStr) -> Cow<'_, str> {
    let name = program.to_string_lossy();
    match name.find(|c: char| c == '=' || c.is_whitespace()) {
        _ if name.contains("://") => "***".into(),
        Some(end) => format!("{}***", name.get(..=end).unwrap_or_default()).into(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mistyped_word_or_number_is_repeated() {
        for value in
            ["", "frob", "--wiat", "/run/redis.sock", "5M", "-1", "1m30s", "1:30", "4294967296"]
        {
            assert_eq!(shown(value), format!("'{value}'"));
        }
        let passphrase = "correct-horse-battery-staple";
        for value in ["hunter2", "u:p", "a,b=c", "a b", "1234567890123", "é", "'", passphrase] {
            assert_eq!(shown(value), "'***'", "{value}");
        }
    }
}
