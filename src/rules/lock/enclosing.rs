//! The holds that enclose this process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Key, Token};

/// The holds that enclose a process, as `RLOCK_HELD` lists them: `key=token`, the innermost last.
pub struct EnclosingHolds(Vec<String>);

impl EnclosingHolds {
    pub const VARIABLE: &str = "RLOCK_HELD";

    pub fn inherited() -> Self {
        Self::parse(&std::env::var_os(Self::VARIABLE).unwrap_or_default())
    }

    /// Parses the variable. An entry that is not UTF-8 is skipped, and does not hide the others.
    pub fn parse(variable: &OsStr) -> Self {
        let holds = variable.as_bytes().split(|&byte| byte == b' ').filter(|hold| !hold.is_empty());
        Self(holds.filter_map(|hold| Some(std::str::from_utf8(hold).ok()?.to_owned())).collect())
    }

    /// The tokens of the holds of this key.
    pub fn of_key(&self, key: &Key) -> Vec<Token> {
        let holds = self.0.iter().filter_map(|hold| hold.rsplit_once('='));
        let of_key = holds.filter(|(held, _)| *held == key.as_str());
        of_key.filter_map(|(_, token)| Token::recorded(token)).collect()
    }

    /// The value of the variable for a command that one more hold encloses.
    pub fn and(mut self, key: &Key, token: &Token) -> String {
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

    #[test]
    fn the_enclosing_holds_of_a_lock_are_found_among_all_even_unreadable_ones() {
        for (held, tokens) in [
            (&b"p=a=t1 other=t2 p=a=t3 p=ab=t4"[..], &["t1", "t3"][..]),
            (b"\xff=t0 p=a=t1 p=a=\xc3 p=a=t2", &["t1", "t2"]),
            (b"invalid  p=a= ", &[]),
            (b"", &[]),
        ] {
            let found = EnclosingHolds::parse(OsStr::from_bytes(held)).of_key(&key("a"));
            assert!(found.iter().map(Token::as_str).eq(tokens.iter().copied()), "{found:?}");
        }
    }

    #[test]
    fn an_unreadable_entry_is_not_passed_on() {
        let held = EnclosingHolds::parse(OsStr::from_bytes(b"\xff=t0 p=a=t1 p=a=\xc3 p=a=t2"));
        let token = Token::recorded("t3").unwrap();
        assert_eq!(held.and(&key("b"), &token), "p=a=t1 p=a=t2 p=b=t3");
        assert_eq!(EnclosingHolds(Vec::new()).and(&key("b"), &token), "p=b=t3");
    }
}
