//! The words of the domain: what a lock is called, and what a hold of it is.

mod about;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

pub(crate) use about::{About, Kind, Label, ProcessNumber, printable};

/// What users call a lock: 1 to 200 bytes without white space, control characters or any of
/// `{}*?[]\`, which mean something in Redis keys and patterns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.len() {
            0 => return Err("a lock's name has at least one character".into()),
            201.. => return Err("a lock's name has at most 200 bytes".into()),
            _ => {}
        }
        match text.chars().find(|&c| forbidden(c) || matches!(c, '{' | '}')) {
            Some(c) => Err(format!("a lock's name cannot have {c:?} in it")),
            None => Ok(Self(text.to_owned())),
        }
    }
}

fn forbidden(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '*' | '?' | '[' | ']' | '\\')
}

/// What is put before a name to make its key; may be empty, and may have a hash tag in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(String);

impl Prefix {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self("rlock:".into())
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > 200 {
            return Err("a prefix has at most 200 bytes".into());
        }
        match text.chars().find(|&c| forbidden(c)) {
            Some(c) => Err(format!("a prefix cannot have {c:?} in it")),
            // Without a tag of its own the key is the tag of its side keys, and the first closing
            // brace in it would end that tag early, in another slot of a cluster.
            None if tag(text).is_none() && text.contains('}') => {
                Err("a prefix with '}' in it needs a hash tag, as in {app}:".into())
            }
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// The part of a key that decides its slot in a cluster, where it is not all of it.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The Redis key of a lock: prefix and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    pub(crate) fn new(prefix: &Prefix, name: &Name) -> Self {
        Self(format!("{}{}", prefix.0, name.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// One of the keys beside the guard, in the same slot as the guard.
    pub(crate) fn side(&self, what: &str) -> String {
        match tag(&self.0) {
            Some(_) => format!("{}:{what}", self.0),
            None => format!("{{{}}}:{what}", self.0),
        }
    }
}

/// What proves a hold to be one's own. Secret: whoever has it can release the lock.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// A new one for each hold, of 122 random bits.
    pub(crate) fn fresh() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// What others may see of it.
    pub(crate) fn id(&self) -> String {
        self.0.chars().take(8).collect()
    }
}

/// The holds of this key among those of `RLOCK_HELD`, which are `key=token`, the innermost last.
pub(crate) fn enclosing_holds(held: &str, key: &Key) -> Vec<Token> {
    let holds = held.split(' ').filter_map(|hold| hold.rsplit_once('='));
    let ours = holds.filter(|(held, _)| *held == key.as_str());
    ours.filter_map(|(_, token)| token.parse().ok()).collect()
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.id())
    }
}

impl FromStr for Token {
    type Err = String;

    /// Anything may be asked about; only what `acquire` printed will hold a lock.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the token is empty: did the acquire before it succeed?".into());
        }
        Ok(Self(text.to_owned()))
    }
}

/// Strictly increasing over all grants of a lock: what a resource checks to turn away a holder
/// that lost the lock and does not know it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub(crate) struct Fence(pub(crate) u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a hold goes together with others. Different modes exclude each other, and so do different
/// numbers of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum Mode {
    /// Alone.
    Exclusive,
    /// With any number of others.
    Shared,
    /// With fewer than that many others.
    Slots(NonZeroU32),
}

impl Mode {
    pub(crate) fn slots(self) -> Option<NonZeroU32> {
        match self {
            Self::Slots(slots) => Some(slots),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// Without the number of slots, as JSON has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Slots(_) => "slots",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slots(slots) => write!(f, "slots:{slots}"),
            mode => f.write_str(mode.name()),
        }
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        mode.to_string()
    }
}

impl TryFrom<String> for Mode {
    type Error = &'static str;

    /// As it is kept in a store, which is what `Display` writes.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        match (text.as_str(), text.strip_prefix("slots:").map(str::parse)) {
            ("exclusive", _) => Ok(Self::Exclusive),
            ("shared", _) => Ok(Self::Shared),
            (_, Some(Ok(slots))) => Ok(Self::Slots(slots)),
            _ => Err("not a mode"),
        }
    }
}

/// Whose hold it is: those of one owner can enter each other. 1 to 200 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner(String);

impl Owner {
    /// One that nobody else is.
    pub(crate) fn fresh() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.len() {
            0 => Err("an owner has at least one character".into()),
            201.. => Err("an owner has at most 200 bytes".into()),
            _ if text.contains(char::is_control) => {
                Err("an owner cannot have control characters in it".into())
            }
            _ => Ok(Self(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_a_key_a_pattern_or_a_line() {
        for good in ["a", "deploy:prod", "ä/ö", "-n", &"x".repeat(200)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "a b", "a\n", "a{b", "a}", "a*", "a?", "[a]", "a\\", "\u{7f}", "a\u{a0}b"] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
        assert!("x".repeat(201).parse::<Name>().is_err());
    }

    #[test]
    fn all_keys_of_a_lock_have_the_same_hash_tag() {
        let name: Name = "job".parse().unwrap();
        for prefix in ["", "rlock:", "{app}:", "a{b", "x{app}y", "{{a}:"] {
            let key = Key::new(&prefix.parse().unwrap(), &name);
            let side = key.side("holds");
            let slot_of_key = tag(key.as_str()).unwrap_or(key.as_str());
            assert_eq!(tag(&side), Some(slot_of_key), "{side}");
        }
        for bad in ["}", "{}", "{}x{a}", "a}b"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    /// What a cluster hashes of a key, by its specification: what is between the first `{` and the
    /// first `}` after it, unless that is nothing; else all of it.
    fn hashed(key: &str) -> &str {
        let Some(open) = key.find('{') else { return key };
        match key[open + 1..].find('}') {
            None | Some(0) => key,
            Some(length) => &key[open + 1..open + 1 + length],
        }
    }

    proptest::proptest! {
        #[test]
        fn all_keys_of_a_lock_are_in_one_slot_whatever_its_name_and_prefix(
            prefix in "[{}a:é ]{0,8}", name in "[a-c:{}é/]{1,12}", token in "[a-f0-9-]{8,36}",
        ) {
            if let (Ok(prefix), Ok(name)) = (prefix.parse(), name.parse()) {
                let key = Key::new(&prefix, &name);
                for what in ["holds", "state", "queue", &format!("mail:{token}")] {
                    assert_eq!(hashed(&key.side(what)), hashed(key.as_str()), "{key:?}");
                }
            }
        }
    }

    #[test]
    fn the_holds_of_a_lock_are_found_among_those_around_a_command() {
        let key = |name: &str| Key::new(&"p=".parse().unwrap(), &name.parse().unwrap());
        let held = "p=a=t1 other=t2 p=a=t3 p=ab=t4";
        let tokens = |held, name| {
            enclosing_holds(held, &key(name)).into_iter().map(|token| token.0).collect::<Vec<_>>()
        };
        assert_eq!(tokens(held, "a"), ["t1", "t3"]);
        assert!(tokens(held, "b").is_empty());
        assert!(tokens("", "a").is_empty());
        assert!(tokens("nonsense  p=a= ", "a").is_empty());
    }
}
