//! Several locks as a table of text.

use super::Inspected;
use super::style::Style;
use crate::rules::{ClientInfo, Ending, HistoryEntry, Mode, Outcome, State, View, show};
use crate::text::{columns, cut, cut_middle, push_padded};

/// The number of spaces between two columns.
const GAP: usize = 2;

/// The smallest width to which the names of locks and holders are cut.
const NARROWEST: usize = 10;

/// The smallest width at which a label that must be cut is still worth a column.
const NARROWEST_LABEL: usize = 16;

const COLUMNS: usize = 8;
const HEADINGS: [&str; COLUMNS] =
    ["NAME", "HELD BY", "FOR", "LEASE", "WAITING", "SKIPPED", "ATTENTION", "LABEL"];

// The columns whose lengths depend on users.
const NAME: usize = 0;
const HOLDER: usize = 1;
const SKIPPED: usize = 5;
const LABEL: usize = 7;

/// The columns that are left out if no lock needs them.
const OPTIONAL: [usize; 3] = [SKIPPED, 6, LABEL];

struct Row {
    cells: [String; COLUMNS],
    alarming: bool,
}

/// A table with one line per lock, in the order given. Empty if there are no locks.
pub fn list(locks: &[Inspected], style: Style) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let heading = Row { cells: HEADINGS.map(String::from), alarming: false };
    let rows: Vec<Row> = std::iter::once(heading).chain(locks.iter().map(row)).collect();
    let widths = fit(&rows, style.width);
    let mut table = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.cells.iter().zip(widths).enumerate() {
            if width > 0 {
                // The ends of names and URLs tell them apart.
                let cut = if matches!(column, NAME | LABEL) { cut_middle } else { cut };
                push_padded(&mut line, &cut(cell, width), width + GAP);
            }
        }
        table += &style.line(&line, row.alarming);
    }
    table
}

fn row(lock: &Inspected) -> Row {
    let Inspected { name, view, problems } = lock;
    let waiting = match view.waiters.len() {
        0 => String::new(),
        waiting => waiting.to_string(),
    };
    let last = view.history.last().filter(|_| view.state == State::Free);
    let held = view.age().or(last.map(|entry| entry.at.since(entry.acquired)));
    let client = view.foremost().map(|holder| &holder.client);
    let client = client.or(last.map(|entry| &entry.client));
    let lease = view.ttl.map_or("no expiry".into(), show);
    let skipped = view.skipped.as_ref().map(|skipped| skipped.shown(view.now));
    let cells = [
        name.to_string(),
        last.map_or_else(|| holder(view), |entry| last_holder(entry, view)),
        held.map_or(String::new(), show),
        if view.state == State::Free { String::new() } else { lease },
        waiting,
        skipped.unwrap_or_default(),
        problems.first().map_or(String::new(), |problem| problem.short.clone()),
        client.and_then(ClientInfo::label).unwrap_or_default().to_owned(),
    ];
    Row { cells, alarming: lock.needs_attention() }
}

/// `ana@ci-3 pid 4242 (make)`, `2 holders: ana@ci-3 pid 4242 (make)`, `2 of 3 slots: ana@ci-3 pid
/// 4242 (make)`, `released by ana@ci-3 pid 4242 (make)`.
fn holder(view: &View) -> String {
    let Some(holder) = view.foremost() else {
        return if view.state == State::Free { "free" } else { "another tool" }.into();
    };
    let count = match (view.mode, view.holder_count) {
        (Some(Mode::Slots(slots)), count) => format!("{count} of {slots} slots: "),
        (_, 2..) => format!("{} holders: ", view.holder_count),
        _ => String::new(),
    };
    let released = if view.state == State::Cooling { "released by " } else { "" };
    format!("{count}{released}{}", holder.client)
}

/// `free for 3h, exit 0: ana@ci-3 pid 4242 (make)`.
fn last_holder(entry: &HistoryEntry, view: &View) -> String {
    let outcome = match (entry.ending, entry.outcome) {
        (Ending::Released, Outcome::Exit(_) | Outcome::Signal(_)) => entry.outcome.to_string(),
        (ending, _) => ending.to_string(),
    };
    format!("free for {}, {outcome}: {}", show(view.now.since(entry.at)), entry.client)
}

/// Column widths, 0 for a column that is left out. The columns whose lengths depend on users are cut
/// so that the line fits. The labels get what is left.
fn fit(rows: &[Row], limit: Option<usize>) -> [usize; COLUMNS] {
    let (mut widths, mut used) = ([0; COLUMNS], [false; COLUMNS]);
    for (index, row) in rows.iter().enumerate() {
        for (column, cell) in row.cells.iter().enumerate() {
            widths[column] = columns(cell).max(widths[column]);
            // The first row is the heading.
            used[column] |= index > 0 && !cell.is_empty();
        }
    }
    for column in OPTIONAL.into_iter().filter(|column| !used[*column]) {
        widths[column] = 0;
    }
    let Some(limit) = limit else { return widths };
    let label = std::mem::take(&mut widths[LABEL]);
    let whole = |widths: [usize; COLUMNS]| -> usize {
        widths.iter().filter(|width| **width > 0).map(|width| width + GAP).sum()
    };
    while whole(widths) > limit + GAP {
        let wider = [SKIPPED, NAME, HOLDER].into_iter().max_by_key(|column| widths[*column]);
        let wider = wider.unwrap_or(HOLDER);
        if widths[wider] <= NARROWEST {
            break;
        }
        widths[wider] -= 1;
    }
    let room = limit.saturating_sub(whole(widths));
    if label <= room || room >= NARROWEST_LABEL {
        widths[LABEL] = label.min(room);
    }
    widths
}

/// `3 locks; 4 waiting; 1 needs attention`.
pub fn summary(locks: &[Inspected]) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let waiting: usize = locks.iter().map(|lock| lock.view.waiters.len()).sum();
    let alarming = locks.iter().filter(|lock| lock.needs_attention()).count();
    let plural = if locks.len() == 1 { "" } else { "s" };
    let mut line = format!("{} lock{plural}", locks.len());
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

    fn rows(cells: [&str; COLUMNS]) -> [Row; 2] {
        [HEADINGS, cells].map(|cells| Row { cells: cells.map(String::from), alarming: true })
    }

    #[test]
    fn only_names_are_cut_and_only_to_the_smallest_width() {
        let long = rows([
            "a-rather-long-name",
            "somebody@somewhere pid 1 (x)",
            "1m",
            "2s",
            "",
            "",
            "!",
            "",
        ]);
        assert_eq!(fit(&long, None), [18, 28, 3, 5, 7, 0, 9, 0]);
        let narrow = fit(&long, Some(60));
        assert!(narrow[..7].iter().map(|width| width + 2).sum::<usize>() - 4 <= 60, "{narrow:?}");
        let least = fit(&long, Some(5));
        assert_eq!((least[NAME], least[HOLDER]), (NARROWEST, NARROWEST));
        let wide = rows(["日本日本日本", "x", "1m", "2s", "", "", "!", ""]);
        assert_eq!((fit(&wide, None)[NAME], fit(&wide, Some(5))[NAME]), (12, NARROWEST));
    }
}
