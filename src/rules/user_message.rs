//! A failure in words.

use std::fmt::{self, Display};

use crate::text::shown;

/// A failure in words, printed as `problem; remedy`. The remedy is a field, so that a message that
/// wraps the problem in another sentence still ends with one remedy, or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserMessage {
    problem: String,
    remedy: Option<String>,
}

impl UserMessage {
    /// A problem without a remedy.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: None }
    }

    /// A problem with a value that the user gave.
    pub(crate) fn of_value(problem: impl Display, value: &str) -> Self {
        Self::new(format!("{problem}: {}", shown(value)))
    }

    /// Sets what the operator can do about it: an imperative, without a period.
    pub(crate) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// Sets the remedy if there is none.
    pub(crate) fn or_remedy(self, remedy: &str) -> Self {
        if self.remedy.is_some() { self } else { self.with_remedy(remedy) }
    }

    /// Rewords the problem and keeps the remedy.
    pub(crate) fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        Self { problem: reword(&self.problem), ..self }
    }

    /// The problem alone, for a message with another ending.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    pub(crate) fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

/// Of a message as it is printed.
impl From<&'static str> for UserMessage {
    fn from(text: &'static str) -> Self {
        match text.split_once("; ") {
            Some((problem, remedy)) => Self::new(problem).with_remedy(remedy),
            None => Self::new(text),
        }
    }
}

/// Of a problem that may quote the user, and so is not divided.
impl From<String> for UserMessage {
    fn from(problem: String) -> Self {
        Self::new(problem)
    }
}

impl std::error::Error for UserMessage {}

impl Display for UserMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}
