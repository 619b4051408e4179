//! Several independent servers, of which a minority is wrong: about the time, about what it remembers,
//! or about who may use it.

use std::time::{Duration, Instant};

use crate::support::quorum::{at, holder, inspect};
use crate::support::{Finished, Running, Server, run, until};

const DAY: u32 = 24 * 3_600;

/// Servers whose clocks are ahead by so many seconds. They have been up for longer than a lease.
fn servers<const N: usize>(ahead: [u32; N]) -> Vec<Server> {
    let servers = ahead.map(|ahead| match ahead {
        0 => Server::on_tcp(&[]),
        ahead => Server::ahead(ahead),
    });
    servers.iter().for_each(|server| server.await_uptime(4));
    servers.into()
}

fn queued(server: &Server) -> String {
    server.cli(&["ZCARD", "{rlock:L}?queue"])
}

#[test]
fn a_server_whose_clock_is_far_ahead_has_no_vote() {
    let mut servers = servers([2 * DAY + 60, 0, 0]);
    let name = servers[0].socket().display().to_string();
    for _ in 0..3 {
        servers.rotate_left(1);
        let mut first = holder(&servers, &["-n", "-v"]);
        let mut second = Running::start(&mut at(&servers, &["exec", "L", "echo", "ENTERED"]));
        second.told("waiting at position 1");
        first.told("] renewed for");
        assert_eq!(run(&mut at(&servers, &["exec", "-n", "L", "true"])).code(), 75);
        first.finish().exits(0);
        second.end().exits(0).prints("ENTERED");
        // Without a pause of another server, a majority may have answered before this one does.
        let is_ahead = |server: &&Server| server.socket().display().to_string() == name;
        let ahead = servers.iter().find(is_ahead).unwrap();
        let paused = servers.iter().find(|server| !is_ahead(server)).unwrap();
        paused.signal("STOP");
        let acquire = Running::start(&mut at(&servers, &["acquire", "L"]));
        until("it has answered", || queued(ahead) == "1");
        paused.signal("CONT");
        let token = acquire.end();
        let warning = format!("clock of {name} is 2d ahead of other servers");
        assert_eq!(token.err().matches(&warning).count(), 1, "{token:?}");
        assert_eq!(run(&mut at(&servers, &["renew", "L", &token.out()])).code(), 0);
        assert_eq!(run(&mut at(&servers, &["release", "L", &token.out()])).code(), 0);
    }
    // Which of two clocks is wrong cannot be decided, unless a third one may still answer.
    let is_ahead = |server: &Server| server.socket().display().to_string() == name;
    servers.sort_by_key(|server| !is_ahead(server));
    servers[2].signal("STOP");
    let says = format!("clock of {name} is 2d ahead");
    for status in [69, 78] {
        run(&mut at(&servers, &["exec", "-n", "L", "true"])).exits(status).says(&says);
        servers.truncate(2);
    }
}

#[test]
fn requests_of_others_do_not_keep_a_dead_waiter_in_the_queue() {
    let servers = servers([0; 3]);
    let first = holder(&servers, &[]);
    let wait = || {
        let mut waiter = Running::start(&mut at(&servers, &["exec", "L", "true"]));
        waiter.told("waiting at position");
        waiter
    };
    let (mut dead, mut next) = (wait(), wait());
    dead.signal("KILL");
    dead.process.wait().unwrap();
    assert_eq!(first.finish().code(), 0);
    // Each of them ends the call of the dead one for a moment.
    let is_served = (0..8).any(|_| {
        run(&mut at(&servers, &["exec", "--next", "L", "sleep", "0.2"])).exits(0);
        std::thread::sleep(Duration::from_secs(1));
        !next.process.is_running()
    });
    assert!(is_served);
    assert_eq!(next.end().code(), 0);
}

#[test]
fn a_request_that_too_few_servers_accept_leaves_every_queue() {
    let servers = servers([0; 3]);
    for server in &servers[1..] {
        server.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    }
    run(&mut at(&servers, &["exec", "-n", "L", "true"])).exits(78);
    until("it has left", || queued(&servers[0]) == "0");
}

#[test]
fn ages_and_the_history_do_not_depend_on_which_server_is_listed_first() {
    let mut servers = servers([0, 60, 0]);
    let lasting = holder(&servers, &["-v"]);
    let begun = Instant::now();
    servers[0].kill();
    servers[0].start_again();
    until("it is put back", || servers[0].cli(&["EXISTS", "rlock:L"]) == "1");
    let age = format!("{}ms", begun.elapsed().as_millis());
    let old = run(&mut at(&servers, &["inspect", "--json", "--older-than", &age]));
    assert!(old.out().contains(r#""name":"L""#), "{age}: {old:?}");
    let held = begun.elapsed();
    assert_eq!(lasting.finish().code(), 0);
    assert_eq!(run(&mut at(&servers, &["exec", "L", "true"])).code(), 0);
    for _ in 0..3 {
        let shown = inspect(&servers);
        let held_ms = shown["history"][1]["held_ms"].as_u64().unwrap();
        assert!(Duration::from_millis(held_ms) >= held, "{shown}");
        let ended = |entry: usize| shown["history"][entry]["ended_at"].as_str().unwrap();
        assert!(ended(0) > ended(1), "{shown}");
        servers.rotate_left(1);
    }
}
