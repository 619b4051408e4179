//! How text looks on a terminal, in a pipe or in a file.

use crate::text::Line;

/// The layout of a page or a table.
#[derive(Clone, Copy)]
pub struct Style {
    /// The width of the terminal in columns; `None` for no limit.
    pub width: Option<usize>,
    pub color: bool,
    /// How many waiters a page lists at most.
    pub waiters: usize,
}

impl Style {
    /// One line with its end, safe for a terminal. A line that needs attention is yellow.
    pub(crate) fn line(self, text: &str, needs_attention: bool) -> String {
        let text = Line::new(text);
        let text = text.as_str().trim_end();
        match self.color && needs_attention {
            true => format!("\x1b[33m{text}\x1b[m\n"),
            false => format!("{text}\n"),
        }
    }
}
