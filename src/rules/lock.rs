//! The domain types: the name and key of a lock; the mode and owner of a hold.

mod client_info;
pub(super) mod clients;
mod enclosing;
pub(super) mod ending;
mod history;
pub(super) mod pattern;
mod record;
pub(super) mod stored;
mod token;
pub(super) mod view;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

pub use client_info::{ClientInfo, HoldKind, Label, ProcessId};
pub use enclosing::EnclosingHolds;
pub use history::{HistoryEntry, Outcome, Skipped};
pub use record::{Record, item};
use serde::{Deserialize, Serialize};
pub use stored::Stored;
pub use token::{Id, Token};

use crate::rules::UserMessage;
use crate::text::{at_most, is_invisible, is_unsafe, printable};

/// The name of a lock: 1 to 200 bytes. It contains no white space, no control or invisible
/// characters, and none of `{}*?[]\`, which are special in Redis keys and patterns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The most similar of these names, if it differs by few characters.
    pub(crate) fn nearest<'n>(&self, names: impl Iterator<Item = &'n Self>) -> Option<&'n Self> {
        let distance = |name: &Self| strsim::osa_distance(&self.0, &name.0);
        let (distance, nearest) = names.map(|name| (distance(name), name)).min_by_key(|it| it.0)?;
        (3 * distance <= self.0.chars().count()).then_some(nearest)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = UserMessage;

    fn from_str(text: &str) -> Result<Self, UserMessage> {
        if text.contains("://") {
            return Err(
                UserMessage::new("lock name is a URL").with_remedy("give the server with --url")
            );
        }
        // A token before its name, or what a provider shows as a connection string.
        if Token::is_of_rlock(text) || text.to_lowercase().contains(",password=") {
            let fault = UserMessage::new("not a lock name, but a secret");
            return Err(fault.with_remedy("give the name of the lock first"));
        }
        is_within(1, text)?;
        match text.chars().find(|&c| forbidden(c) || matches!(c, '{' | '}')) {
            // Without it, it could be the name of another lock.
            Some(c @ ('*' | '?' | '[')) => Err(contains(c).with_remedy("name one lock")),
            Some(c) => Err(contains(c)),
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// Checks the length of a text: from `least` to 200 bytes.
fn is_within(least: usize, text: &str) -> Result<(), UserMessage> {
    if text.len() < least {
        return Err(UserMessage::new("empty").with_remedy("use at least one character"));
    }
    if text.len() > 200 {
        return Err(UserMessage::new("exceeds 200 bytes").with_remedy("use a shorter one"));
    }
    Ok(())
}

/// The fault of a text with a character that it cannot contain.
fn contains(c: char) -> UserMessage {
    let what = match c {
        ' ' => "a space".to_owned(),
        // Escaped, it would look like two.
        '\\' => r"'\'".to_owned(),
        _ => format!("{c:?}"),
    };
    UserMessage::new(format!("contains {what}")).with_remedy("remove it")
}

fn forbidden(c: char) -> bool {
    is_deceptive(c) || c.is_whitespace() || matches!(c, '*' | '?' | '[' | ']' | '\\')
}

/// Whether a character can look like nothing, like a space or like other text. Stricter than for
/// text that is only shown, because two names that look the same must be the same.
fn is_deceptive(c: char) -> bool {
    // U+2800 is a Braille cell without dots.
    is_unsafe(c) || is_invisible(c) || c == '\u{2800}'
}

/// The text before the name in a key. It may be empty, and may contain a hash tag in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

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
    type Err = UserMessage;

    fn from_str(text: &str) -> Result<Self, UserMessage> {
        is_within(0, text)?;
        match text.chars().find(|&c| forbidden(c)) {
            Some(c) => Err(contains(c)),
            // If the prefix has no hash tag, the whole key becomes the tag of its side keys. A
            // closing brace would end that tag early, which puts them in another slot of a cluster.
            None if tag(text).is_none() && text.contains('}') => {
                let fault = UserMessage::new("contains '}' without a hash tag");
                Err(fault.with_remedy("use a form such as {app}:"))
            }
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// The part of a key that determines its slot in a cluster; `None` if the whole key does.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The Redis key of a lock: prefix and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    text: String,
    /// The length of the prefix.
    prefix: usize,
}

impl Key {
    pub fn new(prefix: &Prefix, name: &Name) -> Self {
        Self::under(prefix, name.as_str())
    }

    fn under(prefix: &Prefix, rest: &str) -> Self {
        Self { text: [prefix.as_str(), rest].concat(), prefix: prefix.as_str().len() }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The part that determines its slot in a cluster.
    pub(crate) fn tag(&self) -> &str {
        tag(&self.text).unwrap_or(&self.text)
    }

    /// The keys of all locks under a prefix, as a pattern of Redis.
    pub(crate) fn pattern(prefix: &Prefix) -> Self {
        Self::under(prefix, "*")
    }

    /// A key that all locks under the prefix have in common.
    pub fn shared(&self, what: &str) -> String {
        let text = self.text[..self.prefix].to_owned();
        Self { text, prefix: self.prefix }.side(what)
    }

    /// A key beside the guard. It begins with the number of the format, so a version of rlock with
    /// another format takes this lock for that of another tool.
    pub fn side(&self, what: &str) -> String {
        self.beside([FORMAT, what])
    }

    /// The key of another lock, all of whose keys are beside this one's guard.
    pub(crate) fn beside_it(&self, what: &str) -> Self {
        Self { text: self.side(what), prefix: self.prefix }
    }

    /// The pattern of all keys beside the guard, whatever their format.
    pub(crate) fn sides(&self) -> String {
        self.beside(["*", ""])
    }

    /// In the slot of the guard. It cannot collide with a key of another lock, because names and
    /// prefixes cannot contain a question mark.
    fn beside(&self, [format, what]: [&str; 2]) -> String {
        match tag(&self.text) {
            Some(_) => [self.as_str(), "?", format, what].concat(),
            None => ["{", self.as_str(), "}?", format, what].concat(),
        }
    }
}

/// The number of the format in which servers and files keep the record of a lock.
pub(crate) const FORMAT: &str = "1";

/// A fencing token: strictly increasing over all grants of a lock. A resource checks it to reject a
/// holder that has lost the lock and does not know it yet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which holds may coexist. Different modes exclude each other, and so do different numbers of
/// slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Mode {
    /// One hold.
    #[default]
    Exclusive,
    /// Any number of holds.
    Shared,
    /// At most this number of holds.
    Slots(NonZeroU32),
}

impl Mode {
    pub fn slots(self) -> Option<NonZeroU32> {
        match self {
            Self::Slots(slots) => Some(slots),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// The mode without the number of slots, as in JSON.
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

    /// Parses the form that stores keep, which is that of `Display`.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        match (text.as_str(), text.strip_prefix("slots:").map(str::parse)) {
            ("exclusive", _) => Ok(Self::Exclusive),
            ("shared", _) => Ok(Self::Shared),
            (_, Some(Ok(slots))) => Ok(Self::Slots(slots)),
            _ => Err("not a mode"),
        }
    }
}

/// The number of a holder among those with the same `--slots N`, from 1 to N.
pub type Slot = NonZeroU32;

/// The owner of a hold. With --reentrant, a request can enter a lock that its owner already holds.
///
/// The user can choose an owner of 1 to 200 bytes; otherwise rlock generates one. A chosen owner
/// never equals a generated one, so knowing a generated owner is not enough to claim it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(String);

impl Owner {
    /// The first character of an owner that the user chose.
    const CHOSEN: char = '=';

    /// A new owner that no other client has, of random bytes.
    pub fn new(random: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(random).into_uuid().to_string())
    }

    /// The form that stores keep.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The owner that a store keeps.
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// Whether a user chose it, so that it can enter its lock from anywhere.
    pub(crate) fn is_chosen(&self) -> bool {
        self.0.starts_with(Self::CHOSEN)
    }

    /// The part that others may see: all of a chosen one, and the first 8 characters of a generated
    /// one.
    pub fn shown(&self) -> String {
        match self.0.strip_prefix(Self::CHOSEN) {
            Some(chosen) => printable(at_most(200, chosen)),
            None => printable(&self.0.chars().take(8).collect::<String>()),
        }
    }
}

impl FromStr for Owner {
    type Err = UserMessage;

    fn from_str(text: &str) -> Result<Self, UserMessage> {
        is_within(1, text)?;
        match text.chars().find(|&c| is_deceptive(c)) {
            Some(c) => Err(contains(c)),
            None => Ok(Self(format!("{}{text}", Self::CHOSEN))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_prefix_cannot_break_a_key_a_pattern_or_a_line() {
        for good in ["a", "deploy:prod", "ä/ö", "-n", &"x".repeat(200)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "a b", "a\n", "a{b", "a}", "a*", "a?", "[a]", "a\\", "\u{7f}", "a\u{a0}b"] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
        assert!("x".repeat(201).parse::<Name>().is_err());
        let told = "a b".parse::<Name>().unwrap_err().to_string();
        assert!(told.starts_with("contains a space; "), "{told}");
        for bad in ["}", "{}", "{}x{a}", "a}b"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_nearest_name_differs_by_a_slip() {
        let names = ["deploy:prod", "deploy:stage", "L"].map(|name| name.parse::<Name>().unwrap());
        let nearest =
            |name: &str| name.parse::<Name>().unwrap().nearest(names.iter()).map(Name::as_str);
        for slip in ["deploy:prdo", "depoy:prod", "Deploy:prod", "deploy-prod"] {
            assert_eq!(nearest(slip), Some("deploy:prod"));
        }
        assert_eq!((nearest("M"), nearest("backup"), nearest("deploy")), (None, None, None));
        assert_eq!(nearest("deploy:abce"), None);
    }

    #[test]
    fn what_all_locks_share_is_beside_their_prefix_with_its_tag() {
        for (prefix, wanted) in
            [("rlock:", "{rlock:}"), ("a:{b}:", "a:{b}:"), ("", "{}"), ("a{b", "{a{b}")]
        {
            let key = Key::new(&prefix.parse().unwrap(), &"L".parse().unwrap());
            assert_eq!(key.shared("x"), format!("{wanted}?{FORMAT}x"));
        }
    }

    #[test]
    fn a_name_prefix_or_owner_cannot_look_like_another_one() {
        for bad in "\u{61c}\u{200b}\u{200d}\u{200e}\u{200f}\u{202a}\u{202e}\u{2060}\u{2066}\
                    \u{2069}\u{feff}\u{fe0f}\u{ad}\u{3164}\u{2800}\u{9b}\u{e0041}"
            .chars()
        {
            let text = format!("a{bad}b");
            assert!(text.parse::<Name>().is_err(), "{bad:?}");
            assert!(text.parse::<Prefix>().is_err(), "{bad:?}");
            assert!(text.parse::<Owner>().is_err(), "{bad:?}");
        }
        for good in ["日本", "añb", "🚀", "e\u{301}", "नमस्ते"] {
            assert!(good.parse::<Name>().is_ok() && good.parse::<Owner>().is_ok(), "{good}");
        }
    }

    #[test]
    fn an_owner_is_shown_in_full_only_if_the_user_chose_it() {
        let fresh = Owner::new([7; 16]);
        assert_eq!(fresh.shown(), fresh.as_str()[..8]);
        for chosen in ["me", "=", "release team 7", fresh.as_str()] {
            let owner: Owner = chosen.parse().unwrap();
            assert_eq!(owner.shown(), chosen);
            assert_ne!(owner, fresh);
        }
        assert_eq!(Owner::stored("=\u{1b}[2J\u{9b}".into()).shown(), " [2J ");
        assert_eq!(Owner::stored(String::new()).shown(), "");
    }
}
