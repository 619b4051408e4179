//! Several independent servers: a client holds a lock if a majority has granted it.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::acl::{TO_INSPECT, as_ci, rule, set_up};
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::{Finished, LongerWait, READY, Running, Server, binary, rlock, run, until};

/// The lease. A server votes only after it has been up for longer.
const TTL: &str = "2s";

/// Servers that have been up for longer than a lease.
fn servers(count: usize) -> Vec<Server> {
    let servers: Vec<Server> = (0..count).map(|_| Server::on_tcp(&[])).collect();
    servers.iter().for_each(|server| server.await_uptime(2));
    servers
}

/// The URLs of the servers. Each masked one is replaced by an address where no server is.
fn urls(servers: &[Server], masked: &[usize]) -> String {
    let url = |(number, server): (usize, &Server)| match masked.contains(&number) {
        true => format!("unix:///nowhere/{number}"),
        false => server.url(),
    };
    servers.iter().enumerate().map(url).collect::<Vec<_>>().join(" ")
}

fn at(urls: &str, arguments: &[&str]) -> Command {
    let mut command = rlock(arguments);
    command.env("RLOCK_URL", urls).env("RLOCK_TTL", TTL);
    command
}

/// How many servers have a hold that blocks other clients.
fn having(servers: &[Server], name: &str) -> usize {
    let key = format!("rlock:{name}");
    servers.iter().filter(|server| server.cli(&["EXISTS", &key]) == "1").count()
}

fn holder(urls: &str, options: &[&str], name: &str) -> Running {
    let exec = [&["exec"], options, &[name, "sh", "-c", READY]].concat();
    Running::start(&mut at(urls, &exec)).prints_first("READY")
}

/// Waits for four renewals, which are a third of a lease apart. The holder needs -v.
fn renew_for_a_lease(holder: &mut Running) {
    for _ in 0..4 {
        holder.told("] renewed for");
    }
}

#[test]
fn a_lock_on_a_majority_works_like_any_other() {
    let servers = servers(3);
    let all = urls(&servers, &[]);
    let output = run(&mut at(&all, &["exec", "-v", "L", "echo", "done"])).exits(0).prints("done");
    for server in &servers {
        let told = format!("{}: granted, fencing token", server.socket().display());
        // The last answer may have come too late to be reported.
        let count = output.err().matches("granted, fencing token").count();
        assert!(output.err().contains(&told) || count >= 2, "{output:?}");
    }
    assert_eq!(having(&servers, "L"), 0);

    let mut first = holder(&all, &[], "L");
    let output = run(&mut at(&all, &["exec", "-n", "L", "true"])).exits(75);
    assert!(output.err().contains("held by") && output.err().contains("(sh)"), "{output:?}");
    let inspected = run(&mut at(&all, &["inspect", "--json", "L"])).out();
    let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(inspected[0]["holders"].as_array().unwrap().len(), 1, "{inspected}");
    assert_eq!(inspected[0]["history"].as_array().unwrap().len(), 1, "{inspected}");
    assert!(run(&mut at(&all, &["inspect"])).out().contains("L  "));
    let mut second = Running::start(&mut at(&all, &["exec", "L", "echo", "ENTERED"]));
    let told = second.told("waiting");
    assert!(told.contains("waiting at position 1: held by"), "{told}");
    let inspect = || {
        let inspected = run(&mut at(&all, &["inspect", "--json", "L"])).out();
        serde_json::from_str::<serde_json::Value>(&inspected).unwrap()[0].clone()
    };
    let waiting = || inspect()["waiters"][0]["waiting_ms"].as_u64();
    until("it has waited", || waiting().is_some_and(|waiting| waiting >= 200));
    first.say("");
    assert_eq!(first.finish().code(), 0);
    assert_eq!(second.end().out(), "ENTERED");
    let third = holder(&all, &[], "L");
    let waited = inspect()["history"][0]["waited_ms"].as_u64();
    assert!(waited.is_some_and(|waited| waited >= 200), "{waited:?}");
    assert!(inspect()["holders"][0]["waited_ms"].as_u64() < waited);
    third.finish();

    let token = run(&mut at(&all, &["acquire", "L"])).out();
    assert_eq!(run(&mut at(&all, &["renew", "L", &token])).code(), 0);
    assert_eq!(run(&mut at(&all, &["release", "L", &token])).code(), 0);
    assert_eq!(run(&mut at(&all, &["release", "L", &token])).code(), 77);
    assert_eq!(run(&mut at(&all, &["renew", "L", &token])).code(), 77);
    assert_eq!(run(&mut at(&all, &["inspect", "L"])).code(), 1);
}

#[test]
fn the_documented_acl_rule_is_sufficient() {
    let servers = servers(3);
    servers
        .iter()
        .for_each(|server| set_up(server, &rule(&[&TO_INSPECT[..], &["+info"]].concat())));
    for arguments in
        [&["exec", "L", "true"][..], &["acquire", "L"], &["inspect", "L"], &["inspect"]]
    {
        let output = as_ci(&mut at(&urls(&servers, &[]), arguments));
        assert_eq!(output.code(), 0, "{output:?}");
    }
}

#[test]
fn with_two_of_five_down_everything_works_and_with_three_nothing_does() {
    let mut servers = servers(5);
    let all = urls(&servers, &[]);
    servers[1].kill();
    servers[3].signal("STOP");
    let quick = ["--io-timeout", "300ms"];
    let go = |arguments: &[&str]| {
        run(&mut at(&all, &[&arguments[..1], &quick, &arguments[1..]].concat()))
    };
    assert_eq!(go(&["exec", "L", "true"]).code(), 0);
    let token = go(&["acquire", "--shared", "L"]).out();
    assert_eq!(go(&["exec", "--shared", "L", "true"]).code(), 0);
    assert_eq!(go(&["exec", "-n", "L", "true"]).code(), 75);
    assert_eq!(go(&["inspect", "L"]).code(), 0);
    assert_eq!(go(&["renew", "L", &token]).code(), 0);
    assert_eq!(go(&["release", "L", &token]).code(), 0);
    let mut stuck = holder(&all, &quick, "L");
    let output = go(&["release", "--force", "L"]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.out().contains("revoked"), "{output:?}");
    stuck.told("; stopping the command");
    assert_eq!(stuck.end().code(), 76);

    servers[0].kill();
    let mut longer = LongerWait::of("10s");
    for arguments in
        [&["exec", "L", "true"][..], &["acquire", "L"], &["inspect", "L"], &["inspect"]]
    {
        let output = go(arguments);
        assert_eq!(output.code(), 69, "{output:?}");
        assert!(output.err().contains("2 of 5 servers usable, 3 required"), "{output:?}");
        assert_eq!(output.err().lines().count(), 1, "{output:?}");
    }
    longer.is_not_over();
    servers[3].signal("CONT");
    for up in [2, 3, 4] {
        until("nothing is left", || servers[up].cli(&["EXISTS", "rlock:L"]) == "0");
    }
}

#[test]
fn a_frozen_server_delays_exec_by_less_than_two_timeouts() {
    let servers = servers(3);
    servers[0].await_uptime(5);
    servers[2].signal("STOP");
    let mut command = at(&urls(&servers, &[]), &["exec", "--io-timeout", "1s", "L", "true"]);
    // Nearly two timeouts.
    let mut longer = LongerWait::of("1900ms");
    assert_eq!(run(command.env("RLOCK_TTL", "4s")).code(), 0);
    longer.is_not_over();
    servers[2].signal("CONT");
}

#[test]
fn a_lease_is_renewed_with_a_minority_failing_and_lost_with_a_majority() {
    let mut servers = servers(3);
    let all = urls(&servers, &[]);
    let mut lasting = holder(&all, &["-v"], "L");
    servers[0].kill();
    renew_for_a_lease(&mut lasting);
    assert_eq!(run(&mut at(&all, &["exec", "-n", "L", "true"])).code(), 75);
    lasting.say("");
    assert_eq!(lasting.finish().code(), 0);

    let mut ending = holder(&all, &[], "L");
    servers[1].kill();
    ending.told("was not renewed");
    assert_eq!(ending.end().code(), 76);
}

#[test]
fn a_server_that_has_lost_a_hold_gets_it_back_at_the_next_renewal() {
    let mut servers = servers(3);
    let all = urls(&servers, &[]);
    let mut lasting = holder(&all, &["-v"], "L");
    servers[0].kill();
    servers[0].start_again();
    until("it is put back", || servers[0].cli(&["EXISTS", "rlock:L"]) == "1");
    servers[1].kill();
    renew_for_a_lease(&mut lasting);
    assert_eq!(run(&mut at(&all, &["inspect", "L"])).code(), 0);
    lasting.say("");
    assert_eq!(lasting.finish().code(), 0);
    assert_eq!(servers[0].cli(&["EXISTS", "rlock:L"]), "0");
}

#[test]
fn a_hold_reaches_a_server_that_answers_after_the_others() {
    let mut servers = servers(3);
    let slow = Proxy::to(servers[2].port(), Duration::from_millis(30));
    let all = format!("{} {}", urls(&servers[..2], &[]), slow.url());
    run(&mut at(&all, &["acquire", "-n", "M"])).exits(0);
    until("it is on all servers", || having(&servers, "M") == 3);
    let mut lasting = holder(&all, &["-v"], "L");
    until("it is on all servers", || having(&servers, "L") == 3);
    servers[0].kill();
    renew_for_a_lease(&mut lasting);
    lasting.say("");
    assert_eq!(lasting.finish().code(), 0);
}

#[test]
fn a_hold_is_restored_even_while_too_few_servers_renew_it() {
    let mut servers = servers(3);
    servers.iter().for_each(|server| server.await_uptime(7));
    let mut lasting = holder(&urls(&servers, &[]), &["-v", "--ttl", "6s"], "L");
    until("it is on all servers", || having(&servers, "L") == 3);
    servers[0].kill();
    servers[0].start_again();
    servers[1].signal("STOP");
    lasting.told("not renewed: 1 of 3 servers usable");
    lasting.told("] renewed for");
    lasting.say("");
    assert_eq!(lasting.finish().code(), 0);
}

#[test]
fn a_server_that_was_restarted_does_not_vote_for_a_lease() {
    let mut servers = servers(3);
    // The holder has two of three.
    run(&mut at(&urls(&servers, &[2]), &["acquire", "-n", "--ttl", "60s", "M"]))
        .exits(69)
        .says("may have forgotten a lease of 1m");
    assert_eq!(having(&servers, "M"), 0);
    let token = run(&mut at(&urls(&servers, &[2]), &["acquire", "L"])).out();
    servers[0].kill();
    servers[0].start_again();
    // One of those has lost it, and the other does not answer.
    run(&mut at(&urls(&servers, &[1]), &["exec", "-n", "L", "true"]))
        .exits(69)
        .says("may have forgotten");
    // Or answers.
    run(&mut at(&urls(&servers, &[]), &["exec", "-n", "L", "true"])).exits(75);
    assert_ne!(token, "");
    servers[0].await_uptime(2);
    run(&mut at(&urls(&servers, &[1]), &["exec", "-w", "9", "L", "true"])).exits(0);
}

#[test]
fn lost_replies_leave_nothing_behind() {
    let servers = servers(3);
    let wires: Vec<Proxy> =
        servers.iter().map(|server| Proxy::to(server.port(), Duration::ZERO)).collect();
    let all = wires.iter().map(Proxy::url).collect::<Vec<_>>().join(" ");
    servers.iter().for_each(|server| server.await_uptime(4));
    let exec = ["exec", "--io-timeout", "1s", "-t", "4s", "L", "true"];
    wires[0].drop_replies(true);
    assert_eq!(run(&mut at(&all, &exec)).code(), 0);
    wires[1].drop_replies(true);
    run(&mut at(&all, &exec)).exits(69);
    until("all have been told", || having(&servers, "L") == 0);
}

/// At most two of five.
fn mask(random: &mut Random) -> Vec<usize> {
    (0..random.below(3)).map(|_| usize::try_from(random.below(5)).unwrap()).collect()
}

#[test]
fn the_fencing_token_grows_whichever_minority_takes_no_part() {
    let servers = servers(5);
    let seed = RandomState::new().hash_one("seed");
    let random = &mut Random(seed);
    let mut last = 0;
    for round in 0..40 {
        // As if their clocks differed by up to a minute.
        let ahead = usize::try_from(random.below(5)).unwrap();
        let fence = u64::try_from(
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros(),
        )
        .unwrap();
        let fence = (fence + random.below(60_000_000)).max(last);
        servers[ahead].cli(&["HSET", "{rlock:L}?state", "fence", &fence.to_string()]);
        let some = urls(&servers, &mask(random));
        let shared = random.below(2) == 0;
        let acquire: &[&str] =
            if shared { &["acquire", "-s", "--json", "L"] } else { &["acquire", "--json", "L"] };
        let mut tokens = Vec::new();
        for _ in 0..if shared { 3 } else { 1 } {
            let output = run(&mut at(&some, acquire)).exits(0);
            let document: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
            let fence = document["fence"].as_u64().unwrap();
            assert!(fence > last, "seed {seed} round {round}: {fence} after {last}");
            last = fence;
            tokens.push(document["token"].as_str().unwrap().to_owned());
        }
        for token in tokens {
            // Masked servers have nothing to release.
            assert_eq!(run(&mut at(&urls(&servers, &[]), &["release", "L", &token])).code(), 0);
        }
    }
}

#[test]
fn simultaneous_readers_all_acquire_with_distinct_fencing_tokens() {
    let servers = servers(3);
    let all = urls(&servers, &[]);
    // A lease that leaves a loaded machine the time for all of them.
    servers.iter().for_each(|server| server.await_uptime(8));
    let exec = ["exec", "-n", "-s", "-t", "8s", "L", "sh", "-c", "echo $RLOCK_FENCE"];
    let readers: Vec<Running> = (0..20).map(|_| Running::start(&mut at(&all, &exec))).collect();
    let mut fences: Vec<String> = Vec::new();
    for reader in readers {
        let output = reader.end().exits(0);
        fences.push(output.out());
    }
    fences.sort();
    fences.dedup();
    assert_eq!(fences.len(), 20);
}

#[test]
fn exactly_one_of_several_simultaneous_nonblocking_clients_acquires_the_lock() {
    let servers = servers(3);
    for round in 0..8 {
        // Each is near to another server.
        let near = |near: usize| {
            let wires = servers.iter().enumerate().map(|(number, server)| {
                let delay = if number == near { 0 } else { 10 };
                Proxy::to(server.port(), Duration::from_millis(delay))
            });
            wires.collect::<Vec<_>>()
        };
        let wires: Vec<Vec<Proxy>> = (0..3).map(near).collect();
        let mut hosts: Vec<Running> = wires
            .iter()
            .map(|wires| {
                let all = wires.iter().map(Proxy::url).collect::<Vec<_>>().join(" ");
                Running::start(&mut at(&all, &["exec", "-n", "L", "sh", "-c", READY]))
            })
            .collect();
        until("all but one have given up", || {
            hosts.iter_mut().filter_map(|host| host.process.is_running().then_some(())).count() <= 1
        });
        let ran = hosts.into_iter().map(|host| host.finish().code());
        let ran: Vec<i32> = ran.collect();
        assert_eq!(ran.iter().filter(|code| **code == 0).count(), 1, "round {round}: {ran:?}");
    }
}

#[test]
fn a_revocation_that_arrives_slowly_is_not_undone_by_a_renewal() {
    let servers = servers(3);
    servers[2].await_uptime(3);
    let mut stuck = holder(&urls(&servers, &[]), &["-t", "3s"], "L");
    let slow: Vec<Proxy> = [0, 1_500, 3_000]
        .into_iter()
        .zip(&servers)
        .map(|(delay, server)| Proxy::to(server.port(), Duration::from_millis(delay)))
        .collect();
    let all = slow.iter().map(Proxy::url).collect::<Vec<_>>().join(" ");
    run(&mut at(&all, &["release", "--force", "--io-timeout", "20s", "L"])).exits(0);
    stuck.told("; stopping the command");
    assert_eq!(stuck.end().code(), 76);
}

#[test]
fn at_least_keeps_a_lock_while_servers_restart_one_at_a_time() {
    let mut servers = servers(3);
    let exec = ["exec", "-n", "-t", "2s", "--at-least", "60s", "L", "true"];
    let all = urls(&servers, &[]);
    run(&mut at(&all, &exec)).exits(69);
    servers.iter().for_each(|server| server.await_uptime(8));
    let exec = ["exec", "-n", "-t", "2s", "--at-least", "8s", "L", "true"];
    run(&mut at(&all, &exec)).exits(0);
    servers[1].kill();
    servers[1].start_again();
    servers[2].kill();
    servers[2].start_again();
    servers[2].await_uptime(1);
    assert_ne!(run(&mut at(&all, &exec)).code(), 0);
}

#[test]
fn a_majority_keeps_a_slot_from_others_while_each_holder_reaches_another_one() {
    let servers = servers(5);
    servers.iter().for_each(|server| set_up(server, &rule(&["+info"])));
    let all = urls(&servers, &[]);
    let acquire = ["acquire", "--slots", "2", "-t", "6s", "L"];
    servers.iter().for_each(|server| server.await_uptime(7));
    let tokens = [(); 2].map(|()| as_ci(&mut at(&all, &acquire)).out());
    let cut_off = [urls(&servers, &[0, 1]), urls(&servers, &[3, 4])];
    let renew = || {
        for (token, urls) in tokens.iter().zip(&cut_off) {
            let output = as_ci(&mut at(urls, &["renew", "L", token]));
            assert_eq!((output.code(), output.err().as_str()), (0, ""), "{output:?}");
        }
    };
    renew();
    let third = as_ci(&mut at(&all, &[&acquire[..5], &["-n", "L"]].concat()));
    assert_eq!(third.code(), 75, "{third:?}");
    // Those that were away forget their holds, so each is left on three of five.
    for server in [0, 1, 3, 4] {
        let [first, second] = tokens.each_ref().map(String::as_str);
        let lost = if server < 2 { first } else { second };
        assert_eq!(servers[server].cli(&["ZREM", "{rlock:L}?holds", lost]), "1");
    }
    renew();
    let third = as_ci(&mut at(&all, &[&acquire[..5], &["-n", "L"]].concat()));
    assert_eq!(third.code(), 75, "{third:?}");
    let output = as_ci(&mut at(&urls(&servers, &[2]), &["renew", "L", &tokens[0]]));
    assert_eq!(output.code(), 69, "{output:?}");
    assert!(output.err().contains("2 of 5 servers usable, 3 required"), "{output:?}");
    assert_eq!(output.err().matches("has lost the hold").count(), 2 * 2, "{output:?}");
}

#[test]
fn a_wrong_password_on_one_server_does_not_end_a_wait_that_the_others_could_end() {
    let mut servers = servers(4);
    servers.push(Server::on_tcp(&["--requirepass", "secret"]));
    let all = urls(&servers, &[]);
    servers[..4].iter().for_each(|server| server.await_uptime(6));
    let mut first = holder(&urls(&servers[..4], &[]), &["-t", "6s"], "L");
    let enter = ["exec", "--io-timeout", "300ms", "L", "echo", "ENTERED"];
    let mut second = Running::start(&mut at(&all, &enter));
    second.told("waiting");
    // One answer that names the holder would be enough.
    servers[..4].iter().for_each(|server| server.signal("STOP"));
    second.told("still waiting");
    servers[..4].iter().for_each(|server| server.signal("CONT"));
    first.say("");
    first.end();
    second.end().exits(0).prints("ENTERED");
}

#[test]
fn slots_are_numbered_and_need_only_a_majority() {
    let servers = servers(3);
    let all = urls(&servers, &[]);
    servers[1].signal("STOP");
    let first = run(&mut at(&urls(&servers, &[2]), &["acquire", "--slots", "2", "L"]));
    assert_eq!(first.code(), 69, "{first:?}");
    assert!(first.err().contains("1 of 3 servers usable, 2 required"), "{first:?}");
    let script = "echo SLOT ${RLOCK_SLOT-none}; read _ || :";
    let exec = ["exec", "-v", "--slots", "2", "L", "sh", "-c", script];
    let start = || Running::start(at(&all, &exec).env("RLOCK_SLOT", "7"));
    let (mut first, mut second) = (start(), start());
    let mut slots = [first.line(), second.line()];
    if slots[0] == "SLOT 2" {
        std::mem::swap(&mut first, &mut second);
        slots.reverse();
    }
    assert_eq!(slots, ["SLOT 1", "SLOT 2"]);
    let mut third = start();
    third.told("waiting at position 1");
    assert_eq!(run(&mut at(&all, &["exec", "-n", "--slots", "2", "L", "true"])).code(), 75);
    assert_eq!(second.finish().code(), 0);
    assert_eq!(third.line(), "SLOT 2");
    servers[1].signal("CONT");
    let seen = run(&mut at(&all, &["inspect", "--json", "L"])).out();
    assert!(seen.contains(r#""slot":1"#) && seen.contains(r#""slot":2"#), "{seen}");
    assert_eq!(third.finish().code(), 0);
    assert_eq!(first.finish().code(), 0);
    let acquired = run(&mut at(&all, &["acquire", "--json", "--slots", "2", "L"])).out();
    assert!(acquired.contains(r#""slot":1"#), "{acquired}");
}

#[test]
fn of_many_clients_no_two_hold_a_lock_at_once() {
    let servers = servers(3);
    let file = servers[0].directory().join("count");
    fs::write(&file, "0").unwrap();
    let (workers, turns) = (4, 6);
    let start = |_| -> Running {
        let script = "n=$(cat \"$0\"); sleep 0.01; echo $((n + 1)) > \"$0\"";
        let mut shell = Command::new("sh");
        let all = format!(
            "for i in $(seq {turns}); do \"$0\" exec --ttl 2s L sh -c '{script}' \"$1\" || exit; done"
        );
        shell.arg("-c").arg(all).arg(binary()).arg(&file);
        Running::start(shell.env("RLOCK_URL", urls(&servers, &[])))
    };
    let workers_at_once: Vec<Running> = (0..workers).map(start).collect();
    for worker in workers_at_once {
        assert_eq!(worker.end().code(), 0);
    }
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), (workers * turns).to_string());
}

#[test]
fn an_invalid_quorum_is_rejected_with_78_and_a_misconfigured_server_is_reported() {
    for urls in [
        "redis://h redis://h",
        "redis://h local:",
        "redis://h redis+cluster://i",
        "redis://h redis+sentinel://i/svc",
    ] {
        run(rlock(["inspect"]).env("RLOCK_URL", urls)).exits(78);
    }
    let mut servers = servers(2);
    let port = servers[0].port();
    let twice = format!("redis://localhost:{port} redis://127.0.0.1:{port}");
    run(&mut at(&twice, &["exec", "L", "true"])).exits(78).says("are the same server");
    servers.push(Server::on_tcp(&["--requirepass", "secret"]));
    let all = urls(&servers, &[]);
    let output = run(&mut at(&all, &["exec", "L", "sleep", "0.1"])).exits(0);
    assert_eq!(output.err().matches("requires a password").count(), 1, "{output:?}");
    assert!(output.err().contains("continuing without this server"), "{output:?}");
    // The option may also be given several times.
    let given = ["exec", "--url", &servers[0].url(), "--url", &servers[1].url(), "L", "true"];
    assert_eq!(run(rlock(given).env("RLOCK_TTL", TTL)).code(), 0);
}

/// The time of day: whole seconds, and the rest.
fn time_of_day() -> (u64, Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now.as_secs(), Duration::from_nanos(now.subsec_nanos().into()))
}

/// A server subtracts whole seconds. One that starts late in a second counts two of them soon after
/// one has passed, so the test is in vain if the second ends before both have started.
#[test]
fn a_server_that_was_restarted_does_not_vote_a_second_early() {
    let mut servers = servers(3);
    for attempt in 0..10 {
        let lock = format!("L{attempt}");
        servers.iter().for_each(|server| server.await_uptime(2));
        let (_, rest) = time_of_day();
        std::thread::sleep(Duration::from_millis(1_400).saturating_sub(rest));
        let ((second, _), acquired) = (time_of_day(), Instant::now());
        assert_eq!(run(&mut at(&urls(&servers, &[2]), &["acquire", &lock])).code(), 0);
        servers[..2].iter_mut().for_each(Server::kill);
        servers[..2].iter_mut().for_each(Server::start_again);
        if time_of_day().0 > second {
            continue;
        }
        let all = urls(&servers, &[]);
        let exec = ["exec", "-n", &lock, "true"];
        until("it is granted again", || run(&mut at(&all, &exec)).code() == 0);
        let lease = acquired.elapsed();
        assert!(lease >= Duration::from_secs(2), "{lease:?}");
        return;
    }
    panic!("two servers never started within 0.6 s");
}

#[test]
fn a_signal_during_an_acquire_leaves_nothing_on_any_server() {
    let servers = servers(3);
    let far = |server: &Server| Proxy::to(server.port(), Duration::from_millis(100));
    for cold in [true, false] {
        for delay in [50, 150, 250, 350, 450, 550] {
            if cold {
                servers.iter().for_each(|server| drop(server.cli(&["SCRIPT", "FLUSH"])));
            }
            let wires: Vec<Proxy> = servers.iter().map(far).collect();
            let all = wires.iter().map(Proxy::url).collect::<Vec<_>>().join(" ");
            let exec = ["exec", "-n", "L", "sleep", "9"];
            let first = Running::start(&mut at(&all, &exec));
            // The test is about this moment, so it has no event to wait for.
            std::thread::sleep(Duration::from_millis(delay));
            first.signal("TERM");
            let output = first.end();
            assert_eq!(output.status.signal(), Some(15), "{cold} {delay}: {output:?}");
            until("what is under way has arrived", || having(&servers, "L") == 0);
            // It was released, and did not expire.
            for server in &servers {
                let told = server.cli(&["INFO", "stats"]);
                assert!(told.contains("\nexpired_keys:0"), "{cold} {delay}: {told}");
            }
        }
    }
}

#[test]
fn a_release_without_a_majority_is_retried_and_reported() {
    let servers = servers(3);
    let all = urls(&servers, &[]);
    run(&mut at(&all, &["acquire", "-n", "--ttl", "60s", "L"])).exits(69);
    let mut first = holder(&all, &["--io-timeout", "200ms", "-t", "2s"], "L");
    servers[1].signal("STOP");
    servers[2].signal("STOP");
    first.say("");
    first.told("not released yet");
    servers[1].signal("CONT");
    assert_eq!(first.finish().code(), 0);
    assert_eq!(having(&servers[..2], "L"), 0);
    servers[2].signal("CONT");

    let token = run(&mut at(&all, &["acquire", "L"])).out();
    run(&mut at(&urls(&servers, &[1, 2]), &["release", "L", &token]))
        .exits(69)
        .says("1 of 3 servers usable");
}

#[test]
fn a_command_does_not_run_unlocked_while_a_server_names_the_holder() {
    let mut servers = servers(3);
    let mut first = holder(&urls(&servers, &[]), &["-t", "2s"], "L");
    for server in &mut servers[..2] {
        server.kill();
        server.start_again();
    }
    let all = urls(&servers, &[]);
    let unlocked = ["exec", "-n", "--on-unreachable", "run", "L", "echo", "RUNS"];
    run(&mut at(&all, &unlocked)).exits(75).prints("").says("held by");
    first.say("");
    first.end();
    // Servers that answer without a holder.
    run(&mut at(&urls(&servers, &[2]), &unlocked)).exits(69).prints("");
    run(&mut at(&urls(&servers, &[0, 1, 2]), &unlocked)).exits(0).prints("RUNS");
}

#[test]
fn retries_with_a_server_down_do_not_inflate_the_fencing_token() {
    let mut servers = servers(3);
    servers[2].kill();
    let wire = Proxy::to(servers[0].port(), Duration::ZERO);
    let all = format!("{} {} unix:///nowhere", wire.url(), servers[1].url());
    assert_eq!(run(&mut at(&all, &["exec", "L", "true"])).code(), 0);
    // Hours, so that the clock does not reach it.
    for ahead in [3_600_000_000, 7_200_000_000] {
        // So that the fence has to be settled with the other one.
        let before = servers[1].cli(&["HGET", "{rlock:L}?state", "fence"]);
        let fence = before.parse::<u64>().unwrap() + ahead;
        servers[1].cli(&["HSET", "{rlock:L}?state", "fence", &fence.to_string()]);
        let flights = wire.flights();
        wire.hang_up_after(1);
        let acquire =
            Running::start(&mut at(&all, &["exec", "L", "sh", "-c", "echo $RLOCK_FENCE"]));
        until("the fence is being settled", || wire.flights() > flights + 1);
        // The time in which the leaps would grow.
        std::thread::sleep(Duration::from_millis(50));
        wire.hang_up_after(usize::MAX);
        let output = acquire.end().exits(0);
        let settled = output.out().parse::<u64>().unwrap();
        assert!(settled > fence && settled < fence + 60_000, "{fence} {settled}");
    }
}

#[test]
fn one_server_under_several_names_has_one_vote() {
    let servers = servers(2);
    let link = servers[0].directory().join("link");
    std::os::unix::fs::symlink(servers[0].socket(), &link).unwrap();
    let port = servers[0].port();
    for twice in [
        format!("{} unix://{}", servers[0].url(), link.display()),
        format!("redis://localhost:{port} redis://127.0.0.1:{port}"),
    ] {
        run(&mut at(&twice, &["exec", "L", "true"])).exits(78).says("are the same server");
        assert_eq!(servers[0].cli(&["EXISTS", "{rlock:L}?history"]), "0", "it was asked");
    }
    // The addresses do not show that these are the same server.
    let twice = format!("{} {} ", servers[0].url(), servers[0].tcp_url());
    for _ in 0..10 {
        let with_a_dead_one = format!("{twice} unix:///nowhere");
        run(&mut at(&with_a_dead_one, &["exec", "L", "true"]))
            .exits(78)
            .says("are the same server");
        let with_another = twice.clone() + &servers[1].url();
        run(&mut at(&with_another, &["exec", "L", "true"])).exits(0);
    }
}

#[test]
fn a_quorum_that_works_with_a_server_under_two_names_warns_once() {
    let servers = servers(2);
    let urls = servers.iter().flat_map(|server| [server.url(), server.tcp_url()]);
    let urls = urls.take(3).collect::<Vec<_>>().join(" ");
    // A reply that comes too late for the grant arrives while the command runs.
    let output = run(&mut at(&urls, &["exec", "L", "sleep", "1"])).exits(0);
    let warning = "are the same server, which has one vote; list it once";
    assert_eq!(output.err().matches(warning).count(), 1, "{output:?}");
}

#[test]
fn each_skipped_run_counts_once_until_the_next_hold_begins() {
    let servers = servers(3);
    let all = urls(&servers, &[]);
    let lock = || {
        let output = run(&mut at(&all, &["inspect", "--all", "--json"])).out();
        serde_json::from_str::<serde_json::Value>(&output).unwrap()[0].clone()
    };
    let first = holder(&all, &[], "L");
    for limit in [&["-n"][..], &["-n"], &["-w", "200ms"]] {
        assert_eq!(run(&mut at(&all, &[&["exec"], limit, &["L", "true"]].concat())).code(), 75);
    }
    until("all servers have read it", || lock()["skipped"]["count"] == 3);
    first.finish();
    // A server that has lost its data does not hide it.
    servers[0].cli(&["FLUSHALL"]);
    let free = lock();
    assert_eq!((&free["state"], &free["skipped"]["count"]), (&"free".into(), &3.into()));
    assert_eq!(free["history"][0]["outcome"], "exit 0");
    assert_eq!(run(&mut at(&all, &["exec", "L", "true"])).code(), 0);
    assert_eq!(lock()["skipped"]["count"], 0);
}

#[test]
fn a_forced_release_reports_what_the_servers_answer_while_it_waits() {
    let servers = servers(3);
    let all = urls(&servers, &[]);
    // Long enough that the release asks again.
    let script = "trap 'sleep 0.5; exit' TERM; echo READY; while :; do sleep 0.01; done";
    let stuck =
        Running::start(&mut at(&all, &["exec", "L", "bash", "-c", script])).prints_first("READY");
    let output = run(&mut at(&all, &["release", "-v", "--force", "L"])).exits(0);
    let last = format!("{}: now free", servers[0].socket().display());
    assert!(output.err().contains(&last), "{output:?}");
    assert_eq!(stuck.end().code(), 76);
}
