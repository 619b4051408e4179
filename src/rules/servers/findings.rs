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

/// Looks at one server among all of them, or at all together.
enum Find {
    Each(fn(&Survey, &Server) -> Vec<UserMessage>),
    All(fn(&Survey) -> Option<String>),
}

use Find::{All, Each};

/// The word for a finding, the assumption that it breaks (0 if none), where it comes from, the
/// condition with its text, and the remedy for a text that has none. `%` in it is the server.
type Row = (&'static str, u8, &'static str, Find, &'static str);

/// All findings, the worst first: what stops all locks, then causes before their consequences.
const ROWS: &[Row] = &[
    ("no-lock", 0, TRYING, All(too_few_votes), "restore the servers below"),
    ("unusable", 0, TRYING, Each(unusable), "check the server"),
    ("refuses", 0, TRYING, Each(failed_steps), "check the server"),
    ("not-checked", 0, "any question", Each(unanswered), "allow the question"),
    ("replica", 6, INFO, Each(is_a_replica), "use the address of the master"),
    ("writable-replica", 6, INFO, Each(writable_replica), "set replica-read-only yes"),
    ("several-masters", 6, ADDRESSES, Each(several_masters), "let the name lead to one master"),
    ("cluster-node", 6, INFO, Each(cluster_node), "use a redis+cluster:// URL"),
    ("same-server", 0, INFO, Each(same_server), "list each server once"),
    ("version", 0, INFO, Each(too_old), "use Redis 6.2 or later, or Valkey"),
    ("cluster-down", 0, CLUSTER, Each(cluster_down), "run redis-cli --cluster check %"),
    (
        "cluster-slots",
        0,
        CLUSTER,
        Each(missing_slots),
        "restore their servers, or assign them to others",
    ),
    ("evicts", 1, INFO, Each(evicts), "set maxmemory-policy noeviction"),
    ("no-append-only-file", 1, INFO, Each(no_append_only_file), "set appendonly yes"),
    ("appendfsync", 1, CONFIG, Each(late_fsync), "set appendfsync always"),
    ("few-replicas", 1, INFO, Each(few_replicas), "add a replica, or lower --min-replicas"),
    ("many-replicas", 1, INFO, Each(many_replicas), "raise --min-replicas, or remove replicas"),
    ("replica-lags", 1, INFO, Each(lagging_replicas), "check the replica and its network"),
    ("replica-not-checked", 1, REPLICA, Each(unknown_replica), "let this host connect to it"),
    ("replica-priority", 1, REPLICA, Each(priorities), "set one replica-priority on all of them"),
    ("sentinels-disagree", 6, SENTINEL, Each(disagreeing_sentinel), CHECK_SENTINELS),
    ("few-sentinels", 0, SENTINEL, All(few_sentinels), "run at least three sentinels"),
    ("sentinel-quorum", 0, SENTINEL, Each(no_quorum), "restore the sentinels that do not answer"),
    (
        "cannot-vote",
        0,
        VOTE,
        Each(too_young),
        "wait, and restart or fail over one server at a time",
    ),
    ("clocks-apart", 2, TIME, Each(clocks_apart), "synchronize the clocks with NTP"),
    ("two-servers", 0, URL, All(two_servers), "use three or five servers"),
    ("same-host", 0, ADDRESSES, Each(same_host), "run each server of a quorum on its own host"),
    ("memory", 0, INFO, Each(|_, it| near(it, MEMORY)), "raise maxmemory"),
    ("connections", 0, INFO, Each(|_, it| near(it, CONNECTIONS)), "raise maxclients"),
    ("slow", 4, TRYING, Each(slow), "raise --ttl, or use a closer server"),
    ("idle-timeout", 0, CONFIG, Each(closes_idle_connections), "set timeout 0"),
    ("certificate", 0, "TLS", Each(ending_certificates), "renew it"),
    ("not-encrypted", 0, URL, Each(unencrypted), "use a rediss:// URL"),
    ("network-file-system", 6, PLACE, Each(on_network), LOCAL_DISK),
    ("cleaned", 7, PLACE, Each(cleaned), LOCAL_DISK),
    ("writable-by-others", 7, PLACE, Each(writable_by_others), LOCAL_DISK),
    ("tmpfs", 1, PLACE, Each(on_tmpfs), LOCAL_DISK),
];

/// Where findings come from.
const TRYING: &str = "what a client does";
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
pub fn all() -> impl Iterator<Item = [&'static str; 3]> {
    ROWS.iter().map(|(id, _, source, _, remedy)| [*id, *source, *remedy])
}

const CHECK_SENTINELS: &str = "check the sentinels and their network";
const LOCAL_DISK: &str = "use a directory on a local disk that only you or a group can write";
const MEMORY: [&str; 3] = ["used_memory", "maxmemory", "maxmemory"];
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
    for (id, assumption, _, find, remedy) in ROWS {
        let mut add = |server: Option<&Server>, message: UserMessage| {
            findings.push(Finding {
                id,
                server: server.map(|server| server.name.clone()),
                message: message.or_remedy(&remedy.replace('%', server.map_or("", |it| &it.name))),
                assumption: Some(*assumption).filter(|number| *number > 0),
            });
        };
        match find {
            All(find) => told(find(survey)).into_iter().for_each(|it| add(None, it)),
            Each(find) => survey.servers.iter().for_each(|server| {
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

fn told<T: Into<String>>(problem: Option<T>) -> Vec<UserMessage> {
    problem.map(UserMessage::new).into_iter().collect()
}

fn evicts(_: &Survey, server: &Server) -> Vec<UserMessage> {
    told(evicts_locks(&server.facts))
}

/// The servers of a quorum.
fn members(survey: &Survey) -> impl Iterator<Item = &Server> {
    survey.servers.iter().filter(|it| survey.is_quorum && it.role == Role::Server)
}

/// A majority must vote for a lock.
fn too_few_votes(survey: &Survey) -> Option<String> {
    let votes = |it: &&Server| {
        let fails = |(step, result): &(&str, Result<_, _>)| {
            ["acquire", "vote"].contains(step) && result.is_err()
        };
        let refuses = it.failure.is_some() || it.steps.iter().any(fails);
        !refuses && too_young(survey, it).is_empty() && same_server(survey, it).is_empty()
    };
    let (all, can) = (members(survey).count(), members(survey).filter(votes).count());
    let needed = majority(all);
    (survey.is_quorum && can < needed).then(|| {
        format!("no lock can be acquired: {can} of {all} servers can vote, {needed} are needed")
    })
}

fn two_servers(survey: &Survey) -> Option<String> {
    (members(survey).count() == 2).then(|| "locks stop if one of two servers fails".to_owned())
}

/// A replica that this host cannot ask may be healthy, and has its own row.
fn unusable(_: &Survey, server: &Server) -> Vec<UserMessage> {
    server.failure.iter().filter(|_| server.role != Role::Replica).cloned().collect()
}

fn unknown_replica(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let failure = server.failure.iter().filter(|_| server.role == Role::Replica);
    let master = server.master.as_deref().unwrap_or_default();
    let is_of = |why: &str| format!("replica of {master} was not checked: {why}");
    failure.cloned().map(|it| it.reworded(is_of)).collect()
}

/// What the server refuses to tell, unless a client could not use it for the same reason.
fn unanswered(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let is_told = |why: &UserMessage| {
        server.steps.iter().any(|(_, step)| step.as_ref().is_err_and(|other| other == why))
    };
    server.unanswered.iter().filter(|why| !is_told(why)).cloned().collect()
}

fn several_masters(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let several = (server.behind.len() > 1).then(|| server.behind.join(" and "));
    told(several.map(|masters| format!("leads to several masters: {masters}")))
}

/// Each different reason for which a client cannot do what it does. A replica refuses all of it,
/// and has its own row.
fn failed_steps(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let mut problems: Vec<(Vec<&str>, &UserMessage)> = Vec::new();
    let is_used = server.role == Role::Replica || !is_replica(server, true);
    for (step, result) in server.steps.iter().filter(|_| is_used) {
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

fn is_a_replica(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let is_used = server.role != Role::Replica && is_replica(server, true);
    told(is_used.then_some("is a replica"))
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
    // A server that is loading says that it has none.
    let is_loading = server.facts.text("loading") == Some("1");
    !survey.is_quorum && !is_loading && server.facts.text("aof_enabled") == Some(append_only)
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
    let is_member = server.role == Role::Server;
    members(survey).take_while(move |other| is_member && !std::ptr::eq(*other, server))
}

/// The master of a replica.
fn master_of<'a>(survey: &'a Survey, replica: &Server) -> Option<&'a Server> {
    let master = replica.master.as_ref().filter(|_| replica.role == Role::Replica)?;
    survey.servers.iter().find(|it| it.role != Role::Replica && it.name == *master)
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
    told(earlier(survey, server).chain(master_of(survey, server)).find_map(apart))
}

fn too_old(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let is_too_old = |version: &&str| {
        let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
        numbers.next().zip(numbers.next()).is_some_and(|version| version < (6, 2))
    };
    let old = server.facts.text("redis_version").filter(is_too_old);
    told(old.map(|version| format!("is Redis {version}")))
}

/// The number of replicas of a master, if grants must reach some of them.
fn replicas_of_master(survey: &Survey, server: &Server) -> Option<u64> {
    let is_master = server.facts.text("role") == Some("master") && survey.min_replicas > 0;
    server.replicas().filter(|_| is_master)
}

fn few_replicas(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let wanted = u64::from(survey.min_replicas) + 1;
    let few = replicas_of_master(survey, server).filter(|has| *has < wanted);
    told(few.map(|has| format!("has {has} of the {wanted} replicas that a failover requires")))
}

/// In a failover, both the old master and the new one could have enough of them.
fn many_replicas(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let least = survey.min_replicas;
    let many = replicas_of_master(survey, server).filter(|has| *has > 2 * u64::from(least));
    told(many.map(|has| {
        format!("has {has} replicas, so with --min-replicas {least}, two masters can grant a lock")
    }))
}

fn lagging_replicas(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let problem = |replica: Replica<'_>| {
        let Replica { host, port, state, lag } = replica;
        match (state, lag) {
            ("online", 0..LAG) => None,
            ("online", lag) => {
                Some(format!("has not heard from its replica {host}:{port} for {lag}s"))
            }
            _ => Some(format!("has a replica {host}:{port} that is not online ({state})")),
        }
    };
    server.facts.replicas().filter_map(problem).map(UserMessage::new).collect()
}

/// With different ones, Sentinel prefers a replica that may have received less. One with 0 is never
/// promoted.
fn priorities(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let of_server = |it: &&Server| it.master.as_ref() == Some(&server.name);
    let replicas = survey.servers.iter().filter(|it| it.role == Role::Replica).filter(of_server);
    let all = replicas.filter_map(|it| it.facts.number("slave_priority")).filter(|it| *it > 0);
    let all = BTreeSet::from_iter(all);
    let shown = Vec::from_iter(all.iter().map(u64::to_string)).join(" and ");
    told((all.len() > 1).then(|| format!("has replicas with replica-priority {shown}")))
}

fn disagreeing_sentinel(survey: &Survey, server: &Server) -> Vec<UserMessage> {
    let mut sentinels = survey.servers.iter().filter(|it| it.role == Role::Sentinel);
    let Some(first) = sentinels.find(|it| it.master.is_some()) else { return Vec::new() };
    let is_same = server.master == first.master
        || server.master_addresses.iter().any(|it| first.master_addresses.contains(it));
    let other = server.master.as_ref().zip(first.master.as_ref());
    let other = other.filter(|_| server.role == Role::Sentinel && !is_same);
    told(other.map(|(master, named)| {
        format!("says that the master is {master}, but {} says {named}", first.name)
    }))
}

fn few_sentinels(survey: &Survey) -> Option<String> {
    let number = |it: &Server| it.facts.number("num-other-sentinels");
    let others = survey.servers.iter().find_map(number).filter(|others| *others < 2)?;
    Some(format!("the service has {}", if others == 0 { "one sentinel" } else { "two sentinels" }))
}

fn no_quorum(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let why = server.facts.text("no-quorum");
    told(why.map(|why| format!("cannot start a failover, because too few sentinels answer: {why}")))
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

fn ending_certificates(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let told = |(what, left): &(&str, Duration)| format!("{what} expires in {}", show(*left));
    server.certificates.iter().map(told).map(UserMessage::new).collect()
}

fn unencrypted(_: &Survey, server: &Server) -> Vec<UserMessage> {
    told(server.is_plain.then_some("is reached over the network without TLS"))
}

fn on_network(_: &Survey, server: &Server) -> Vec<UserMessage> {
    told(server.facts.text("network").map(|kind| format!("is on a file system of {kind}")))
}

fn cleaned(_: &Survey, server: &Server) -> Vec<UserMessage> {
    let place = server.facts.text("cleaned");
    told(place.map(|place| format!("can be emptied by programs that clean {place}")))
}

fn writable_by_others(_: &Survey, server: &Server) -> Vec<UserMessage> {
    told(server.facts.text("writable"))
}

fn on_tmpfs(_: &Survey, server: &Server) -> Vec<UserMessage> {
    told(server.facts.text("tmpfs").map(|_| "is emptied by a reboot (tmpfs)"))
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
