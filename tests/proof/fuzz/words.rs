//! Words from users, servers and the environment.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::prints::prints;
use super::promises::{SECRET, one_line, parts, printable, text};
use rlock::rules::{
    BoundedDuration, EnclosingHolds, Id, Key, Label, Mode, Name, Outcome, Owner, Pattern, Prefix,
    ProcessId, Subject, Timeout, Token, Ttl, show,
};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Checks words: all that a text may be, and how it is shown. The input is a text, and then a prefix
/// or a pattern.
pub fn words(bytes: &[u8]) {
    let mut parts = parts(bytes);
    let first = parts.next().unwrap_or_default();
    let second = text(parts.next().unwrap_or_default());
    prints(&text(first));
    durations(&text(first), first);
    names(&text(first), &second);
    refuses(&text(first));
    // A text with a password is refused, or it is one that everybody may see.
    for secret in [format!("{}{SECRET}", text(first)), format!("{SECRET}{}", text(first))] {
        let told = refuses(&secret);
        assert!(text(first).contains(SECRET) || !told.contains(SECRET), "{secret:?}: {told}");
    }
    enclosing_holds(OsStr::from_bytes(first), &second);
}

/// What is read is within its limits, and what is shown can be read again.
fn durations(text: &str, bytes: &[u8]) {
    if let Ok(duration) = text.parse().map(BoundedDuration::get) {
        assert!(duration <= WEEK, "{text:?} is {duration:?}");
        let shown = show(duration);
        let read = shown.parse().map(BoundedDuration::get).expect("a duration");
        assert!(read <= duration, "{text:?} shows as {shown}");
    }
    if let Ok(timeout) = text.parse().map(Timeout::get) {
        assert!((Duration::from_millis(1)..=WEEK).contains(&timeout), "{text:?} is {timeout:?}");
    }
    if let Ok(ttl) = text.parse::<Ttl>() {
        assert!((100..=WEEK.as_millis()).contains(&ttl.as_millis().into()), "{text:?} is {ttl:?}");
    }
    // Servers report times of any length.
    let mut number = [0; 8];
    number.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let shown = show(Duration::from_millis(u64::from_le_bytes(number)));
    printable(&shown);
    assert!(!shown.is_empty());
}

fn names(first: &str, second: &str) {
    if let Ok(name) = first.parse::<Name>() {
        printable(name.as_str());
        assert_eq!(name.as_str(), first);
        assert!((1..=200).contains(&first.len()) && !first.contains(char::is_whitespace));
        if let Ok(prefix) = second.parse::<Prefix>() {
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
    if let Ok(owner) = first.parse::<Owner>() {
        assert_eq!(owner.shown(), first);
    }
    printable(&Owner::stored(first.into()).shown());
    let Ok(label) = first.parse::<Label>();
    assert!(format!("{label:?}").len() < 8_000);
    if let Ok(mode) = Mode::try_from(first.to_owned()) {
        assert_eq!(Mode::try_from(mode.to_string()), Ok(mode));
    }
    let outcome = Outcome::from(first);
    assert_eq!(Outcome::from(outcome.to_string().as_str()), outcome);
}

/// A command inside of one more hold sees that hold in RLOCK_HELD, and all those around it.
fn enclosing_holds(variable: &OsStr, prefix: &str) {
    let prefix: Prefix = prefix.parse().unwrap_or_default();
    let (key, token) = (Key::new(&prefix, &"L".parse().expect("a name")), Token::new([7; 16]));
    let mut around = EnclosingHolds::parse(variable).of_key(&key);
    let inside = EnclosingHolds::parse(variable).and(&key, &token);
    around.push(token);
    assert_eq!(EnclosingHolds::parse(OsStr::new(&inside)).of_key(&key), around, "{inside:?}");
}

/// All that users see of a text that a type rejects.
fn refuses(text: &str) -> String {
    let faults = [
        text.parse::<Ttl>().err(),
        text.parse::<Timeout>().err(),
        text.parse::<Name>().err(),
        text.parse::<Prefix>().err(),
        text.parse::<Subject>().err(),
        text.parse::<Owner>().err(),
        text.parse::<ProcessId>().err(),
        text.parse::<Token>().err(),
        text.parse::<Id>().err(),
    ];
    let told = faults.into_iter().flatten().map(|fault| fault.to_string());
    told.inspect(|fault| one_line(fault)).collect()
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
