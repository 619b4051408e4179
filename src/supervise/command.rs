//! A command that rlock starts or becomes.

use std::ffi::{CString, OsString};
use std::io;

use super::group::{OwnGroup, no_process};
use super::unusable;
use crate::error::Error;
use crate::rules::{Failure, FailureKind, UserMessage};
use crate::system::environment;
use crate::system::inherited::Inherited;
use crate::system::program::Program;
use crate::system::spawn::NotStarted;

/// Environment variables to set, or to remove if they have no value.
pub(crate) type Variables = Vec<(&'static str, Option<String>)>;

/// What to run, in which process group, and the variables that describe its lock.
pub(crate) struct Command {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Its own process group; `None` for rlock's.
    pub(crate) group: Option<OwnGroup>,
    pub(crate) variables: Variables,
}

/// Becomes the command, without a lock. Returns only if that is impossible.
pub(crate) fn run_unlocked(command: &Command, inherited: Inherited) -> Error {
    let program = command.prepare().and_then(|program| {
        inherited.restore()?;
        Ok(program)
    });
    let why = match program {
        Ok(program) => NotStarted::Exec(program.exec().into()),
        Err(error) => NotStarted::System(error),
    };
    not_started(why, command)
}

pub(super) fn not_started(why: NotStarted, command: &Command) -> Error {
    match why {
        NotStarted::Exec(error) => {
            let found = error.kind() != io::ErrorKind::NotFound;
            Error::Command { fault: unusable::why(&command.program, &error), found }
        }
        NotStarted::System(error) => no_process(error),
        NotStarted::TooLate => {
            let late = UserMessage::new("the lease nearly expired before the command could start");
            Error::Store(Failure::new(FailureKind::Unreachable, late.with_remedy("raise --ttl")))
        }
    }
}

impl Command {
    /// The program, with the lock's variables in its environment.
    pub(super) fn prepare(&self) -> io::Result<Program> {
        let kept = environment::inherited().filter(|entry| {
            !self.variables.iter().any(|(name, _)| environment::is_named(entry, name))
        });
        let set = self.variables.iter().filter_map(|(name, value)| {
            value.as_ref().map(|value| CString::new(format!("{name}={value}")))
        });
        Program::new(&self.program, &self.arguments, kept, set.collect::<Result<_, _>>()?)
    }
}
