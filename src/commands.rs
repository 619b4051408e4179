//! The subcommands: each joins configuration, store, wait and supervision in its own way.

mod acquire;
mod evict;
mod exec;
mod grant;
mod identity;
mod inspect;
mod keep;
mod output;
mod release;
mod releasing;
mod renew;
mod reported;

use output::Output;

use crate::cli::{Command, Common};
use crate::config;
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::Name;
use crate::lock::pattern::Subject;
use crate::report::{Report, Verbosity};
use crate::system::inherited::Inherited;

/// Runs a subcommand to the end of the process.
pub(crate) fn run(command: Command, inherited: Inherited) -> Exit {
    match command {
        Command::Exec(options) => {
            let invocation = Invocation::new(&options.common, Some(&options.name), Output::Human);
            invocation.finish(exec::run(&options, inherited, &invocation.report))
        }
        Command::Acquire(options) => {
            let output = if options.shell { Output::Shell } else { options.json.into() };
            let invocation = Invocation::new(&options.common, Some(&options.name), output);
            invocation.finish(acquire::run(&options, inherited, &invocation.report))
        }
        Command::Renew(options) => {
            let hold = &options.hold;
            let invocation = Invocation::new(&options.common, Some(&hold.name), hold.json.into());
            invocation.finish(renew::run(&options, &invocation.report))
        }
        Command::Release(options) => {
            let hold = &options.hold;
            let invocation = Invocation::new(&options.common, Some(&hold.name), hold.json.into());
            invocation.finish(release::run(&options, &invocation.report))
        }
        Command::Inspect(options) => {
            let name = options.subject.as_ref().and_then(Subject::name);
            let invocation = Invocation::new(&options.common, name, options.json.into());
            invocation.finish(inspect::run(&options, &invocation.report))
        }
    }
}

/// Where a command's results and errors go.
struct Invocation {
    report: Report,
    verbosity: Verbosity,
    name: Option<Name>,
    output: Output,
}

impl Invocation {
    fn new(common: &Common, name: Option<&Name>, output: Output) -> Self {
        let verbosity = config::verbosity(common);
        let subject = name.map(|name| name as &dyn std::fmt::Display);
        Self { report: Report::new(subject, verbosity), verbosity, name: name.cloned(), output }
    }

    fn finish(&self, result: Result<Exit, Error>) -> Exit {
        let error = match result {
            Ok(exit) => return exit,
            Err(error) => error,
        };
        if error.is_worth_telling(self.verbosity) {
            self.report.warn(&error);
        }
        // If that fails: the error has been told on stderr, and its status is the more important one.
        let _ = match self.output {
            Output::Human => Ok(()),
            Output::Json => output::failure(self.name.as_ref(), &error),
            // `eval "$(…)" || exit` sees nothing but this.
            Output::Shell => output::text(&format!("(exit {})\n", error.exit().shown())),
        };
        error.exit()
    }
}
