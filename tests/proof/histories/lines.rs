//! Every line of every script must be reached by some history.

use super::{limits, play, random, stories};
use crate::scripts::shim::Shim;

#[test]
fn every_line_of_every_script_is_reached() {
    Shim::with(|sandbox| sandbox.note_lines());
    stories::all();
    limits::all();
    let missed = (0..30).find_map(|round| {
        (0..50).for_each(|seed| play(&random::history(50 * round + seed)));
        let missed = Shim::with(|sandbox| sandbox.lines_not_reached());
        (missed.is_empty() || round == 29).then_some(missed)
    });
    assert_eq!(missed.unwrap(), Vec::<String>::new());
}
