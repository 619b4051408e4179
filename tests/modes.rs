//! Shared locks, slots and reentrant locks.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use serde_json::Value;

use crate::support::{self, *};

#[test]
fn readers_share_and_a_waiting_writer_holds_back_later_readers() {
    let (server, first) = held(&["-s"]);
    let second = holder(&server, &["-s"], "L");
    // The lease of a dead reader expires, while the others keep theirs.
    acquire(&server, &["-s", "--ttl", "1s"], "L");
    let mut writer = server.starts("exec -x L sh -c", READY).tells("position 1: shared by");
    let third = waiter(&server, &["-s"], "L", "third");
    let fourth = waiter(&server, &["-s"], "L", "fourth");
    server.run("exec -n -s L true").exits(75).says("3 already waiting");
    // A reader that waits does not count itself.
    let busy = server.run("exec -w 300ms -s L true").exits(75).err();
    assert_eq!(busy.matches("; 3 already waiting").count(), 2, "{busy}");
    // Nor does it count one behind it.
    let impatient = server.starts("exec -w 1s -s L", "true").tells("position 4");
    let fifth = waiter(&server, &["-s"], "L", "fifth");
    impatient.end().exits(75).says("; 3 already waiting");
    fifth.ends_by("TERM");
    let holders = || server.inspect("L")["holders"].as_array().unwrap().len();
    until("the dead one is gone", || holders() == 2);
    let lock = server.inspect("L");
    assert_eq!((&lock["mode"], &lock["slots"]), (&"shared".into(), &serde_json::Value::Null));
    first.finish().exits(0);
    assert_eq!(server.waiting("L"), 3);
    second.finish().exits(0);
    assert_eq!(writer.line(), "READY");
    assert_eq!(server.waiting("L"), 2);
    writer.finish().exits(0);
    third.end().prints("ENTERED third");
    fourth.end().prints("ENTERED fourth");
}

#[test]
fn a_writer_that_gives_up_admits_the_readers_behind_it_while_others_read_on() {
    let (server, first) = held(&["-s"]);
    let writer = waiter(&server, &[], "L", "writer");
    let later = [(); 2].map(|()| waiter(&server, &["-s"], "L", "later"));
    writer.signal("TERM");
    for reader in later {
        reader.end().prints("ENTERED later");
    }
    first.finish().exits(0);
}

#[test]
fn a_lock_can_be_entered_again_from_inside() {
    let server = Server::start();
    for (outer, inner, enters) in
        [("-x", "-x", true), ("-x", "-s", true), ("-s", "-s", true), ("-s", "-x", false)]
    {
        let script = format!("$rlock exec --reentrant {inner} L echo inside");
        let output = server.exec_script(&format!("--ttl 5s {outer} L"), &script);
        match enters {
            true => output.exits(0).prints("inside"),
            false => output.exits(75).says("take it exclusively there"),
        };
        assert!(server.is_free("L"));
    }
    // An acquired hold inside it that has ended does not hide it.
    let script = "eval \"$($rlock acquire --reentrant --shell L)\"; $rlock release L
        $rlock exec --reentrant L echo entered; $rlock exec L true; echo $?";
    server.exec_script("L", script).prints("entered\n75").says("; use --reentrant");
}

#[test]
fn an_owner_that_holds_the_lock_enters_past_waiters_and_waits_as_one() {
    let (server, reader) = held(&["-s", "--owner", "me"]);
    let writer = waiter(&server, &[], "L", "; read _ || :");
    server.run("exec -n --reentrant --owner me -s L true").exits(0);
    reader.finish().exits(0);
    let mine = ["--reentrant", "--owner", "me"];
    let both = [(); 2].map(|()| waiter(&server, &mine, "L", "; read _ || :"));
    writer.prints_first("ENTERED").finish().exits(0);
    // The second comes in while the first is there.
    for waiter in both.map(|waiter| waiter.prints_first("ENTERED")) {
        waiter.finish().exits(0);
    }
}

#[test]
fn holds_of_one_owner_are_separate_and_a_short_lease_never_shortens_a_long_one() {
    let server = Server::start();
    let mine = |options: &str| {
        server.run(&format!("acquire --reentrant --owner me {options} L")).exits(0).out()
    };
    let release = |token: &str, status| {
        server.run(&format!("release L {token}")).exits(status);
    };
    let (long, short) = (mine("--ttl 60s"), mine("--ttl 1s"));
    assert_ne!(long, short);
    assert!(server.lease_left("L") > 50_000);
    // Another owner waits, and so does the same owner without --reentrant.
    for other in ["--reentrant --owner you", "--owner me", "--reentrant"] {
        server.run(&format!("acquire -n {other} L")).exits(75);
    }
    until("the short one ends", || server.inspect("L")["holders"].as_array().unwrap().len() == 1);
    release(&short, 77);
    // A shared hold outlives the exclusive hold around it, and then admits readers.
    let shared = mine("-s");
    server.run("exec -n -s L true").exits(75);
    release(&long, 0);
    server.run("exec -n -s L true").exits(0);
    server.run("exec -n L true").exits(75);
    release(&shared, 0);
    assert!(server.is_free("L"));
}

#[test]
fn the_owner_may_come_from_the_environment_and_from_the_enclosing_hold() {
    let server = Server::start();
    let script = "$rlock exec --reentrant L $rlock exec -n --reentrant --owner team L echo inside";
    let mut exec = server.rlock(["exec", "L", "sh", "-c", script]);
    run(exec.env("rlock", binary()).env("RLOCK_OWNER", "team")).exits(0).prints("inside");
}

#[test]
fn at_least_keeps_a_lock_that_is_released_sooner() {
    let server = Server::start();
    let start = Instant::now();
    let job = "exec -n --at-least 2s L true";
    server.run(job).exits(0);
    // It ends two seconds after the lock was acquired, not a TTL after.
    let lock = server.inspect("L");
    assert!(lock["state"] == "cooling" && lock["ttl_ms"].as_u64().unwrap() <= 2_000, "{lock}");
    server.run(job).exits(75).says("; kept for another ");
    let mut longer = LongerWait::of("8s");
    server.run("exec L true").exits(0);
    assert!(start.elapsed() >= Duration::from_secs(2));
    longer.is_not_over();
}

#[test]
fn at_least_does_not_keep_a_lock_whose_command_never_started() {
    let server = Server::start();
    let exec = |program: &str| server.rlock(["exec", "-n", "--at-least", "1h", "L", program]);
    run(&mut exec("no-such-command")).exits(127);
    run(&mut exec("/")).exits(126);
    // Before the wait for a group, and after it for the command.
    run(refuse(&mut exec("true"), &[Refused::Call(libc::SYS_clone)], Errno::EAGAIN)).exits(70);
    let pipes = [Refused::Call(libc::SYS_pipe2)];
    run(refuse(&mut exec("true"), &pipes, Errno::EMFILE)).exits(70);
    assert!(server.is_free("L"));
    let history = server.inspect("L")["history"].clone();
    let told = |past: &Value| past["outcome"] == "not started" && past["ended"] == "released";
    assert_eq!(history.as_array().unwrap().iter().filter(|past| told(past)).count(), 4);
    // An acquire whose token nobody can read.
    let full = File::create("/dev/full").unwrap();
    let mut acquire = server.rlock(["acquire", "--at-least", "1h", "L"]);
    assert_ne!(acquire.stdout(full).stderr(Stdio::null()).status().unwrap().code(), Some(0));
    assert!(server.is_free("L"));
}

#[test]
fn at_least_does_not_keep_a_lock_after_a_signal_before_the_start() {
    let server = Server::local();
    // The signal arrives when rlock locks the file in which it finds its grant.
    let inject = "strace -qq -o /dev/null -e trace=flock -e inject=flock:signal=TERM:when=1";
    let mut exec =
        server.program(&format!("{inject} sh -c"), "exec $rlock exec --at-least 1h L ls");
    assert_eq!(run(&mut exec).prints("").status.signal(), Some(15));
    assert!(server.is_free("L"));
}

#[test]
fn the_head_is_woken_when_a_release_shortens_the_remaining_time() {
    let (server, first) = held(&["--ttl", "60s", "--at-least", "1500ms"]);
    // The waiter sends its next heartbeat only after 10 s.
    let second = waiter(&server, &[], "L", "second");
    let mut longer = LongerWait::of("8s");
    first.finish().exits(0);
    second.end().prints("ENTERED second");
    longer.is_not_over();
}

#[test]
fn neither_a_renewal_nor_a_second_release_shortens_at_least() {
    let (server, token) = acquired(&["--at-least", "60s", "--ttl", "3s"]);
    for (line, status) in
        [("renew --ttl 3s", 0), ("release", 0), ("renew --ttl 3s", 77), ("release", 77)]
    {
        server.run(&format!("{line} L {token}")).exits(status);
        assert!(server.lease_left("L") > 50_000, "{line}");
    }
    // --force frees it.
    let forced = server.run("release --force L").exits(0);
    forced.shows("L: freed early: --at-least of ").shows(" had 5");
    assert!(server.is_free("L"));
}

#[test]
fn a_revoked_command_is_stopped_before_the_next_waiter_acquires_the_lock() {
    let server = Server::start();
    let mut first = support::holder_that_cleans_up(&server, "L");
    let second = waiter(&server, &[], "L", "second");
    let mut force = server.starts("release --force --io-timeout 300ms", "L");
    let evicted = force.line();
    assert!(evicted.contains(&format!("pid {} (bash)", first.pid())), "{evicted}");
    force.told("waiting up to ");
    assert_eq!(first.line(), "STOPPING");
    assert_eq!(server.inspect("L")["state"], "revoked");
    // An outage of the server does not end the rescue.
    if !server.is_local() {
        server.signal("STOP");
        force.told("not confirmed yet");
        server.signal("CONT");
    }
    first.say("go");
    first.end().exits(76).says("revoked");
    second.end().prints("ENTERED second");
    force.end().exits(0);
}

support::also_on_local! {
    readers_share_and_a_waiting_writer_holds_back_later_readers,
    a_writer_that_gives_up_admits_the_readers_behind_it_while_others_read_on,
    a_lock_can_be_entered_again_from_inside,
    an_owner_that_holds_the_lock_enters_past_waiters_and_waits_as_one,
    holds_of_one_owner_are_separate_and_a_short_lease_never_shortens_a_long_one,
    at_least_keeps_a_lock_that_is_released_sooner,
    at_least_does_not_keep_a_lock_whose_command_never_started,
    the_head_is_woken_when_a_release_shortens_the_remaining_time,
    neither_a_renewal_nor_a_second_release_shortens_at_least,
    a_revoked_command_is_stopped_before_the_next_waiter_acquires_the_lock,
}
