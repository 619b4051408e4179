//! From words to decisions: the command line, then the environment, then defaults. Past this module
//! nothing is checked again.

mod files;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use files::{Files, Role};

use crate::cli;
use crate::duration::{BoundedDuration, Timeout, Ttl};
use crate::error::Error;
use crate::lock::{Label, Mode, Owner, Prefix, Token};
use crate::report::{Report, Verbosity};
use crate::store::Store;
use crate::store::location::{Credentials, Directory, Identity, Location, Pem, TlsFiles};

/// The server, and what it is asked under.
pub(crate) struct Config {
    location: Location,
    pub(crate) prefix: Prefix,
    io_timeout: Duration,
    /// What works but should not be done; to be told once.
    warnings: Vec<String>,
    /// What a keeper cannot read again where it was read from, for its environment.
    pub(crate) read_once: Vec<(&'static str, OsString)>,
}

/// How a lock is asked for.
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) ttl: Ttl,
    pub(crate) at_least: Duration,
    pub(crate) owner: Option<Owner>,
    pub(crate) reentrant: bool,
    pub(crate) wait_limit: WaitLimit,
    pub(crate) conflict_exit_code: u8,
    pub(crate) min_replicas: u32,
    pub(crate) label: Option<Label>,
}

/// How long to wait for a busy lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    None,
    For(Duration),
    Forever,
}

const NO_URL: &str = "no server given; set RLOCK_URL or --url, for example \
                      RLOCK_URL=redis://127.0.0.1:6379/0, or RLOCK_URL=local: for this host alone";

impl Config {
    /// `ttl` is the lease that the server will be asked for, if any: no reply is waited for longer
    /// than a quarter of it.
    pub(crate) fn resolve(common: &cli::Common, ttl: Option<Ttl>) -> Result<Self, Error> {
        let from_environment = variable("RLOCK_URL")?.unwrap_or_default();
        let urls: Vec<&str> = match &common.url[..] {
            [] => from_environment.split_whitespace().collect(),
            given => given.iter().map(String::as_str).collect(),
        };
        let io_timeout = setting(common.io_timeout, "RLOCK_IO_TIMEOUT")?;
        let io_timeout = io_timeout.unwrap_or(Timeout::DEFAULT).get();
        let mut files = Files::new(io_timeout);
        let location = match (&urls[..], local_directory(&urls)) {
            ([], _) => return Err(Error::Config(NO_URL.into())),
            (_, Some(directory)) => Location::Local(local(directory)?),
            (urls, None) => {
                let location = Location::parse(urls)
                    .map_err(|what| Error::Config(format!("bad URL: {what}")))?;
                if !common.url.is_empty() && location.has_password() {
                    files.warnings.push(
                        "the password in --url is visible to all users in ps; use RLOCK_URL".into(),
                    );
                }
                let location = location.with(
                    &credentials(common, &mut files)?,
                    &sentinel_credentials()?,
                    &tls_files(common, &mut files)?,
                );
                location.map_err(Error::Config)?
            }
        };
        let prefix = match (&common.prefix, env::var_os("RLOCK_PREFIX")) {
            (Some(prefix), _) => prefix.clone(),
            (None, None) => Prefix::default(),
            // An empty prefix means something, so an empty variable does too.
            (None, Some(text)) => parse("RLOCK_PREFIX", &unicode("RLOCK_PREFIX", text)?)?,
        };
        Ok(Self {
            location,
            prefix,
            io_timeout: ttl.map_or(io_timeout, |ttl| io_timeout.min(ttl.get() / 4)),
            warnings: files.warnings,
            read_once: files.read_once,
        })
    }

    /// Opens the store that locks are kept in, where a grant counts once it has reached so many
    /// replicas.
    pub(crate) fn open(&self, min_replicas: u32) -> Result<Box<dyn Store>, Error> {
        if min_replicas > 0 && matches!(self.location, Location::Local(_)) {
            return Err(Error::Config("local: has no replicas for --min-replicas".into()));
        }
        self.location.open(self.io_timeout, min_replicas).map_err(Error::Config)
    }

    pub(crate) fn warnings(&self, report: &Report) {
        for warning in &self.warnings {
            report.note(warning);
        }
    }
}

impl Terms {
    pub(crate) fn resolve(terms: &cli::Terms) -> Result<Self, Error> {
        let wait = if terms.nonblock { None } else { setting(terms.wait, "RLOCK_WAIT")? };
        let wait_limit = match wait.map(BoundedDuration::get) {
            _ if terms.nonblock => WaitLimit::None,
            Some(Duration::ZERO) => WaitLimit::None,
            Some(duration) => WaitLimit::For(duration),
            None => WaitLimit::Forever,
        };
        let mode = match (terms.slots, terms.shared) {
            (Some(slots), _) => Mode::Slots(slots),
            (None, true) => Mode::Shared,
            (None, false) => Mode::Exclusive,
        };
        Ok(Self {
            mode,
            ttl: chosen_ttl(terms.lease.ttl)?.unwrap_or(Ttl::DEFAULT),
            at_least: terms.at_least.map_or(Duration::ZERO, BoundedDuration::get),
            owner: setting(terms.owner.clone(), "RLOCK_OWNER")?,
            reentrant: terms.reentrant,
            wait_limit,
            conflict_exit_code: terms.conflict_exit_code,
            min_replicas: number(terms.min_replicas, "RLOCK_MIN_REPLICAS")?.unwrap_or(0),
            label: terms.label.clone().or_else(|| given("RLOCK_LABEL").map(Label::from)),
        })
    }
}

fn credentials(common: &cli::Common, files: &mut Files) -> Result<Credentials, Error> {
    Ok(Credentials {
        username: variable("RLOCK_USERNAME")?,
        password: match &common.password_file {
            Some(file) => Some(files.password(file)?),
            None => variable("RLOCK_PASSWORD")?,
        },
    })
}

fn sentinel_credentials() -> Result<Credentials, Error> {
    Ok(Credentials {
        username: variable("RLOCK_SENTINEL_USERNAME")?,
        password: variable("RLOCK_SENTINEL_PASSWORD")?,
    })
}

fn tls_files(common: &cli::Common, files: &mut Files) -> Result<TlsFiles, Error> {
    let mut file = |option: &Option<PathBuf>, name, role| -> Result<Option<Pem>, Error> {
        let path = option.clone().or_else(|| given(name).map(PathBuf::from));
        path.map(|path| Ok(Pem::new(files.read(role, &path)?, path))).transpose()
    };
    let certificate = file(&common.tls_cert, "RLOCK_TLS_CERT", Role::Certificate)?;
    let identity = match (certificate, file(&common.tls_key, "RLOCK_TLS_KEY", Role::Key)?) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        _ => return Err(Error::Config("--tls-cert and --tls-key go together".into())),
    };
    let authority = file(&common.tls_ca, "RLOCK_TLS_CA", Role::Authority)?;
    Ok(TlsFiles { authority, identity })
}

/// What follows `local:`, if that is the one URL.
fn local_directory<'a>(urls: &[&'a str]) -> Option<&'a str> {
    match urls {
        [url] => url.strip_prefix("local:"),
        _ => None,
    }
}

/// The directory of a `local:` URL. A relative one would be another one for each command that
/// changes its directory.
fn local(path: &str) -> Result<Directory, Error> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    match path {
        "" => {
            let state = absolute(env::var_os("XDG_STATE_HOME"))
                .or_else(|| absolute(env::var_os("HOME")).map(|home| home.join(".local/state")));
            let state = state.ok_or_else(|| {
                Error::Config(
                    "local: needs HOME to be set, or a directory: local:/DIRECTORY".into(),
                )
            })?;
            Ok(Directory::private(state.join("rlock")))
        }
        path => absolute(Some(path.into())).map(Directory::chosen).ok_or_else(|| {
            Error::Config("bad URL: the directory of local: starts with a slash".into())
        }),
    }
}

/// `None` if the user has not said how long a lease is to be.
pub(crate) fn chosen_ttl(given: Option<Ttl>) -> Result<Option<Ttl>, Error> {
    setting(given, "RLOCK_TTL")
}

pub(crate) fn token(hold: &cli::HoldArgs) -> Result<Token, Error> {
    setting(hold.token.clone(), "RLOCK_TOKEN")?.ok_or_else(|| {
        Error::Usage("no token given; set RLOCK_TOKEN to the token that acquire printed".into())
    })
}

pub(crate) fn verbosity(common: &cli::Common) -> Verbosity {
    match (common.quiet, common.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    }
}

/// An option's value, else the variable's.
fn setting<T: FromStr<Err = String>>(option: Option<T>, name: &str) -> Result<Option<T>, Error> {
    match (option, variable(name)?) {
        (Some(value), _) => Ok(Some(value)),
        (None, Some(text)) => parse(name, &text).map(Some),
        (None, None) => Ok(None),
    }
}

fn number(option: Option<u32>, name: &str) -> Result<Option<u32>, Error> {
    match (option, variable(name)?) {
        (None, Some(text)) => {
            let number = text.parse();
            number.map(Some).map_err(|_| Error::Usage(format!("{name}: not a number: {text}")))
        }
        (option, _) => Ok(option),
    }
}

fn parse<T: FromStr<Err = String>>(name: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|what| Error::Usage(format!("{name}: {what}")))
}

/// A variable that is set; an empty one is not, since CI systems pass empty ones on freely.
fn given(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The same as text.
fn variable(name: &str) -> Result<Option<String>, Error> {
    given(name).map(|value| unicode(name, value)).transpose()
}

fn unicode(name: &str, value: OsString) -> Result<String, Error> {
    value.into_string().map_err(|_| Error::Usage(format!("{name}: not UTF-8")))
}
