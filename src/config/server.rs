//! The lock server: where it is, how to log in, and how long to wait for it.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::files::Files;
use super::handover::ReadOnce;
use super::variables;
use crate::cli;
use crate::error::Error;
use crate::rules::{Key, Name, Prefix, Timeout, Ttl};
use crate::store::location::{Directory, Location};

/// The lock server, and the prefix of the keys on it.
pub struct ServerSettings {
    pub(crate) location: Location,
    pub(crate) prefix: Prefix,
    pub(crate) io_timeout: Duration,
    /// How many replicas must confirm each grant and each renewal.
    pub(crate) min_replicas: u32,
    /// Warnings about a configuration that works but is unsafe.
    pub(crate) warnings: Vec<String>,
    /// What a keeper needs, because it cannot be read twice.
    pub(crate) read_once: ReadOnce,
}

const NO_URL: &str = "no server; set --url or RLOCK_URL, for example \
                      RLOCK_URL=redis://127.0.0.1:6379/0 (or RLOCK_URL=local: for this host only)";

impl ServerSettings {
    /// Resolves the options and variables that describe the server. `ttl` is the lease that rlock
    /// will request, if any: a reply may take at most a quarter of it. `read_once` is what a keeper
    /// has received.
    pub fn resolve(
        common: &cli::CommonArgs,
        ttl: Option<Ttl>,
        min_replicas: u32,
        read_once: ReadOnce,
    ) -> Result<Self, Error> {
        let is_url_visible = !common.url.is_empty();
        let options = variables::complete_server(common)?;
        let io_timeout = options.io_timeout.unwrap_or(Timeout::DEFAULT).get();
        let mut files = Files::new(io_timeout, read_once);
        let urls: Vec<&str> = options.url.iter().map(String::as_str).collect();
        if urls.is_empty() {
            return Err(Error::Config(NO_URL.into()));
        }
        let location = Location::parse(&urls, default_directory().as_deref())
            .map_err(|what| Error::Config(format!("bad URL: {what}").into()))?;
        if is_url_visible && location.has_password() {
            files
                .warnings
                .push("the password in --url is visible to all users in ps; use RLOCK_URL".into());
        }
        let is_local = location.directory().is_some();
        let hazard = location.directory().and_then(Directory::hazard);
        files.warnings.extend(hazard.map(|hazard| format!("{location} {hazard}")));
        let [login, for_sentinels] = files.credentials(&options, is_local)?;
        let location = location
            .with(&login, &for_sentinels, &files.tls(&options)?)
            .map_err(|what| Error::Config(what.into()))?;
        if min_replicas > 0 && is_local {
            return Err(Error::Config("local: does not replicate; set --min-replicas to 0".into()));
        }
        Ok(Self {
            location,
            prefix: options.prefix.unwrap_or_default(),
            io_timeout: ttl.map_or(io_timeout, |ttl| io_timeout.min(ttl.get() / 4)),
            min_replicas,
            warnings: files.warnings,
            read_once: files.read_once,
        })
    }

    /// Returns the key of a lock on this server.
    pub(crate) fn key(&self, name: &Name) -> Key {
        Key::new(&self.prefix, name)
    }
}

impl fmt::Display for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, prefix '{}'", self.location, self.prefix.as_str())
    }
}

/// Returns the directory that `local:` means, if the environment names one.
fn default_directory() -> Option<PathBuf> {
    let absolute =
        |name| env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("rlock"))
}
