//! The subcommands: each joins configuration, store, wait and supervision in its own way.

mod acquire;
mod exec;
mod grant;
mod identity;
mod inspect;
mod keeper;
mod names;
mod output;
mod parent;
mod release;
mod renew;
mod retry;
mod revoke;

use std::ffi::OsString;

use nix::sys::signal::{SigSet, Signal};

use crate::cli::{ReleaseArgs, RenewArgs, Subcommand};
use crate::config::ServerSettings;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::object;
use crate::report::{Report, Verbosity};
use crate::rules::{Name, Subject, UserMessage};
use crate::store::Store;
use crate::system::inherited::Inherited;
use output::Output;

/// Runs a subcommand that was read from these arguments, and returns how the process ends.
pub(crate) fn run(subcommand: Subcommand, arguments: &[OsString], inherited: Inherited) -> Exit {
    let invocation = Invocation::of(&subcommand);
    let report = &invocation.report;
    if !matches!(subcommand, Subcommand::Inspect(_)) {
        // Otherwise, after `stty tostop`, a terminal would suspend rlock in its background for a
        // message, while it waits for a lock or holds one.
        let _ = SigSet::from(Signal::SIGTTOU).thread_block();
    }
    invocation.finish(match subcommand {
        Subcommand::Exec(options) => exec::run(options, inherited, report),
        Subcommand::Acquire(options) => acquire::run(options, arguments, inherited, report),
        Subcommand::Renew(options) => renew::run(options, report),
        Subcommand::Release(options) => release::run(&options, inherited, report),
        Subcommand::Inspect(options) => inspect::run(&options, inherited, report),
    })
}

pub(crate) fn help(text: &str) -> Exit {
    match output::text(text) {
        Ok(()) => Exit::Status(exit::OK),
        Err(error) => Invocation::unknown(Output::Human).finish(Err(error)),
    }
}

/// Reports a command line that names nothing to run, in the form that its words ask for.
pub(crate) fn reject(fault: UserMessage, arguments: &[OsString]) -> Exit {
    Invocation::unknown(Output::of_words(arguments)).finish(Err(Error::Usage(fault)))
}

/// Opens the store of a server, and prints warnings about the configuration. The caller prints the
/// diagnostics of each request.
fn open(server: &ServerSettings, report: &Report) -> Result<Box<dyn Store>, Error> {
    for warning in &server.warnings {
        report.note(warning);
    }
    report.detail(format_args!("using {server}"));
    Ok(server.location.open(server.io_timeout, server.min_replicas)?)
}

/// Where the results and errors of a command go.
struct Invocation {
    report: Report,
    name: Option<Name>,
    output: Output,
    /// The exit status if the lock is busy.
    busy: u8,
}

impl Invocation {
    /// Of a command line that could not be parsed.
    fn unknown(output: Output) -> Self {
        let report = Report::new(None, Verbosity::Normal);
        Self { report, name: None, output, busy: exit::BUSY }
    }

    fn of(subcommand: &Subcommand) -> Self {
        let (common, name, output, busy) = match subcommand {
            Subcommand::Exec(it) => {
                (&it.common, Some(&it.lock.name), Output::Human, it.lock.conflict_exit_code)
            }
            Subcommand::Acquire(it) => {
                let busy = it.lock.conflict_exit_code;
                (&it.common, Some(&it.lock.name), Output::of_acquire(it), busy)
            }
            Subcommand::Renew(RenewArgs { common, hold, .. })
            | Subcommand::Release(ReleaseArgs { common, hold, .. }) => {
                (common, Some(&hold.name), Output::of(hold.json, false), None)
            }
            Subcommand::Inspect(it) => {
                let name = it.subject.as_ref().and_then(Subject::name);
                (&it.common, name, Output::of(it.json, true), None)
            }
        };
        let subject = name.map(|name| name as &dyn std::fmt::Display);
        let report = Report::new(subject, common.verbosity());
        Self { report, name: name.cloned(), output, busy: busy.unwrap_or(exit::BUSY) }
    }

    fn finish(&self, result: Result<Exit, Error>) -> Exit {
        let error = match result {
            Ok(exit) => return exit,
            Err(error) => error,
        };
        match &error {
            Error::Unread => {}
            error if error.is_expected() => self.report.note(error),
            error => self.report.warn(error),
        }
        let exit = match error.exit() {
            Exit::Status(exit::BUSY) => Exit::Status(self.busy),
            exit => exit,
        };
        let failed = output::failure(self.name.as_ref(), &error, exit);
        // A failure to write is ignored: the error is already on stderr, and its status matters
        // more.
        let _ = match self.output {
            Output::Human => Ok(()),
            Output::Json { lists } => output::line(object! {
                #[serde(flatten)]
                failed: failed,
                #[serde(flatten)]
                locks: lists.then(|| object! { locks: [(); 0] }),
            })
            .and_then(|text| output::last(&text)),
            // All that `eval "$(…)" || exit` sees.
            Output::Shell => output::last(&format!("(exit {})\n", exit.shown())),
        };
        exit
    }
}
