//! The holds that enclose this process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Key, Token};

/// How many enclosing holds of one lock count at most. Only a mistake makes more.
const MOST: usize = 100;

/// The holds that enclose a process, as `RLOCK_HELD` lists them: `key=token`, the innermost last.
pub struct EnclosingHolds(Vec<String>);

impl EnclosingHolds {
    pub(crate) const VARIABLE: &str = "RLOCK_HELD";

    /// Parses the variable. An entry that is not UTF-8 is skipped, and does not hide the others.
    pub fn parse(variable: &OsStr) -> Self {
        let holds = variable.as_bytes().split(|&byte| byte == b' ').filter(|hold| !hold.is_empty());
        Self(holds.filter_map(|hold| Some(std::str::from_utf8(hold).ok()?.to_owned())).collect())
    }

    /// The tokens of the innermost holds of this key: no more than a server can look up at once. An
    /// entry without a token is skipped.
    pub fn of_key(&self, key: &Key) -> Vec<Token> {
        let holds = self.0.iter().filter_map(|hold| hold.rsplit_once('='));
        let of_key = holds.filter(|(held, _)| *held == key.as_str());
        let mut tokens: Vec<Token> = of_key.filter_map(|(_, token)| token.parse().ok()).collect();
        tokens.split_off(tokens.len().saturating_sub(MOST))
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

    /// A token, by its last digit.
    fn token(digit: u8) -> String {
        format!("00000000-0000-4000-8000-00000000000{digit}")
    }

    fn held(list: &str) -> EnclosingHolds {
        let list = (1..=4)
            .fold(list.to_owned(), |list, digit| list.replace(&format!("t{digit}"), &token(digit)));
        // Not UTF-8.
        let bytes: Vec<u8> =
            list.bytes().map(|byte| if byte == b'!' { 0xff } else { byte }).collect();
        EnclosingHolds::parse(OsStr::from_bytes(&bytes))
    }

    #[test]
    fn the_enclosing_holds_of_a_lock_are_found_among_all_even_unreadable_ones() {
        for (list, tokens) in [
            ("p=a=t1 other=t2 p=a=t3 p=ab=t4", &[1, 3][..]),
            ("!=t3 p=a=t1 p=a=! p=a=t2", &[1, 2]),
            ("p=a=x p=a=t1x p=a=t1\tt2 p=a=t2\t p=a=T1 p=a=t2", &[2]),
            ("invalid  p=a= ", &[]),
            ("", &[]),
        ] {
            let found = held(list).of_key(&key("a"));
            let tokens: Vec<String> = tokens.iter().copied().map(token).collect();
            assert!(found.iter().map(Token::as_str).eq(&tokens), "{list}: {found:?}");
        }
        let many = format!("p=a=t1 {} p=a=t2", "p=a=t3 ".repeat(MOST - 1));
        let found = held(&many).of_key(&key("a"));
        assert_eq!((found.len(), found[0].as_str()), (MOST, &token(3)[..]));
        assert_eq!(found[MOST - 1].as_str(), token(2));
    }

    #[test]
    fn an_unreadable_entry_is_not_passed_on() {
        let last: Token = token(3).parse().unwrap();
        let list = held("!=t0 p=a=t1 p=a=! p=a=t2").and(&key("b"), &last);
        assert_eq!(list, format!("p=a={} p=a={} p=b={}", token(1), token(2), token(3)));
        assert_eq!(EnclosingHolds(Vec::new()).and(&key("b"), &last), format!("p=b={}", token(3)));
    }
}
