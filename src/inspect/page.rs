//! One lock as a page of text.

use super::Inspected;
use super::json::rfc3339;
use crate::duration::show;
use crate::lock::Name;
use crate::lock::view::{HistoryEntry, HoldState, Holder, Outcome, State, View};
use crate::text::printable;

/// A page with the holders, waiters and history of a lock.
pub(crate) fn page(lock: &Inspected, hazards: &[String]) -> String {
    let Inspected { name, view, problems } = lock;
    let mut lines = Vec::new();
    match view.state {
        State::Free => lines.push(format!("{name}: free")),
        _ if view.holders.is_empty() => lines.push(format!("{name}: {view}")),
        _ => {}
    }
    for holder in &view.holders {
        push_holder(name, holder, view, &mut lines);
    }
    let problems = problems.iter().map(|problem| &problem.long).chain(hazards);
    lines.extend(problems.map(|problem| format!("  warning  {problem}")));
    for (waiter, position) in view.waiters.iter().zip(1..) {
        let label = waiter.client.label().map_or(String::new(), |label| format!(", {label}"));
        let waiting = show(view.now.since(waiter.since));
        let mode = match view.mode {
            Some(mode) if mode == waiter.mode => String::new(),
            _ => format!(", {}", waiter.mode),
        };
        lines.push(format!("  waiting  {position}. {} for {waiting}{mode}{label}", waiter.client));
    }
    let history = view.history.iter().rev();
    lines.extend(history.map(|entry| format!("  history  {}", ended(entry, view))));
    lines.into_iter().map(|line| printable(&line).trim_end().to_owned() + "\n").collect()
}

fn push_holder(name: &Name, holder: &Holder, view: &View, lines: &mut Vec<String>) {
    let client = &holder.client;
    let held = show(view.now.since(holder.acquired));
    let how = match holder.state {
        HoldState::Held | HoldState::Revoked => "held",
        HoldState::Cooling => "released, was held",
    };
    lines.push(format!("{name}: {how} by {client} for {held}"));
    lines.push(format!("  since    {}, {}", rfc3339(holder.acquired), holder.mode));
    let left = show(holder.deadline.since(view.now));
    let renewed = show(view.now.since(holder.renewed));
    lines.push(match holder.state {
        HoldState::Held => format!("  lease    {left} left, renewed {renewed} ago"),
        HoldState::Revoked => format!("  lease    revoked, {left} left, renewed {renewed} ago"),
        HoldState::Cooling => {
            format!("  lease    released, but kept for another {left} (--at-least)")
        }
    });
    lines.push(format!("  fence    {}", holder.fence));
    lines.push(format!("  id       {}", holder.id));
    if let Some(label) = client.label() {
        lines.push(format!("  label    {label}"));
    }
}

/// `2m ago: released, held by ana@ci-3 pid 4242 (make) for 41s, exit 0`.
fn ended(entry: &HistoryEntry, view: &View) -> String {
    let ago = show(view.now.since(entry.at));
    let held = show(entry.at.since(entry.acquired));
    let (client, ending) = (&entry.client, entry.ending.name());
    let outcome = match entry.outcome {
        Outcome::Unknown => String::new(),
        Outcome::Lost => ", command stopped".into(),
        outcome => format!(", {outcome}"),
    };
    let by = entry.by.as_ref().map_or(String::new(), |by| format!(", revoked by {by}"));
    let label = client.label().map_or(String::new(), |label| format!(", {label}"));
    format!("{ago} ago: {ending}, held by {client} for {held}{outcome}{by}{label}")
}
