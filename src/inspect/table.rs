//! Several locks as a table of text.

use super::Inspected;
use super::grid::{Column, TableRow, grid};
use super::style::Style;
use crate::rules::{ClientInfo, Ending, HistoryEntry, Mode, Outcome, State, View, show};
use crate::text::{cut, cut_middle};

/// In the order of ranks, they get room on a narrow terminal. The name comes first, because the user
/// types it next. The ends of names and URLs tell them apart.
const COLUMNS: [Column; 8] = [
    Column { heading: "NAME", rank: 0, least: 24, cut: cut_middle },
    Column { heading: "HELD BY", rank: 1, least: 16, cut },
    Column { heading: "FOR", rank: 3, least: usize::MAX, cut },
    Column { heading: "LEASE", rank: 5, least: usize::MAX, cut },
    Column { heading: "WAITING", rank: 4, least: usize::MAX, cut },
    Column { heading: "SKIPPED", rank: 7, least: 34, cut },
    Column { heading: "ATTENTION", rank: 2, least: 16, cut },
    Column { heading: "LABEL", rank: 6, least: 16, cut: cut_middle },
];

/// A table with one line per lock, in the order given, and a summary. Empty if there are no locks.
pub fn list(locks: &[Inspected], style: Style) -> [String; 2] {
    if locks.is_empty() {
        return Default::default();
    }
    let (table, hidden) = grid(&COLUMNS, locks.iter().map(row).collect(), style);
    [table, style.line(&summary(locks, hidden), false)]
}

fn row(lock: &Inspected) -> TableRow<8> {
    let Inspected { name, view, problems } = lock;
    let waiting = Some(view.waiter_count()).filter(|count| *count > 0);
    let last = view.history.last().filter(|_| view.state == State::Free);
    let held = view.age().or(last.map(|entry| entry.at.since(entry.acquired)));
    let client = view.foremost().map(|holder| &holder.client);
    let client = client.or(last.map(|entry| &entry.client));
    let lease = view.ttl.map_or("no expiry".into(), show);
    let revoked = if view.state == State::Revoked { ", revoked" } else { "" };
    let skipped = view.skipped.as_ref().map(|skipped| skipped.shown(view.now));
    let cells = [
        name.to_string(),
        last.map_or_else(|| holder(view), |entry| last_holder(entry, view)),
        held.map_or(String::new(), show),
        if view.state == State::Free { String::new() } else { lease + revoked },
        waiting.map_or(String::new(), |count| count.to_string()),
        skipped.unwrap_or_default(),
        problems.first().map_or(String::new(), |problem| problem.short.clone()),
        client.and_then(ClientInfo::label).unwrap_or_default().to_owned(),
    ];
    (cells, lock.needs_attention())
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

/// `3 locks; 4 waiting; 1 needs attention; LABEL hidden; widen the terminal or use --json`.
fn summary(locks: &[Inspected], hidden: Option<String>) -> String {
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
    hidden.into_iter().fold(line, |line, hidden| line + "; " + &hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::columns;

    #[test]
    fn on_a_narrow_terminal_columns_are_hidden_and_no_number_is_cut() {
        let cells = [
            "a-rather-long-name",
            "root@vm pid 1452 (sh)",
            "1m",
            "2s",
            "151",
            "3 times, last 1h ago by ana@ci-4 pid 17 (make)",
            "not renewed for 2m13s",
            "https://ci.example/job/17",
        ];
        let shown = |width| {
            let style = Style { width, color: false, waiters: 0 };
            grid(&COLUMNS, vec![(cells.map(String::from), true)], style)
        };
        let wide =
            "a-rather-long-name  root@vm pid 1452 (sh)  1m   2s     151      not renewed for…";
        let most = "FOR, LEASE, WAITING, SKIPPED, ATTENTION and LABEL";
        for (width, line, hidden) in [
            (80, wide, "SKIPPED and LABEL"),
            (40, "a-rather-long-name  root@vm pid 1452 (s…", most),
            (36, "a-rather-long-name  root@vm pid …", most),
            (12, "a-r…ong-name", &format!("HELD BY, {most}")),
        ] {
            let (table, told) = shown(Some(width));
            assert_eq!(table.lines().nth(1), Some(line));
            assert_eq!(told, Some(format!("{hidden} hidden; widen the terminal or use --json")));
        }
        let (table, told) = shown(None);
        assert!(cells.iter().all(|cell| table.contains(cell)), "{table}");
        assert_eq!(told, None);
        for width in 10..200 {
            let (table, told) = shown(Some(width));
            let [heading, line] = Vec::from_iter(table.lines())[..] else { panic!("{table}") };
            assert!(columns(heading) <= width && columns(line) <= width, "{table}");
            for column in COLUMNS {
                let is_told = told.as_ref().is_some_and(|told| told.contains(column.heading));
                assert_ne!(heading.contains(column.heading), is_told, "{width}: {told:?}");
            }
        }
    }
}
