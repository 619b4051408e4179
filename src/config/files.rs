//! Files that the user names: passwords, certificates and a key. Each is read within the I/O
//! timeout, and only once if it is a pipe: `--password-file <(pass show lock)`.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::libc;

use super::handover::ReadOnce;
use super::variables::{given, variable};
use crate::cli::CommonArgs;
use crate::error::Error;
use crate::rules::{Failure, FailureKind, Instant, SystemCall, UserMessage, show};
use crate::store::denial;
use crate::store::location::{Credentials, Pem, PemFiles, Reread, TlsFiles};
use crate::system::poll::{Want, ready};
use crate::text::{is_harmless, quoted};

/// The purpose of a file: the option or variable that names it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileRole(&'static str);

impl FileRole {
    const PASSWORD: Self = Self("--password-file");
    const SENTINEL_PASSWORD: Self = Self("RLOCK_SENTINEL_PASSWORD_FILE");
    const AUTHORITY: Self = Self("--tls-ca");
    const CERTIFICATE: Self = Self("--tls-cert");
    const KEY: Self = Self("--tls-key");

    fn is_password(self) -> bool {
        [Self::PASSWORD, Self::SENTINEL_PASSWORD].contains(&self)
    }
}

/// Reads files, and collects warnings about them and contents to pass on.
#[derive(Clone)]
pub(super) struct Files {
    timeout: Duration,
    pub(super) warnings: Vec<String>,
    /// The contents that cannot be read twice. A keeper begins with those that it has received.
    pub(super) read_once: ReadOnce,
}

impl Files {
    pub(super) fn new(timeout: Duration, read_once: ReadOnce) -> Self {
        Self { timeout, warnings: Vec::new(), read_once }
    }

    /// Returns the logins for the servers and for the sentinels. On `local:`, no server could ask
    /// for a password, so the files are not read.
    pub(super) fn credentials(
        &mut self,
        options: &CommonArgs,
        is_local: bool,
    ) -> Result<[Credentials; 2], Error> {
        let of_sentinels = given(FileRole::SENTINEL_PASSWORD.0).map(PathBuf::from);
        let mut login = |role: FileRole, path: Option<&PathBuf>, [user, secret]: [_; 2]| {
            let username = variable(user)?;
            let Some(path) = path.filter(|_| !is_local) else {
                let (password, reread, setting) = (variable(secret)?, None, secret);
                return Ok::<_, Error>(Credentials { username, password, reread, setting });
            };
            let (password, reread) = self.password(role, path)?;
            Ok(Credentials { username, password: Some(password), reread, setting: role.0 })
        };
        Ok([
            login(
                FileRole::PASSWORD,
                options.password_file.as_ref(),
                ["RLOCK_USERNAME", "RLOCK_PASSWORD"],
            )?,
            login(
                FileRole::SENTINEL_PASSWORD,
                of_sentinels.as_ref(),
                ["RLOCK_SENTINEL_USERNAME", "RLOCK_SENTINEL_PASSWORD"],
            )?,
        ])
    }

    /// Returns the files for TLS, and how to read them again.
    pub(super) fn tls(&mut self, options: &CommonArgs) -> Result<TlsFiles, Error> {
        let paths = [&options.tls_ca, &options.tls_cert, &options.tls_key];
        match paths {
            [None, None, None] => return Ok(TlsFiles::default()),
            [_, certificate, key] if certificate.is_some() != key.is_some() => {
                let what = "--tls-cert and --tls-key are needed together; set both";
                return Err(Error::Config(what.into()));
            }
            _ => {}
        }
        let paths = paths.map(|it| it.as_deref().map(absolute));
        let read = move |files: &mut Self| -> Result<PemFiles, Failure> {
            let mut pems = PemFiles::default();
            let roles = [FileRole::AUTHORITY, FileRole::CERTIFICATE, FileRole::KEY];
            for ((pem, path), role) in pems.iter_mut().zip(&paths).zip(roles) {
                if let Some(path) = path {
                    *pem = Some(Pem { text: files.read(role, path)?, path: path.clone() });
                }
            }
            Ok(pems)
        };
        let first = read(self)?;
        // With the contents that were read just now and cannot be read again.
        let again = self.clone();
        let reread = move || read(&mut again.clone());
        Ok(TlsFiles::new(&first, Arc::new(reread))?)
    }

    /// Returns the first line, and how to read it again if the file is not a pipe.
    fn password(
        &mut self,
        role: FileRole,
        path: &Path,
    ) -> Result<(String, Option<Reread<String>>), Failure> {
        let password = self.first_line(role, path)?;
        let path = absolute(path);
        let timeout = self.timeout;
        let reread = move || {
            // Reading a pipe would delay each login, and in vain.
            let is_file = std::fs::metadata(&path).is_ok_and(|found| found.is_file());
            if !is_file {
                return Err(unusable(role, &path, "no longer a readable file"));
            }
            Self::new(timeout, ReadOnce::new()).first_line(role, &path)
        };
        let is_read_once = self.read_once.contains_key(role.0);
        Ok((password, (!is_read_once).then(|| Arc::new(reread) as Reread<String>)))
    }

    /// Later lines may be notes.
    fn first_line(&mut self, role: FileRole, path: &Path) -> Result<String, Failure> {
        let text = self.read(role, path)?;
        let line = first_line(&text);
        let problem = match std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) {
            Ok("") => "no password on the first line; put the password there",
            Ok(password) => return Ok(password.to_owned()),
            Err(_) => "first line is not UTF-8; convert the file",
        };
        Err(unusable(role, path, problem))
    }

    /// Returns a whole file. Of a password file it may return only the beginning with the first
    /// line.
    fn read(&mut self, role: FileRole, path: &Path) -> Result<Vec<u8>, Failure> {
        if let Some(text) = self.read_once.get(role.0) {
            return Ok(text.clone());
        }
        let (text, found) = self.content(role, path)?;
        // Group access may be intended, access for all others is not.
        if (role.is_password() || role == FileRole::KEY)
            && found.is_file()
            && found.mode() & 0o004 != 0
        {
            let (option, file) = (role.0, quoted(&path.to_string_lossy()));
            self.warnings
                .push(format!("{option}: readable by every user; run chmod o-r -- {file}"));
        }
        if !found.is_file() {
            self.read_once.insert(role.0.to_owned(), text.clone());
        }
        Ok(text)
    }

    /// The content of a file, or why it cannot be read.
    fn content(&self, role: FileRole, path: &Path) -> Result<(Vec<u8>, Metadata), Failure> {
        let refused = |error: io::Error| {
            let failure = denial::failure_at(path, SystemCall::Read, &error);
            failure.reworded(|what| named(role, path, what))
        };
        // Opening a pipe would block until its other end is open.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let mut file = opened.map_err(refused)?;
        let found = file.metadata().map_err(refused)?;
        let until = Instant::now() + self.timeout;
        let is_enough = |text: &[u8]| role.is_password() && text.contains(&b'\n');
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        // The command may read what follows a password in a pipe, so leave that in the pipe.
        let at_once = if role.is_password() && !found.is_file() { 1 } else { buffer.len() };
        while !is_enough(&text) {
            let [is_ready] = ready([(file.as_fd(), Want::Read)], Some(until)).map_err(refused)?;
            if !is_ready {
                let timeout = show(self.timeout);
                let what = format!("not readable within {timeout}; raise --io-timeout");
                return Err(unusable(role, path, &what));
            }
            match file.read(&mut buffer[..at_once]) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(refused(error)),
            }
            let (what, length, largest) = match role {
                role if role.is_password() => ("first line", first_line(&text).len(), 4096),
                // All authorities of a system take a fraction of it.
                _ => ("file", text.len(), 4 << 20),
            };
            if length > largest {
                let what = format!("{what} exceeds {largest} bytes; use another file");
                return Err(unusable(role, path, &what));
            }
        }
        // Editors on Windows begin a file with a byte order mark.
        if text.starts_with(b"\xef\xbb\xbf") {
            text.drain(..3);
        }
        Ok((text, found))
    }
}

/// Returns a path that stays valid when a keeper changes its directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn first_line(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b'\n').next().unwrap_or_default()
}

fn unusable(role: FileRole, path: &Path, what: &str) -> Failure {
    let fault = UserMessage::new(named(role, path, what));
    Failure::new(FailureKind::Misconfigured, fault)
}

/// A problem with the option and the file. Instead of a path, the user may have passed the content: a
/// password or a key.
fn named(role: FileRole, path: &Path, what: &str) -> String {
    let folder = path.ancestors().skip(1).find(|it| it.exists() && it.components().count() > 1);
    let unknown = folder.and_then(|it| path.strip_prefix(it).ok()).unwrap_or(path);
    let is_path = path.exists() || unknown.iter().all(|part| is_harmless(&part.to_string_lossy()));
    let shown = if is_path { path.to_string_lossy() } else { "***".into() };
    format!("{} {shown}: {what}", role.0)
}
