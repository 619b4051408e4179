//! Where a server listens.

use std::fmt;
use std::path::PathBuf;

/// A host name or an IP address. It has no other characters than these, so a hostile server cannot
/// name a host that forges a message or means something to a resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

/// The address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Tcp { host: Host, port: u16 },
    Unix(PathBuf),
}

impl Host {
    /// The host with this name; `None` if no host can have it.
    pub(in crate::store) fn named(name: &str) -> Option<Self> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        let is_host = (1..=255).contains(&name.len()) && name.chars().all(is_valid);
        is_host.then(|| Self(name.to_owned()))
    }

    pub(in crate::store) fn as_str(&self) -> &str {
        &self.0
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
