//! What a process runs inside of.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Key, Token};

/// The holds around a process, as `RLOCK_HELD` hands them down: `key=token`, the innermost last.
pub(crate) struct Held(Vec<String>);

impl Held {
    pub(crate) const VARIABLE: &str = "RLOCK_HELD";

    pub(crate) fn inherited() -> Self {
        Self::of(&std::env::var_os(Self::VARIABLE).unwrap_or_default())
    }

    /// What cannot be read is no hold of ours, and hides none.
    fn of(variable: &OsStr) -> Self {
        let holds = variable.as_bytes().split(|&byte| byte == b' ').filter(|hold| !hold.is_empty());
        Self(holds.filter_map(|hold| Some(std::str::from_utf8(hold).ok()?.to_owned())).collect())
    }

    /// Those of this key.
    pub(crate) fn of_key(&self, key: &Key) -> Vec<Token> {
        let holds = self.0.iter().filter_map(|hold| hold.rsplit_once('='));
        let ours = holds.filter(|(held, _)| *held == key.as_str());
        ours.filter_map(|(_, token)| token.parse().ok()).collect()
    }

    /// The variable for what runs inside of one more.
    pub(crate) fn and(mut self, key: &Key, token: &Token) -> String {
        self.0.push(format!("{}={}", key.as_str(), token.as_str()));
        self.0.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(&"p=".parse().unwrap(), &name.parse().unwrap())
    }

    fn tokens(held: &[u8], name: &str) -> Vec<String> {
        let tokens = Held::of(OsStr::from_bytes(held)).of_key(&key(name));
        tokens.into_iter().map(|token| token.as_str().to_owned()).collect()
    }

    #[test]
    fn the_holds_of_a_lock_are_found_among_those_around_a_command() {
        let held = b"p=a=t1 other=t2 p=a=t3 p=ab=t4";
        assert_eq!(tokens(held, "a"), ["t1", "t3"]);
        assert!(tokens(held, "b").is_empty());
        assert!(tokens(b"", "a").is_empty());
        assert!(tokens(b"nonsense  p=a= ", "a").is_empty());
    }

    #[test]
    fn what_cannot_be_read_hides_no_other_hold_and_is_not_handed_on() {
        let held = b"\xff=t0 p=a=t1 p=a=\xc3 p=a=t2";
        assert_eq!(tokens(held, "a"), ["t1", "t2"]);
        let inside = Held::of(OsStr::from_bytes(held)).and(&key("b"), &"t3".parse().unwrap());
        assert_eq!(inside, "p=a=t1 p=a=t2 p=b=t3");
        assert_eq!(Held(Vec::new()).and(&key("b"), &"t3".parse::<Token>().unwrap()), "p=b=t3");
    }
}
