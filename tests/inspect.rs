//! inspect shows who holds a lock and who waits, to people and to programs.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use serde_json::Value;
use support::{Finished, Running, Server, acquire, holder, run, waiter};

fn names(document: &Value) -> Vec<&str> {
    document.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

fn json(server: &Server, arguments: &[&str]) -> Value {
    let output = run(&mut server.rlock(["inspect", "--json"].iter().chain(arguments)));
    serde_json::from_str(&output.out()).unwrap()
}

#[test]
fn a_lock_with_its_holder_and_its_queue() {
    let server = Server::start();
    let script = "echo $RLOCK_TOKEN; read _ || :";
    let exec = ["exec", "--label", "job/17", "deploy:prod", "sh", "-c", script];
    let mut first = Running::start(&mut server.rlock(exec));
    let token = first.line();
    let second = waiter(&server, &["--label", "job/18"], "deploy:prod", "");
    let third = waiter(&server, &[], "deploy:prod", "");

    let output = run(&mut server.rlock(["inspect", "deploy:prod"]));
    assert_eq!(output.code(), 0);
    let page = output.out();
    for part in [
        "deploy:prod: held by ".into(),
        format!("pid {} (sh)", first.pid()),
        "job/17".into(),
        "1. ".into(),
        format!("pid {} (sh)", second.pid()),
        "job/18".into(),
        "2. ".into(),
        format!("pid {} (sh)", third.pid()),
    ] {
        assert!(page.contains(&part), "no {part:?} in {page}");
    }

    let document = json(&server, &["deploy:prod"]);
    let lock = &document[0];
    assert_eq!(lock["name"], "deploy:prod");
    assert_eq!(lock["key"], "rlock:deploy:prod");
    assert_eq!((&lock["state"], &lock["mode"]), (&"held".into(), &"exclusive".into()));
    assert_eq!(lock["slots"], Value::Null);
    let left = lock["ttl_ms"].as_u64().unwrap();
    assert!((1..=30_000).contains(&left));
    let holder = &lock["holders"][0];
    assert_eq!(holder["id"], token[..8]);
    assert!(!document.to_string().contains(&token), "a token is nobody else's business");
    assert_eq!(holder["pid"], first.pid());
    assert_eq!((&holder["command"], &holder["label"]), (&"sh".into(), &"job/17".into()));
    assert_eq!(holder["kind"], "exec");
    assert_eq!(holder["fence"], lock["fence"]);
    assert!(holder["fence"].as_u64().unwrap() > 1_700_000_000_000);
    let acquired = holder["acquired_at"].as_str().unwrap();
    assert!(acquired.starts_with("20") && acquired.ends_with('Z') && acquired.len() == 24);
    let waiters = lock["waiters"].as_array().unwrap();
    assert_eq!(waiters.len(), 2);
    assert_eq!((&waiters[0]["position"], &waiters[0]["pid"]), (&1.into(), &second.pid().into()));
    assert_eq!((&waiters[1]["position"], &waiters[1]["pid"]), (&2.into(), &third.pid().into()));
    assert!(waiters[0]["waiting_ms"].is_u64());
    first.finish();
    second.finish();
    third.finish();
}

#[test]
fn a_free_lock_is_status_1_and_an_empty_array() {
    let server = Server::start();
    let output = run(&mut server.rlock(["inspect", "L"]));
    assert_eq!((output.code(), output.out()), (1, "L: free".into()));
    let output = run(&mut server.rlock(["inspect", "--json", "L"]));
    assert_eq!((output.code(), output.out()), (1, "[]".into()));
}

#[test]
fn all_locks_are_listed_in_order_and_only_under_the_prefix() {
    let server = Server::start();
    assert_eq!(run(&mut server.rlock(["inspect"])).code(), 0);
    assert_eq!(json(&server, &[]), Value::Array(vec![]));
    for name in ["b", "c", "a"] {
        acquire(&server, &[], name);
    }
    acquire(&server, &["--prefix", "other:"], "d");
    assert_eq!(names(&json(&server, &[])), ["a", "b", "c"]);
    assert_eq!(names(&json(&server, &["--prefix", "other:"])), ["d"]);
    let table = run(&mut server.rlock(["inspect"])).out();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert!(rows[0].starts_with("NAME") && rows[1].starts_with("a "), "{table}");
    assert!(rows[3].starts_with("c "), "{table}");
}

#[test]
fn another_tools_locks_are_listed_and_other_keys_are_not() {
    let server = Server::start();
    acquire(&server, &[], "ours");
    server.cli(&["SET", "unrelated", "1"]);
    server.cli(&["SET", "rlock:theirs", "1"]);
    let document = json(&server, &[]);
    assert_eq!(names(&document), ["ours", "theirs"]);
    assert_eq!(document[1]["state"], "foreign");
    assert_eq!(document[1]["ttl_ms"], Value::Null);
    let table = run(&mut server.rlock(["inspect"])).out();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert!(rows[2].starts_with("theirs") && rows[2].contains("another tool"), "{table}");
}

#[test]
fn a_pattern_lists_the_locks_that_match() {
    let server = Server::start();
    for name in ["deploy:prod", "deploy:test", "backup"] {
        acquire(&server, &[], name);
    }
    let listed = |pattern: &str| {
        let output = run(&mut server.rlock(["inspect", "--json", pattern]));
        assert_eq!(output.code(), 0);
        let locks: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
        let names = locks.as_array().unwrap().iter().map(|lock| lock["name"].to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(listed("deploy:*"), r#""deploy:prod" "deploy:test""#);
    assert_eq!(listed("*[!dpt]"), "");
    assert_eq!(listed("?ackup"), r#""backup""#);
    assert_eq!(run(&mut server.rlock(["inspect", "a["])).code(), 64);
}

#[test]
fn thousands_of_locks_take_a_handful_of_round_trips() {
    let server = Server::on_tcp(&[]);
    let proxy = support::proxy::Proxy::to(server.port(), std::time::Duration::ZERO);
    let fill = "for i = 1, 2500 do redis.call('SET', 'rlock:' .. i, 'theirs') end";
    server.cli(&["EVAL", fill, "0"]);
    let mut command = server.rlock(["inspect", "--json"]);
    let output = run(command.env("RLOCK_URL", proxy.url()));
    let document: Value = serde_json::from_str(&output.out()).unwrap();
    assert_eq!(document.as_array().unwrap().len(), 2500);
    // A large flight may arrive in several pieces, which the proxy counts one by one.
    assert!(proxy.flights() < 100, "{}", proxy.flights());
}

#[test]
fn inspecting_changes_nothing() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let second = waiter(&server, &[], "L", "");
    let before = server.stored("L");
    run(&mut server.rlock(["inspect", "L"]));
    run(&mut server.rlock(["inspect"]));
    assert_eq!(server.stored("L"), before);
    first.finish();
    second.finish();
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let server = Server::start();
    acquire(&server, &[], "L");
    let script = format!("{} inspect | :; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_rlock"));
    for _ in 0..5 {
        let mut shell = std::process::Command::new("bash");
        let output = run(shell.args(["-c", &script]).env("RLOCK_URL", server.url()));
        // The pipe may also be closed only after we have written.
        assert!(["0", "141"].contains(&&*output.out()), "{output:?}");
        assert_eq!(output.err(), "");
    }
}

#[test]
fn one_lock_that_cannot_be_read_does_not_hide_the_others() {
    let server = Server::start();
    acquire(&server, &[], "bad");
    acquire(&server, &[], "good");
    server.spoil("bad");
    let output = run(&mut server.rlock(["inspect"]));
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.out().contains("\ngood "), "{output:?}");
    assert!(output.err().contains("bad: ") && output.err().lines().count() == 1, "{output:?}");
}

support::also_on_local! {
    a_lock_with_its_holder_and_its_queue,
    a_free_lock_is_status_1_and_an_empty_array,
    all_locks_are_listed_in_order_and_only_under_the_prefix,
    inspecting_changes_nothing,
    a_reader_that_has_seen_enough_is_no_error,
    one_lock_that_cannot_be_read_does_not_hide_the_others,
}
