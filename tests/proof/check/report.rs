//! Searches a scope by its name, and prints what was found.

use std::time::Instant;

use super::action::Turn;
use super::calls;
use super::property::Property;
use super::search::{Play, search};
use super::trace::letter;

/// Plays the scopes that are wanted: by default the quick ones, with `all` the long ones too, or
/// those that are named. Semicolons separate them. Only the long ones are played without the scripts.
pub(super) fn play_all<W: Play>(
    wanted: &'static str,
    quick: &[&'static str],
    long: &[&'static str],
) {
    let names = |lists: &[&'static str]| -> Vec<&'static str> {
        lists.iter().flat_map(|list| list.split(';')).map(str::trim).collect()
    };
    let (scopes, unscripted) = match wanted {
        "" => (names(quick), Vec::new()),
        "all" => (names(quick), names(long)),
        wanted => (names(&[wanted]), Vec::new()),
    };
    let mut states = 0;
    for (scopes, with_scripts) in [(&scopes, true), (&unscripted, false)] {
        calls::play_scripts(with_scripts);
        states += scopes.iter().map(|name| play::<W>(name)).sum::<usize>();
    }
    println!("{} scopes: {states} states", scopes.len() + unscripted.len());
}

/// Plays a scope, and returns how many states it has. The history that breaks a promise is in the
/// panic, which fails the test. A scope that promises more than it plays fails too.
fn play<W: Play>(name: &'static str) -> usize {
    let started = Instant::now();
    let found = search(W::begin(name));
    println!("{name}: {} states in {:.1?}", found.states, started.elapsed());
    if let Some((property, way)) = found.broken {
        // This is how a check fails its test.
        panic!("{name} breaks {property:?}:\n{}", told::<W>(name, &way));
    }
    assert!(found.unplayed.is_empty(), "{name}: no history has {}", found.unplayed.join(", "));
    found.states
}

/// Fails unless some history of a scope breaks this promise.
pub(super) fn assert_breaks<W: Play>(name: &'static str, promise: Property) {
    let found = search(W::begin(name)).broken;
    assert_eq!(found.map(|(property, _)| property), Some(promise), "{name}");
}

/// A history from the start, turn by turn. Only the lines that change are repeated.
fn told<W: Play>(name: &'static str, way: &[Turn]) -> String {
    let mut world = W::begin(name);
    let (mut text, mut seconds) = (String::new(), 0);
    let mut lines = world.lines();
    for (number, turn) in (1..).zip(way) {
        let server = (turn.server() + 1).to_string();
        let what = turn.action.text(W::FAULTS).replace("{server}", &server);
        let what = what.replace("{client}", &letter(turn.client()).to_string());
        world = world.after(*turn);
        seconds += u32::from(*turn == Turn::TICK);
        text.push_str(&format!("{number:3}. at {seconds} s, {what}\n"));
        let next = world.lines();
        let changed = next.iter().filter(|line| !lines.contains(line));
        changed.for_each(|line| text.push_str(&format!("       {line}\n")));
        lines = next;
    }
    text
}
