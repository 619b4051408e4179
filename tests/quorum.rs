//! Several independent servers: a client holds a lock if a majority has granted it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::quorum::{at, at_urls, far, having, servers, without};
use crate::support::*;

/// Waits for four renewals, which are a third of a lease apart. The holder needs -v.
fn renew_for_a_lease(holder: &mut Running) {
    for _ in 0..4 {
        holder.told("] renewed for");
    }
}

fn restart(server: &mut Server) {
    server.kill();
    server.start_again();
}

/// Even if the reply comes too late for the grant, and again with each renewal.
#[track_caller]
fn warns_once(client: &Client, warning: &str) {
    let mut holder = client.holder("-v L");
    holder.told(warning);
    renew_for_a_lease(&mut holder);
    let told = holder.finish().exits(0);
    assert!(!told.err().contains(warning), "{told:?}");
}

#[test]
fn a_lock_on_a_majority_works_like_any_other() {
    let servers = servers(3);
    let all = at(&servers);
    let output = all.run("exec -v L echo done").exits(0).prints("done");
    // The last answer may have come too late to be reported.
    assert!(output.err().matches("granted, fencing token").count() >= 2, "{output:?}");
    assert_eq!(having(&servers, "L"), 0);

    let first = all.holder("L");
    all.run("exec -n L true").exits(75).says("held by");
    let shown = all.inspect("L");
    assert_eq!(shown["holders"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(shown["history"].as_array().unwrap().len(), 1, "{shown}");
    assert!(all.run("inspect").out().contains("L  "));
    let second = all.waiter("L");
    first.finish().exits(0);
    second.end().exits(0).prints("ENTERED");

    let token = all.acquire("L");
    for (act, again) in [("renew", 0), ("release", 77)] {
        all.run(&format!("{act} L {token}")).exits(0);
        all.run(&format!("{act} L {token}")).exits(again);
    }
    all.run(&format!("renew L {token}")).exits(77);
    all.run("inspect L").exits(1);
}

#[test]
fn with_two_of_five_down_everything_works_and_with_three_nothing_does() {
    let mut servers = servers(5);
    let all = at(&servers).with("RLOCK_IO_TIMEOUT", "300ms");
    servers[1].kill();
    servers[3].signal("STOP");
    let stuck = all.holder("L");
    all.run("exec -n L true").exits(75);
    all.run("release --force L").exits(0).shows("revoked");
    stuck.end().exits(76).says("; stopping the command");
    let mut lasting = all.holder("-v L");
    renew_for_a_lease(&mut lasting);

    servers[0].kill();
    lasting.end().exits(76).says("was not renewed");
    let mut longer = LongerWait::of("10s");
    for line in ["exec L true", "acquire L", "inspect L", "inspect"] {
        let output = all.run(line).exits(69).says("2 of 5 servers usable, 3 required");
        assert_eq!(output.err().lines().count(), 1, "{output:?}");
    }
    longer.is_not_over();
    servers[3].signal("CONT");
    until("nothing is left", || having(&servers[2..], "L") == 0);
}

#[test]
fn a_server_that_has_lost_a_hold_gets_it_back_even_while_too_few_servers_renew_it() {
    let mut servers = servers(3);
    // One that answers after the others gets it too.
    let (_, all) = far(&servers, [0, 0, 30]);
    all.acquire("-n M");
    let mut lasting = all.holder("-v --ttl 6s L");
    for name in ["L", "M"] {
        until("it is on all servers", || having(&servers, name) == 3);
    }
    restart(&mut servers[0]);
    servers[1].signal("STOP");
    lasting.told("not renewed: 1 of 3 servers usable");
    lasting.told("] renewed for");
    assert!(servers[0].has("L"));
    lasting.finish().exits(0);
    assert!(!servers[0].has("L"));
}

#[test]
fn a_server_that_was_restarted_does_not_vote_for_a_lease() {
    let mut servers = servers(3);
    let without_third = without(&servers, &[2]);
    without_third.run("acquire -n --ttl 60s M").exits(69).says("may have forgotten a lease of 1m");
    assert_eq!(having(&servers, "M"), 0);
    // The holder has two of three.
    without_third.acquire("L");
    restart(&mut servers[0]);
    // One of those has lost it, and the other does not answer.
    without(&servers, &[1]).run("exec -n L true").exits(69).says("may have forgotten");
    // Or answers.
    at(&servers).run("exec -n L true").exits(75);
    servers[0].await_uptime(2);
    without(&servers, &[1]).run("exec -w 9 L true").exits(0);
}

/// A server subtracts whole seconds, so one that says 2 s may have been up for little more than 1 s.
#[test]
fn a_server_that_was_restarted_does_not_vote_a_second_early() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("clock");
    let clock = fs::File::create(&file).unwrap();
    let show = |seconds: u64| clock.write_all_at(&(seconds * 1_000_000).to_ne_bytes(), 0).unwrap();
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    show(begin);
    let servers = [(); 3].map(|()| Server::on_clock(&file));
    for (uptime, status) in [(2, 69), (3, 0)] {
        show(begin + uptime);
        servers.iter().for_each(|server| server.await_uptime(uptime - 1));
        at(&servers).run("exec -n L true").exits(status);
    }
}

/// An enclosing hold of L, which has been released, but not on the last server.
fn missed_release(servers: &[Server], line: &str) -> (String, String) {
    // Both of two must grant it, while a third may still be asked when the client ends.
    let token = without(servers, &[0]).with("RLOCK_TTL", "20s").acquire(line);
    without(servers, &[2]).run(&format!("release L {token}")).exits(0);
    assert_eq!(having(servers, "L"), 1);
    (format!("rlock:L={token}"), token)
}

#[test]
fn a_server_that_missed_a_release_refuses_nobody() {
    let servers = servers(3);
    for (acquire, again) in [
        ("-n L", "-n L"),
        ("-n L", "-w 9s --shared L"),
        ("-n --shared --owner me L", "-n --reentrant --owner me L"),
        ("-n --slots 2 L", "-n --slots 2 L"),
    ] {
        // Which server answers first depends on chance.
        for _ in 0..5 {
            let (held, old) = missed_release(&servers, acquire);
            let all = at(&servers).with("RLOCK_HELD", held);
            let token = all.acquire(again);
            // Where the old hold is, it is the one that counts, until it ends.
            for token in [token, old] {
                assert_ne!(all.run(&format!("release L {token}")).code(), 69);
            }
            assert_eq!(having(&servers, "L"), 0);
        }
    }
}

#[test]
fn a_server_that_refuses_a_waiter_is_asked_no_more_often_than_others() {
    let servers = servers(3);
    let calls = || servers[2].calls_of("evalsha") + servers[2].calls_of("eval");
    let (held, _) = missed_release(&servers, "-n L");
    let first = without(&servers, &[2]).holder("L");
    let waits = |client: &Client| {
        servers[2].cli(&["CONFIG", "RESETSTAT"]);
        // Three heartbeats.
        client.run("exec -w 2s L true").exits(75);
        assert!(calls() < 40, "{}", calls());
    };
    waits(&at(&servers).with("RLOCK_HELD", held));
    first.finish().exits(0);
    // It cannot be listened to.
    servers[2].cli(&["FLUSHALL"]);
    let first = at(&servers).holder("L");
    until("it is on all servers", || having(&servers, "L") == 3);
    servers[2].cli(&["ACL", "SETUSER", "default", "-blpop"]);
    waits(&at(&servers));
    first.finish().exits(0);
}

#[test]
fn a_refused_password_is_reported_once_and_a_nested_request_that_servers_are_too_young_for() {
    let servers = servers(3);
    let all = at(&servers).with("RLOCK_TTL", "2s");
    for (mode, nested) in [("", "--reentrant"), ("--shared", "--shared --reentrant")] {
        let mut exec = all.rlock(&format!("exec {mode} L"));
        let nested = format!("{READY}\n$rlock exec -n {nested} --ttl 1h L true; echo $?");
        exec.args(["sh", "-c", &nested]).env("rlock", binary());
        let outer = Running::start(&mut exec).prints_first("READY");
        until("all have its hold", || servers.iter().all(|server| server.has("L")));
        outer.finish().prints("69").says("3 of 3 servers cannot vote yet");
    }
    for server in &servers {
        server.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    }
    let told = all.with("RLOCK_PASSWORD", "wrong").run("exec -n L true").exits(78).err();
    assert_eq!((told.lines().count(), told.matches("rejected").count()), (1, 3), "{told}");
    assert!(told.ends_with("; correct the credentials"), "{told}");
}

#[test]
fn the_fencing_token_grows_whichever_minority_takes_no_part() {
    let servers = servers(5);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    let mut last = u64::try_from(now).unwrap();
    for (first, second) in (0..5).flat_map(|first| (0..first).map(move |second| (first, second))) {
        // As if their clocks differed by up to a minute.
        let ahead = (last + 60_000_000).to_string();
        servers[(first + 2) % 5].cli(&["HSET", &side_key("L", "state"), "fence", &ahead]);
        let told = without(&servers, &[first, second]).run("exec L printenv RLOCK_FENCE").exits(0);
        let fence = told.out().parse::<u64>().unwrap();
        assert!(fence > last, "without {first} and {second}: {fence} after {last}");
        last = fence;
    }
}

#[test]
fn a_revocation_that_arrives_slowly_is_not_undone_by_a_renewal() {
    let servers = servers(3);
    let mut stuck = at(&servers).holder("-v L");
    let (wires, slow) = far(&servers, [0; 3]);
    wires[1..].iter().for_each(|wire| wire.part(true));
    let release = slow.start("release --force --io-timeout 20s L");
    until("it has arrived at one server", || servers[0].inspect("L")["state"] == "revoked");
    renew_for_a_lease(&mut stuck);
    wires[1].part(false);
    stuck.told("; stopping the command");
    stuck.end().exits(76);
    wires[2].part(false);
    release.end().exits(0);
}

#[test]
fn at_least_keeps_a_lock_while_servers_restart_one_at_a_time() {
    let mut servers = servers(3);
    let all = at(&servers);
    all.run("exec -n --at-least 60s L true").exits(69);
    // Except if the command never started.
    all.run("exec -n --at-least 8s L no-such-command").exits(127);
    all.run("exec -n --at-least 8s L true").exits(0);
    servers[1..].iter_mut().for_each(restart);
    servers[2].await_uptime(1);
    assert_ne!(all.run("exec -n --at-least 8s L true").code(), 0);
}

/// With the documented permissions.
#[test]
fn a_majority_keeps_a_slot_from_others_while_each_holder_reaches_another_one() {
    let servers = servers(5);
    for server in &servers {
        set_up(server, &rule("ci", &["+scan", "+info"]));
    }
    let user = |client: Client| client.with_user("ci").with("RLOCK_TTL", "15s");
    // Each needs all three that it reaches.
    let holders = [[0, 1], [3, 4]].map(|masked| {
        let client = user(without(&servers, &masked));
        let token = client.acquire("--slots 2 L");
        (client, token)
    });
    for (client, token) in holders {
        assert_eq!(client.run(&format!("renew L {token}")).exits(0).err(), "");
    }
    let all = user(at(&servers));
    all.run("acquire --slots 2 -n L").exits(75);
    all.run("inspect").exits(0).shows("2 of 2 slots");
}

#[test]
fn slots_are_numbered_and_need_only_a_majority() {
    let servers = servers(3);
    let all = at(&servers).with("RLOCK_SLOT", "7");
    servers[1].signal("STOP");
    without(&servers, &[2]).run("acquire --slots 2 L").exits(69);
    let start = || all.exec("--slots 2 L", "echo SLOT ${RLOCK_SLOT-none}; read _ || :");
    let first = start().prints_first("SLOT 1");
    let second = start().prints_first("SLOT 2");
    let mut third = start();
    third.told("waiting at position 1");
    all.run("exec -n --slots 2 L true").exits(75);
    second.finish().exits(0);
    assert_eq!(third.line(), "SLOT 2");
    servers[1].signal("CONT");
    third.finish().exits(0);
    first.finish().exits(0);
}

#[test]
fn with_two_servers_a_majority_is_both_and_a_misconfigured_server_is_reported() {
    let mut servers = servers(2);
    let both = format!("--url {} --url {}", servers[0].url(), servers[1].url());
    let told = Client::of(String::new()).run(&format!("exec -v {both} L true")).exits(0);
    assert_eq!(told.err().matches("granted, fencing token").count(), 2, "{told:?}");
    servers.push(Server::on_tcp(&["--requirepass", "secret"]));
    warns_once(&at(&servers), "continuing without this server");
}

#[test]
fn one_server_under_several_names_has_one_vote() {
    let servers = servers(2);
    let [one, other] = &servers[..] else { panic!("two") };
    let localhost = one.tcp_url().replace("127.0.0.1", "localhost");
    let twice = at_urls([localhost, one.tcp_url()].into_iter());
    twice.run("exec L true").exits(78).says("are the same server");
    assert_eq!(one.cli(&["EXISTS", &side_key("L", "history")]), "0", "it was asked");
    // The addresses do not show that these are the same server.
    let and = |third: String| at_urls([one.url(), one.tcp_url(), third].into_iter());
    for _ in 0..10 {
        let alone = and("unix:///nowhere".into());
        alone.run("exec L true").exits(78).says("are the same server");
    }
    warns_once(&and(other.url()), "are the same server, which has one vote; list it once");
}

#[test]
fn a_signal_during_an_acquire_leaves_nothing_on_any_server() {
    let servers = servers(3);
    for cold in [true, false] {
        for delay in [50, 150, 250, 450] {
            if cold {
                servers.iter().for_each(|server| drop(server.cli(&["SCRIPT", "FLUSH"])));
            }
            let (_wires, all) = far(&servers, [100; 3]);
            let first = all.start("exec -n L sleep 9");
            // The test is about this moment, so it has no event to wait for.
            std::thread::sleep(Duration::from_millis(delay));
            let output = first.ends_by("TERM");
            assert_eq!(output.status.signal(), Some(15), "{cold} {delay}: {output:?}");
            until("what is under way has arrived", || having(&servers, "L") == 0);
            // It was released, and did not expire.
            for server in &servers {
                assert!(server.reports("\nexpired_keys:0"), "{cold} {delay}: it expired");
            }
        }
    }
}

#[test]
fn a_release_without_a_majority_is_retried_and_reported() {
    let servers = servers(3);
    let all = at(&servers);
    let mut first = all.holder("--io-timeout 200ms L");
    servers[1..].iter().for_each(|server| server.signal("STOP"));
    first.say("");
    first.told("not released yet");
    servers[1].signal("CONT");
    first.finish().exits(0);
    assert_eq!(having(&servers[..2], "L"), 0);
    servers[2].signal("CONT");

    let token = all.acquire("L");
    let mut release = without(&servers, &[1, 2]).start(&format!("release L {token}"));
    release.told("not released yet: 1 of 3 servers usable");
}

#[test]
fn a_command_does_not_run_unlocked_while_a_server_names_the_holder() {
    let mut servers = servers(3);
    let first = at(&servers).holder("L");
    servers[..2].iter_mut().for_each(restart);
    let unlocked = "exec -n --on-unreachable run L echo RUNS";
    at(&servers).run(unlocked).exits(75).prints("").says("held by");
    first.finish();
    // Servers that answer without a holder.
    without(&servers, &[2]).run(unlocked).exits(69).prints("");
    without(&servers, &[0, 1, 2]).run(unlocked).exits(0).prints("RUNS");
}

#[test]
fn a_server_whose_clock_is_far_ahead_has_no_vote() {
    let servers = servers(3);
    let [one, other, ahead] = &servers[..] else { panic!("three") };
    ahead.step_clock((2 * 24 * 3_600 + 60) * 1_000);
    let warning = format!("clock of {} is 2d ahead", ahead.socket().display());
    let all = at(&servers);
    let mut first = all.holder("-n -v L");
    let second = all.waiter("L");
    first.told("] renewed for");
    all.run("exec -n L true").exits(75);
    first.finish().exits(0);
    second.end().exits(0).prints("ENTERED");
    // Without a pause of another server, a majority may have answered before this one does.
    one.signal("STOP");
    let acquire = all.start("acquire L");
    until("it has answered", || ahead.cli(&["ZCARD", &side_key("L", "queue")]) == "1");
    one.signal("CONT");
    let token = acquire.end().exits(0).says(&warning).out();
    for act in ["renew", "release"] {
        all.run(&format!("{act} L {token}")).exits(0);
    }
    // Which of two clocks is wrong cannot be decided, unless a third one may still answer.
    other.signal("STOP");
    all.run("exec -n L true").exits(69).says(&warning);
    let two = at_urls([one.url(), ahead.url()].into_iter());
    two.run("exec -n L true").exits(78).says(&warning);
}
