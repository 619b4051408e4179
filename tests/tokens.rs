//! acquire, renew and release accept only the right token, and only while it holds the lock.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

use crate::support::{self, *};

#[test]
fn acquire_prints_a_token_that_renews_and_releases() {
    let (server, token) = acquired(&["--ttl", "10m"]);
    assert_eq!(server.inspect("L")["holders"][0]["id"], token[..8]);
    // Without --ttl, the lease keeps its length. With it, it may become shorter too.
    for (options, lease) in
        [(&[][..], 600_000), (&["--ttl", "90s"], 90_000), (&["--ttl", "10s"], 10_000)]
    {
        let output = run(server.rlock(["renew", "L", &token]).args(options)).exits(0).prints("");
        assert_eq!(output.err(), "");
        assert!((lease / 2..=lease).contains(&server.lease_left("L")), "{options:?}");
    }
    let output = run(server.rlock(["release", "L"]).env("RLOCK_TOKEN", &token)).exits(0).prints("");
    assert_eq!(output.err(), "");
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
    let (server, expired) = acquired(&["--ttl", "500ms"]);
    until("the lease ends", || server.is_free("L"));
    let token = acquire(&server, &[], "L");
    let before = server.stored("L");
    let (longer, field) = (format!("{token}x"), format!("details:{token}"));
    for wrong in [&expired, &token[..8], &token[..35], &longer, &field, "guard"] {
        let (status, told) = match *wrong == expired {
            true => (77, "this token's hold expired"),
            false => (64, "TOKEN: not a token"),
        };
        for command in ["renew", "release"] {
            server.run(&format!("{command} L {wrong}")).exits(status).says(told);
        }
    }
    assert_eq!(server.stored("L"), before);
}

#[test]
fn a_renewal_without_a_length_keeps_it_whatever_the_environment_says() {
    let (server, token) = acquired(&["--ttl", "10m"]);
    for ttl in ["30s", "soon"] {
        let mut renew = server.rlock(["renew", "--json", "L", &token]);
        let left = run(renew.env("RLOCK_TTL", ttl)).exits(0).json()["ttl_ms"].as_u64();
        assert!(left > Some(590_000), "{left:?}");
    }
}

#[test]
fn the_token_of_one_lock_is_rejected_by_another() {
    let server = Server::start();
    let token = acquire(&server, &[], "a");
    acquire(&server, &[], "b");
    for other in ["b", "--prefix= a"] {
        server.run(&format!("release {other} {token}")).exits(77);
    }
}

#[test]
fn a_waiters_token_cannot_be_used_before_it_holds() {
    let (server, first) = held(&[]);
    let second = support::waiter(&server, &[], "L", "second");
    server.run(&format!("release L {}", server.waiters_token("L"))).exits(77);
    first.finish();
    second.finish().prints("ENTERED second");
}

#[test]
fn a_release_of_a_lost_lock_admits_others_sooner_and_spares_the_key_of_another_tool() {
    let (server, token) = acquired(&[]);
    server.cli(&["DEL", "rlock:L"]);
    server.run(&format!("release L {token}")).exits(77);
    let token = acquire(&server, &["-n"], "L");
    server.cli(&["SET", "rlock:L", "theirs"]);
    server.run(&format!("release L {token}")).exits(77);
    assert_eq!(server.cli(&["GET", "rlock:L"]), "theirs");
}

#[test]
fn every_outcome_has_a_json_document() {
    let server = Server::start();
    let document = |line: &str, code: i32, status: &str| {
        let output = server.run(line).exits(code);
        let document = output.json();
        assert_eq!(output.out().lines().count(), 1, "{output:?}");
        assert_eq!((&document["name"], &document["status"]), (&"L".into(), &status.into()));
        document
    };
    let acquired = document("acquire --json --ttl 5s L", 0, "acquired");
    assert_eq!(acquired["ttl_ms"], 5000);
    assert!(acquired["fence"].is_u64());
    let token = acquired["token"].as_str().unwrap();
    let busy = document("acquire -n --json L", 75, "busy");
    assert_eq!(busy["exit"], 75);
    assert_eq!(busy["holders"][0]["id"], token[..8]);
    assert_eq!(busy["holders"][0]["kind"], "acquire");
    let renewed = document(&format!("renew --json L {token}"), 0, "renewed");
    assert_eq!(renewed["fence"], acquired["fence"]);
    for (code, status) in [(0, "released"), (77, "not-held")] {
        document(&format!("release --json L {token}"), code, status);
    }
}

#[test]
fn a_shell_can_evaluate_the_output_of_shell() {
    let server = Server::start();
    let script = "eval \"$($rlock acquire --shell L)\" &&
        sh -c '$rlock release $RLOCK_NAME && echo $RLOCK_HELD'";
    let output = server.bash(script).exits(0);
    assert!(output.out().starts_with("rlock:L="), "{output:?}");
    // It returns the exit status of an acquire that failed.
    acquire(&server, &[], "L");
    let script = "eval \"$($rlock acquire -q -n --shell L)\" || exit; echo went on";
    server.bash(script).exits(75).prints("");
}

#[test]
fn a_token_that_cannot_be_printed_leaves_no_lock_behind() {
    let server = Server::start();
    for redirection in [">&-", ">/dev/full"] {
        server.bash(&format!("$rlock acquire L {redirection}")).exits(70).says("standard output");
        assert!(server.is_free("L"), "{redirection}");
    }
}

/// A pipe without room.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

#[test]
fn a_token_waits_for_room_until_a_signal_or_the_end_of_its_lease() {
    let server = Server::start();
    // Its keeper would stop this process.
    let script = Process::start(Command::new("sleep").arg("600"));
    let pid = script.id().to_string();
    let kept = ["--while-pid", &pid];
    for (ttl, form, awaited) in [
        ("1s", &[][..], "the end of the lease"),
        ("1s", &["--json"], "the end of the lease"),
        ("1h", &["--json"], "a signal"),
        ("1h", &kept, "a signal"),
        ("1h", &["--shell"], "room"),
        ("1s", &kept, "room"),
    ] {
        let (mut reader, writer) = full_pipe();
        let mut acquire = server.rlock([&["acquire", "--ttl", ttl], form, &["L"]].concat());
        let mut process = Process::start(acquire.stdout(writer).stderr(Stdio::piped()));
        drop(acquire);
        until("it is held", || !server.is_free("L"));
        match awaited {
            "a signal" => send_signal(process.id(), "TERM"),
            // A keeper renews it.
            "room" if form == kept => (0..3).for_each(|_| server.is_renewed()),
            _ => {}
        }
        if awaited != "room" {
            let told = String::from_utf8(process.stderr().rest("its end")).unwrap();
            let status = process.wait().unwrap();
            match awaited {
                "a signal" => assert_eq!(status.signal(), Some(libc::SIGTERM), "{told}"),
                _ => {
                    assert_eq!(status.code(), Some(70), "{told}");
                    assert!(told.contains("expired before the token was read"), "{told}");
                }
            }
            assert!(server.is_free("L"), "{form:?}");
        }
        let mut printed = String::new();
        reader.read_to_string(&mut printed).unwrap();
        let is_printed = !printed.trim_start_matches('x').is_empty();
        assert_eq!(is_printed, awaited == "room", "{form:?}: {printed}");
        if is_printed {
            assert!(process.wait().unwrap().success(), "{form:?}");
            assert!(!server.is_free("L"), "{form:?}");
            server.run("release --force --now L").exits(0);
        }
    }
}

support::also_on_local! {
    acquire_prints_a_token_that_renews_and_releases,
    renew_and_release_reject_wrong_partial_and_expired_tokens,
    the_token_of_one_lock_is_rejected_by_another,
    a_waiters_token_cannot_be_used_before_it_holds,
    every_outcome_has_a_json_document,
}
