//! The argument of `inspect`: one lock, or all locks whose names match a pattern.

use std::fmt;
use std::str::FromStr;

use crate::rules::{Name, UserMessage};

/// The argument of `inspect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    One(Name),
    Matching(Pattern),
}

impl Subject {
    pub fn pattern(&self) -> Option<&Pattern> {
        match self {
            Self::One(_) => None,
            Self::Matching(pattern) => Some(pattern),
        }
    }

    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::One(name) => Some(name),
            Self::Matching(_) => None,
        }
    }
}

impl FromStr for Subject {
    type Err = UserMessage;

    fn from_str(text: &str) -> Result<Self, UserMessage> {
        // A URL is not a pattern, whatever its password contains: the name is rejected with a
        // remedy.
        if text.contains(['*', '?', '[']) && !text.contains("://") {
            Ok(Self::Matching(text.parse()?))
        } else {
            Ok(Self::One(text.parse()?))
        }
    }
}

/// A pattern with the wildcards of a shell: `*`, `?`, `[a-c]`, `[!a]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(glob::Pattern);

impl Pattern {
    pub fn matches(&self, name: &Name) -> bool {
        self.0.matches(name.as_str())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pattern {
    type Err = UserMessage;

    fn from_str(text: &str) -> Result<Self, UserMessage> {
        let pattern = glob::Pattern::new(text);
        pattern.map(Self).map_err(|error| {
            let fault = UserMessage::of_value("not a pattern", text)
                .reworded(|what| format!("{what} ({})", error.msg));
            fault.with_remedy("use *, ? and [a-c] only")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        let matches = |pattern: &str, name: &str| {
            pattern.parse::<Pattern>().unwrap().matches(&name.parse().unwrap())
        };
        assert!(matches("deploy:*", "deploy:prod/eu"));
        assert!(matches("job-[0-9]", "job-7") && !matches("job-[!0-9]", "job-7"));
        assert!(matches("a?c", "abc") && !matches("a?c", "abcd"));
        assert!("a[".parse::<Subject>().is_err());
        assert!(matches!("abc".parse(), Ok(Subject::One(_))));
    }
}
