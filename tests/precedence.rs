//! Precedence: --next goes ahead of the queue, and of the waiters with --supersede only the newest
//! remains.

use std::process::Command;

use serde_json::Value;

use crate::support::{
    Finished, LongerWait, READY, Running, Server, also_on_local, holder, rlock, run, until, waiter,
};

also_on_local! {
    next_goes_ahead_of_the_queue_and_behind_others_with_next,
    a_newcomer_with_next_joins_readers_ahead_of_a_waiting_writer,
    a_newer_request_with_supersede_cancels_older_ones,
    a_waiter_without_supersede_is_not_superseded_and_neither_is_the_holder,
    a_stopped_waiter_does_not_supersede_a_newer_one,
    a_request_that_is_never_queued_supersedes_nothing,
    a_superseded_waiter_is_not_busy_and_says_so_in_json,
}

#[test]
fn next_goes_ahead_of_the_queue_and_behind_others_with_next() {
    let server = Server::start();
    let file = server.directory().join("order");
    let queue = |options: &[&str], word: &str| {
        let enter = format!("echo {word} >> {}", file.display());
        let exec = [&["exec"], options, &["L", "sh", "-c", &enter]].concat();
        let mut waiter = Running::start(&mut server.rlock(exec));
        waiter.told("waiting at position");
        waiter
    };
    let first = holder(&server, &[], "L");
    let waiters = [
        queue(&[], "third"),
        queue(&["--next"], "first"),
        queue(&["--next"], "second"),
        queue(&[], "fourth"),
    ];
    let shown = server.inspect("L");
    let next: Vec<bool> =
        shown["waiters"].as_array().unwrap().iter().map(|one| one["next"] == true).collect();
    assert_eq!(next, [true, true, false, false]);
    let page = server.run("inspect L").out();
    assert_eq!(page.matches(", --next").count(), 2, "{page}");
    first.finish();
    for waiter in waiters {
        waiter.finish().exits(0);
    }
    let order = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        order.split_whitespace().collect::<Vec<_>>(),
        ["first", "second", "third", "fourth"]
    );
}

#[test]
fn a_newcomer_with_next_joins_readers_ahead_of_a_waiting_writer() {
    let server = Server::start();
    let reader = holder(&server, &["--shared"], "L");
    let writer = waiter(&server, &[], "L", "writer");
    let exec = ["exec", "-n", "--shared", "L", "true"];
    assert_eq!(run(&mut server.rlock(exec)).code(), 75);
    let exec = ["exec", "-n", "--shared", "--next", "L", "true"];
    assert_eq!(run(&mut server.rlock(exec)).code(), 0);
    reader.finish();
    writer.finish().prints("ENTERED writer");
}

#[test]
fn a_newer_request_with_supersede_cancels_older_ones() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let older = waiter(&server, &["--supersede"], "L", "older");
    // It learns this immediately, not at its next heartbeat, which is up to 10 s later.
    let mut longer = LongerWait::of("6s");
    let newer = waiter(&server, &["--supersede", "--label", "https://ci/813"], "L", "newer");
    let told = older.end();
    longer.is_not_over();
    assert_eq!(told.code(), 79, "{told:?}");
    assert!(told.err().contains("rlock: L: superseded by "), "{told:?}");
    assert!(told.err().contains(" (sh), label https://ci/813"), "{told:?}");
    assert_eq!(server.waiting("L"), 1);
    first.finish();
    newer.finish().prints("ENTERED newer");
}

#[test]
fn a_waiter_without_supersede_is_not_superseded_and_neither_is_the_holder() {
    let server = Server::start();
    let first = holder(&server, &["--supersede"], "L");
    let other = waiter(&server, &[], "L", "other");
    let newest = waiter(&server, &["--supersede"], "L", "newest");
    assert_eq!(server.waiting("L"), 2);
    first.finish().exits(0);
    other.finish().prints("ENTERED other");
    newest.finish().prints("ENTERED newest");
    for option in ["-n", "-w0"] {
        run(&mut server.rlock(["exec", option, "--supersede", "L", "true"])).exits(64);
    }
}

#[test]
fn a_stopped_waiter_does_not_supersede_a_newer_one() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    // It loses its position after two heartbeats of 100 ms and 2 s.
    let older = waiter(&server, &["--supersede", "--ttl", "300ms"], "L", "older");
    older.signal("STOP");
    until("it loses its position", || server.waiting("L") == 0);
    let newer = waiter(&server, &["--supersede"], "L", "newer");
    older.signal("CONT");
    let told = older.end();
    assert_eq!(told.code(), 79, "{told:?}");
    assert!(told.err().contains("superseded by "), "{told:?}");
    first.finish();
    newer.finish().prints("ENTERED newer");
    // The same, when the newer run is over: an older one must not run after it.
    let first = holder(&server, &[], "L");
    let older = waiter(&server, &["--supersede", "--ttl", "300ms"], "L", "older");
    older.signal("STOP");
    until("it loses its position", || server.waiting("L") == 0);
    first.finish();
    server.run("exec --supersede L true").exits(0);
    older.signal("CONT");
    let told = older.end();
    assert_eq!((told.code(), told.out().as_str()), (79, ""), "{told:?}");
}

#[test]
fn a_request_that_is_never_queued_supersedes_nothing() {
    let server = Server::start();
    let first = holder(&server, &["--shared", "--owner", "me"], "L");
    let older = waiter(&server, &["--supersede"], "L", "older");
    // An upgrade is never granted.
    let options = ["exec", "--supersede", "--reentrant", "--owner", "me", "L", "true"];
    assert_eq!(run(&mut server.rlock(options)).code(), 75);
    assert_eq!(server.waiting("L"), 1);
    first.finish();
    older.finish().prints("ENTERED older");
}

#[test]
fn a_request_that_is_given_up_before_its_first_answer_supersedes_nothing() {
    let server = Server::on_tcp(&[]);
    let first = holder(&server, &["--ttl", "60s"], "L");
    let older = waiter(&server, &["--supersede"], "L", "older");
    server.signal("STOP");
    server.run("exec --supersede L true").exits(69);
    server.signal("CONT");
    until("the server answers", || server.waiting("L") == 1);
    first.finish();
    older.finish().prints("ENTERED older");
}

#[test]
fn a_server_that_restarts_from_an_old_snapshot_knows_which_waiter_is_newer() {
    let mut server = Server::on_tcp(&[]);
    let superseding = ["exec", "--ttl", "3s", "--supersede", "L", "true"];
    assert_eq!(run(&mut server.rlock(superseding)).code(), 0);
    server.cli(&["SAVE"]);
    let first = holder(&server, &["--ttl", "3s"], "L");
    let newest = waiter(&server, &["--ttl", "3s", "--supersede"], "L", "newest");
    first.signal("KILL");
    server.kill();
    server.start_again();
    let told = newest.end();
    assert_eq!(told.out(), "ENTERED newest", "{told:?}");
}

#[test]
fn a_superseded_waiter_is_not_busy_and_says_so_in_json() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let options = ["acquire", "--json", "-q", "-E", "9", "--supersede", "L"];
    let older = Running::start(&mut server.rlock(options));
    until("it waits", || server.waiting("L") == 1);
    let newer = waiter(&server, &["--supersede", "--label", "813"], "L", "newer");
    let told = older.end();
    assert_eq!((told.code(), told.err().as_str()), (79, ""), "{told:?}");
    let document: Value = serde_json::from_str(&told.out()).unwrap();
    assert_eq!(document["status"], "superseded");
    assert_eq!(document["superseded_by"]["label"], "813");
    assert_eq!(document["superseded_by"]["command"], "sh");
    first.finish();
    newer.finish();
}

fn at(servers: &[Server], arguments: &[&str]) -> Command {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let mut command = rlock(arguments);
    command.env("RLOCK_URL", urls.join(" ")).env("RLOCK_TTL", "3s");
    command
}

#[test]
fn a_quorum_serves_next_first_and_only_the_newest_remains() {
    let servers: Vec<Server> = (0..3).map(|_| Server::on_tcp(&[])).collect();
    servers.iter().for_each(|server| server.await_uptime(4));
    let file = servers[0].directory().join("order");
    let queue = |options: &[&str], word: &str| {
        let enter = format!("echo {word} >> {}", file.display());
        let exec = [&["exec"], options, &["L", "sh", "-c", &enter]].concat();
        let mut waiter = Running::start(&mut at(&servers, &exec));
        waiter.told("waiting at position");
        waiter
    };
    let first =
        Running::start(&mut at(&servers, &["exec", "L", "sh", "-c", READY])).prints_first("READY");
    let last = queue(&[], "last");
    let older = queue(&["--supersede"], "older");
    // The newest supersedes the older one, even while a server is away.
    servers[2].signal("STOP");
    let newer = queue(&["--supersede"], "newer");
    let told = older.end();
    assert_eq!(told.code(), 79, "{told:?}");
    assert!(told.err().contains("superseded by "), "{told:?}");
    servers[2].signal("CONT");
    let next = queue(&["--next"], "next");
    first.finish();
    for waiter in [next, last, newer] {
        waiter.finish().exits(0);
    }
    let order = std::fs::read_to_string(&file).unwrap();
    assert_eq!(order.split_whitespace().collect::<Vec<_>>(), ["next", "last", "newer"]);
}
