//! The insides of the `rlock` program. Not a library for others: only what its own tests and
//! `main` need is public, and any of it may change.
//!
//! One acquisition, from front to back: [`cli`] reads the words, `config` decides what they mean,
//! `commands` joins the two branches `wait` (from a request to a lease, on a `store`) and
//! `supervise` (from a lease to an exit status), and `lua/` has the last word.

use std::ffi::OsString;
use std::io::Write;

pub mod cli;
pub mod exit;

mod commands;
mod config;
mod duration;
mod error;
mod inspect;
mod lease;
mod lock;
mod policy;
mod report;
mod store;
mod supervise;
mod system;
mod text;
mod wait;

use clap::Parser;
use exit::Exit;

/// The whole program, from its arguments (its own name first) to its end.
pub fn run(arguments: Vec<OsString>) -> Exit {
    std::panic::set_hook(Box::new(|panic| {
        report::alert(format_args!("a bug, please report it: {panic}"));
        // At once, from whichever thread: what rlock holds lapses with its lease.
        std::process::exit(exit::INTERNAL.into());
    }));
    let inherited = match system::inherited::Inherited::capture() {
        Ok(inherited) => inherited,
        Err(error) => {
            report::alert(format_args!("cannot set up signals: {error}"));
            return Exit::Status(exit::INTERNAL);
        }
    };
    match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => commands::run(cli.command, inherited),
        Err(error) => explain(&error),
    }
}

/// `--help` and `--version` arrive as errors too, and so does having no arguments at all.
fn explain(error: &clap::Error) -> Exit {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => match write!(std::io::stdout(), "{error}") {
            Ok(()) => Exit::Status(exit::OK),
            Err(error) => {
                report::alert(report::plain(&error));
                Exit::Status(exit::INTERNAL)
            }
        },
        _ => {
            report::alert(cli::one_line(error));
            Exit::Status(exit::USAGE)
        }
    }
}
