//! Every line of every script must be reached by some history.

use std::collections::BTreeSet;

use super::{limits, play, random, stories};
use crate::scripts::shim::Shim;

const NO_RIGHT: &str = "return call('ZREMRANGEBYRANK', TOMBSTONES, 0, -MAX_TOMBSTONES)";

/// The lines that no history of these reaches: in which scripts, and why.
const UNREACHED: &[(&[&str], &[&str], &str)] = &[
    (
        &["acquire", "release", "leave", "revoke", "remove"],
        &[NO_RIGHT],
        "the server must deny its user this command",
    ),
    (
        &["acquire"],
        &[
            "local how, by, at = revocation(own.status)",
            "if own.status == 'revoked' or own.fence == '' then how = 'forgotten' end",
            "return how, math.max(now - at, 0), by",
            "if own.fence ~= '' then return 'forgotten', -1, '' end",
            "return complete and 'unknown' or 'expired', -1, ''",
        ],
        "a request that was released is told just that",
    ),
    (
        &["renew", "release", "revoke", "remove"],
        &["call('UNLINK', HOLDS)", "lock.count = 0"],
        "after the state was lost, a new request comes first",
    ),
];

#[test]
fn every_line_of_every_script_is_reached() {
    let line = |script: &str, line: &str| format!("{script}: {line}");
    let known: BTreeSet<String> = UNREACHED
        .iter()
        .flat_map(|(scripts, lines, _)| {
            scripts.iter().flat_map(|script| lines.iter().map(|it| line(script, it)))
        })
        .collect();
    Shim::with(|sandbox| sandbox.note_lines());
    stories::all();
    limits::all();
    let mut missed = BTreeSet::new();
    for seed in 0..1_500 {
        play(&random::history(seed));
        if seed % 50 == 49 {
            missed = Shim::with(|sandbox| sandbox.lines_not_reached());
            if missed == known {
                return;
            }
        }
    }
    let reached: Vec<_> = known.difference(&missed).collect();
    assert!(reached.is_empty(), "reached, although it is named above: {reached:#?}");
    let missed: Vec<_> = missed.difference(&known).collect();
    assert!(missed.is_empty(), "no history reaches {missed:#?}");
}
