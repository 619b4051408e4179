//! A server that is frozen, so that it neither answers nor refuses, delays nothing for longer than
//! the limit of the option and one I/O timeout.

use crate::support::*;

/// A client with an I/O timeout of 3 s.
fn patient(url: String) -> Client {
    Client::of(url).with("RLOCK_TTL", "30s").with("RLOCK_IO_TIMEOUT", "3s")
}

/// Compares with a wait that is longer than the promised time, and shorter than two I/O timeouts.
#[track_caller]
fn ends_after_one_timeout(
    client: &Client,
    longer: &'static str,
    problem: &str,
    signal: impl Fn(&str),
) {
    client.acquire("L");
    let waits = client.start("exec -w 1s L true").tells("waiting at position 1");
    signal("STOP");
    let mut longer = LongerWait::of(longer);
    let [asks, begins] = ["-n", "-w 1s"].map(|wait| client.start(&format!("exec {wait} M true")));
    for command in [asks, begins, waits] {
        command.end().exits(69).says(problem);
    }
    longer.is_not_over();
    signal("CONT");
}

#[test]
fn one_server_delays_nothing_for_longer_than_the_limit_and_one_timeout() {
    let server = Server::on_tcp(&[]);
    let problem = "did not answer within ";
    ends_after_one_timeout(&patient(server.tcp_url()), "5900ms", problem, |name| {
        server.signal(name);
    });
}

#[test]
fn a_majority_of_a_quorum_delays_nothing_for_longer_than_the_limit_and_one_timeout() {
    let servers = quorum::servers(3);
    let client = quorum::at(&servers).with("RLOCK_TTL", "8s").with("RLOCK_IO_TIMEOUT", "2s");
    ends_after_one_timeout(&client, "3900ms", "1 of 3 servers usable", |name| {
        servers[1..].iter().for_each(|server| server.signal(name));
    });
}

#[test]
fn sentinels_and_their_master_delay_nothing_for_longer_than_the_limit_and_one_timeout() {
    let service = Service::start(0, &[], &[]);
    ends_after_one_timeout(&patient(service.url()), "5900ms", "", |name| {
        (0..3).for_each(|sentinel| service.signal_sentinel(sentinel, name));
        service.servers()[0].signal(name);
    });
}

#[test]
fn a_cluster_delays_nothing_for_longer_than_the_limit_and_one_timeout() {
    let cluster = Cluster::start(3, 0);
    ends_after_one_timeout(&patient(cluster.url()), "5900ms", "within ", |name| {
        (0..3).for_each(|node| cluster.node(node).signal(name));
    });
}
