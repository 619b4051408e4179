//! Environment variables, each of which is the default for an option.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::{self, CommonArgs, LockArgs};
use crate::error::Error;
use crate::rules::{Label, Token, Ttl, UserMessage};

/// Returns the options that say where the server is, with their variables.
pub(super) fn complete_server(options: &CommonArgs) -> Result<CommonArgs, Error> {
    let mut options = options.clone();
    if options.url.is_empty() {
        let urls = variable("RLOCK_URL")?.unwrap_or_default();
        options.url = urls.split_whitespace().map(str::to_owned).collect();
    }
    options.io_timeout = setting(options.io_timeout, "RLOCK_IO_TIMEOUT", str::parse)?;
    options.prefix = setting(options.prefix, "RLOCK_PREFIX", str::parse)?;
    // An empty prefix is a valid one, so an empty variable counts as set.
    let empty = || env::var_os("RLOCK_PREFIX").and_then(|_| "".parse().ok());
    options.prefix = options.prefix.or_else(empty);
    for (path, name) in [
        (&mut options.password_file, "RLOCK_PASSWORD_FILE"),
        (&mut options.tls_ca, "RLOCK_TLS_CA"),
        (&mut options.tls_cert, "RLOCK_TLS_CERT"),
        (&mut options.tls_key, "RLOCK_TLS_KEY"),
    ] {
        *path = path.take().or_else(|| given(name).map(PathBuf::from));
    }
    Ok(options)
}

/// Returns the options that say what to request, with their variables. It leaves out those that
/// other subcommands have too: see `ttl` and `min_replicas`.
pub(super) fn complete_lock(mut options: LockArgs) -> Result<LockArgs, Error> {
    if !options.nonblock {
        options.wait = setting(options.wait, "RLOCK_WAIT", str::parse)?;
    }
    options.owner = setting(options.owner, "RLOCK_OWNER", str::parse)?;
    options.label = options.label.or_else(|| given("RLOCK_LABEL").map(Label::from));
    Ok(options)
}

/// Returns the length of each lease.
pub(crate) fn ttl(option: Option<Ttl>) -> Result<Ttl, Error> {
    Ok(setting(option, "RLOCK_TTL", str::parse)?.unwrap_or(Ttl::DEFAULT))
}

/// Returns how many replicas must confirm each grant and each renewal.
pub(crate) fn min_replicas(option: Option<u32>) -> Result<u32, Error> {
    Ok(setting(option, "RLOCK_MIN_REPLICAS", cli::replicas)?.unwrap_or(0))
}

/// Returns the token of the hold to renew or release.
pub(crate) fn token(argument: Option<Token>) -> Result<Token, Error> {
    setting(argument, "RLOCK_TOKEN", str::parse)?.ok_or_else(|| {
        let remedy = "set RLOCK_TOKEN to the token that acquire printed";
        Error::Usage(UserMessage::new("no token").with_remedy(remedy))
    })
}

/// Returns the value of an option, or of the variable if the option was not given.
fn setting<T>(
    option: Option<T>,
    name: &str,
    parser: impl FnOnce(&str) -> Result<T, UserMessage>,
) -> Result<Option<T>, Error> {
    if option.is_some() {
        return Ok(option);
    }
    let named = |fault: UserMessage| fault.reworded(|what| format!("{name}: {what}"));
    let value = variable(name)?.map(|text| parser(&text));
    value.transpose().map_err(|fault| Error::Usage(named(fault)))
}

/// Returns a variable that is set. An empty one counts as unset, because CI systems often pass
/// empty variables.
pub(super) fn given(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Does the same for a variable that must be UTF-8.
pub(super) fn variable(name: &str) -> Result<Option<String>, Error> {
    given(name).map(OsString::into_string).transpose().map_err(|_| {
        let fault = UserMessage::new(format!("{name}: not UTF-8"));
        Error::Usage(fault.with_remedy("correct its encoding"))
    })
}
