//! What identifies a hold: its secret token, and the part of it that others may see.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::rules::UserMessage;

/// Identifies a hold, and authorizes its release. Secret: anyone who has it can release the lock.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    /// A new token, of random bytes. Each hold has its own.
    pub fn new(random: [u8; 16]) -> Self {
        Self(Uuid::new_v8(random).to_string())
    }

    /// Whether a text looks like a token of any version of rlock: other tools use UUIDs of other
    /// versions.
    pub(crate) fn is_of_rlock(text: &str) -> bool {
        text.parse::<Self>().is_ok() && text.as_bytes()[14] == b'8'
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that others may see: the first 8 characters.
    pub fn id(&self) -> String {
        self.0.chars().take(8).collect()
    }
}

/// The first 8 characters of a token, which `inspect` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id(String);

impl Id {
    /// Whether this is the ID of a token.
    pub(crate) fn is_of(&self, token: &str) -> bool {
        token.starts_with(&self.0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Id {
    type Err = UserMessage;

    /// Accepts no character that is special in a Redis pattern.
    fn from_str(text: &str) -> Result<Self, UserMessage> {
        let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        match text.len() == 8 && is_plain {
            true => Ok(Self(text.to_owned())),
            // It may be a whole token, so it is not shown.
            false => Err(UserMessage::new("not an id")
                .with_remedy("use the 8 characters that inspect shows")),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.id())
    }
}

impl FromStr for Token {
    type Err = UserMessage;

    /// Accepts the form that `new` makes. The fault does not show the text, which may be most of
    /// a token.
    fn from_str(text: &str) -> Result<Self, UserMessage> {
        if text.is_empty() {
            return Err(UserMessage::new("empty").with_remedy("check whether acquire succeeded"));
        }
        match Uuid::try_parse(text) {
            Ok(uuid) if uuid.to_string() == text => Ok(Self(text.to_owned())),
            _ => {
                Err(UserMessage::new("not a token")
                    .with_remedy("use the token that acquire printed"))
            }
        }
    }
}
