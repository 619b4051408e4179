//! Stdout, if it is a terminal: its size, and frames that replace each other.

use std::env;

use crate::inspect::style::Style;
use crate::text::columns;

/// Stdout, if it is a terminal.
#[derive(Clone, Copy)]
pub(super) struct Screen {
    /// Columns and lines.
    size: Option<(usize, usize)>,
}

impl Screen {
    pub(super) fn of_stdout() -> Self {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        // A terminal that does not know its size reports 0.
        let or = |count: u16, default| if count == 0 { default } else { usize::from(count) };
        let chosen = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let chosen = chosen.filter(|columns| *columns > 0);
        Self {
            size: size
                .map(|size| (chosen.unwrap_or_else(|| or(size.ws_col, 80)), or(size.ws_row, 24))),
        }
    }

    pub(super) fn is_terminal(self) -> bool {
        self.size.is_some()
    }

    /// The layout of text. Color needs a terminal, and NO_COLOR disables it (no-color.org).
    pub(super) fn style(self) -> Style {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let color = self.size.is_some() && !is_set("NO_COLOR") && !dumb;
        Style { width: self.size.map(|(columns, _)| columns), color, waiters: usize::MAX }
    }

    /// Returns the text of a frame that replaces the last one. To avoid flicker it overwrites each
    /// line before it erases the rest, and hides the cursor meanwhile. If there is no room for all
    /// lines, the last ones of the body are left out, and the frame says how many. Without a
    /// terminal the text stays as it is.
    pub(super) fn frame(self, body: &str, foot: &str, first: bool) -> String {
        let Some((width, lines)) = self.size else { return format!("{body}{foot}") };
        let rows = |line: &str| columns(line).div_ceil(width).max(1);
        let foot_rows: usize = foot.lines().map(rows).sum();
        // The last line is the cursor's.
        let room = lines.saturating_sub(1 + foot_rows);
        let all = body.lines().count();
        let fitting = |mut room: usize| {
            let fits = |line: &&str| {
                let rest = room.checked_sub(rows(line));
                room = rest.unwrap_or(0);
                rest.is_some()
            };
            body.lines().take_while(fits).count()
        };
        let (shown, more) = match fitting(room) {
            shown if shown == all => (all, None),
            _ => {
                let shown = fitting(room.saturating_sub(1));
                (shown, Some(format!("({} more lines)", all - shown)))
            }
        };
        let text = body.lines().take(shown).chain(more.as_deref()).chain(foot.lines());
        let text = text.take(lines.saturating_sub(1)).map(|line| format!("{line}\x1b[K\n"));
        let clear = if first { "\x1b[2J" } else { "" };
        format!("\x1b[?25l{clear}\x1b[H{}\x1b[J\x1b[?25h", text.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a frame on a terminal of this size.
    fn frame(size: (usize, usize), body: &str, foot: &str) -> Vec<String> {
        let frame = Screen { size: Some(size) }.frame(body, foot, false);
        let text = frame.strip_prefix("\x1b[?25l\x1b[H").unwrap();
        let text = text.strip_suffix("\x1b[J\x1b[?25h").unwrap();
        text.lines().map(|line| line.trim_end_matches("\x1b[K").to_owned()).collect()
    }

    #[test]
    fn a_frame_that_is_too_long_keeps_its_foot() {
        let body = "1\n2\n3\n4\n";
        assert_eq!(frame((80, 6), body, "foot\n"), ["1", "2", "3", "4", "foot"]);
        assert_eq!(frame((80, 5), body, "foot\n"), ["1", "2", "(2 more lines)", "foot"]);
        assert_eq!(frame((80, 3), body, "foot\n"), ["(4 more lines)", "foot"]);
        assert_eq!(frame((80, 5), body, ""), body.lines().collect::<Vec<_>>());
        assert_eq!(frame((80, 1), body, "foot\n"), Vec::<String>::new());
    }

    #[test]
    fn a_line_that_wraps_takes_the_rows_that_it_needs() {
        assert_eq!(frame((4, 5), "1\n2345678\n9\n", "foot\n"), ["1", "(2 more lines)", "foot"]);
        assert_eq!(frame((4, 6), "1\n2345678\n9\n", "foot\n"), ["1", "2345678", "9", "foot"]);
    }
}
