//! A server that is frozen, so that it neither answers nor refuses, delays nothing for longer than
//! the limit of the option and one I/O timeout.

use crate::support::cluster::Cluster;
use crate::support::sentinels::Service;
use crate::support::{Finished, LongerWait, Running, Server, quorum, rlock, run};

/// The environment of clients with an I/O timeout of 3 s.
const PATIENT: [(&str, &str); 2] = [("RLOCK_TTL", "30s"), ("RLOCK_IO_TIMEOUT", "3s")];

/// Compares with a wait that is longer than the promised time, and shorter than two I/O timeouts.
#[track_caller]
fn ends_after_one_timeout(
    urls: &str,
    settings: [(&str, &str); 2],
    longer: &'static str,
    problem: &str,
    signal: impl Fn(&str),
) {
    let at = |arguments: &[&str]| {
        let mut command = rlock(arguments);
        command.env("RLOCK_URL", urls).envs(settings);
        command
    };
    run(&mut at(&["acquire", "L"])).exits(0);
    let mut waits = Running::start(&mut at(&["exec", "-w", "1s", "L", "true"]));
    waits.told("waiting at position 1");
    signal("STOP");
    let mut longer = LongerWait::of(longer);
    let asks = Running::start(&mut at(&["exec", "-n", "M", "true"]));
    let begins = Running::start(&mut at(&["exec", "-w", "1s", "M", "true"]));
    for told in [asks.end(), begins.end(), waits.end()] {
        assert_eq!(told.code(), 69, "{told:?}");
        assert!(told.err().contains(problem), "{told:?}");
    }
    longer.is_not_over();
    signal("CONT");
}

#[test]
fn one_server_delays_nothing_for_longer_than_the_limit_and_one_timeout() {
    let server = Server::on_tcp(&[]);
    let problem = "did not answer within 3s";
    ends_after_one_timeout(&server.tcp_url(), PATIENT, "5900ms", problem, |name| {
        server.signal(name);
    });
}

#[test]
fn a_majority_of_a_quorum_delays_nothing_for_longer_than_the_limit_and_one_timeout() {
    let servers = quorum::servers(3);
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(" ");
    let settings = [("RLOCK_TTL", "8s"), ("RLOCK_IO_TIMEOUT", "2s")];
    ends_after_one_timeout(&urls, settings, "3900ms", "1 of 3 servers usable", |name| {
        servers[1..].iter().for_each(|server| server.signal(name));
    });
}

#[test]
fn sentinels_and_their_master_delay_nothing_for_longer_than_the_limit_and_one_timeout() {
    let service = Service::start(0, &[], &[]);
    ends_after_one_timeout(&service.url(), PATIENT, "5900ms", "", |name| {
        (0..3).for_each(|sentinel| service.signal_sentinel(sentinel, name));
        service.servers()[0].signal(name);
    });
}

#[test]
fn a_cluster_delays_nothing_for_longer_than_the_limit_and_one_timeout() {
    let cluster = Cluster::start(3, 0);
    let problem = "within 3s";
    ends_after_one_timeout(&cluster.url(), PATIENT, "5900ms", problem, |name| {
        (0..3).for_each(|node| cluster.node(node).signal(name));
    });
}
