//! The argument of `inspect`: one lock, or all locks whose names match a pattern.

use std::str::FromStr;

pub use glob::Pattern;

use crate::rules::{Name, UserMessage};

/// The argument of `inspect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    One(Name),
    /// With the wildcards of a shell: `*`, `?`, `[a-c]`, `[!a]`.
    Matching(Pattern),
}

impl Subject {
    pub(crate) fn pattern(&self) -> Option<&Pattern> {
        match self {
            Self::One(_) => None,
            Self::Matching(pattern) => Some(pattern),
        }
    }

    pub(crate) fn name(&self) -> Option<&Name> {
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
            let fault = UserMessage::new("not a pattern").with_remedy("use *, ? and [a-c] only");
            let pattern = Pattern::new(text).map_err(|_| fault);
            pattern.map(Self::Matching)
        } else {
            Ok(Self::One(text.parse()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        let matches = |pattern: &str, name: &str| {
            Pattern::new(pattern).unwrap().matches(name.parse::<Name>().unwrap().as_str())
        };
        assert!(matches("deploy:*", "deploy:prod/eu"));
        assert!(matches("job-[0-9]", "job-7") && !matches("job-[!0-9]", "job-7"));
        assert!(matches("a?c", "abc") && !matches("a?c", "abcd"));
        assert!("a[".parse::<Subject>().is_err());
        assert!(matches!("abc".parse(), Ok(Subject::One(_))));
    }
}
