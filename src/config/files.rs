//! Files that the user names: a password, certificates and a key. Each is read once and within the
//! time for one answer, since it may be a pipe: `--password-file <(pass show lock)`.

use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::libc;

use crate::duration::show;
use crate::error::Error;
use crate::report::plain;
use crate::system::clock::Instant;
use crate::system::poll::{Want, ready};
use crate::text::quoted;

/// What a file is named for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Password,
    Authority,
    Certificate,
    Key,
}

impl Role {
    fn option(self) -> &'static str {
        match self {
            Self::Password => "--password-file",
            Self::Authority => "--tls-ca",
            Self::Certificate => "--tls-cert",
            Self::Key => "--tls-key",
        }
    }

    /// Has what the file had, in a keeper that could not read it again.
    fn handed_down(self) -> &'static str {
        match self {
            Self::Password => "RLOCK_KEEPER_PASSWORD",
            Self::Authority => "RLOCK_KEEPER_TLS_CA",
            Self::Certificate => "RLOCK_KEEPER_TLS_CERT",
            Self::Key => "RLOCK_KEEPER_TLS_KEY",
        }
    }

    fn is_secret(self) -> bool {
        matches!(self, Self::Password | Self::Key)
    }

    /// In bytes; the authorities of a whole system take a fraction of it.
    fn largest(self) -> usize {
        match self {
            Self::Password => 4096,
            Self::Authority | Self::Certificate | Self::Key => 4 << 20,
        }
    }
}

/// Reads them, and remembers what is to be said and handed down about them.
pub(super) struct Files {
    patience: Duration,
    pub(super) warnings: Vec<String>,
    /// What cannot be read twice, for a keeper's environment.
    pub(super) read_once: Vec<(&'static str, OsString)>,
}

impl Files {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, warnings: Vec::new(), read_once: Vec::new() }
    }

    /// The first line; what comes after it is somebody's notes.
    pub(super) fn password(&mut self, path: &Path) -> Result<String, Error> {
        let text = self.read(Role::Password, path)?;
        let line = first_line(&text);
        match std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) {
            Ok("") => {
                Err(fail(Role::Password, path, "no password on the first line; put it there"))
            }
            Ok(password) => Ok(password.to_owned()),
            Err(_) => Err(fail(Role::Password, path, "first line is not UTF-8; convert the file")),
        }
    }

    /// All of a file, or of a password's as much as there is to its first line.
    pub(super) fn read(&mut self, role: Role, path: &Path) -> Result<Vec<u8>, Error> {
        if let Some(text) = env::var_os(role.handed_down()) {
            return Ok(text.into_vec());
        }
        let refused = |error: io::Error| fail(role, path, &plain(&error));
        // Opening a pipe would wait for its other end.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(refused)?;
        let found = file.metadata().map_err(refused)?;
        let text = self.content(file, found.is_file(), role, path)?;
        // Only of others: a group may be just who is meant to have it.
        if role.is_secret() && found.is_file() && found.mode() & 0o004 != 0 {
            let (option, file) = (role.option(), quoted(&path.to_string_lossy()));
            self.warnings
                .push(format!("{option}: readable by every user; run chmod o-r -- {file}"));
        }
        if !found.is_file() {
            self.read_once.push((role.handed_down(), OsString::from_vec(text.clone())));
        }
        Ok(text)
    }

    fn content(
        &self,
        mut file: File,
        is_regular: bool,
        role: Role,
        path: &Path,
    ) -> Result<Vec<u8>, Error> {
        let refused = |error: io::Error| fail(role, path, &plain(&error));
        let until = Instant::now() + self.patience;
        let is_enough = |text: &[u8]| role == Role::Password && text.contains(&b'\n');
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        // What follows a password in a pipe is for the command that reads the pipe next.
        let at_once = if role == Role::Password && !is_regular { 1 } else { buffer.len() };
        while !is_enough(&text) {
            let [is_ready] = ready([(file.as_fd(), Want::Read)], Some(until)).map_err(refused)?;
            if !is_ready {
                let patience = show(self.patience);
                let what = format!("not readable within {patience}; raise --io-timeout");
                return Err(fail(role, path, &what));
            }
            match file.read(&mut buffer[..at_once]) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(refused(error)),
            }
            let largest = role.largest();
            let wanted = match role {
                Role::Password => first_line(&text),
                _ => &text,
            };
            if wanted.len() > largest {
                let what = match role {
                    Role::Password => "first line",
                    _ => "file",
                };
                let what = format!("{what} exceeds {largest} bytes; use another file");
                return Err(fail(role, path, &what));
            }
        }
        Ok(text)
    }
}

fn first_line(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b'\n').next().unwrap_or_default()
}

fn fail(role: Role, path: &Path, what: &str) -> Error {
    Error::Config(format!("{} {}: {what}", role.option(), path.display()))
}
