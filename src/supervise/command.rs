//! A command that rlock starts or becomes.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::libc::{self, c_char};

use crate::error::Error;
use crate::policy::Group;
use crate::report::Fault;
use crate::store::{Failure, Fate};
use crate::system::environment;
use crate::system::inherited::Inherited;

/// Environment variables to set, or to remove if they have no value.
pub(crate) type Variables = Vec<(&'static str, Option<String>)>;

/// What to run, in which process group, and the variables that describe its lock.
pub(crate) struct Command {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) group: Group,
    pub(crate) variables: Variables,
}

/// Becomes the command, without a lock. Returns only if that is impossible.
pub(crate) fn run_unlocked(command: &Command, inherited: Inherited) -> Error {
    let prepared = command.prepare().and_then(|prepared| {
        inherited.restore()?;
        Ok(prepared)
    });
    let why = match prepared {
        Ok(prepared) => NotStarted::Exec(prepared.exec().into()),
        Err(error) => NotStarted::System(error),
    };
    why.into_error(command)
}

/// Why a command was not started.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// The program cannot be executed.
    Exec(io::Error),
    /// The system could not start a process.
    System(io::Error),
    /// The lease was about to expire.
    TooLate,
}

impl NotStarted {
    pub(super) fn into_error(self, command: &Command) -> Error {
        match self {
            Self::Exec(error) => {
                let program = match command.program.to_string_lossy() {
                    empty if empty.is_empty() => "''".into(),
                    program => program.into_owned(),
                };
                Error::Command { program, error }
            }
            Self::System(error) => Error::system("cannot start a process", error),
            Self::TooLate => Error::Store(Failure::Unreachable {
                fault: Fault::new("the lease nearly expired before the command could start")
                    .with_remedy("raise --ttl"),
                fate: Fate::NotSent,
                others_answer: false,
            }),
        }
    }
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<Errno> for NotStarted {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// A command in the form that exec(3) takes. Prepared before the fork, because the child must not
/// allocate.
pub(super) struct Prepared {
    words: Strings,
    environment: Strings,
}

impl Command {
    pub(super) fn prepare(&self) -> io::Result<Prepared> {
        let words = [&self.program].into_iter().chain(&self.arguments);
        let words = words.map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
        let set = self.variables.iter().filter_map(|(name, value)| {
            value.as_ref().map(|value| CString::new(format!("{name}={value}")))
        });
        let kept = environment::inherited().filter(|variable| {
            !self.variables.iter().any(|(name, _)| environment::is_named(variable, name))
        });
        Ok(Prepared {
            words: Strings::new([], words),
            environment: Strings::new(kept, set.collect::<Result<_, _>>()?),
        })
    }
}

impl Prepared {
    /// Replaces this process with the program. Returns only if that cannot be executed. Does not
    /// allocate.
    pub(super) fn exec(&self) -> Errno {
        // SAFETY: both are arrays of NUL-terminated strings with a null at the end, the first has
        // at least one string, and both outlive the call.
        unsafe {
            let words = self.words.pointers.as_ptr();
            libc::execvpe(*words, words, self.environment.pointers.as_ptr());
        }
        Errno::last()
    }

    /// How many bytes of stack libc uses for a script without an interpreter, to which it passes a
    /// copy of the arguments.
    pub(super) fn size_of_arguments(&self) -> usize {
        size_of_val(&*self.words.pointers)
    }
}

/// An array of strings with a null at the end.
struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    /// The strings that live as long as the process come first.
    fn new(lasting: impl IntoIterator<Item = &'static CStr>, owned: Vec<CString>) -> Self {
        let lasting = lasting.into_iter().map(CStr::as_ptr);
        let null = std::iter::once(std::ptr::null());
        let pointers = lasting.chain(owned.iter().map(|string| string.as_ptr())).chain(null);
        Self { pointers: pointers.collect(), _owned: owned }
    }
}
