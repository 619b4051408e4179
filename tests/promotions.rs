//! A member of a quorum that was promoted may have lost its last writes, as one that was restarted
//! may. So it does not vote for a lease.

use std::time::{Duration, Instant};

use rlock::rules::{Key, Prefix};

use crate::support::quorum::{at, at_urls, grow_old, servers};
use crate::support::*;

/// The key that records when a server was found promoted.
fn mark() -> String {
    Key::new(&Prefix::default(), &"L".parse().unwrap()).shared("promoted")
}

fn attach(replica: &Server, master: &Server) {
    replica.follows(master.port());
    until("it has the data", || replica.reports("master_link_status:up"));
}

/// Two servers, both of which must vote.
fn pair() -> (Vec<Server>, Client) {
    let pair = servers(2);
    let client = at(&pair);
    client.run("exec -n L true").exits(0);
    (pair, client)
}

#[track_caller]
fn cannot_vote(client: &Client, why: &str) {
    client.run("exec -n L true").exits(69).says("cannot vote yet").says(why);
}

/// In the same number of flights.
#[test]
fn a_member_that_was_never_promoted_votes_at_once_whatever_its_replicas_do() {
    let (pair, _) = pair();
    let wires = [0, 1].map(|it: usize| Proxy::to(pair[it].port(), Duration::ZERO));
    let client = at_urls(wires.iter().map(Proxy::url));
    let takes = |flights: usize| {
        let before = wires.each_ref().map(Proxy::flights);
        client.run("exec -n L true").exits(0);
        let after = wires.each_ref().map(Proxy::flights);
        assert_eq!(after, before.map(|before| before + flights));
    };
    takes(3);
    let mut replica = Server::on_tcp(&[]);
    attach(&replica, &pair[0]);
    takes(3);
    replica.kill();
    until("it is gone", || pair[0].reports("connected_slaves:0"));
    takes(3);
    pair[0].cli(&["CONFIG", "SET", "repl-backlog-ttl", "1"]);
    until("the backlog is gone", || pair[0].reports("repl_backlog_active:0"));
    takes(3);
    replica.start_again();
    attach(&replica, &pair[0]);
    takes(3);
    assert_eq!(pair[0].cli(&["EXISTS", &mark()]), "0");
}

#[test]
fn a_promoted_member_does_not_vote_for_a_lease_however_often_it_is_promoted() {
    let (mut pair, client) = pair();
    let other = Server::on_tcp(&[]);
    let vote_later = |server: &Server, why: &str| {
        cannot_vote(&client, why);
        server.step_clock(1_000);
        cannot_vote(&client, why);
        server.step_clock(1_001);
        client.run("exec -n L true").exits(0);
    };
    for _ in 0..2 {
        attach(&pair[0], &other);
        pair[0].promote();
        vote_later(&pair[0], "was found promoted");
        assert_eq!(pair[0].cli(&["EXISTS", &mark()]), "1");
    }
    // It waits for a member as for one that was restarted.
    attach(&pair[0], &other);
    pair[0].promote();
    let waiter = client.start("exec -w 20s L true").tells("cannot vote yet");
    waiter.end().exits(0);
    // The mark of its master is not its own.
    let mut replica = pair.pop().unwrap();
    attach(&replica, &pair[0]);
    assert_eq!(replica.cli(&["EXISTS", &mark()]), "1");
    replica.promote();
    vote_later(&replica, "was found promoted");
    // What was promoted in an earlier run counts as restarted.
    replica.kill();
    std::fs::remove_file(replica.directory().join("dump.rdb")).unwrap();
    replica.start_again();
    cannot_vote(&client, "started");
    replica.step_clock(10_000);
    replica.await_uptime(4);
    client.run("exec -n L true").exits(0);
    assert_eq!(replica.cli(&["EXISTS", &mark()]), "0");
}

/// Even if it lasts: a demoted server does not close connections.
#[test]
fn a_promotion_on_an_open_connection_is_noticed_at_the_next_vote() {
    let (pair, client) = pair();
    // Without messages, the waiter asks again after a heartbeat, and not before.
    pair[0].cli(&["ACL", "SETUSER", "default", "-blpop"]);
    let client = client.with("RLOCK_TTL", "6s");
    let holder = client.holder("L");
    let waiter = client.start("exec -v L true").tells("waiting at position");
    until("it sleeps", || pair[0].cli(&["ZCARD", &side_key("L", "queue")]) == "1");
    pair[0].follows(pair[1].port());
    pair[0].promote();
    holder.finish();
    waiter.tells("was found promoted").end().exits(0);
}

#[test]
fn a_promoted_member_that_cannot_be_marked_does_not_vote_and_the_key_is_named() {
    let three = servers(3);
    let mut rule = rule("ci", &["+info"]);
    rule.iter_mut().filter(|word| **word == "~{rlock:*").for_each(|word| *word = "~{rlock:L}*");
    for server in &three {
        set_up(server, &rule);
        // A replica that never had a master is as good as another one.
        server.follows(1);
    }
    three[1..].iter().for_each(Server::promote);
    let confined = at(&three).with_user("ci");
    let mark = mark();
    let told = format!("was promoted, and cannot vote for a user who cannot use the key {mark}");
    three[0].promote();
    confined.run("exec -n L true").exits(78).says(&told).says(&format!("; allow ~{mark}"));
    // Others may mark it.
    for server in &three {
        server.cli(&[&["ACL", "SETUSER", "ci"][..], &[&format!("%R~{mark}")]].concat());
    }
    confined.run("exec -n L true").exits(78).says(&told);
    cannot_vote(&at(&three), "was found promoted");
    three.iter().for_each(|server| server.step_clock(2_001));
    confined.run("exec -n L true").exits(0);
}

/// A acquires while the third member is away. The second one, a name in front of a master and its
/// replica, then loses A's hold in a failover.
#[test]
fn a_failover_of_one_member_gives_no_other_client_the_lock_before_the_lease_is_over() {
    for old in [Old::Demoted, Old::Cut, Old::WithoutReplicas, Old::Master] {
        let [first, third] = <[Server; 2]>::try_from(servers(2)).ok().unwrap();
        let second = Endpoint::of(|| Server::with_clock(Duration::ZERO, &[]));
        grow_old(&[&second.master, &second.replica]);
        let urls = |third: String| at_urls([first.url(), second.url(), third].into_iter());
        // It lags from here on.
        second.replica.promote();
        let before = Instant::now();
        urls("unix:///nowhere".into()).acquire("--ttl 4s L");
        assert!(second.master.has("L") && !second.replica.has("L"));
        second.fails_over(old);
        let all = urls(third.url()).with("RLOCK_TTL", "4s");
        all.run("exec -n L true").exits(75).says("held by");
        all.run("exec -w 30s L true").exits(0);
        assert!(before.elapsed() > Duration::from_millis(3_950), "{old:?}");
    }
}
