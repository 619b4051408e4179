//! The table of findings: to add one, add a row here and a test in `tests/servers.rs`.

use std::time::Duration;

use super::{Facts, Role, Server, Survey};
use crate::rules::waiter::heartbeat;
use crate::rules::{UserMessage, show, show_up};

/// Something that keeps a server from keeping the promises.
pub struct Finding {
    /// The word for it in JSON.
    pub(crate) id: &'static str,
    pub(crate) server: String,
    /// What is wrong, and what to do.
    pub(crate) message: UserMessage,
    /// The row of the assumptions in docs/promises.md that it breaks.
    pub(crate) assumption: Option<u8>,
}

/// Looks at one server among all of them.
type Find = fn(&Survey, &Server) -> Vec<UserMessage>;

/// The word for a finding, the assumption that it breaks (0 if none), the condition with its text,
/// and the remedy for a text that has none. `%` in a remedy stands for the server.
type Row = (&'static str, u8, Find, &'static str);

/// All findings, the worst first.
const ROWS: &[Row] = &[
    ("unusable", 0, |_, it| it.failure.iter().cloned().collect(), "check the server"),
    ("refuses", 0, failed_steps, "check the server"),
    ("replica", 6, |_, it| told(is_replica(it, true).then_some("is a replica")), MASTER),
    ("writable-replica", 6, writable_replica, MASTER),
    ("cluster-node", 6, cluster_node, "use a redis+cluster:// URL"),
    ("same-server", 0, same_server, "list each server once"),
    ("version", 0, too_old, "use Redis 6.2 or later, or Valkey"),
    ("cluster-down", 0, cluster_down, "run redis-cli --cluster check %"),
    ("cluster-slots", 0, missing_slots, "restore the servers of the others"),
    ("evicts", 1, |_, it| told(evicts_locks(&it.facts)), "set maxmemory-policy noeviction"),
    ("no-append-only-file", 1, no_append_only_file, "set appendonly yes"),
    ("appendfsync", 1, late_fsync, "set appendfsync always"),
    ("few-replicas", 1, few_replicas, "add a replica, or lower --min-replicas"),
    ("replica-lags", 1, lagging_replicas, "check the replica and its network"),
    ("sentinels-disagree", 6, disagreeing_sentinel, "check the sentinels and their network"),
    ("few-sentinels", 0, few_sentinels, "run at least three sentinels"),
    ("cannot-vote", 0, too_young, "wait, and restart or fail over one server at a time"),
    ("clocks-apart", 2, clocks_apart, "synchronize the clocks with NTP"),
    ("same-host", 0, same_host, "run each server of a quorum on its own host"),
    ("memory", 0, |_, it| near(it, ["used_memory", "maxmemory", "maxmemory"]), "raise maxmemory"),
    ("connections", 0, |_, it| near(it, CONNECTIONS), "raise maxclients"),
    ("slow", 4, slow, "raise --ttl, or use a closer server"),
    ("idle-timeout", 0, closes_idle_connections, "set timeout 0"),
    ("certificate", 0, ending_certificate, "renew it"),
    ("not-encrypted", 0, unencrypted, "use a rediss:// URL"),
    (
        "network-file-system",
        6,
        |_, it| of_directory(it, "network", "is on a file system of"),
        LOCAL_DISK,
    ),
    (
        "cleaned",
        7,
        |_, it| of_directory(it, "cleaned", "can be emptied by programs that clean"),
        LOCAL_DISK,
    ),
    ("writable-by-others", 7, |_, it| told(it.facts.text("writable")), LOCAL_DISK),
    ("tmpfs", 1, |_, it| of_directory(it, "tmpfs", "is emptied by a reboot (tmpfs)"), LOCAL_DISK),
];

const MASTER: &str = "use the address of the master";
const LOCAL_DISK: &str = "use a directory on a local disk that only you or a group can write";
const CONNECTIONS: [&str; 3] = ["connected_clients", "maxclients", "maxclients"];

/// The share of a limit, in percent, from which it counts as near.
const NEAR: u64 = 85;

/// How long before its end a certificate must be renewed.
pub const CERTIFICATE_ENDS_SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// A replica that has not answered for this long, in seconds, lags.
const LAG: u64 = 10;

/// What keeps these servers from keeping the promises, the worst first.
pub fn findings(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, assumption, find, remedy) in ROWS {
        for server in &survey.servers {
            findings.extend(find(survey, server).into_iter().map(|message| Finding {
                id,
                server: server.name.clone(),
                message: message.or_remedy(&remedy.replace('%', &server.name)),
                assumption: Some(*assumption).filter(|number| *number > 0),
            }));
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

fn told<T: Into<String>>(problem: Option<T>) -> Vec<UserMessage> {
    problem.map(UserMessage::new).into_iter().collect()
}

/// Each different reason for which a client cannot do what it does. A replica refuses all of it,
/// and has its own row.
fn failed_steps(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let mut problems: Vec<(Vec<&str>, &UserMessage)> = Vec::new();
    for (step, result) in server.steps.iter().filter(|_| !is_replica(server, true)) {
        let Err(why) = result else { continue };
        match problems.iter_mut().find(|(_, other)| *other == why) {
            Some((steps, _)) => steps.push(step),
            None => problems.push((vec![step], why)),
        }
    }
    let message = |(steps, why): (Vec<&str>, &UserMessage)| {
        why.clone().reworded(|why| match steps.len() == server.steps.len() {
            true => why.to_owned(),
            false => format!("cannot {}: {why}", steps.join(", ")),
        })
    };
    problems.into_iter().map(message).collect()
}

fn is_replica(server: &Server, read_only: bool) -> bool {
    let is_read_only = server.facts.text("slave_read_only") != Some("0");
    server.facts.text("role") == Some("slave") && is_read_only == read_only
}

fn writable_replica(_: &Survey, server: &Server) -> Vec<UserMessage> {
    told(
        is_replica(server, false)
            .then_some("is a replica that accepts writes, so two clients could hold one lock"),
    )
}

fn cluster_node(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let is_node = server.facts.text("cluster_enabled") == Some("1");
    told((is_node && server.role == Role::Server).then_some("is one node of a cluster"))
}

fn cluster_down(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let state = server.facts.text("cluster_state").filter(|state| *state != "ok");
    told(state.map(|state| format!("reports the cluster as '{state}'")))
}

fn missing_slots(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let served = server.facts.number("cluster_slots_ok").filter(|served| *served < 16_384);
    told(served.map(|served| format!("reaches {served} of 16384 hash slots")))
}

/// Whether locks depend on the server's data, and this is whether it has an append-only file.
fn is_kept(survey: &Survey, server: &Server, append_only: &str) -> bool {
    !survey.is_quorum && server.facts.text("aof_enabled") == Some(append_only)
}

fn no_append_only_file(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    told(is_kept(survey, server, "0").then_some("forgets locks in a restart"))
}

fn late_fsync(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let fsync = server.facts.text("appendfsync").filter(|_| is_kept(survey, server, "1"));
    let fsync = fsync.filter(|fsync| *fsync != "always");
    told(fsync.map(|it| format!("may forget locks if its host fails (appendfsync {it})")))
}

/// The servers of a quorum before this one.
fn earlier<'a>(survey: &'a Survey, server: &Server) -> impl Iterator<Item = &'a Server> {
    let before = survey.servers.iter().take_while(|other| !std::ptr::eq(*other, server));
    before.filter(|_| survey.is_quorum)
}

fn same_server(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let run = server.facts.text("run_id");
    let same = earlier(survey, server).find(|it| run.is_some() && it.facts.text("run_id") == run);
    told(same.map(|other| format!("is the same server as {}", other.name)))
}

/// A server that answers and has no address has a Unix socket, on this host.
fn same_host(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let is_shared = |other: &&Server| {
        other.addresses.iter().any(|address| server.addresses.contains(address))
            || other.addresses.is_empty() && server.addresses.is_empty()
    };
    let mut others = earlier(survey, server).filter(|other| other.failure.is_none());
    let other = others.find(is_shared).filter(|_| server.failure.is_none());
    told(other.map(|other| format!("is on the same host as {}", other.name)))
}

fn clocks_apart(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let apart = |other: &Server| {
        let apart = server.clock?.abs_diff(other.clock?);
        let error = (server.round_trip()? + other.round_trip()?) / 2;
        let is_far = apart.saturating_sub(error) >= survey.ttl.get();
        is_far.then(|| {
            format!("has a clock that differs from that of {} by {}", other.name, show(apart))
        })
    };
    told(earlier(survey, server).find_map(apart))
}

fn too_old(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let is_too_old = |version: &&str| {
        let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
        numbers.next().zip(numbers.next()).is_some_and(|version| version < (6, 2))
    };
    let old = server.facts.text("redis_version").filter(is_too_old);
    told(old.map(|version| format!("is Redis {version}")))
}

fn few_replicas(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let wanted = u64::from(survey.min_replicas) + 1;
    let few = server.replicas().filter(|has| survey.min_replicas > 0 && *has < wanted);
    told(few.map(|has| format!("has {has} of the {wanted} replicas that a failover requires")))
}

/// INFO describes a replica as `ip=127.0.0.1,port=6380,state=online,offset=42,lag=1`.
fn lagging_replicas(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let problem = |replica: &str| {
        let field = |name| replica.split(',').find_map(|it| it.strip_prefix(name));
        let address = format!("{}:{}", field("ip=")?, field("port=")?);
        match (field("state=")?, field("lag=")?.parse().ok()?) {
            ("online", 0..LAG) => None,
            ("online", lag) => Some(format!("has not heard from its replica {address} for {lag}s")),
            (state, _) => Some(format!("has a replica {address} that is not online ({state})")),
        }
    };
    server.facts.numbered("slave").filter_map(problem).map(UserMessage::new).collect()
}

fn disagreeing_sentinel(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let first = survey.servers.iter().find_map(|it| Some((&it.name, it.master.as_ref()?)));
    let other = server.master.as_ref().zip(first).filter(|(master, (_, named))| master != named);
    told(other.map(|(master, (name, named))| {
        format!("says that the master is {master}, but {name} says {named}")
    }))
}

/// One finding for all sentinels, at the first.
fn few_sentinels(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let others = |it: &Server| it.facts.number("num-other-sentinels");
    let first = survey.servers.iter().find(|it| others(it).is_some());
    let is_first = first.is_some_and(|first| std::ptr::eq(first, server));
    let few = others(server).filter(|others| is_first && *others < 2);
    told(few.map(|others| {
        format!("knows {others} other sentinel{}", if others == 1 { "" } else { "s" })
    }))
}

fn too_young(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let young = server.began.filter(|(_, age)| *age < survey.ttl.get());
    told(young.map(|(began, age)| {
        let rest = survey.ttl.get().saturating_sub(age);
        format!("{began} {} ago, and cannot vote for another {}", show(age), show_up(rest))
    }))
}

fn near(server: &Server, [used, limit, what]: [&str; 3]) -> Vec<UserMessage> {
    let numbers = server.facts.number(used).zip(server.facts.number(limit));
    let share = numbers.and_then(|(used, limit)| used.checked_mul(100)?.checked_div(limit));
    let told_share = |share: u64| match share {
        0..=100 => format!("uses {share}% of its {what}"),
        _ => format!("uses all of its {what}"),
    };
    told(share.filter(|share| *share >= NEAR).map(told_share))
}

/// A lease must outlast several attempts to renew it.
fn slow(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let ttl = survey.ttl.get();
    let slow = server.slowest().filter(|took| *took > ttl / 10);
    told(slow.map(|took| {
        format!("takes {} for a request, too long for a TTL of {}", show(took), show(ttl))
    }))
}

fn closes_idle_connections(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let timeout = server.facts.number("timeout").map(Duration::from_secs);
    let short = timeout.filter(|it| !it.is_zero() && *it <= heartbeat(survey.ttl.get()));
    told(short.map(|it| format!("closes connections that are idle for {}", show(it))))
}

fn ending_certificate(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let ends = server.certificate_ends;
    told(ends.map(|ends| format!("has a certificate that expires in {}", show(ends))))
}

fn unencrypted(_: &Survey, server: &Server) -> Vec<UserMessage> {
    told(server.is_plain.then_some("is reached over the network without TLS"))
}

/// What is wrong with the place of a directory.
fn of_directory(server: &Server, fact: &str, problem: &str) -> Vec<UserMessage> {
    told(server.facts.text(fact).map(|detail| format!("{problem} {detail}").trim_end().to_owned()))
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
            let breaks = ROWS.iter().filter(|row| row.1 == assumption).map(|row| row.0);
            let mut breaks: Vec<&str> = breaks.collect();
            breaks.sort_by_key(|id| named.iter().position(|it| it == id));
            assert_eq!(named, breaks);
        }
    }
}
