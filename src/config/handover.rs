//! What `acquire --while-pid` hands to its keeper. It goes through a socket, which is the keeper's
//! stdout: other processes of the user could set an environment variable, or read it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, stdout};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::rules::Token;
use crate::system::poll::{Interrupt, write};

/// The name by which a process knows that it is a keeper.
pub(crate) const KEEPER: &str = "rlock-keeper";

/// The contents of files that cannot be read twice, by the option that names the file.
pub type ReadOnce = BTreeMap<String, Vec<u8>>;

/// The token of a hold, and the files that were read to obtain it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Handover {
    token: String,
    pub(crate) read_once: ReadOnce,
}

impl Handover {
    pub(crate) fn new(token: &Token, read_once: &ReadOnce) -> Self {
        Self { token: token.as_str().to_owned(), read_once: read_once.clone() }
    }

    pub(crate) fn token(&self) -> Result<Token, Error> {
        self.token.parse().map_err(Error::Usage)
    }

    /// Sends it to a keeper, which does nothing before it has received all of it.
    pub(crate) fn send(&self, keeper: &UnixStream, stop: Interrupt<'_>) -> io::Result<()> {
        write(keeper.as_fd(), &serde_json::to_vec(self)?, stop)?;
        keeper.shutdown(Shutdown::Write)
    }

    /// Receives what the parent has sent, if these are the arguments of a keeper.
    pub(crate) fn receive(arguments: &[OsString]) -> Result<Option<Self>, Error> {
        if arguments.first().is_none_or(|name| name != KEEPER) {
            return Ok(None);
        }
        Ok(Some(Self::read().context("cannot receive the hold from rlock acquire")?))
    }

    fn read() -> io::Result<Self> {
        let mut parent = UnixStream::from(stdout().as_fd().try_clone_to_owned()?);
        // Fails on anything but a socket, such as a terminal, which would be read forever.
        parent.local_addr()?;
        let mut sent = Vec::new();
        parent.read_to_end(&mut sent)?;
        Ok(serde_json::from_slice(&sent)?)
    }
}
