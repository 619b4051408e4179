//! What the user's URLs mean: where locks are kept.

use std::fmt;
use std::path::Path;
use std::slice;

use super::wire::{Peer, mistakes};

pub use super::local::Directory;
pub use super::wire::{Credentials, Pem, PemFiles, Reread, TlsFiles};

/// Where locks are kept. Nothing is opened or connected yet.
pub enum Location {
    /// On one server.
    Server(Peer),
    /// On the master that Redis Sentinel names.
    Sentinels(Sentinels),
    /// On the masters of a cluster; these are some of its nodes.
    Cluster(Vec<Peer>),
    /// On a majority of these independent servers.
    Quorum(Vec<Peer>),
    /// In files on this host.
    Local(Directory),
}

/// Some sentinels, and the service whose master they name.
pub struct Sentinels {
    pub(super) sentinels: Vec<Peer>,
    pub(super) service: String,
    /// The credentials, TLS files and database for the master. Its endpoint is a placeholder.
    pub(super) master: Peer,
}

impl Location {
    /// Reads URLs, those of servers as strictly as `Peer` does; several URLs make a quorum.
    /// `local:` without a directory means `default_directory`, if there is one.
    ///
    /// # Errors
    ///
    /// One line that says what is wrong. It never repeats a URL, which may contain a password.
    pub fn parse(urls: &[&str], default_directory: Option<&Path>) -> Result<Self, String> {
        if let [url] = urls {
            return Self::parse_one(url, default_directory);
        }
        if urls.is_empty() {
            return Err("no server given".into());
        }
        let mut servers = Vec::<Peer>::new();
        for (index, url) in urls.iter().enumerate() {
            let which = |what| format!("{} of {}: {what}", index + 1, urls.len());
            match Self::parse_one(url, default_directory).map_err(which)? {
                Self::Server(server)
                    if servers.iter().any(|other| other.endpoint == server.endpoint) =>
                {
                    return Err(format!("{server} is listed twice; list each server once"));
                }
                Self::Server(server) => servers.push(server),
                _ => {
                    return Err(
                        "a quorum cannot include Sentinel, cluster or local: URLs; use one \
                                such URL, with commas between its hosts"
                            .into(),
                    );
                }
            }
        }
        Ok(Self::Quorum(servers))
    }

    fn parse_one(url: &str, default_directory: Option<&Path>) -> Result<Self, String> {
        if let Some(path) = url.strip_prefix("local:") {
            return local(Path::new(path), default_directory).map(Self::Local);
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Ok(Self::Server(Peer::parse(url)?));
        };
        let (plain, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if !kind.is_empty()
            && let Some(mistake) = mistakes::in_password(rest)
        {
            return Err(mistake);
        }
        if !kind.is_empty() && rest.matches('@').count() > 1 {
            return Err("more than one '@'; give username and password once, before the first \
                        host, and write '@' in them as %40"
                .into());
        }
        match kind {
            "sentinel" => Sentinels::parse(plain, rest).map(Self::Sentinels),
            "cluster" => {
                let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
                if !matches!(path, "" | "0") || rest.contains('?') {
                    return Err(
                        "a cluster URL cannot name a database; remove what follows the hosts"
                            .into(),
                    );
                }
                let (user, hosts) = split_user(hosts);
                let nodes =
                    hosts.split(',').map(|host| Peer::parse(&format!("{plain}://{user}{host}")));
                Ok(Self::Cluster(nodes.collect::<Result<_, _>>()?))
            }
            _ => Ok(Self::Server(Peer::parse(url)?)),
        }
    }

    /// Whether a URL contains a password.
    pub fn has_password(&self) -> bool {
        match self {
            Self::Server(server) => server.has_password(),
            Self::Sentinels(sentinels) => sentinels.master.has_password(),
            Self::Cluster(servers) | Self::Quorum(servers) => {
                servers.iter().any(Peer::has_password)
            }
            _ => false,
        }
    }

    /// Where rlock keeps lock files itself.
    pub(crate) fn directory(&self) -> Option<&Directory> {
        match self {
            Self::Local(directory) => Some(directory),
            _ => None,
        }
    }

    /// Fills in what the URLs leave out. Sentinels have their own users, hence
    /// `sentinel_credentials`.
    ///
    /// # Errors
    ///
    /// One line: a user has no password, or TLS files are given for a URL without TLS.
    pub fn with(
        mut self,
        credentials: &Credentials,
        sentinel_credentials: &Credentials,
        files: &TlsFiles,
    ) -> Result<Self, String> {
        let (servers, sentinels): (&mut [Peer], &mut [Peer]) = match &mut self {
            Self::Server(server) => (slice::from_mut(server), &mut []),
            Self::Sentinels(it) => (slice::from_mut(&mut it.master), &mut it.sentinels),
            Self::Cluster(servers) | Self::Quorum(servers) => (servers, &mut []),
            _ => (&mut [], &mut []),
        };
        if servers.is_empty() {
            files.must_be_unused()?;
        }
        servers.iter_mut().try_for_each(|it| it.complete(credentials, files))?;
        sentinels.iter_mut().try_for_each(|it| it.complete(sentinel_credentials, files))?;
        Ok(self)
    }
}

impl fmt::Display for Location {
    /// Never shows a user or a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |servers: &[Peer]| servers.iter().map(Peer::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Sentinels(Sentinels { sentinels, service, .. }) => {
                write!(f, "master of {service} at {}", list(sentinels))
            }
            Self::Cluster(nodes) => write!(f, "cluster of {}", list(nodes)),
            Self::Quorum(servers) => write!(f, "quorum of {}", list(servers)),
            Self::Local(directory) => write!(f, "local:{}", directory.path().display()),
        }
    }
}

impl Sentinels {
    /// Reads `[user:password@]host[:port],…/service[/db]`. The user and the password are the
    /// master's.
    fn parse(scheme: &str, text: &str) -> Result<Self, String> {
        let form = "use redis+sentinel://HOST[:PORT],…/SERVICE[/DB]";
        let (hosts, path) = text.split_once('/').unwrap_or((text, ""));
        let (service, database) = path.split_once('/').unwrap_or((path, ""));
        if service.contains(mistakes::SEPARATORS) || service.contains(['?', '#']) {
            return Err(format!("service name contains a separator, such as ','; {form}"));
        }
        if service.is_empty() {
            return Err(format!("missing service name; {form}"));
        }
        if !database.is_empty() && database.parse::<u32>().is_err() {
            return Err(format!("database is not a number; {form}"));
        }
        let (user, hosts) = split_user(hosts);
        let sentinels = hosts.split(',').map(|host| {
            // An IPv6 address is in brackets, so a colon after them begins the port.
            let has_port = host.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
            let port = if has_port { "" } else { ":26379" };
            Peer::parse(&format!("{scheme}://{host}{port}"))
        });
        let master = Peer::parse(&format!("{scheme}://{user}master/{database}"))?;
        let sentinels = sentinels.collect::<Result<_, _>>()?;
        Ok(Self { sentinels, service: service.to_owned(), master })
    }
}

/// The directory of a `local:` URL. It must be absolute: a relative path would mean a different
/// directory to each process that changes its own.
fn local(path: &Path, default: Option<&Path>) -> Result<Directory, String> {
    if path.is_absolute() && path.parent().is_none() {
        return Err("the directory of local: is /; use local: or local:/DIRECTORY".into());
    }
    if path.is_absolute() {
        return Ok(Directory::new(path, false));
    }
    if !path.as_os_str().is_empty() {
        return Err("the directory of local: is not absolute; use local:/DIRECTORY".into());
    }
    match default {
        Some(default) => Ok(Directory::new(default, true)),
        None => Err("local: has no default directory without HOME; use local:/DIRECTORY".into()),
    }
}

/// Splits `user:password@`, which may be missing, from what follows it.
fn split_user(authority: &str) -> (&str, &str) {
    authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(peers: &[Peer]) -> String {
        peers.iter().map(|peer| format!("{peer} ")).collect()
    }

    #[test]
    fn a_sentinel_url_names_a_service_and_its_sentinels() {
        let url = "redis+sentinel://u:p,%40@h1:1,h2,[::1]:3,[::2]/svc/4";
        let Ok(Location::Sentinels(found)) = Location::parse(&[url], None) else { panic!("{url}") };
        assert_eq!(all(&found.sentinels), "h1:1 h2:26379 [::1]:3 [::2]:26379 ");
        assert!(found.sentinels.iter().all(|sentinel| !sentinel.has_password()));
        assert_eq!((found.service.as_str(), found.master.database), ("svc", 4));
        assert_eq!(found.master.password.as_deref(), Some("p,@"));
        assert!(found.master.tls.is_none());
        let Ok(Location::Sentinels(found)) = Location::parse(&["rediss+sentinel://h/svc"], None)
        else {
            panic!("rediss+sentinel")
        };
        assert!(found.master.tls.is_some() && found.sentinels[0].tls.is_some());
    }

    #[test]
    fn a_cluster_and_a_quorum_are_several_servers() {
        let Ok(Location::Cluster(nodes)) = Location::parse(&["redis+cluster://:p@h1,h2:2/0"], None)
        else {
            panic!("cluster")
        };
        assert_eq!(all(&nodes), "h1:6379 h2:2 ");
        assert!(nodes.iter().all(Peer::has_password));
        let urls = ["redis://h1", "redis://h2", "unix:///s"];
        let Ok(Location::Quorum(nodes)) = Location::parse(&urls, None) else { panic!("quorum") };
        assert_eq!(all(&nodes), "h1:6379 h2:6379 /s ");
    }
}
