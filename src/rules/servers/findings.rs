//! The table of findings: to add one, add a row here and a test in `tests/servers.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Facts, Replica, Role, Server, Survey, majority};
use crate::rules::waiter::heartbeat;
use crate::rules::{UserMessage, show, show_up};

/// Something that keeps a server from keeping the promises.
pub struct Finding {
    /// The word for it in JSON.
    pub(crate) id: &'static str,
    /// `None` if it is about all of them.
    pub(crate) server: Option<String>,
    /// What is wrong, and what to do.
    pub(crate) message: UserMessage,
    /// The row of the assumptions in docs/promises.md that it breaks.
    pub(crate) assumption: Option<u8>,
}

/// The word for a finding, where it comes from, and the remedy for a problem that has none. `%` in
/// it is the server.
type About = [&'static str; 3];

/// The assumption that it breaks (0 if none), and the condition with its text.
struct Row(About, u8, Find);

enum Find {
    /// In all servers together.
    All(fn(&Survey) -> Option<String>),
    /// In one among all of them.
    Each(fn(&Survey, &Server) -> Option<String>),
    /// The same, with any number of problems.
    Many(fn(&Survey, &Server) -> Vec<UserMessage>),
}

const fn all(about: About, breaks: u8, find: fn(&Survey) -> Option<String>) -> Row {
    Row(about, breaks, Find::All(find))
}

const fn each(about: About, breaks: u8, find: fn(&Survey, &Server) -> Option<String>) -> Row {
    Row(about, breaks, Find::Each(find))
}

const fn many(about: About, breaks: u8, find: fn(&Survey, &Server) -> Vec<UserMessage>) -> Row {
    Row(about, breaks, Find::Many(find))
}

/// All findings, the worst first: what stops all locks, then causes before their consequences.
const ROWS: &[Row] = &[
    // A majority must vote for a lock.
    all(["no-lock", TRYING, "restore the servers that the next findings name"], 0, |survey| {
        let votes = |it: &&Server| {
            let fails = |(step, result): &(&str, Result<_, _>)| {
                ["acquire", "vote"].contains(step) && result.is_err()
            };
            let refuses = it.failure.is_some() || it.steps.iter().any(fails);
            !refuses && too_young(survey, it).is_none() && same_server(survey, it).is_none()
        };
        let (all, can) = (members(survey).count(), members(survey).filter(votes).count());
        let needed = majority(all);
        (survey.is_quorum && can < needed).then(|| {
            format!("no lock can be acquired: {can} of {all} servers can vote, {needed} are needed")
        })
    }),
    // A replica that this host cannot ask may be healthy, and has its own row.
    many(["unusable", TRYING, "check the server"], 0, |_, server| {
        server.failure.iter().filter(|_| server.role != Role::Replica).cloned().collect()
    }),
    // Each different reason for which a client cannot do what it does. A replica refuses all of it,
    // and has its own row.
    many(["refuses", TRYING, "check the server"], 0, |_, server| {
        let mut problems = Vec::<(Vec<&str>, &UserMessage)>::new();
        let is_used = server.role == Role::Replica || !is_replica(server, true);
        for (step, result) in server.steps.iter().filter(|_| is_used) {
            let Err(why) = result else { continue };
            match problems.iter_mut().find(|(_, other)| *other == why) {
                Some((steps, _)) => steps.push(step),
                None => problems.push((vec![step], why)),
            }
        }
        let message = |(steps, why): (Vec<&str>, &UserMessage)| {
            let is_all = steps.len() == server.steps.len();
            let cannot = |why: &str| format!("cannot {}: {why}", steps.join(", "));
            if is_all { why.clone() } else { why.clone().reworded(cannot) }
        };
        problems.into_iter().map(message).collect()
    }),
    // What the server refuses to tell, unless a client could not use it for the same reason.
    many(["not-checked", "a refused command", "allow the command"], 0, |_, server| {
        let is_told = |why: &UserMessage| {
            server.steps.iter().any(|(_, step)| step.as_ref().is_err_and(|other| other == why))
        };
        server.unanswered.iter().filter(|why| !is_told(why)).cloned().collect()
    }),
    each(["replica", INFO, "use the address of the master"], 6, |_, it| {
        when(it.role != Role::Replica && is_replica(it, true), "is a replica")
    }),
    each(["writable-replica", INFO, "set replica-read-only yes"], 6, |_, it| {
        let problem = "is a replica that accepts writes, so two clients could hold one lock";
        when(is_replica(it, false), problem)
    }),
    each(["several-masters", ADDRESSES, "let the name lead to one master"], 6, |_, it| {
        let masters = it.behind.join(" and ");
        (it.behind.len() > 1).then(|| format!("leads to several masters: {masters}"))
    }),
    each(["cluster-node", INFO, "use a redis+cluster:// URL"], 6, |_, it| {
        let is_node = it.facts.text("cluster_enabled") == Some("1");
        when(is_node && it.role == Role::Server, "is one node of a cluster")
    }),
    each(["same-server", INFO, "list each server once"], 0, same_server),
    each(["version", INFO, "use Redis 6.2 or later, or Valkey"], 0, |_, it| {
        let version = it.facts.text("redis_version")?;
        let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
        let is_too_old = (numbers.next()?, numbers.next()?) < (6, 2);
        is_too_old.then(|| format!("is Redis {version}"))
    }),
    each(["cluster-down", CLUSTER, "run redis-cli --cluster check %"], 0, |_, it| {
        let state = it.facts.text("cluster_state").filter(|state| *state != "ok")?;
        Some(format!("reports the cluster as '{state}'"))
    }),
    each(
        ["cluster-slots", CLUSTER, "restore the servers of lost slots, or reassign the slots"],
        0,
        |_, it| {
            let served = it.facts.number("cluster_slots_ok").filter(|served| *served < 16_384)?;
            Some(format!("reaches {served} of 16384 hash slots"))
        },
    ),
    each(["evicts", INFO, "set maxmemory-policy noeviction"], 1, |_, it| evicts_locks(&it.facts)),
    each(["no-append-only-file", INFO, "set appendonly yes"], 1, |survey, it| {
        when(is_kept(survey, it, "0"), "forgets locks in a restart")
    }),
    each(["appendfsync", CONFIG, "set appendfsync always"], 1, |survey, it| {
        let fsync = it.facts.text("appendfsync").filter(|fsync| *fsync != "always")?;
        is_kept(survey, it, "1")
            .then(|| format!("may forget locks if its host fails (appendfsync {fsync})"))
    }),
    each(["few-replicas", INFO, "add a replica, or lower --min-replicas"], 1, |survey, it| {
        let wanted = u64::from(survey.min_replicas) + 1;
        let has = replicas_of_master(survey, it).filter(|has| *has < wanted)?;
        Some(format!("has {has} of the {wanted} replicas that a failover requires"))
    }),
    // In a failover, both the old master and the new one could have enough of them.
    each(["many-replicas", INFO, "raise --min-replicas, or remove replicas"], 1, |survey, it| {
        let least = survey.min_replicas;
        let has = replicas_of_master(survey, it).filter(|has| *has > 2 * u64::from(least))?;
        let so = format!("so with --min-replicas {least}, two masters can grant a lock");
        Some(format!("has {has} replicas, {so}"))
    }),
    many(["replica-lags", INFO, "check the replica and its network"], 1, |_, server| {
        let problem = |Replica { host, port, state, lag }: Replica<'_>| match (state, lag) {
            ("online", 0..LAG) => None,
            ("online", lag) => {
                Some(format!("has not heard from its replica {host}:{port} for {lag}s"))
            }
            _ => Some(format!("has a replica {host}:{port} that is not online ({state})")),
        };
        server.facts.replicas().filter_map(problem).map(UserMessage::new).collect()
    }),
    many(["replica-not-checked", REPLICA, "let this host reach the replica"], 1, |_, server| {
        let failure = server.failure.iter().filter(|_| server.role == Role::Replica);
        let master = server.master.as_deref().unwrap_or_default();
        let is_of = |why: &str| format!("replica of {master} was not checked: {why}");
        failure.cloned().map(|it| it.reworded(is_of)).collect()
    }),
    // With different ones, Sentinel prefers a replica that may have received less. One with 0 is never
    // promoted.
    each(["replica-priority", REPLICA, "give all replicas one replica-priority"], 1, |all, it| {
        let is_its = |other: &&Server| {
            other.role == Role::Replica && other.master.as_ref() == Some(&it.name)
        };
        let replicas = all.servers.iter().filter(is_its);
        let priorities = replicas.filter_map(|it| it.facts.number("slave_priority"));
        let priorities = BTreeSet::from_iter(priorities.filter(|it| *it > 0));
        let shown = Vec::from_iter(priorities.iter().map(u64::to_string)).join(" and ");
        (priorities.len() > 1).then(|| format!("has replicas with replica-priority {shown}"))
    }),
    each(["sentinels-disagree", SENTINEL, CHECK_SENTINELS], 6, |survey, server| {
        let mut sentinels = survey.servers.iter().filter(|it| it.role == Role::Sentinel);
        let first = sentinels.find(|it| it.master.is_some())?;
        let (master, named) = (server.master.as_ref()?, first.master.as_ref()?);
        let is_same = master == named
            || server.master_addresses.iter().any(|it| first.master_addresses.contains(it));
        (server.role == Role::Sentinel && !is_same)
            .then(|| format!("says that the master is {master}, but {} says {named}", first.name))
    }),
    all(["few-sentinels", SENTINEL, "run at least three sentinels"], 0, |survey| {
        let number = |it: &Server| it.facts.number("num-other-sentinels");
        let others = survey.servers.iter().find_map(number).filter(|others| *others < 2)?;
        let few = if others == 0 { "one sentinel" } else { "two sentinels" };
        Some(format!("the service has {few}"))
    }),
    each(["sentinel-quorum", SENTINEL, "restore the sentinels that do not answer"], 0, |_, it| {
        let why = it.facts.text("no-quorum")?;
        Some(format!("cannot start a failover, because too few sentinels answer: {why}"))
    }),
    each(["cannot-vote", VOTE, ONE_AT_A_TIME], 0, too_young),
    each(["clocks-apart", TIME, "synchronize the clocks with NTP"], 2, |survey, server| {
        let apart = |other: &Server| {
            let apart = server.clock?.abs_diff(other.clock?);
            let error = (server.round_trip()? + other.round_trip()?) / 2;
            let is_far = apart.saturating_sub(error) >= survey.ttl.get();
            is_far.then(|| {
                format!("has a clock that differs from that of {} by {}", other.name, show(apart))
            })
        };
        earlier(survey, server).chain(master_of(survey, server)).find_map(apart)
    }),
    all(["two-servers", URL, "use three or five servers"], 0, |survey| {
        when(members(survey).count() == 2, "locks stop if one of two servers fails")
    }),
    // A server that answers and has no address has a Unix socket, on this host.
    each(["same-host", ADDRESSES, "run each server of a quorum on its own host"], 0, |all, it| {
        let is_shared = |other: &Server| {
            other.addresses.iter().any(|address| it.addresses.contains(address))
                || other.addresses.is_empty() && it.addresses.is_empty()
        };
        let answer = |other: &Server| other.failure.is_none() && it.failure.is_none();
        let other = earlier(all, it).find(|other| answer(other) && is_shared(other))?;
        Some(format!("is on the same host as {}", other.name))
    }),
    each(["memory", INFO, "raise maxmemory"], 0, |_, it| near(it, "used_memory", "maxmemory")),
    each(["connections", INFO, "raise maxclients"], 0, |_, it| {
        near(it, "connected_clients", "maxclients")
    }),
    // A lease must outlast several attempts to renew it.
    each(["slow", TRYING, "raise --ttl, or use a closer server"], 4, |survey, it| {
        let ttl = survey.ttl.get();
        let took = show(it.slowest().filter(|took| *took > ttl / 10)?);
        Some(format!("takes {took} for a request, too long for a TTL of {}", show(ttl)))
    }),
    each(["idle-timeout", CONFIG, "set timeout 0"], 0, |survey, it| {
        let timeout = Duration::from_secs(it.facts.number("timeout")?);
        let is_short = !timeout.is_zero() && timeout <= heartbeat(survey.ttl.get());
        is_short.then(|| format!("closes connections that are idle for {}", show(timeout)))
    }),
    many(["certificate", "TLS", "renew the certificate"], 0, |_, server| {
        let told = |(what, left): &(&str, Duration)| format!("{what} expires in {}", show(*left));
        server.certificates.iter().map(told).map(UserMessage::new).collect()
    }),
    each(["not-encrypted", URL, "use a rediss:// URL"], 0, |_, it| {
        when(it.is_plain, "is reached over the network without TLS")
    }),
    each(["network-file-system", PLACE, LOCAL_DISK], 6, |_, it| {
        Some(format!("is on a file system of {}", it.facts.text("network")?))
    }),
    each(["cleaned", PLACE, LOCAL_DISK], 7, |_, it| {
        Some(format!("can be emptied by programs that clean {}", it.facts.text("cleaned")?))
    }),
    each(["writable-by-others", PLACE, LOCAL_DISK], 7, |_, it| {
        it.facts.text("writable").map(str::to_owned)
    }),
    each(["tmpfs", PLACE, LOCAL_DISK], 1, |_, it| {
        when(it.facts.text("tmpfs").is_some(), "is emptied by a reboot (tmpfs)")
    }),
];

/// Where findings come from.
const TRYING: &str = "trying what a client does";
const INFO: &str = "INFO";
const CONFIG: &str = "CONFIG GET";
const CLUSTER: &str = "CLUSTER INFO";
const SENTINEL: &str = "SENTINEL";
const REPLICA: &str = "INFO of each replica";
const VOTE: &str = "INFO, and the mark of a promotion";
const TIME: &str = "TIME";
const ADDRESSES: &str = "the addresses of the host name";
const URL: &str = "the URL";
const PLACE: &str = "the directory";

/// The word for each finding, where it comes from, and its remedy unless the message has another.
pub fn table() -> impl Iterator<Item = [&'static str; 3]> {
    ROWS.iter().map(|row| row.0)
}

const CHECK_SENTINELS: &str = "check the sentinels and their network";
const LOCAL_DISK: &str = "use a directory on a local disk that only you or a group can write";
const ONE_AT_A_TIME: &str = "wait, and restart or fail over one server at a time";

/// The share of a limit, in percent, from which it counts as near.
const NEAR: u64 = 85;

/// How long before its end a certificate must be renewed.
pub const CERTIFICATE_ENDS_SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// A replica that has not answered for this long, in seconds, lags.
const LAG: u64 = 10;

/// What keeps these servers from keeping the promises, the worst first.
pub fn findings(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Row([id, _, remedy], assumption, find) in ROWS {
        let mut add = |server: Option<&Server>, message: UserMessage| {
            findings.push(Finding {
                id,
                server: server.map(|server| server.name.clone()),
                message: message.or_remedy(&remedy.replace('%', server.map_or("", |it| &it.name))),
                assumption: Some(*assumption).filter(|number| *number > 0),
            });
        };
        let servers = survey.servers.iter();
        match find {
            Find::All(find) => find(survey).into_iter().for_each(|it| add(None, it.into())),
            Find::Each(find) => servers.for_each(|server| {
                find(survey, server).into_iter().for_each(|it| add(Some(server), it.into()));
            }),
            Find::Many(find) => servers.for_each(|server| {
                find(survey, server).into_iter().for_each(|it| add(Some(server), it));
            }),
        }
    }
    findings
}

/// The problem of a server that evicts keys rather than refuse writes.
pub fn evicts_locks(facts: &Facts) -> Option<String> {
    let policy = facts.text("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
    let is_limited = facts.number("maxmemory")? > 0;
    is_limited
        .then(|| format!("may evict locks when its memory is full (maxmemory-policy {policy})"))
}

fn when(is_so: bool, problem: &str) -> Option<String> {
    is_so.then(|| problem.to_owned())
}

/// The servers of a quorum.
fn members(survey: &Survey) -> impl Iterator<Item = &Server> {
    survey.servers.iter().filter(|it| survey.is_quorum && it.role == Role::Server)
}

fn is_replica(server: &Server, read_only: bool) -> bool {
    let is_read_only = server.facts.text("slave_read_only") != Some("0");
    server.facts.text("role") == Some("slave") && is_read_only == read_only
}

/// Whether locks depend on the server's data, and this is whether it has an append-only file.
fn is_kept(survey: &Survey, server: &Server, append_only: &str) -> bool {
    // A server that is loading says that it has none.
    let is_loading = server.facts.text("loading") == Some("1");
    !survey.is_quorum && !is_loading && server.facts.text("aof_enabled") == Some(append_only)
}

/// The servers of a quorum before this one.
fn earlier<'a>(survey: &'a Survey, server: &Server) -> impl Iterator<Item = &'a Server> {
    let is_member = server.role == Role::Server;
    members(survey).take_while(move |other| is_member && !std::ptr::eq(*other, server))
}

/// The master of a replica.
fn master_of<'a>(survey: &'a Survey, replica: &Server) -> Option<&'a Server> {
    let master = replica.master.as_ref().filter(|_| replica.role == Role::Replica)?;
    survey.servers.iter().find(|it| it.role != Role::Replica && it.name == *master)
}

fn same_server(survey: &Survey, server: &Server) -> Option<String> {
    let run = server.facts.text("run_id")?;
    let other = earlier(survey, server).find(|it| it.facts.text("run_id") == Some(run))?;
    Some(format!("is the same server as {}", other.name))
}

/// The number of replicas of a master, if grants must reach some of them.
fn replicas_of_master(survey: &Survey, server: &Server) -> Option<u64> {
    let is_master = server.facts.text("role") == Some("master") && survey.min_replicas > 0;
    server.replicas().filter(|_| is_master)
}

fn too_young(survey: &Survey, server: &Server) -> Option<String> {
    let (began, age) = server.began.filter(|(_, age)| *age < survey.ttl.get())?;
    let rest = survey.ttl.get().saturating_sub(age);
    Some(format!("{began} {} ago, and cannot vote for another {}", show(age), show_up(rest)))
}

fn near(server: &Server, used: &str, limit: &str) -> Option<String> {
    let (used, most) = (server.facts.number(used)?, server.facts.number(limit)?);
    match used.checked_mul(100)?.checked_div(most)? {
        0..NEAR => None,
        share @ ..=100 => Some(format!("uses {share}% of its {limit}")),
        _ => Some(format!("uses all of its {limit}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Ttl;

    #[test]
    fn a_server_too_old_and_a_network_file_system_are_findings() {
        for (fact, value, wanted) in [
            ("redis_version", "6.0.16", Some("version")),
            ("redis_version", "6.2.0", None),
            ("network", "NFS", Some("network-file-system")),
        ] {
            let mut server = Server::new("s", Role::Server);
            server.facts.extend([(fact.to_owned(), value.to_owned())]);
            let ttl = Ttl::from_millis(30_000);
            let survey = Survey { servers: vec![server], is_quorum: false, ttl, min_replicas: 0 };
            assert_eq!(findings(&survey).first().map(|it| it.id), wanted, "{fact}");
        }
    }

    #[test]
    fn a_finding_says_which_steps_fail_and_how_much_of_a_limit_is_used() {
        let mut server = Server::new("s", Role::Server);
        let facts = [("used_memory", "90"), ("maxmemory", "100")];
        server.facts.extend(facts.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let denied = || Err(UserMessage::new("denied"));
        let took = Ok(Duration::from_millis(1));
        server.steps = vec![("acquire", denied()), ("wait", denied()), ("list", took)];
        let ttl = Ttl::from_millis(30_000);
        let survey = Survey { servers: vec![server], is_quorum: false, ttl, min_replicas: 0 };
        let found = findings(&survey);
        let told: Vec<&str> = found.iter().map(|it| it.message.problem()).collect();
        assert_eq!(told, ["cannot acquire, wait: denied", "uses 90% of its maxmemory"]);
    }

    #[test]
    fn the_page_of_promises_names_the_findings_that_break_each_assumption() {
        let page = include_str!("../../../docs/promises.md");
        for assumption in 1..=7 {
            let row = page.lines().find(|line| line.starts_with(&format!("| {assumption} |")));
            let told = row.unwrap().rsplit('|').nth(1).unwrap();
            let named: Vec<&str> = told.split('`').skip(1).step_by(2).collect();
            let breaks = ROWS.iter().filter(|row| row.1 == assumption).map(|row| row.0[0]);
            let mut breaks: Vec<&str> = breaks.collect();
            breaks.sort_by_key(|id| named.iter().position(|it| it == id));
            assert_eq!(named, breaks);
        }
    }
}
