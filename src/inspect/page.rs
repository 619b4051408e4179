//! One lock as a page for people.

use super::json::rfc3339;
use super::problem::Problem;
use crate::duration::show;
use crate::lock::Name;
use crate::lock::view::{HistoryEntry, HoldState, Holder, Outcome, State, View};
use crate::text::printable;

/// One lock with all its holders and waiters and what became of the last holds.
pub(crate) fn page(name: &Name, view: &View, problems: &[Problem], hazards: &[String]) -> String {
    let mut lines = Vec::new();
    match view.state {
        State::Free => lines.push(format!("{name}: free")),
        _ if view.holders.is_empty() => lines.push(format!("{name}: {view}")),
        _ => {}
    }
    for holder in &view.holders {
        about_holder(name, holder, view, &mut lines);
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
    lines.extend(view.history.iter().rev().map(|past| format!("  history  {}", ended(past, view))));
    lines.into_iter().map(|line| printable(&line).trim_end().to_owned() + "\n").collect()
}

fn about_holder(name: &Name, holder: &Holder, view: &View, lines: &mut Vec<String>) {
    let about = &holder.client;
    let held = show(view.now.since(holder.acquired));
    let how = match holder.standing {
        HoldState::Held | HoldState::Revoked => "held",
        HoldState::Cooling => "released, was held",
    };
    lines.push(format!("{name}: {how} by {about} for {held}"));
    lines.push(format!("  since    {}, {}", rfc3339(holder.acquired), holder.mode));
    let left = show(holder.deadline.since(view.now));
    let renewed = show(view.now.since(holder.renewed));
    lines.push(match holder.standing {
        HoldState::Held => format!("  lease    {left} left, renewed {renewed} ago"),
        HoldState::Revoked => format!("  lease    revoked, {left} left, renewed {renewed} ago"),
        HoldState::Cooling => {
            format!("  lease    released, but kept for another {left} (--at-least)")
        }
    });
    lines.push(format!("  fence    {}", holder.fence));
    lines.push(format!("  id       {}", holder.id));
    if let Some(label) = about.label() {
        lines.push(format!("  label    {label}"));
    }
}

/// `2m ago: released by ana@ci-3 pid 4242 (make) after 41s, exit 0`.
fn ended(past: &HistoryEntry, view: &View) -> String {
    let ago = show(view.now.since(past.at));
    let held = show(past.at.since(past.acquired));
    let (about, ending) = (&past.client, past.ending.name());
    let outcome = match past.outcome {
        Outcome::Unknown => String::new(),
        Outcome::Lost => ", command stopped".into(),
        outcome => format!(", {outcome}"),
    };
    let by = past.by.as_ref().map_or(String::new(), |by| format!(", revoked by {by}"));
    let label = about.label().map_or(String::new(), |label| format!(", {label}"));
    format!("{ago} ago: {ending}, held by {about} for {held}{outcome}{by}{label}")
}
