//! Text that users read or paste: made safe to print, quoted for a shell, measured in columns.

mod columns;
mod line;
mod printable;
mod shell;

pub use columns::{columns, cut, cut_middle, push_padded};
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

/// The number of columns that a message spends on a value.
const LONGEST_VALUE: usize = 60;

/// A value in a message: quoted, without credentials, and shortened if it is long.
pub(crate) fn shown(value: &str) -> String {
    format!("'{}'", cut_middle(&masked(&printable(value)), LONGEST_VALUE))
}
