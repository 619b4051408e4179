//! What `inspect --servers` learns of the servers, and what it finds wrong with them.

mod findings;
pub mod promotion;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub use findings::{CERTIFICATE_ENDS_SOON, Finding, evicts_locks, findings, table};

use super::{Instant, Ttl, UserMessage};

/// How many of `servers` servers a hold needs, as in Redlock. Any two holds that exclude each other,
/// or have the same slot, then meet on at least one server.
pub fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// One run of a server program, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Unique among all servers, whatever address they are reached at.
    pub id: String,
    /// The latest time at which it can have lost anything.
    pub since: Instant,
    pub began: Began,
}

/// How a server became the master that it is. In both cases it may have lost its last writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Began {
    Started,
    Promoted,
}

impl fmt::Display for Began {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Promoted => "was found promoted",
        })
    }
}

/// All servers of a location, and how the clients will use them.
pub struct Survey {
    pub(crate) servers: Vec<Server>,
    /// Whether each server is independent of the others and has one vote.
    pub(crate) is_quorum: bool,
    pub(crate) ttl: Ttl,
    pub(crate) min_replicas: u32,
}

impl Survey {
    /// A note about what is not a fault while a server of a quorum is being exchanged.
    pub(crate) fn note(&self) -> Option<String> {
        let number = self.servers.iter().filter(|it| it.role == Role::Server).count();
        (self.is_quorum && number > 2 && number % 2 == 0)
            .then(|| format!("{number} servers survive no more failures than {}", number - 1))
    }
}

/// One server, sentinel or directory, as far as it can be known.
#[derive(Default)]
pub struct Server {
    /// Where it is, as messages name it.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Why the rest is unknown.
    pub(crate) failure: Option<UserMessage>,
    /// Whether the user must change something before it can be asked.
    pub(crate) is_denied: bool,
    /// What a client does, with the time that it took or the reason why it failed.
    pub(crate) steps: Vec<(&'static str, Result<Duration, UserMessage>)>,
    pub(crate) facts: Facts,
    /// Of a member of a quorum: how it became the master that it is, and how long ago.
    pub(crate) began: Option<(Began, Duration)>,
    /// What is not known of it although it does not matter to most users, and why.
    pub(crate) unknown: Vec<String>,
    /// Why more is not known of it.
    pub(crate) unanswered: Vec<UserMessage>,
    /// How far its clock is ahead of this host's clock since boot. At most half a round trip wrong.
    pub(crate) clock: Option<Duration>,
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether it is reached over a network, by TCP without TLS.
    pub(crate) is_plain: bool,
    /// Certificates that end soon, and how long they remain valid.
    pub(crate) certificates: Vec<(&'static str, Duration)>,
    /// The master that a sentinel names, or of which this is a replica.
    pub(crate) master: Option<String>,
    /// The addresses of the master that a sentinel names.
    pub(crate) master_addresses: Vec<SocketAddr>,
    /// The different masters to which its name leads, by address.
    pub(crate) behind: Vec<String>,
}

/// What an address was taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A server with locks.
    #[default]
    Server,
    /// A server with some of the locks of a cluster.
    Node,
    /// A replica of one with locks.
    Replica,
    Sentinel,
    Directory,
}

/// Fields of INFO, CLUSTER INFO, SENTINEL MASTER and CONFIG GET, or what is known of a directory, by
/// name. What a server does not tell is left out.
#[derive(Default)]
pub struct Facts(BTreeMap<String, String>);

impl Facts {
    pub(crate) fn extend(&mut self, fields: impl IntoIterator<Item = (String, String)>) {
        self.0.extend(fields);
    }

    /// Reads `name:value` lines, as INFO returns them.
    pub(crate) fn read(&mut self, lines: &str) {
        let fields = lines.lines().filter_map(|line| line.trim().split_once(':'));
        self.extend(fields.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The replicas of a server, which INFO describes as
    /// `ip=127.0.0.1,port=6380,state=online,offset=42,lag=1`.
    pub(crate) fn replicas(&self) -> impl Iterator<Item = Replica<'_>> {
        self.0.iter().filter_map(|(name, replica)| {
            // Other fields, such as `slave_priority`, begin alike.
            name.strip_prefix("slave")?.parse::<u32>().ok()?;
            let field = |name| replica.split(',').find_map(|it| it.strip_prefix(name));
            Some(Replica {
                host: field("ip=")?,
                port: field("port=")?.parse().ok()?,
                state: field("state=")?,
                lag: field("lag=")?.parse().ok()?,
            })
        })
    }
}

/// A replica, as its master describes it.
pub(crate) struct Replica<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    state: &'a str,
    /// For how long it has not answered, in seconds.
    lag: u64,
}

impl Server {
    pub(crate) fn new(name: impl ToString, role: Role) -> Self {
        Self { name: name.to_string(), role, ..Self::default() }
    }

    /// The name and version of its program, such as `Valkey 8.1.0`.
    pub(crate) fn version(&self) -> Option<String> {
        let valkey = self.facts.text("valkey_version").map(|version| format!("Valkey {version}"));
        valkey.or_else(|| self.facts.text("redis_version").map(|it| format!("Redis {it}")))
    }

    pub(crate) fn uptime(&self) -> Option<Duration> {
        self.facts.number("uptime_in_seconds").map(Duration::from_secs)
    }

    /// The number of its replicas.
    pub(crate) fn replicas(&self) -> Option<u64> {
        self.facts.number("connected_slaves")
    }

    /// The shortest time in which it answered a client.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.steps.iter().filter_map(|(_, took)| took.as_ref().ok().copied()).min()
    }

    /// The longest time in which it answered a single request.
    pub(crate) fn slowest(&self) -> Option<Duration> {
        let is_single = |step: &str| ["renew", "inspect", "release"].contains(&step);
        let times = self.steps.iter().filter(|(step, _)| is_single(step));
        times.filter_map(|(_, took)| took.as_ref().ok().copied()).max()
    }

    /// Whether it has answered a client.
    pub(crate) fn answers(&self) -> bool {
        !self.steps.is_empty() || self.master.is_some()
    }

    /// Whether it was asked in vain.
    pub(crate) fn has_not_answered(&self) -> bool {
        self.failure.is_some() && !self.answers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_quorum_survives_no_more_failures_than_the_odd_one_below_it() {
        for (number, is_quorum, is_told) in
            [(2, true, false), (3, true, false), (4, true, true), (4, false, false)]
        {
            let servers = (0..number).map(|it| Server::new(it, Role::Server)).collect();
            let survey = Survey { servers, is_quorum, ttl: Ttl::DEFAULT, min_replicas: 0 };
            assert_eq!(survey.note().is_some(), is_told, "{number} {is_quorum}");
        }
    }
}
