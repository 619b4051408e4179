//! Several locks as a table of text.

use std::fmt::Write;

use super::Inspected;
use crate::duration::show;
use crate::lock::view::State;
use crate::text::{columns, cut, padded, printable};

/// The layout of a table.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    /// The width of the terminal in columns; `None` for no limit.
    pub(crate) width: Option<usize>,
    pub(crate) color: bool,
}

/// The number of spaces between two columns.
const GAP: usize = 2;

/// The smallest width to which an elastic column is cut.
const NARROWEST: usize = 10;

/// The columns of names and holders, whose lengths depend on users.
const ELASTIC: [usize; 2] = [0, 1];

struct Row {
    cells: [String; 6],
    alarming: bool,
}

/// A table with one line per lock, those with problems first, and a summary. Empty if there are no
/// locks.
pub(crate) fn list(locks: &[Inspected], style: Style) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let mut sorted: Vec<_> = locks.iter().collect();
    sorted
        .sort_by_key(|lock| (!lock.needs_attention(), std::cmp::Reverse(lock.view.waiters.len())));
    let heading = ["NAME", "HELD BY", "FOR", "LEASE", "WAITING", "ATTENTION"];
    let heading = Row { cells: heading.map(str::to_owned), alarming: false };
    let rows: Vec<Row> = std::iter::once(heading).chain(sorted.into_iter().map(row)).collect();
    let widths = fit(&rows, style.width);
    let mut table = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.cells.iter().zip(widths) {
            line += &padded(&cut(cell, width), width + GAP);
        }
        let line = line.trim_end();
        // Writing to a string cannot fail.
        let _ = match style.color && row.alarming {
            true => writeln!(table, "\x1b[33m{line}\x1b[m"),
            false => writeln!(table, "{line}"),
        };
    }
    table + &summary(locks)
}

fn row(lock: &Inspected) -> Row {
    let Inspected { name, view, problems } = lock;
    let lease = view.ttl.map_or("no expiry".into(), show);
    let waiting = match view.waiters.len() {
        0 => String::new(),
        waiting => waiting.to_string(),
    };
    let (holder, held) = match view.holders.first() {
        Some(holder) => {
            let others = match view.holder_count.saturating_sub(1) {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            (format!("{}{others}", holder.client), show(view.now.since(holder.acquired)))
        }
        None => ("another tool".into(), String::new()),
    };
    let problem = problems.first().map_or(String::new(), |problem| problem.short.clone());
    let cells = [name.to_string(), holder, held, lease, waiting, problem];
    Row { cells: cells.map(|cell| printable(&cell)), alarming: lock.needs_attention() }
}

/// Column widths, with the elastic columns cut so that the line fits.
fn fit(rows: &[Row], limit: Option<usize>) -> [usize; 6] {
    let mut widths: [usize; 6] = std::array::from_fn(|column| {
        rows.iter().map(|row| columns(&row.cells[column])).max().unwrap_or(0)
    });
    // Without problems, their column needs no heading.
    if rows.iter().all(|row| !row.alarming) {
        widths[5] = 0;
    }
    let Some(limit) = limit else { return widths };
    loop {
        let whole: usize = widths.iter().map(|width| width + GAP).sum::<usize>() - GAP;
        let wider = ELASTIC.into_iter().max_by_key(|&column| widths[column]).unwrap_or(0);
        if whole <= limit || widths[wider] <= NARROWEST {
            return widths;
        }
        widths[wider] -= (whole - limit).min(widths[wider] - NARROWEST).clamp(1, 4);
    }
}

/// `3 locks: 2 held, 1 revoked; 4 waiting; 1 needs attention`.
fn summary(locks: &[Inspected]) -> String {
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

    #[test]
    fn only_elastic_columns_are_cut_and_only_to_the_smallest_width() {
        let row = |cells: [&str; 6]| Row { cells: cells.map(str::to_owned), alarming: true };
        let rows =
            [row(["a-rather-long-name", "somebody@somewhere pid 1 (x)", "1m", "2s", "", "!"])];
        assert_eq!(fit(&rows, None), [18, 28, 2, 2, 0, 1]);
        let narrow = fit(&rows, Some(40));
        assert!(narrow.iter().map(|width| width + 2).sum::<usize>() - 2 <= 40, "{narrow:?}");
        let least = fit(&rows, Some(5));
        assert_eq!((least[0], least[1]), (NARROWEST, NARROWEST));
        let wide = [row(["日本日本日本", "x", "1m", "2s", "", "!"])];
        assert_eq!((fit(&wide, None)[0], fit(&wide, Some(5))[0]), (12, NARROWEST));
    }
}
