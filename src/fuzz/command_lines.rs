//! Command lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::{one_line, parts};
use crate::cli::{self, Command, Unparsed};
use crate::config;
use crate::error::Error;

/// Checks command lines, from the words to the resolved configuration. The input is the arguments.
pub fn command_lines(bytes: &[u8]) {
    let arguments = parts(bytes).map(|argument| OsString::from_vec(argument.to_vec()));
    let arguments: Vec<_> = std::iter::once("rlock".into()).chain(arguments).collect();
    match cli::parse(&arguments) {
        Ok(cli) => resolve(cli.command),
        Err(Unparsed::Help(_)) => {}
        Err(Unparsed::Misuse(fault)) => one_line(&fault.to_string()),
    }
}

fn resolve(command: Command) {
    let common = match &command {
        Command::Exec(options) => &options.common,
        Command::Acquire(options) => &options.common,
        Command::Renew(options) => &options.common,
        Command::Release(options) => &options.common,
        Command::Inspect(options) => &options.common,
    };
    let _ = config::verbosity(common);
    let files = [&common.password_file, &common.tls_ca, &common.tls_cert, &common.tls_key];
    // An input must not decide which files of this host are read.
    if files.iter().any(|file| file.is_some()) {
        return;
    }
    let resolved: Result<(), Error> = match command {
        Command::Exec(options) => config::Exec::resolve(options).map(drop),
        Command::Acquire(options) => config::Acquire::resolve(options, None).map(drop),
        Command::Renew(options) => config::Renew::resolve(options).map(drop),
        Command::Release(options) => config::Release::resolve(options).map(drop),
        Command::Inspect(options) => config::Inspect::resolve(options).map(drop),
    };
    if let Err(error) = resolved {
        one_line(&error.to_string());
    }
}
