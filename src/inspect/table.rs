//! Locks for people to read: a page for one, a table for many.

use std::fmt::Write;

use crate::duration::show;
use crate::lock::Name;
use crate::view::{Standing, View};

/// One lock with all its holders and waiters.
pub(crate) fn page(name: &Name, view: &View) -> String {
    let mut page = String::new();
    let mut line = |text: String| {
        page.push_str(text.trim_end());
        page.push('\n');
    };
    if view.holders.is_empty() {
        line(format!("{name}: {view}"));
    }
    for holder in &view.holders {
        let about = &holder.about;
        let held = show(view.now.since(holder.acquired));
        line(format!("{name}: held by {about} for {held}"));
        let standing = match holder.standing {
            Standing::Held => "",
            Standing::Revoked => "revoked, ",
            Standing::Cooling => "released, kept for another ",
        };
        line(format!(
            "  lease    {standing}{} left, renewed {} ago",
            show(holder.deadline.since(view.now)),
            show(view.now.since(holder.renewed))
        ));
        line(format!("  fence    {}", holder.fence));
        line(format!("  id       {}", holder.id));
        if let Some(label) = about.label() {
            line(format!("  label    {label}"));
        }
    }
    for (waiter, position) in view.waiters.iter().zip(1..) {
        let label = waiter.about.label().map_or(String::new(), |label| format!(", {label}"));
        let waiting = show(view.now.since(waiter.since));
        line(format!("  waiting  {position}. {} for {waiting}{label}", waiter.about));
    }
    page
}

/// Many locks, a line each; nothing at all if there are none.
pub(crate) fn list(locks: &[(Name, View)]) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let heading = ["NAME", "HELD BY", "FOR", "LEASE", "WAITING"].map(str::to_owned);
    let rows: Vec<[String; 5]> =
        std::iter::once(heading).chain(locks.iter().map(|(name, view)| row(name, view))).collect();
    let widths: [usize; 5] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let mut table = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

fn row(name: &Name, view: &View) -> [String; 5] {
    let lease = view.ttl.map_or("no expiry".into(), show);
    let waiting = match view.waiters.len() {
        0 => String::new(),
        waiting => waiting.to_string(),
    };
    let (who, held) = match (view.state, view.holders.first()) {
        (_, Some(holder)) => {
            let others = match view.holder_count.saturating_sub(1) {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            (format!("{}{others}", holder.about), show(view.now.since(holder.acquired)))
        }
        _ => ("another tool".into(), String::new()),
    };
    [name.to_string(), who, held, lease, waiting]
}
