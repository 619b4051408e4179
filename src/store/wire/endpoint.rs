//! Where a server listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A host name or an IP address. It has no other characters than these, so a hostile server cannot
/// name a host that forges a message or means something to a resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Host(String);

/// The text is not a host.
#[derive(Debug)]
pub(in crate::store) struct InvalidHost;

/// The address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Endpoint {
    Tcp { host: Host, port: u16 },
    Unix(PathBuf),
}

impl Host {
    pub(in crate::store) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Host {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        match (1..=255).contains(&text.len()) && text.chars().all(is_valid) {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidHost),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host: Host(host), port } if host.contains(':') => {
                write!(f, "[{host}]:{port}")
            }
            Self::Tcp { host: Host(host), port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
