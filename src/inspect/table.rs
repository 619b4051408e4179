//! Several locks as a table of text.

use std::borrow::Cow;

use super::Inspected;
use super::style::Style;
use crate::rules::{Mode, State, View, show};
use crate::text::{columns, cut, cut_middle, push_padded};

/// The number of spaces between two columns.
const GAP: usize = 2;

/// The smallest width to which the names of locks and holders are cut.
const NARROWEST: usize = 10;

/// The smallest width at which a label that must be cut is still worth a column.
const NARROWEST_LABEL: usize = 16;

const HEADINGS: [&str; 7] = ["NAME", "HELD BY", "FOR", "LEASE", "WAITING", "ATTENTION", "LABEL"];

// The columns whose lengths depend on users.
const NAME: usize = 0;
const HOLDER: usize = 1;
const LABEL: usize = 6;

/// The columns that a list without problems, or without labels, leaves out.
const OPTIONAL: [usize; 2] = [5, LABEL];

/// A printable text that can be cut, and what must follow it in any case.
#[derive(Default)]
struct Cell {
    text: String,
    suffix: String,
}

struct Row {
    cells: [Cell; 7],
    alarming: bool,
}

/// A table with one line per lock, in the order given. Empty if there are no locks.
pub fn list(locks: &[Inspected], style: Style) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let heading = Row { cells: HEADINGS.map(Cell::from), alarming: false };
    let rows: Vec<Row> = std::iter::once(heading).chain(locks.iter().map(row)).collect();
    let widths = fit(&rows, style.width);
    let mut table = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.cells.iter().zip(widths).enumerate() {
            if width > 0 {
                push_padded(&mut line, &cell.cut(column, width), width + GAP);
            }
        }
        table += &style.line(&line, row.alarming);
    }
    table
}

impl Cell {
    fn width(&self) -> usize {
        columns(&self.text) + columns(&self.suffix)
    }

    fn cut(&self, column: usize, width: usize) -> Cow<'_, str> {
        let width = width.saturating_sub(columns(&self.suffix));
        // The end of a URL tells jobs apart.
        let text = if column == LABEL { cut_middle } else { cut }(&self.text, width);
        if self.suffix.is_empty() { text } else { text + self.suffix.as_str() }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), suffix: String::new() }
    }
}

fn row(lock: &Inspected) -> Row {
    let Inspected { name, view, problems } = lock;
    let waiting = match view.waiters.len() {
        0 => String::new(),
        waiting => waiting.to_string(),
    };
    // The time since the grant of a lock that was released is not the time that it was held.
    let held = lock.age().filter(|_| view.state != State::Cooling);
    let label = view.foremost().and_then(|holder| holder.client.label());
    let cells = [
        Cell::from(name.as_str()),
        holder(view),
        Cell::from(held.map_or(String::new(), show)),
        Cell::from(view.ttl.map_or("no expiry".to_owned(), show)),
        Cell::from(waiting),
        Cell::from(problems.first().map_or("", |problem| problem.short.as_str())),
        Cell::from(label.unwrap_or_default()),
    ];
    Row { cells, alarming: lock.needs_attention() }
}

/// `ana@ci-3 pid 4242 (make) and 1 more`, `2 of 3 slots: ana@ci-3 pid 4242 (make)`, `released by
/// ana@ci-3 pid 4242 (make)`.
fn holder(view: &View) -> Cell {
    let Some(holder) = view.foremost() else { return Cell::from("another tool") };
    let released = if view.state == State::Cooling { "released by " } else { "" };
    let who = format!("{released}{}", holder.client);
    match (view.mode, view.holder_count.saturating_sub(1)) {
        (Some(Mode::Slots(slots)), _) => {
            Cell::from(format!("{} of {slots} slots: {who}", view.holder_count))
        }
        (_, 0) => Cell::from(who),
        (_, others) => Cell { suffix: format!(" and {others} more"), ..Cell::from(who) },
    }
}

/// Column widths, 0 for a column that is left out. The names of locks and holders are cut so that
/// the line fits. The labels get what is left.
fn fit(rows: &[Row], limit: Option<usize>) -> [usize; 7] {
    let (mut widths, mut used, mut suffix) = ([0; 7], [false; 7], 0);
    for (index, row) in rows.iter().enumerate() {
        for (column, cell) in row.cells.iter().enumerate() {
            widths[column] = cell.width().max(widths[column]);
            // The first row is the heading.
            used[column] |= index > 0 && !cell.text.is_empty();
        }
        suffix = columns(&row.cells[HOLDER].suffix).max(suffix);
    }
    for column in OPTIONAL.into_iter().filter(|column| !used[*column]) {
        widths[column] = 0;
    }
    let Some(limit) = limit else { return widths };
    let label = std::mem::take(&mut widths[LABEL]);
    let narrowest = |column| NARROWEST.max(if column == HOLDER { suffix + 5 } else { 0 });
    let room = loop {
        let whole: usize = widths.iter().filter(|width| **width > 0).map(|width| width + GAP).sum();
        let excess = |column: usize| widths[column].saturating_sub(narrowest(column));
        let wider = if excess(NAME) > excess(HOLDER) { NAME } else { HOLDER };
        match whole.checked_sub(limit + GAP) {
            Some(over @ 1..) if excess(wider) > 0 => {
                widths[wider] -= over.min(excess(wider)).clamp(1, 4);
            }
            _ => break limit.saturating_sub(whole),
        }
    };
    if label <= room || room >= NARROWEST_LABEL {
        widths[LABEL] = label.min(room);
    }
    widths
}

/// `3 locks: 2 held, 1 revoked; 4 waiting; 1 needs attention`.
pub fn summary(locks: &[Inspected]) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let count = |state| locks.iter().filter(|lock| lock.view.state == state).count();
    let kinds = [
        (State::Held, "held"),
        (State::Revoked, "revoked"),
        (State::Cooling, "cooling"),
        (State::Foreign, "foreign"),
    ];
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(state, word)| (count(state), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let waiting: usize = locks.iter().map(|lock| lock.view.waiters.len()).sum();
    let alarming = locks.iter().filter(|lock| lock.needs_attention()).count();
    let plural = if locks.len() == 1 { "" } else { "s" };
    let mut line = format!("{} lock{plural}: {}", locks.len(), kinds.join(", "));
    if waiting > 0 {
        line += &format!("; {waiting} waiting");
    }
    if alarming > 0 {
        let need = if alarming == 1 { "needs" } else { "need" };
        line += &format!("; {alarming} {need} attention");
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: [&str; 7]) -> Row {
        Row { cells: cells.map(Cell::from), alarming: true }
    }

    fn rows(cells: [&str; 7]) -> [Row; 2] {
        [row(HEADINGS), row(cells)]
    }

    #[test]
    fn only_names_are_cut_and_only_to_the_smallest_width() {
        let long =
            rows(["a-rather-long-name", "somebody@somewhere pid 1 (x)", "1m", "2s", "", "!", ""]);
        assert_eq!(fit(&long, None), [18, 28, 3, 5, 7, 9, 0]);
        let narrow = fit(&long, Some(60));
        assert!(narrow[..6].iter().map(|width| width + 2).sum::<usize>() - 2 <= 60, "{narrow:?}");
        let least = fit(&long, Some(5));
        assert_eq!((least[NAME], least[HOLDER]), (NARROWEST, NARROWEST));
        let wide = rows(["日本日本日本", "x", "1m", "2s", "", "!", ""]);
        assert_eq!((fit(&wide, None)[NAME], fit(&wide, Some(5))[NAME]), (12, NARROWEST));
    }

    #[test]
    fn a_suffix_is_never_cut() {
        let mut both = rows(["L", "somebody@somewhere pid 1 (x)", "1m", "2s", "", "", ""]);
        both[1].cells[HOLDER].suffix = " and 1 more".into();
        for width in [0, 20, 40, 60, 80] {
            let shown = both[1].cells[HOLDER].cut(HOLDER, fit(&both, Some(width))[HOLDER]);
            assert!(shown.starts_with("some") && shown.ends_with(" and 1 more"), "{shown}");
        }
    }

    #[test]
    fn labels_get_the_room_that_is_left() {
        let url = "https://ci.example/jobs/813";
        let labeled = rows(["L", "ana@ci-3 pid 1 (x)", "1m", "2s", "", "", url]);
        let others = 4 + 18 + 3 + 5 + 7 + 5 * GAP;
        assert_eq!(fit(&labeled, None)[LABEL], url.len());
        assert_eq!(fit(&labeled, Some(others + 100))[LABEL], url.len());
        assert_eq!(fit(&labeled, Some(others + 20))[LABEL], 20);
        assert_eq!(fit(&labeled, Some(others + 15))[LABEL], 0);
        assert_eq!(fit(&labeled, Some(0))[LABEL], 0);
        assert_eq!(labeled[1].cells[LABEL].cut(LABEL, 16), "https…e/jobs/813");
    }
}
