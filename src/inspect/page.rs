//! One lock as a page of text.

use super::style::Style;
use super::{Inspected, rfc3339};
use crate::rules::{
    HistoryEntry, HoldKind, HoldState, Holder, Mode, Operator, Outcome, State, View, show,
};
use crate::text::cut;

/// A page with the holders, waiters and history of a lock.
pub fn page(lock: &Inspected, hazards: &[String], style: Style) -> String {
    let Inspected { name, view, problems } = lock;
    let mut page = String::new();
    let mut line = |text: String| page += &style.line(&text, false);
    let (count, has_slots) = (view.holder_count(), matches!(view.mode, Some(Mode::Slots(_))));
    let several = has_slots || count > 1;
    match (view.state, view.mode) {
        (State::Free, _) => line(format!("{name}: free")),
        _ if view.holders.is_empty() => line(format!("{name}: {view}")),
        (_, Some(Mode::Slots(slots))) => line(format!("{name}: {count} of {slots} slots taken")),
        _ if several => line(format!("{name}: {count} holders")),
        _ => {}
    }
    for holder in &view.holders {
        if holder.is_closing() {
            line(format!("{name}: {}", holder.closing(view.now)));
            continue;
        }
        let (client, held) = (&holder.client, show(view.now.since(holder.acquired)));
        line(match holder.state {
            HoldState::Cooling if several => format!("  holder   {client}, released"),
            _ if several => format!("  holder   {client} for {held}"),
            HoldState::Cooling => format!("{name}: released by {client}"),
            _ => format!("{name}: held by {client} for {held}"),
        });
        details(holder, view).into_iter().for_each(&mut line);
    }
    if view.unlisted_holders > 0 {
        line(format!("  holder   {} more", view.unlisted_holders));
    }
    for problem in problems.iter().map(|problem| &problem.long).chain(hazards) {
        page += &style.line(&format!("  warning  {problem}"), true);
    }
    let mut line = |text: String| page += &style.line(&text, false);
    let shown = style.waiters;
    for (waiter, position) in view.waiters.iter().zip(1..).take(shown) {
        let label = waiter.client.label().map_or(String::new(), |label| format!(", {label}"));
        let waiting = show(view.now.since(waiter.since));
        let mode = match view.mode {
            Some(mode) if mode == waiter.mode => String::new(),
            _ => format!(", {}", waiter.mode),
        };
        let next = if waiter.next { ", --next" } else { "" };
        let (client, id) = (&waiter.client, &waiter.id);
        let text =
            format!("  waiting  {position}. {client} for {waiting}, id {id}{mode}{next}{label}");
        line(cut(&text, style.width.unwrap_or(usize::MAX)).into_owned());
    }
    let more = view.waiter_count().saturating_sub(shown.min(view.waiters.len()) as u64);
    if more > 0 {
        line(format!("  waiting  {more} more"));
    }
    if let Some(skipped) = &view.skipped {
        line(format!("  skipped  {}", skipped.shown(view.now)));
    }
    for entry in view.history.iter().rev() {
        line(format!("  history  {}", ended(entry, view)));
    }
    page
}

/// The lines below the one that names the holder.
fn details(holder: &Holder, view: &View) -> Vec<String> {
    let (acquired, mode) = (rfc3339(holder.acquired), holder.mode);
    let left = show(holder.deadline.since(view.now));
    let renewed = holder.last_renewal().map(|at| show(view.now.since(at)));
    let renewed = renewed.map_or(String::new(), |ago| format!(", renewed {ago} ago"));
    let (since, lease) = match holder.state {
        HoldState::Held => ("since  ", format!("{left} left{renewed}")),
        HoldState::Revoked => ("since  ", format!("revoked, {left} left{renewed}")),
        HoldState::Cooling => ("granted", format!("kept for another {left} (--at-least)")),
    };
    let mut lines = vec![format!("  {since}  {acquired}, {mode}"), format!("  lease    {lease}")];
    if holder.state != HoldState::Cooling {
        lines.push(format!("  kind     {}", kind(holder.client.kind)));
    }
    lines.extend(holder.slot.map(|slot| format!("  slot     {slot}")));
    lines.push(format!("  fence    {}", holder.fence));
    lines.push(format!("  id       {}", holder.id));
    lines.extend(holder.client.label().map(|label| format!("  label    {label}")));
    lines
}

/// What renews a hold of this kind, and whose PID it shows.
fn kind(kind: HoldKind) -> &'static str {
    match kind {
        HoldKind::Exec => "exec; the PID is that of rlock, which passes signals on",
        HoldKind::WhilePid => "while-pid; the PID is that of the watched process",
        HoldKind::Acquire => "acquire, nothing renews it; the PID is that of its caller",
    }
}

/// `2m ago: released, held by ana@ci-3 pid 4242 (make) for 41s, exit 0`.
fn ended(entry: &HistoryEntry, view: &View) -> String {
    let ago = show(view.now.since(entry.at));
    let held = show(entry.at.since(entry.acquired));
    let (client, ending) = (&entry.client, entry.ending);
    let outcome = match entry.outcome {
        Outcome::Unknown => String::new(),
        Outcome::Lost => ", command stopped".into(),
        outcome => format!(", {outcome}"),
    };
    let by = match &entry.operator {
        Operator { name: None, reason: None } => String::new(),
        operator => format!(", revoked{operator}"),
    };
    let label = client.label().map_or(String::new(), |label| format!(", {label}"));
    format!("{ago} ago: {ending}, held by {client} for {held}{outcome}{label}{by}")
}
