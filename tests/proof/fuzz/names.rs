//! The words of the domain.

use super::promises::{one_line, parts, printable, text};
use rlock::rules::{
    Key, Label, Mode, Name, Outcome, Owner, Pattern, Prefix, ProcessId, Subject, Token, UserMessage,
};

/// Checks the words of the domain: names, prefixes, patterns, owners, labels, tokens and modes. The
/// input is a text, and then a prefix or a pattern.
pub fn names(bytes: &[u8]) {
    let mut parts = parts(bytes).map(text);
    let first = &*parts.next().unwrap_or_default();
    let second = &*parts.next().unwrap_or_default();
    if let Some(name) = read::<Name>(first) {
        printable(name.as_str());
        assert_eq!(name.as_str(), first);
        assert!((1..=200).contains(&first.len()) && !first.contains(char::is_whitespace));
        if let Some(prefix) = read::<Prefix>(second) {
            of_key(&Key::new(&prefix, &name));
        }
        if let Ok(pattern) = Pattern::new(second) {
            let _ = pattern.matches(name.as_str());
        }
        // A name that is not a pattern means itself.
        if !first.contains('[') {
            let exact = Pattern::new(first);
            assert!(exact.is_ok_and(|exact| exact.matches(name.as_str())), "{first:?}");
        }
    }
    read::<Subject>(first);
    read::<ProcessId>(first);
    read::<Token>(first);
    if let Some(owner) = read::<Owner>(first) {
        assert_eq!(Owner::shown(owner.as_str()), first);
    }
    printable(&Owner::shown(first));
    let Ok(label) = first.parse::<Label>();
    assert!(format!("{label:?}").len() < 8_000);
    if let Ok(mode) = Mode::try_from(first.to_owned()) {
        assert_eq!(Mode::try_from(mode.to_string()), Ok(mode));
    }
    let outcome = Outcome::from(first);
    assert_eq!(Outcome::from(outcome.to_string().as_str()), outcome);
}

fn read<T: std::str::FromStr<Err = UserMessage>>(text: &str) -> Option<T> {
    text.parse().inspect_err(|fault: &UserMessage| one_line(&fault.to_string())).ok()
}

/// Checks that all keys of a lock are in the cluster slot of its guard, and that none is the guard
/// of another lock.
fn of_key(key: &Key) {
    for what in ["holds", "state", "queue", "mail:0123"] {
        let side = key.side(what);
        assert_eq!(hashed(&side), hashed(key.as_str()), "{side:?}");
        assert!(side.contains('?'), "{side:?}");
    }
}

/// The part of a key that a cluster hashes, by its specification.
fn hashed(key: &str) -> &str {
    let Some(open) = key.find('{') else { return key };
    match key[open + 1..].find('}') {
        None | Some(0) => key,
        Some(length) => &key[open + 1..open + 1 + length],
    }
}
