//! Several locks as a table of text.

use super::Inspected;
use super::style::Style;
use crate::rules::{ClientInfo, Ending, HistoryEntry, Mode, Outcome, State, View, show};
use crate::text::{columns, cut, cut_middle, push_padded};

/// The number of spaces between two columns.
const GAP: usize = 2;

const COLUMNS: usize = 8;
const HEADINGS: [&str; COLUMNS] =
    ["NAME", "HELD BY", "FOR", "LEASE", "WAITING", "SKIPPED", "ATTENTION", "LABEL"];

const NAME: usize = 0;
const HOLDER: usize = 1;
const FOR: usize = 2;
const LEASE: usize = 3;
const WAITING: usize = 4;
const SKIPPED: usize = 5;
const ATTENTION: usize = 6;
const LABEL: usize = 7;

/// The columns that are left out if no lock needs them.
const OPTIONAL: [usize; 3] = [SKIPPED, ATTENTION, LABEL];

/// What gives way on a narrow terminal, in this order, and down to which width. The name comes last,
/// because the user types it next.
const GIVING_WAY: [usize; 15] = [
    SKIPPED, LABEL, HOLDER, SKIPPED, LABEL, HOLDER, LABEL, HOLDER, LEASE, WAITING, ATTENTION,
    HOLDER, FOR, ATTENTION, NAME,
];
const DOWN_TO: [usize; 15] = [10, 24, 24, 0, 16, 16, 0, 10, 0, 0, 10, 0, 0, 0, 10];

struct TableRow {
    cells: [String; COLUMNS],
    alarming: bool,
}

/// A table with one line per lock, in the order given. Empty if there are no locks.
pub fn list(locks: &[Inspected], style: Style) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let heading = TableRow { cells: HEADINGS.map(String::from), alarming: false };
    let rows: Vec<TableRow> = std::iter::once(heading).chain(locks.iter().map(row)).collect();
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

fn row(lock: &Inspected) -> TableRow {
    let Inspected { name, view, problems } = lock;
    let waiting = match view.waiter_count() {
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
    TableRow { cells, alarming: lock.needs_attention() }
}

/// `ana@ci-3 pid 4242 (make)`, `2 holders: ana@ci-3 pid 4242 (make)`, `2 of 3 slots: ana@ci-3 pid
/// 4242 (make)`, `released by ana@ci-3 pid 4242 (make)`.
fn holder(view: &View) -> String {
    let Some(holder) = view.foremost() else {
        return if view.state == State::Free { "free" } else { view.foreigner() }.into();
    };
    let count = match (view.mode, view.holder_count()) {
        (Some(Mode::Slots(slots)), count) => format!("{count} of {slots} slots: "),
        (_, count @ 2..) => format!("{count} holders: "),
        _ => String::new(),
    };
    let released = if view.state == State::Cooling { "released by " } else { "" };
    format!("{count}{released}{}", holder.client)
}

/// `free for 3h, exit 0: ana@ci-3 pid 4242 (make)`.
fn last_holder(entry: &HistoryEntry, view: &View) -> String {
    let outcome = match (entry.ending, entry.outcome) {
        (Ending::Released, Outcome::Exit(_) | Outcome::Signal(_) | Outcome::NotStarted) => {
            entry.outcome.to_string()
        }
        (ending, _) => ending.to_string(),
    };
    format!("free for {}, {outcome}: {}", show(view.now.since(entry.at)), entry.client)
}

/// Column widths, 0 for a column that is left out, so that a line fits.
fn fit(rows: &[TableRow], limit: Option<usize>) -> [usize; COLUMNS] {
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
    let limit = limit.map_or(usize::MAX, |limit| limit + GAP);
    let whole = |widths: [usize; COLUMNS]| -> usize {
        widths.iter().filter(|width| **width > 0).map(|width| width + GAP).sum()
    };
    let wanted = widths[HOLDER];
    for (column, least) in GIVING_WAY.into_iter().zip(DOWN_TO) {
        let excess = whole(widths).saturating_sub(limit);
        let cut = widths[column].saturating_sub(excess).max(least.min(widths[column]));
        widths[column] = if least == 0 && excess > 0 { 0 } else { cut };
    }
    // What other columns have left.
    if widths[HOLDER] > 0 {
        let room = limit.saturating_sub(whole(widths));
        widths[HOLDER] = wanted.min(widths[HOLDER].saturating_add(room));
    }
    widths
}

/// `3 locks; 4 waiting; 1 needs attention`.
pub fn summary(locks: &[Inspected]) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let waiting: u64 = locks.iter().map(|lock| lock.view.waiter_count()).sum();
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

    fn rows(cells: [&str; COLUMNS]) -> [TableRow; 2] {
        [HEADINGS, cells].map(|cells| TableRow { cells: cells.map(String::from), alarming: true })
    }

    #[test]
    fn on_a_narrow_terminal_the_name_is_cut_last() {
        let long = rows([
            "a-rather-long-name",
            "somebody@somewhere pid 1 (x)",
            "1m",
            "2s",
            "",
            "3 times, last 1h ago by ana@ci-4 pid 17 (make)",
            "revoked",
            "https://ci.example/job/17",
        ]);
        for (limit, fitted) in [
            (None, [18, 28, 3, 5, 7, 46, 9, 25]),
            (Some(120), [18, 28, 3, 5, 7, 11, 9, 25]),
            (Some(110), [18, 28, 3, 5, 7, 0, 9, 24]),
            (Some(90), [18, 20, 3, 5, 7, 0, 9, 16]),
            (Some(80), [18, 28, 3, 5, 7, 0, 9, 0]),
            (Some(60), [18, 15, 3, 0, 7, 0, 9, 0]),
            (Some(40), [18, 0, 3, 0, 0, 0, 9, 0]),
            (Some(30), [18, 0, 0, 0, 0, 0, 9, 0]),
            (Some(20), [18, 0, 0, 0, 0, 0, 0, 0]),
            (Some(5), [10, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(fit(&long, limit), fitted, "{limit:?}");
        }
        let wide = rows(["日本日本日本", "x", "1m", "2s", "", "", "!", ""]);
        assert_eq!((fit(&wide, None)[NAME], fit(&wide, Some(5))[NAME]), (12, 10));
    }
}
