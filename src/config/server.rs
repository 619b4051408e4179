//! The lock server: where it is, how to log in, and how long to wait for it.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::files::{FileRole, Files};
use super::handover::ReadOnce;
use super::variables::{given, setting, variable};
use crate::cli;
use crate::error::Error;
use crate::rules::{Failure, Key, Name, Prefix, Timeout, Ttl};
use crate::store::location::{Credentials, Directory, Location, Pem, PemFiles, TlsFiles};

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
        let from_environment = variable("RLOCK_URL")?.unwrap_or_default();
        let urls: Vec<&str> = match &common.url[..] {
            [] => from_environment.split_whitespace().collect(),
            given => given.iter().map(String::as_str).collect(),
        };
        let io_timeout = setting(common.io_timeout, "RLOCK_IO_TIMEOUT", str::parse)?;
        let io_timeout = io_timeout.unwrap_or(Timeout::DEFAULT).get();
        let mut files = Files::new(io_timeout, read_once);
        if urls.is_empty() {
            return Err(Error::Config(NO_URL.into()));
        }
        let location = Location::parse(&urls, default_directory().as_deref())
            .map_err(|what| Error::Config(format!("bad URL: {what}").into()))?;
        if !common.url.is_empty() && location.has_password() {
            files
                .warnings
                .push("the password in --url is visible to all users in ps; use RLOCK_URL".into());
        }
        let is_local = location.directory().is_some();
        let hazard = location.directory().and_then(Directory::hazard);
        files.warnings.extend(hazard.map(|hazard| format!("{location} {hazard}")));
        // On local:, no server could ask for a password.
        let file = |option, name| path(option, name).filter(|_| !is_local);
        let (of_server, of_sentinels) = (FileRole::PASSWORD, FileRole::SENTINEL_PASSWORD);
        let login = credentials(
            ["RLOCK_USERNAME", "RLOCK_PASSWORD"],
            file(&common.password_file, "RLOCK_PASSWORD_FILE").map(|file| (of_server, file)),
            &mut files,
        )?;
        let for_sentinels = credentials(
            ["RLOCK_SENTINEL_USERNAME", "RLOCK_SENTINEL_PASSWORD"],
            file(&None, of_sentinels.0).map(|file| (of_sentinels, file)),
            &mut files,
        )?;
        let location = location
            .with(&login, &for_sentinels, &tls_files(common, &mut files)?)
            .map_err(|what| Error::Config(what.into()))?;
        if min_replicas > 0 && is_local {
            return Err(Error::Config("local: does not replicate; set --min-replicas to 0".into()));
        }
        let prefix = setting(common.prefix.clone(), "RLOCK_PREFIX", str::parse)?;
        // An empty prefix is a valid one, so an empty variable counts as set.
        let empty = || env::var_os("RLOCK_PREFIX").and_then(|_| "".parse().ok());
        let prefix = prefix.or_else(empty).unwrap_or_default();
        Ok(Self {
            location,
            prefix,
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

/// Returns the username and the password in these variables. A file takes precedence.
fn credentials(
    [username, setting]: [&'static str; 2],
    file: Option<(FileRole, PathBuf)>,
    files: &mut Files,
) -> Result<Credentials, Error> {
    let username = variable(username)?;
    let Some((role, file)) = file else {
        return Ok(Credentials { username, password: variable(setting)?, reread: None, setting });
    };
    let (password, reread) = files.password(role, &file)?;
    Ok(Credentials { username, password: Some(password), reread, setting: role.0 })
}

/// Returns the path that an option or its variable names.
fn path(option: &Option<PathBuf>, name: &str) -> Option<PathBuf> {
    option.clone().or_else(|| given(name).map(PathBuf::from))
}

fn tls_files(common: &cli::CommonArgs, files: &mut Files) -> Result<TlsFiles, Error> {
    let paths = [
        path(&common.tls_ca, "RLOCK_TLS_CA"),
        path(&common.tls_cert, "RLOCK_TLS_CERT"),
        path(&common.tls_key, "RLOCK_TLS_KEY"),
    ];
    match &paths {
        [None, None, None] => return Ok(TlsFiles::default()),
        [_, certificate, key] if certificate.is_some() != key.is_some() => {
            let what = "--tls-cert and --tls-key are needed together; set both";
            return Err(Error::Config(what.into()));
        }
        _ => {}
    }
    // A keeper changes its directory.
    let paths = paths.map(|it| it.map(|path| std::path::absolute(&path).unwrap_or(path)));
    let read = move |files: &mut Files| -> Result<PemFiles, Failure> {
        let mut pems = PemFiles::default();
        let roles = [FileRole::AUTHORITY, FileRole::CERTIFICATE, FileRole::KEY];
        for ((pem, path), role) in pems.iter_mut().zip(&paths).zip(roles) {
            if let Some(path) = path {
                *pem = Some(Pem { text: files.read(role, path)?, path: path.clone() });
            }
        }
        Ok(pems)
    };
    let (first, again) = (read(files)?, files.clone());
    let reread = move || read(&mut again.clone());
    Ok(TlsFiles::new(&first, Arc::new(reread))?)
}

/// Returns the directory that `local:` means, if the environment names one.
fn default_directory() -> Option<PathBuf> {
    let absolute =
        |name| env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("rlock"))
}
