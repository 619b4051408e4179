//! A server, and the credentials for it.

pub(in crate::store) mod mistakes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{ConnectionAddr, IntoConnectionInfo};
use socket2::SockAddr;

use super::endpoint::{Endpoint, Host};
use super::route::Route;
use super::tls::{Reread, TlsFiles};
use crate::rules::{Delivery, Failure, FailureKind, UserMessage};
use mistakes::{SCHEMES, SEPARATORS};

/// One server, with everything that a connection to it needs.
#[derive(Clone)]
pub struct Peer {
    pub(in crate::store) endpoint: Endpoint,
    pub(in crate::store) route: Route,
    /// The files for TLS; `None` for plain text.
    pub(in crate::store) tls: Option<TlsFiles>,
    pub(in crate::store) database: u32,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(in crate::store) reread: Option<Reread<String>>,
    /// Why the password could not be read again.
    pub(in crate::store) unread: Option<String>,
    /// Where the user sets the password, for messages.
    pub(in crate::store) password_setting: &'static str,
    /// Whether a server of this location has served this run; shared by all peers that are made
    /// from this one. What the user set up was right then, so a refusal is probably a change that is
    /// under way.
    served: Arc<AtomicBool>,
}

/// A user and a password that do not come from a URL.
#[derive(Default)]
pub struct Credentials {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) reread: Option<Reread<String>>,
    /// Where the user sets the password.
    pub(crate) setting: &'static str,
}

impl Peer {
    /// Reads a URL strictly: parts that other Redis clients silently ignore are errors here.
    ///
    /// # Errors
    ///
    /// One line that says what is wrong. It never repeats the URL, which may contain a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|what| mistakes::find(text).unwrap_or(what))
    }

    fn read(text: &str) -> Result<Self, String> {
        let other = || format!("not a URL; {SCHEMES}");
        if text.contains(char::is_whitespace) {
            return Err(other());
        }
        // The redis crate is built without TLS, and would refuse the scheme.
        let (text, has_tls) = match text.split_once("://") {
            Some(("rediss" | "valkeys", rest)) => (format!("redis://{rest}"), true),
            Some(("valkey", rest)) => (format!("redis://{rest}"), false),
            _ => (text.to_owned(), false),
        };
        let text = text.as_str();
        // Parse no URL of another scheme: for http, the parser needs the tables that the build
        // leaves out (see `idna_adapter` in Cargo.toml).
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        let is_known = ["redis", "unix"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let url = is_known.then(|| redis::parse_redis_url(text)).flatten().ok_or_else(other)?;
        let is_unix = url.scheme() == "unix";
        // The parser accepts "redis:/h" too, several hosts as one, and a variable as a host.
        let is_one =
            text.contains("://") && !url.host_str().is_some_and(|host| host.contains([',', '$']));
        if !is_unix && !is_one {
            return Err(other());
        }
        if url.fragment().is_some() {
            return Err("contains '#'; write '#' in a password as %23".into());
        }
        for (option, _) in url.query_pairs() {
            if !is_unix {
                return Err("options after '?'; remove them".into());
            }
            // Messages find a password by its name.
            if !url.query().is_some_and(|query| query.contains(&format!("{option}="))) {
                return Err("encoded option after '?'; use db, user or pass".into());
            }
            if !matches!(&*option, "db" | "user" | "pass") {
                return Err("unknown option after '?'; use db, user or pass".into());
            }
        }
        if is_unix && url.has_host() {
            return Err(other());
        }
        if let Some(mark) = url.path().chars().find(|c| is_unix && SEPARATORS.contains(c)) {
            return Err(format!("'{mark}' in a path; write it as %{:02X}", u32::from(mark)));
        }
        let database = url.path().trim_matches('/');
        if !is_unix && !database.is_empty() && database.parse::<i64>().is_err() {
            return Err("database is not a number; use redis://HOST[:PORT]/DB".into());
        }
        let info = url.into_connection_info().map_err(|error| {
            let what = error.detail().unwrap_or("missing host or path").to_lowercase();
            format!("{what}; {SCHEMES}")
        })?;
        let endpoint = match info.addr() {
            ConnectionAddr::Tcp(_, 0) => {
                return Err("port cannot be 0; use the port of the server".into());
            }
            ConnectionAddr::Tcp(host, port) => {
                let host = Host::named(host)
                    .ok_or("invalid host name; use letters, digits, '.', '-' and '_'")?;
                Endpoint::Tcp { host, port: *port }
            }
            ConnectionAddr::Unix(path) => match SockAddr::unix(path) {
                Ok(_) => Endpoint::Unix(path.clone()),
                Err(_) => return Err("socket path is too long; use a shorter one".into()),
            },
            _ => return Err(other()),
        };
        let settings = info.redis_settings();
        Ok(Self {
            endpoint,
            route: Route::default(),
            tls: has_tls.then(TlsFiles::default),
            database: u32::try_from(settings.db())
                .map_err(|_| "database number is out of range; use 0 or greater")?,
            username: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            reread: None,
            unread: None,
            password_setting: "the URL",
            served: Arc::default(),
        })
    }

    /// The server that this one names in a reply. An empty host means the host of this one. An
    /// error means that no server could have that name.
    pub fn named(&self, host: &str, port: u16) -> Result<Endpoint, Failure> {
        let host = match (host, &self.endpoint) {
            ("" | "?", Endpoint::Tcp { host, .. }) => host.clone(),
            _ => Host::named(host).ok_or_else(|| {
                let what = format!("{self} names a server with an invalid host name");
                Failure::misconfigured(what, "correct the address that the server announces")
            })?,
        };
        Ok(Endpoint::Tcp { host, port })
    }

    /// Another server of the location, with the same credentials, database and TLS files.
    pub(in crate::store) fn at(&self, endpoint: Endpoint) -> Self {
        let is_same = endpoint == self.endpoint;
        let route = if is_same { self.route.clone() } else { Route::default() };
        Self { endpoint, route, ..self.clone() }
    }

    /// The same server by one of its addresses. Its certificate must still name the host.
    pub(in crate::store) fn only_at(&self, address: SockAddr) -> Self {
        Self { route: Route::only(address), ..self.clone() }
    }

    /// A connection broke for a reason that the user must fix, unless a server has served a request
    /// before: then certificates, for example, are probably changing.
    pub(super) fn rejected(&self, fault: UserMessage, delivery: Delivery) -> Failure {
        if self.has_served() {
            // Lost, so that the request is repeated on a new connection.
            return Failure { kind: FailureKind::Unavailable, fault, delivery: Delivery::Lost };
        }
        Failure { kind: FailureKind::Misconfigured, fault, delivery }
    }

    /// The password as it is now, or as it was if it cannot be read again.
    pub(in crate::store) fn present_password(&mut self) -> Option<String> {
        let present = self.reread.as_ref().map(|reread| reread()).transpose();
        self.unread = present.as_ref().err().map(Failure::to_string);
        present.ok().flatten().or_else(|| self.password.clone())
    }

    pub(in crate::store) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    pub(in crate::store) fn note_served(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    pub(in crate::store) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Fills in the user and the password if the URL has none, and sets the TLS files. An error means
    /// that there is a user without a password, or that the URL does not use TLS, so that the files,
    /// and the safety that the user expects from them, would be ignored.
    pub(in crate::store) fn complete(
        &mut self,
        credentials: &Credentials,
        files: &TlsFiles,
    ) -> Result<(), String> {
        if self.password.is_none() {
            self.password.clone_from(&credentials.password);
            self.reread.clone_from(&credentials.reread);
            self.password_setting = credentials.setting;
        }
        self.username = self.username.take().or_else(|| credentials.username.clone());
        if self.username.is_some() && self.password.is_none() {
            return Err(format!("username without a password; set {}", self.password_setting));
        }
        match &mut self.tls {
            Some(tls) => *tls = files.clone(),
            None => files.must_be_unused()?,
        }
        Ok(())
    }
}

impl fmt::Display for Peer {
    /// Shows the endpoint, never the user or the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        let peer = Peer::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        format!("{peer} {}", peer.database)
    }

    #[test]
    fn good_urls_are_understood() {
        assert_eq!(shown("redis://h"), "h:6379 0");
        assert_eq!(shown("redis://h:1/3"), "h:1 3");
        assert_eq!(shown("redis://[::1]:7/"), "[::1]:7 0");
        assert_eq!(shown("valkey://h:1/3"), "h:1 3");
        assert!(Peer::parse("valkey://h:1").unwrap().tls.is_none());
        assert!(Peer::parse("rediss://h:1").unwrap().tls.is_some());
        assert!(Peer::parse("valkeys://h:1").unwrap().tls.is_some());
        assert_eq!(shown("unix:///run/redis.sock?db=2"), "/run/redis.sock 2");
        let peer = Peer::parse("redis://u:p%40ss@h").unwrap();
        assert_eq!(peer.username.as_deref(), Some("u"));
        assert_eq!(peer.password.as_deref(), Some("p@ss"));
    }
}
