//! Shared locks, slots and reentrant locks.

use std::time::Duration;

use crate::support::{
    self, Finished, LongerWait, READY, Running, Server, acquire, binary, holder, run, until, waiter,
};

#[test]
fn readers_share_and_a_waiting_writer_holds_back_later_readers() {
    let server = Server::start();
    let first = holder(&server, &["-s"], "L");
    let second = holder(&server, &["-s"], "L");
    let writer = waiter(&server, &["-x"], "L", "writer");
    let third = waiter(&server, &["-s"], "L", "third");
    let fourth = waiter(&server, &["-s"], "L", "fourth");
    server.run("exec -n -s L true").exits(75);
    let lock = server.inspect("L");
    assert_eq!((&lock["mode"], &lock["slots"]), (&"shared".into(), &serde_json::Value::Null));
    assert_eq!(lock["holders"].as_array().unwrap().len(), 2);
    // The writer gives up, and all readers behind it enter together, while the others read on.
    writer.signal("TERM");
    assert_eq!(third.end().out(), "ENTERED third");
    assert_eq!(fourth.end().out(), "ENTERED fourth");
    assert_eq!(first.finish().code(), 0);
    assert_eq!(second.finish().code(), 0);
    writer.end();
    assert!(server.is_free("L"));
}

#[test]
fn a_writer_acquires_the_lock_after_the_last_reader_and_before_later_readers() {
    let server = Server::start();
    let first = holder(&server, &["--shared"], "L");
    let second = holder(&server, &["--shared"], "L");
    let script = "echo ENTERED writer; read _ || :";
    let mut writer = Running::start(&mut server.rlock(["exec", "L", "sh", "-c", script]));
    writer.told("waiting at position 1: shared by");
    let reader = waiter(&server, &["-s"], "L", "reader");
    assert_eq!(first.finish().code(), 0);
    assert_eq!(server.waiting("L"), 2);
    assert_eq!(second.finish().code(), 0);
    assert_eq!(writer.line(), "ENTERED writer");
    assert_eq!(server.waiting("L"), 1);
    assert_eq!(writer.finish().code(), 0);
    assert_eq!(reader.end().out(), "ENTERED reader");
}

#[test]
fn a_dead_readers_hold_expires_while_others_keep_theirs() {
    let server = Server::start();
    let living = holder(&server, &["-s"], "L");
    acquire(&server, &["-s", "--ttl", "3s"], "L");
    assert_eq!(server.inspect("L")["holders"].as_array().unwrap().len(), 2);
    until("the dead one is gone", || server.inspect("L")["holders"].as_array().unwrap().len() == 1);
    let writer = waiter(&server, &[], "L", "writer");
    assert_eq!(living.finish().code(), 0);
    assert_eq!(writer.end().out(), "ENTERED writer");
}

#[test]
fn slots_admit_exactly_n_holders() {
    let server = Server::start();
    let first = holder(&server, &["--slots", "2"], "L");
    let second = holder(&server, &["--slots", "2"], "L");
    let third = waiter(&server, &["--slots", "2"], "L", "third");
    assert_eq!(server.inspect("L")["slots"], 2);
    assert_eq!(first.finish().code(), 0);
    assert_eq!(third.end().out(), "ENTERED third");
    // A different number of slots, and other modes, wait.
    server
        .run("exec -n --slots 3 L true")
        .exits(75)
        .says("held with --slots 2, but requested with --slots 3");
    let busy = server.run("exec -n -s L true");
    assert!(busy.err().contains("held with --slots 2, but requested with --shared"), "{busy:?}");
    assert_eq!(second.finish().code(), 0);
    server.run("exec --slots 0 L true").exits(64);
    server.run("exec --slots 2 -s L true").exits(64);
}

#[test]
fn many_expired_holds_of_slots_are_dropped() {
    let server = Server::start();
    // More than one call drops, and more than Lua can unpack.
    let script = "redis.call('SET', KEYS[1], 'a9000', 'PX', 86400000)
        redis.call('HSET', KEYS[3], 'guard', 'a9000', 'mode', 'slots:9000', 'fence', '1')
        for i = 1, 8999 do redis.call('ZADD', KEYS[2], i, 'a' .. i) end
        redis.call('ZADD', KEYS[2], 4000000000000, 'a9000')";
    server.cli(&["EVAL", script, "3", "rlock:L", "{rlock:L}?holds", "{rlock:L}?state"]);
    server.run("exec -n --slots 9000 L true").exits(0);
}

#[test]
fn a_lock_can_be_entered_again_from_inside() {
    let server = Server::start();
    let rlock = binary();
    for (outer, inner, enters) in
        [("-x", "-x", true), ("-x", "-s", true), ("-s", "-s", true), ("-s", "-x", false)]
    {
        let script = format!("{rlock} exec --reentrant {inner} L echo inside");
        let mut command = server.rlock(["exec", "--ttl", "5s", outer, "L", "sh", "-c", &script]);
        let output = run(&mut command);
        if enters {
            assert_eq!((output.code(), output.out()), (0, "inside".into()), "{output:?}");
        } else {
            assert_eq!(output.code(), 75, "{output:?}");
            assert!(output.err().contains("take it exclusively there"), "{output:?}");
        }
        assert!(server.is_free("L"));
    }
}

#[test]
fn an_owner_that_holds_the_lock_enters_past_waiters() {
    let server = Server::start();
    let script = format!("echo READY; read _; {} exec --reentrant -s L echo inside", binary());
    let mut reader = Running::start(&mut server.rlock(["exec", "-s", "L", "sh", "-c", &script]))
        .prints_first("READY");
    let writer = waiter(&server, &[], "L", "writer");
    reader.say("go");
    assert_eq!(reader.end().out(), "inside");
    assert_eq!(writer.end().out(), "ENTERED writer");
}

#[test]
fn holds_of_one_owner_are_separate_and_a_short_lease_never_shortens_a_long_one() {
    let server = Server::start();
    let mine = ["--reentrant", "--owner", "me"];
    let long = acquire(&server, &[&mine[..], &["--ttl", "60s"]].concat(), "L");
    let short = acquire(&server, &[&mine[..], &["--ttl", "3s"]].concat(), "L");
    assert_ne!(long, short);
    assert_eq!(server.inspect("L")["holders"][0]["owner"], "me");
    assert!(server.lease_left("L") > 50_000);
    // Another owner waits, and so does the same owner without --reentrant.
    for other in [&["--reentrant", "--owner", "you"][..], &["--owner", "me"], &["--reentrant"]] {
        let arguments = ["acquire", "-n"].iter().chain(other).chain(&["L"]).copied();
        assert_eq!(run(&mut server.rlock(arguments)).code(), 75, "{other:?}");
    }
    until("the short one ends", || server.inspect("L")["holders"].as_array().unwrap().len() == 1);
    assert_eq!(run(&mut server.rlock(["release", "L", &short])).code(), 77);
    // A shared hold outlives the exclusive hold around it, and then admits readers.
    let shared = acquire(&server, &[&mine[..], &["-s"]].concat(), "L");
    server.run("exec -n -s L true").exits(75);
    assert_eq!(run(&mut server.rlock(["release", "L", &long])).code(), 0);
    server.run("exec -n -s L true").exits(0);
    server.run("exec -n L true").exits(75);
    assert_eq!(run(&mut server.rlock(["release", "L", &shared])).code(), 0);
    assert!(server.is_free("L"));
}

#[test]
fn the_owner_may_come_from_the_environment_and_from_the_enclosing_hold() {
    let server = Server::start();
    let script = format!("{} exec --reentrant L true; echo READY; read _ || :", binary());
    let mut command = server.rlock(["exec", "L", "sh", "-c", &script]);
    let first = Running::start(command.env("RLOCK_OWNER", "team")).prints_first("READY");
    let mut second = server.rlock(["exec", "-n", "--reentrant", "L", "echo", "inside"]);
    assert_eq!(run(second.env("RLOCK_OWNER", "team")).out(), "inside");
    assert_eq!(first.finish().code(), 0);
}

#[test]
fn at_least_keeps_a_lock_that_is_released_sooner() {
    let server = Server::start();
    let start = std::time::Instant::now();
    let job = ["exec", "-n", "--at-least", "3s", "L", "true"];
    assert_eq!(run(&mut server.rlock(job)).code(), 0);
    let lock = server.inspect("L");
    assert_eq!(lock["state"], "cooling");
    // It ends three seconds after the lock was acquired, not a TTL after.
    assert!(lock["ttl_ms"].as_u64().unwrap() <= 3_000, "{lock}");
    assert_eq!(lock["holders"].as_array().unwrap().len(), 1);
    run(&mut server.rlock(job)).exits(75).says("; kept for another ");
    let mut longer = LongerWait::of("8s");
    server.run("exec L true").exits(0);
    assert!(start.elapsed() >= Duration::from_secs(3));
    longer.is_not_over();
}

#[test]
fn the_head_is_woken_when_a_release_shortens_the_remaining_time() {
    let server = Server::start();
    let first = holder(&server, &["--ttl", "60s", "--at-least", "1500ms"], "L");
    // The waiter sends its next heartbeat only after 10 s.
    let second = waiter(&server, &[], "L", "second");
    let mut longer = LongerWait::of("8s");
    assert_eq!(first.finish().code(), 0);
    assert_eq!(second.end().out(), "ENTERED second");
    longer.is_not_over();
}

#[test]
fn neither_a_renewal_nor_a_second_release_shortens_at_least() {
    let server = Server::start();
    let token = acquire(&server, &["--at-least", "60s", "--ttl", "3s"], "L");
    assert!(server.lease_left("L") > 50_000);
    assert_eq!(run(&mut server.rlock(["renew", "--ttl", "3s", "L", &token])).code(), 0);
    assert!(server.lease_left("L") > 50_000);
    assert_eq!(run(&mut server.rlock(["release", "L", &token])).code(), 0);
    assert_eq!(run(&mut server.rlock(["renew", "--ttl", "3s", "L", &token])).code(), 77);
    assert_eq!(run(&mut server.rlock(["release", "L", &token])).code(), 77);
    assert!(server.lease_left("L") > 50_000);
    assert_eq!(server.inspect("L")["state"], "cooling");
    // --force --now frees it.
    let forced = server.run("release --force L").exits(0);
    let told = forced.out();
    assert!(
        told.starts_with("L: freed early: --at-least of ") && told.contains(" had 5"),
        "{told}"
    );
    assert!(server.is_free("L"));
}

#[test]
fn a_revoked_command_is_stopped_before_the_next_waiter_acquires_the_lock() {
    let server = Server::start();
    let mut first = support::holder_that_cleans_up(&server, "L");
    let second = waiter(&server, &[], "L", "second");
    let mut force = Running::start(&mut server.rlock(["release", "--force", "L"]));
    let evicted = force.line();
    assert!(evicted.contains(&format!("pid {} (bash)", first.pid())), "{evicted}");
    force.told("waiting up to ");
    assert_eq!(server.inspect("L")["state"], "revoked");
    assert_eq!(first.line(), "STOPPING");
    assert_eq!(server.inspect("L")["state"], "revoked");
    first.say("go");
    first.end().exits(76).says("revoked");
    assert_eq!(second.end().out(), "ENTERED second");
    assert_eq!(force.end().code(), 0);
}

#[test]
fn force_now_frees_the_lock_of_a_dead_holder_at_once() {
    let server = Server::start();
    let token = acquire(&server, &["--ttl", "1h"], "L");
    let tell_fence = ["exec", "L", "sh", "-c", "echo $RLOCK_FENCE"];
    let mut second = Running::start(&mut server.rlock(tell_fence));
    second.told("waiting at position 1");
    let fence = server.fence("L");
    let output = server.run("release --force --now --json L");
    let document: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
    assert_eq!(document["status"], "released");
    assert_eq!(document["revoked"][0]["id"], token[..8]);
    let next: u64 = second.end().out().parse().unwrap();
    assert!(next > fence);
    assert_eq!(run(&mut server.rlock(["release", "L", &token])).code(), 77);
    server.run("release --force L").exits(0).says("no hold to revoke");
    for wrong in [&["release", "--now", "L"][..], &["release", "--force", "L", "token"]] {
        assert_eq!(run(&mut server.rlock(wrong)).code(), 64, "{wrong:?}");
    }
}

#[test]
fn only_force_now_breaks_another_tools_lock() {
    let server = Server::start();
    server.cli(&["SET", "rlock:L", "theirs"]);
    server.run("release --force L").exits(75).says("--force --now to delete its key");
    assert_eq!(server.cli(&["GET", "rlock:L"]), "theirs");
    server.run("release --force --now L").exits(0);
    assert_eq!(server.cli(&["EXISTS", "rlock:L"]), "0");
    // A key of another type is not a lock.
    server.cli(&["RPUSH", "rlock:L", "theirs"]);
    server.run("release --force --now L").exits(78);
    assert_eq!(server.cli(&["LLEN", "rlock:L"]), "1");
}

#[test]
fn a_nested_request_for_the_last_slot_fails_instead_of_deadlocking() {
    let server = Server::start();
    let script = format!("{} exec --slots 1 L true; echo $?", binary());
    let output = run(&mut server.rlock(["exec", "--slots", "1", "L", "sh", "-c", &script]));
    assert_eq!(output.out(), "75");
    // --slots and --reentrant exclude each other.
    assert!(output.err().ends_with("; use another lock"), "{output:?}");
    let holder = Running::start(&mut server.rlock(["exec", "-s", "L", "sh", "-c", READY]))
        .prints_first("READY");
    assert_eq!(holder.finish().code(), 0);
}

#[test]
fn a_hold_with_a_slot_cannot_be_reentered() {
    let server = Server::start();
    let inner = format!("{} exec -n --shared --reentrant L true; echo $?", binary());
    let output = run(&mut server.rlock(["exec", "--slots", "2", "L", "sh", "-c", &inner]));
    assert_eq!(output.out(), "75", "{output:?}");
}

#[test]
fn an_ended_hold_does_not_hide_the_enclosing_one() {
    let server = Server::start();
    let script = format!(
        "eval \"$({0} acquire --reentrant --shell L)\"; {0} release L
        {0} exec --reentrant L echo entered; {0} exec L true; echo $?",
        binary()
    );
    let output = run(&mut server.rlock(["exec", "L", "sh", "-c", &script]));
    assert_eq!(output.out(), "entered\n75", "{output:?}");
    assert!(output.err().contains("; use --reentrant"), "{output:?}");
}

#[test]
fn waiters_of_one_owner_enter_together() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let mine = ["exec", "--reentrant", "--owner", "me", "L", "sh", "-c", READY];
    let mut both: Vec<Running> = (0..2)
        .map(|_| {
            let mut waiter = Running::start(&mut server.rlock(mine));
            waiter.told("waiting at position");
            waiter
        })
        .collect();
    assert_eq!(first.finish().code(), 0);
    // The second comes in while the first is there.
    for waiter in &mut both {
        assert_eq!(waiter.line(), "READY");
    }
    for waiter in both {
        assert_eq!(waiter.finish().code(), 0);
    }
}

#[test]
fn a_busy_message_names_the_writer_ahead_of_a_reader() {
    let server = Server::start();
    let first = holder(&server, &["-s"], "L");
    let writer = waiter(&server, &[], "L", "writer");
    let busy = server.run("exec -n -s L true");
    assert!(busy.err().contains("1 already waiting"), "{busy:?}");
    // A reader that waits does not count itself.
    let busy = server.run("exec -w 300ms -s L true");
    assert_eq!(busy.err().matches("; 1 already waiting").count(), 2, "{busy:?}");
    first.finish();
    assert_eq!(writer.end().out(), "ENTERED writer");
}

#[test]
fn a_waiting_reader_acquires_the_lock_once_only_a_shared_hold_remains() {
    let server = Server::start();
    let mine = ["--reentrant", "--owner", "me"];
    acquire(&server, &[&mine[..], &["--ttl", "3s"]].concat(), "L");
    acquire(&server, &[&mine[..], &["-s", "--ttl", "60s"]].concat(), "L");
    // Unless it is told when the exclusive hold ends, it looks again after 10 s.
    let mut longer = LongerWait::of("8s");
    server.run("exec -s L true").exits(0);
    longer.is_not_over();
}

support::also_on_local! {
    a_hold_with_a_slot_cannot_be_reentered,
    an_ended_hold_does_not_hide_the_enclosing_one,
    waiters_of_one_owner_enter_together,
    a_busy_message_names_the_writer_ahead_of_a_reader,
    a_waiting_reader_acquires_the_lock_once_only_a_shared_hold_remains,
    readers_share_and_a_waiting_writer_holds_back_later_readers,
    a_writer_acquires_the_lock_after_the_last_reader_and_before_later_readers,
    a_dead_readers_hold_expires_while_others_keep_theirs,
    slots_admit_exactly_n_holders,
    a_lock_can_be_entered_again_from_inside,
    an_owner_that_holds_the_lock_enters_past_waiters,
    holds_of_one_owner_are_separate_and_a_short_lease_never_shortens_a_long_one,
    the_owner_may_come_from_the_environment_and_from_the_enclosing_hold,
    at_least_keeps_a_lock_that_is_released_sooner,
    the_head_is_woken_when_a_release_shortens_the_remaining_time,
    neither_a_renewal_nor_a_second_release_shortens_at_least,
    a_revoked_command_is_stopped_before_the_next_waiter_acquires_the_lock,
    force_now_frees_the_lock_of_a_dead_holder_at_once,
    a_nested_request_for_the_last_slot_fails_instead_of_deadlocking,
}
