//! Subcommand lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::promises::{one_line, parts};
use rlock::cli::{self, Subcommand, Unparsed};
use rlock::config::{ReadOnce, ServerSettings, Terms};

/// Checks command lines, from the words to the resolved configuration. The input is the arguments.
pub fn command_lines(bytes: &[u8]) {
    let arguments = parts(bytes).map(|argument| OsString::from_vec(argument.to_vec()));
    let arguments: Vec<_> = std::iter::once("rlock".into()).chain(arguments).collect();
    match cli::parse(&arguments) {
        Ok(cli) => resolve(cli.subcommand),
        Err(Unparsed::Help(_)) => {}
        Err(Unparsed::Misuse(fault)) => one_line(&fault.to_string()),
    }
}

fn resolve(command: Subcommand) {
    let common = match &command {
        Subcommand::Exec(options) => &options.common,
        Subcommand::Acquire(options) => &options.common,
        Subcommand::Renew(options) => &options.common,
        Subcommand::Release(options) => &options.common,
        Subcommand::Inspect(options) => &options.common,
    };
    let files = [&common.password_file, &common.tls_ca, &common.tls_cert, &common.tls_key];
    // An input must not decide which files of this host are read.
    if files.iter().any(|file| file.is_some()) {
        return;
    }
    let server = |common, ttl| {
        ServerSettings::resolve(common, ttl, 0, ReadOnce::new())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let resolved: Result<(), String> = match command {
        Subcommand::Exec(cli::ExecArgs { common, lock, .. })
        | Subcommand::Acquire(cli::AcquireArgs { common, lock, .. }) => {
            let terms = Terms::resolve(&common, lock, ReadOnce::new());
            terms.map(drop).map_err(|error| error.to_string())
        }
        Subcommand::Renew(options) => server(&options.common, options.ttl),
        Subcommand::Release(options) => server(&options.common, None),
        Subcommand::Inspect(options) => server(&options.common, None),
    };
    if let Err(message) = resolved {
        one_line(&message);
    }
}
