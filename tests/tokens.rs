//! acquire, renew and release accept only the right token, and only while it holds the lock.

use std::process::Command;

use crate::support::{self, Finished, Running, Server, acquire, binary, holder, run, until};

#[test]
fn acquire_prints_a_token_that_renews_and_releases() {
    let server = Server::start();
    let token = acquire(&server, &["--ttl", "5s"], "L");
    assert_eq!(server.inspect("L")["holders"][0]["id"], token[..8]);
    let output = run(&mut server.rlock(["renew", "--ttl", "90s", "L", &token]));
    assert_eq!((output.code(), output.out(), output.err()), (0, String::new(), String::new()));
    assert!(server.lease_left("L") > 80_000);
    // --ttl replaces the lease, so it may become shorter too.
    run(&mut server.rlock(["renew", "--ttl", "10s", "L", &token]));
    assert!(server.lease_left("L") <= 10_000);
    let output = run(server.rlock(["release", "L"]).env("RLOCK_TOKEN", &token));
    assert_eq!((output.code(), output.out(), output.err()), (0, String::new(), String::new()));
    assert!(server.is_free("L"));
}

/// SCAN and keyspace notifications show them to users without access to the keys.
#[test]
fn no_key_name_contains_a_token() {
    let server = Server::start();
    server.cli(&["CONFIG", "SET", "notify-keyspace-events", "EA"]);
    let mut subscribe = Command::new("redis-cli");
    subscribe.arg("-s").arg(server.socket()).args(["PSUBSCRIBE", "__keyevent@*"]);
    let mut events = Running::start(&mut subscribe).prints_first("psubscribe");
    let first = holder(&server, &[], "L");
    let mut next = support::waiter(&server, &[], "L", "next");
    let token = server.waiters_token("L");
    next.process.kill();
    first.finish();
    let mailbox = server.mailbox("L", &token);
    let mut names = server.cli(&["KEYS", "*"]);
    assert!(names.contains(&mailbox), "{names}");
    while !names.ends_with(&mailbox) {
        names += &events.line();
    }
    assert!(!names.contains(&token[8..]), "{names}");
}

#[test]
fn renew_and_release_reject_wrong_partial_and_expired_tokens() {
    let server = Server::start();
    let expired = acquire(&server, &["--ttl", "2s"], "L");
    until("the lease ends", || server.is_free("L"));
    let token = acquire(&server, &[], "L");
    let before = server.stored("L");
    let longer = format!("{token}x");
    let fields = format!("details:{token}");
    for wrong in [&expired, &token[..8], &token[..35], &longer, &fields, "x", "guard", "ticket"] {
        for command in ["renew", "release"] {
            let output = run(&mut server.rlock([command, "L", wrong]));
            let (status, told) = match *wrong == expired {
                true => (77, "this token's hold expired"),
                false => (64, "TOKEN: not a token"),
            };
            assert_eq!(output.code(), status, "{command} {wrong}: {output:?}");
            assert!(output.err().contains(told), "{output:?}");
        }
    }
    assert_eq!(server.stored("L"), before);
}

#[test]
fn a_renewal_without_a_ttl_keeps_the_length_of_the_lease() {
    let server = Server::start();
    let token = acquire(&server, &["--ttl", "10m"], "L");
    run(&mut server.rlock(["renew", "--json", "L", &token])).exits(0);
    assert!(server.lease_left("L") > 540_000);
    // A script may shorten a lease that only it relies on.
    run(&mut server.rlock(["renew", "--ttl", "5s", "L", &token])).exits(0);
    assert!(server.lease_left("L") <= 5_000);
}

#[test]
fn a_renewal_inside_exec_never_shortens_its_lease() {
    let server = Server::start();
    let script = format!("{} renew --ttl 2s $RLOCK_NAME && echo RENEWED; read _ || :", binary());
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "60s", "L", "sh", "-c", &script]));
    assert_eq!(first.line(), "RENEWED");
    assert!(server.lease_left("L") > 30_000);
    first.finish().exits(0);
}

#[test]
fn the_token_of_one_lock_is_rejected_by_another() {
    let server = Server::start();
    let token = acquire(&server, &[], "a");
    acquire(&server, &[], "b");
    run(&mut server.rlock(["release", "b", &token])).exits(77);
    run(&mut server.rlock(["release", "--prefix", "", "a", &token])).exits(77);
}

#[test]
fn a_waiters_token_cannot_be_used_before_it_holds() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let second = support::waiter(&server, &[], "L", "second");
    let waiting = server.waiters_token("L");
    run(&mut server.rlock(["release", "L", &waiting])).exits(77);
    first.finish();
    second.finish().prints("ENTERED second");
}

#[test]
fn no_token_and_an_empty_token_are_usage_errors() {
    let server = Server::start();
    for command in ["renew", "release"] {
        run(&mut server.rlock([command, "L"])).exits(64);
        run(&mut server.rlock([command, "L", ""])).exits(64);
        assert_eq!(run(server.rlock([command, "L"]).env("RLOCK_TOKEN", "")).code(), 64);
    }
}

#[test]
fn a_server_restarted_without_data_knows_no_hold() {
    let mut server = Server::start();
    let token = acquire(&server, &[], "L");
    server.kill();
    server.start_again();
    for command in ["renew", "release"] {
        run(&mut server.rlock([command, "L", &token])).exits(77);
    }
}

#[test]
fn a_key_deleted_or_overwritten_by_hand_is_a_lost_lock() {
    let server = Server::start();
    let token = acquire(&server, &[], "L");
    server.cli(&["DEL", "rlock:L"]);
    run(&mut server.rlock(["renew", "L", &token])).exits(77);
    // A release of a lost lock fails, but admits others sooner.
    run(&mut server.rlock(["release", "L", &token])).exits(77);
    let token = acquire(&server, &["-n"], "L");
    server.cli(&["SET", "rlock:L", "theirs"]);
    run(&mut server.rlock(["release", "L", &token])).exits(77);
    assert_eq!(server.cli(&["GET", "rlock:L"]), "theirs");
}

#[test]
fn every_outcome_has_a_json_document() {
    let server = Server::start();
    let document = |arguments: &[&str]| {
        let output = run(&mut server.rlock(arguments));
        let out = output.out();
        assert_eq!(out.lines().count(), 1, "{output:?}");
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(document["name"], "L");
        (output.code(), document)
    };
    let (status, acquired) = document(&["acquire", "--json", "--ttl", "5s", "L"]);
    assert_eq!((status, &acquired["status"]), (0, &"acquired".into()));
    assert_eq!(acquired["ttl_ms"], 5000);
    assert!(acquired["fence"].is_u64());
    let token = acquired["token"].as_str().unwrap();
    let (status, busy) = document(&["acquire", "-n", "--json", "L"]);
    assert_eq!((status, &busy["status"], &busy["exit"]), (75, &"busy".into(), &75.into()));
    assert_eq!(busy["holders"][0]["id"], token[..8]);
    assert_eq!(busy["holders"][0]["kind"], "acquire");
    let (status, renewed) = document(&["renew", "--json", "L", token]);
    assert_eq!((status, &renewed["status"]), (0, &"renewed".into()));
    assert_eq!(renewed["fence"], acquired["fence"]);
    let (status, released) = document(&["release", "--json", "L", token]);
    assert_eq!((status, &released["status"]), (0, &"released".into()));
    let (status, not_held) = document(&["release", "--json", "L", token]);
    assert_eq!((status, &not_held["status"]), (77, &"not-held".into()));
    let unreachable = ["release", "--json", "--url", "redis://127.0.0.1:1", "L", token];
    let (status, unreachable) = document(&unreachable);
    assert_eq!((status, &unreachable["status"]), (69, &"unreachable".into()));
}

#[test]
fn a_shell_can_evaluate_the_output_of_shell() {
    let server = Server::start();
    let script = format!(
        "eval \"$({rlock} acquire --shell L)\" && sh -c '{rlock} release $RLOCK_NAME && echo $RLOCK_HELD'",
        rlock = binary()
    );
    let output =
        run(Command::new("sh").args(["-c", &script]).env("RLOCK_URL", server.url())).exits(0);
    assert!(output.out().starts_with("rlock:L="), "{output:?}");
}

#[test]
fn a_token_that_cannot_be_printed_leaves_no_lock_behind() {
    let server = Server::start();
    for redirection in [">&-", ">/dev/full"] {
        let script = format!("{} acquire L {redirection}", binary());
        run(Command::new("sh").args(["-c", &script]).env("RLOCK_URL", server.url()))
            .exits(70)
            .says("standard output");
        assert!(server.is_free("L"), "{redirection}");
    }
}

#[test]
fn evaluating_a_failed_acquire_returns_its_exit_status() {
    let server = Server::start();
    acquire(&server, &[], "L");
    let rlock = binary();
    let script = format!("eval \"$({rlock} acquire -q -n --shell L)\" || exit; echo went on");
    let mut shell = std::process::Command::new("sh");
    run(shell.args(["-c", &script]).env("RLOCK_URL", server.url())).exits(75).prints("");
}

support::also_on_local! {
    acquire_prints_a_token_that_renews_and_releases,
    renew_and_release_reject_wrong_partial_and_expired_tokens,
    the_token_of_one_lock_is_rejected_by_another,
    a_waiters_token_cannot_be_used_before_it_holds,
    no_token_and_an_empty_token_are_usage_errors,
    every_outcome_has_a_json_document,
    a_shell_can_evaluate_the_output_of_shell,
    a_token_that_cannot_be_printed_leaves_no_lock_behind,
}
