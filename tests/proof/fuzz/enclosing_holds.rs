//! RLOCK_HELD.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::promises::{parts, text};
use rlock::rules::{EnclosingHolds, Key, Name, Prefix, Token};

/// Checks RLOCK_HELD: a command inside of one more hold sees that hold and all those around it. The
/// input is the variable, and then a prefix and a name.
pub fn enclosing_holds(bytes: &[u8]) {
    let mut parts = parts(bytes);
    let variable = OsStr::from_bytes(parts.next().unwrap_or_default());
    let prefix: Prefix = text(parts.next().unwrap_or(b"rlock:")).parse().unwrap_or_default();
    let name: Result<Name, _> = text(parts.next().unwrap_or(b"L")).parse();
    let (Ok(name), token) = (name, Token::fresh()) else { return };
    let key = Key::new(&prefix, &name);
    let mut around = EnclosingHolds::parse(variable).of_key(&key);
    let inside = EnclosingHolds::parse(variable).and(&key, &token);
    around.push(token);
    assert_eq!(EnclosingHolds::parse(OsStr::new(&inside)).of_key(&key), around, "{inside:?}");
}
