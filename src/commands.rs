//! The subcommands: each joins configuration, store, wait and supervision in its own way.

mod acquire;
mod exec;
mod grant;
mod identity;
mod inspect;
mod keeper;
mod output;
mod release;
mod renew;
mod reported;
mod retry;
mod revoke;

use std::ffi::OsString;

use crate::cli::Command;
use crate::config::{self, Handover, Output};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::{Report, Verbosity};
use crate::rules::{Name, Subject, UserMessage};
use crate::system::inherited::Inherited;

/// Runs a subcommand that was read from these arguments, and returns how the process ends.
pub(crate) fn run(command: Command, arguments: &[OsString], inherited: Inherited) -> Exit {
    let invocation = Invocation::of(&command);
    let report = &invocation.report;
    invocation.finish(match command {
        Command::Exec(options) => {
            config::Exec::resolve(options).and_then(|options| exec::run(options, inherited, report))
        }
        Command::Acquire(options) => Handover::receive(arguments)
            .and_then(|handover| config::Acquire::resolve(options, handover))
            .and_then(|options| acquire::run(&options, arguments, inherited, report)),
        Command::Renew(options) => {
            config::Renew::resolve(options).and_then(|options| renew::run(&options, report))
        }
        Command::Release(options) => {
            config::Release::resolve(options).and_then(|options| release::run(&options, report))
        }
        Command::Inspect(options) => {
            config::Inspect::resolve(options).and_then(|options| inspect::run(&options, report))
        }
    })
}

/// Prints help.
pub(crate) fn help(text: &str) -> Exit {
    let printed = output::text(text).map(|()| Exit::Status(exit::OK));
    Invocation::unknown(Output::Human).finish(printed)
}

/// Reports a command line that names nothing to run, in the form that its words ask for.
pub(crate) fn reject(fault: UserMessage, arguments: &[OsString]) -> Exit {
    Invocation::unknown(Output::of_words(arguments)).finish(Err(Error::Usage(fault)))
}

/// Where the results and errors of a command go.
struct Invocation {
    report: Report,
    verbosity: Verbosity,
    name: Option<Name>,
    output: Output,
    /// The exit status if the lock is busy.
    busy: u8,
}

impl Invocation {
    /// Of a command line that could not be parsed.
    fn unknown(output: Output) -> Self {
        let verbosity = Verbosity::Normal;
        let report = Report::new(None, verbosity);
        Self { report, verbosity, name: None, output, busy: exit::BUSY }
    }

    fn of(command: &Command) -> Self {
        let (common, name, output, busy) = match command {
            Command::Exec(exec) => {
                let busy = exec.terms.conflict_exit_code;
                (&exec.common, Some(&exec.name), Output::Human, busy)
            }
            Command::Acquire(acquire) => {
                let (output, busy) =
                    (Output::of_acquire(acquire), acquire.terms.conflict_exit_code);
                (&acquire.common, Some(&acquire.name), output, busy)
            }
            Command::Renew(renew) => {
                let hold = &renew.hold;
                (&renew.common, Some(&hold.name), Output::of(hold.json), None)
            }
            Command::Release(release) => {
                let hold = &release.hold;
                (&release.common, Some(&hold.name), Output::of(hold.json), None)
            }
            Command::Inspect(inspect) => {
                let name = inspect.subject.as_ref().and_then(Subject::name);
                (&inspect.common, name, Output::of(inspect.json), None)
            }
        };
        let verbosity = config::verbosity(common);
        let report = Report::new(name.map(|name| name as &dyn std::fmt::Display), verbosity);
        Self { report, verbosity, name: name.cloned(), output, busy: busy.unwrap_or(exit::BUSY) }
    }

    fn finish(&self, result: Result<Exit, Error>) -> Exit {
        let error = match result {
            Ok(exit) => return exit,
            Err(error) => error,
        };
        if error.is_printed(self.verbosity) {
            self.report.warn(&error);
        }
        let exit = match error.exit() {
            Exit::Status(exit::BUSY) => Exit::Status(self.busy),
            exit => exit,
        };
        // A failure to write is ignored: the error is already on stderr, and its status matters
        // more.
        let _ = match self.output {
            Output::Human => Ok(()),
            Output::Json => output::failure(self.name.as_ref(), &error, exit),
            // All that `eval "$(…)" || exit` sees.
            Output::Shell => output::text(&format!("(exit {})\n", exit.shown())),
        };
        exit
    }
}
