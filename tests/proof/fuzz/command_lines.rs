//! Command lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::promises::{one_line, parts};
use rlock::cli::{self, Command, Unparsed};
use rlock::config::{ReadOnce, Server, Terms};

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
    let files = [&common.password_file, &common.tls_ca, &common.tls_cert, &common.tls_key];
    // An input must not decide which files of this host are read.
    if files.iter().any(|file| file.is_some()) {
        return;
    }
    let server = |common, ttl| {
        Server::resolve(common, ttl, 0, ReadOnce::new())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let resolved: Result<(), String> = match command {
        Command::Exec(cli::Exec { common, terms, .. })
        | Command::Acquire(cli::Acquire { common, terms, .. }) => {
            let terms = Terms::resolve(&common, terms, ReadOnce::new());
            terms.map(drop).map_err(|error| error.to_string())
        }
        Command::Renew(options) => server(&options.common, options.ttl),
        Command::Release(options) => server(&options.common, None),
        Command::Inspect(options) => server(&options.common, None),
    };
    if let Err(message) = resolved {
        one_line(&message);
    }
}
