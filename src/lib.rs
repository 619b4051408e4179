//! The internals of the `rlock` program. This is not a library for other programs: only what `main`
//! and the tests need is public, and it may change at any time.
//!
//! The path of one acquisition: [`cli`] parses the arguments, and `config` decides what they mean.
//! `commands` joins `wait` (from a request to a lease, on a `store`) and `supervise` (from a lease
//! to an exit status). What decides is in `rules`, and for locks on a server in the scripts of
//! `lua/`.

use std::ffi::OsString;

pub mod cli;
pub mod config;
pub mod exit;
pub mod inspect;
pub mod report;
pub mod rules;
pub mod store;
pub mod text;

mod commands;
mod error;
mod supervise;
mod system;
mod wait;

use cli::Unparsed;
use exit::Exit;

/// Runs the program with these arguments, its own name first, and returns how it ends.
pub fn run(arguments: Vec<OsString>) -> Exit {
    std::panic::set_hook(Box::new(|panic| {
        report::alert(format_args!("internal error: {panic}; report it as a bug"));
        // Whichever thread panics, the whole process ends. Its locks become free when their leases
        // expire.
        std::process::exit(exit::INTERNAL.into());
    }));
    // First, because this sets up what parsing and every later step rely on, such as open standard
    // streams.
    let inherited = match system::inherited::Inherited::capture() {
        Ok(inherited) => inherited,
        Err(error) => {
            let error = report::plain(&error);
            report::alert(format_args!("cannot start: {error}"));
            return Exit::Status(exit::INTERNAL);
        }
    };
    match cli::parse(&arguments) {
        Ok(cli) => commands::run(cli.subcommand, &arguments, inherited),
        Err(Unparsed::Help(text)) => commands::help(&text),
        Err(Unparsed::Misuse(fault)) => commands::reject(fault, &arguments),
    }
}
