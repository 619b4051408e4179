//! The table of docs/sizing.md, computed from what was measured.

use super::renewals::{PERIOD, Renewing};
use crate::load::Cost;

const LOCKS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// The share of a core that renewals may take. The rest remains for other requests.
const SHARE: f64 = 0.5;

/// `renewing` has the measurements for the first of these numbers of locks, the smallest first.
pub(super) fn print(pair: Cost, renewing: &[Renewing]) {
    let most = renewing.last().expect("something was measured");
    let per_second = |locks: usize| locks as f64 / PERIOD.as_secs_f64();
    // A busier server needs less CPU time for each renewal. So for fewer locks than were measured,
    // this uses the cost of the fewest that were, and for more, the cost at full speed.
    let share = |locks: usize| {
        let measured = renewing.iter().find(|measured| locks <= measured.holders);
        measured.map_or(per_second(locks) * most.fast.micros / 1e6, |it| {
            it.paced.share * locks as f64 / it.holders as f64
        })
    };
    println!("  the table, with renewals every {} s:", PERIOD.as_secs());
    row("locks held at once", |locks| locks as f64, number);
    row("renewals per second", per_second, number);
    row("share of a core", share, percent);
    row("memory", |locks| locks as f64 * most.bytes, size);
    row("connections", |locks| locks as f64, number);
    row(
        "additional free locks acquired and released per second",
        |locks| (1.0 - share(locks)).max(0.0) * pair.per_second,
        number,
    );
    row("masters needed in a cluster", |locks| (share(locks) / SHARE).ceil(), number);
    // Each holder renews a tenth as often as with the default TTL of 30 s.
    row("share of a core with --ttl 5m", |locks| share(locks / 10), percent);
}

fn row(name: &str, figure: impl Fn(usize) -> f64, shown: fn(f64) -> String) {
    let cells: Vec<String> = LOCKS.into_iter().map(|locks| shown(figure(locks))).collect();
    println!("    | {name} | {} |", cells.join(" | "));
}

/// With commas.
fn number(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

fn size(bytes: f64) -> String {
    let mebibytes = bytes / 1024.0 / 1024.0;
    match mebibytes {
        0.0..10.0 => format!("{mebibytes:.1} MiB"),
        10.0..1024.0 => format!("{mebibytes:.0} MiB"),
        _ => format!("{:.1} GiB", mebibytes / 1024.0),
    }
}
