//! No call keeps a server busy for long. What one call leaves undone, later calls do.

use crate::support::{self, *};

/// How many may expire together.
const MANY: &str = "20000";

/// Creates shared holds whose leases expire after the given milliseconds, which may be negative.
const HOLDS: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local deadline, token = now + ARGV[2], nil
    local details = decoded('')
    details.mode, details.ttl, details.attempt, details.status = 'shared', 30000, 1, ARGV[3]
    details.acquired, details.renewed, details.about = now, now, '\\nkind exec\\nhost h\\nuser u\\npid 1\\ncommand c'
    for i = 1, ARGV[1] do
        token = string.format('%08d-0000-4000-8000-000000000000', i)
        details.owner, details.fence = token, i
        redis.call('ZADD', KEYS[2], deadline, token)
        write_details(token, details)
    end
    redis.call('HSET', KEYS[3], 'guard', token, 'mode', 'shared', 'fence', ARGV[1], 'generation', 'l')
    if deadline > now then redis.call('SET', KEYS[1], token, 'PXAT', deadline) end";

/// Creates waiters that count as alive until the given time.
const WAITERS: &str = "
    local details = decoded('')
    details.mode, details.ttl, details.attempt = 'exclusive', 30000, 1
    details.since, details.alive, details.about = 1, ARGV[2], '\\nkind exec\\nhost h\\nuser u\\npid 1\\ncommand c'
    for i = 1, ARGV[1] do
        local token = string.format('w%07d-of-a-waiter', i)
        details.owner = token
        redis.call('ZADD', KEYS[4], i, token)
        write_details(token, details)
    end
    redis.call('HSET', KEYS[3], 'ticket', ARGV[1], 'generation', 'l')";

/// Until when waiters count as alive.
const LATER: &str = "99999999999999";

/// A script that is sent in full takes longer.
fn server() -> Server {
    let server = Server::start();
    server.learns_the_scripts();
    server
}

fn prepare(server: &Server, script: &str, arguments: &[&str]) {
    let [holds, state, queue] = ["holds", "state", "queue"].map(|what| side_key("L", what));
    let keys = ["rlock:L", &holds, &state, &queue];
    let script = format!("{}{script}", support::DETAILS);
    server.cli(&[&["EVAL", &script, "4"][..], &keys, arguments].concat());
    server.cli(&["CONFIG", "RESETSTAT"]);
}

/// Touches each entry once: the least that a call would cost if it did all the work.
const TOUCH_EACH: &str = "
    for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], i, i) end
    redis.call('UNLINK', KEYS[1])";

/// Compares the mean of each script's calls with a call that touches every entry, on the same
/// server at the same moment, so that the speed of the machine does not matter.
#[track_caller]
fn no_call_takes_long(server: &Server) {
    let calls = times(server, "cmdstat_evalsha");
    server.cli(&["CONFIG", "RESETSTAT"]);
    server.cli(&["EVAL", TOUCH_EACH, "1", "{rlock:reference}", MANY]);
    let (_, touch_each) = times(server, "cmdstat_eval:")[0];
    assert!(!calls.is_empty(), "no script ran");
    for (number, mean) in calls {
        assert!(
            mean < touch_each / 2.0,
            "{number} calls, {mean} us each; a call that touches each entry: {touch_each} us"
        );
    }
}

/// How often each command of this name was called, and the mean time of a call in microseconds.
fn times(server: &Server, name: &str) -> Vec<(f64, f64)> {
    let statistics = server.cli(&["INFO", "commandstats"]);
    let field = |line: &str, name| {
        let (_, rest) = line.split_once(name).unwrap();
        rest.split(',').next().unwrap().trim().parse::<f64>().unwrap()
    };
    let named = statistics.lines().filter(|line| line.starts_with(name));
    named.map(|line| (field(line, "calls="), field(line, "usec_per_call="))).collect()
}

#[test]
fn no_call_takes_long_when_many_holds_or_waiters_end_together() {
    let server = server();
    let one_more = HOLDS.replace("%08d", "1%07d");
    let expired = (HOLDS, [MANY, "-5", ""]);
    let held = (HOLDS, [MANY, "600000", ""]);
    let one_left = (&*one_more, ["1", "600000", ""]);
    let [dead, waiting] = [("5", MANY), (LATER, "2")].map(|it| (WAITERS, [it.1, it.0, ""]));
    // What is stored, a command, its status, and what is stored after it.
    for (stored, line, status, question, answer) in [
        (&[expired][..], "exec -n L true", 0, &*format!("HLEN {}", side_key("L", "state")), "2"),
        (&[expired, waiting], "exec -n L true", 75, "GETRANGE rlock:L 0 7", "w0000001"),
        (&[expired, one_left], "exec -n L true", 75, "GETRANGE rlock:L 0 7", "10000001"),
        (&[dead], "exec -n L true", 0, &*format!("EXISTS {}", side_key("L", "queue")), "0"),
        (&[held], "release --force --now L", 0, "EXISTS rlock:L", "0"),
        (&[(HOLDS, [MANY, "600000", "cooling"])], "release --force L", 0, "EXISTS rlock:L", "0"),
    ] {
        server.cli(&["FLUSHALL"]);
        for (script, arguments) in stored {
            prepare(&server, script, arguments);
        }
        server.run(line).exits(status);
        no_call_takes_long(&server);
        assert_eq!(server.cli(&question.split(' ').collect::<Vec<_>>()), answer, "{line}");
    }
}

#[test]
fn no_call_takes_long_when_many_holders_are_to_learn_of_a_loss() {
    let server = server();
    let refused = |told: &str| {
        server.run("exec -n L true").exits(75);
        server.run("renew L 00000001-0000-4000-8000-000000000000").exits(77).says(told);
        no_call_takes_long(&server);
        server.cli(&["FLUSHALL"]);
    };
    let held = || prepare(&server, HOLDS, &[MANY, "600000", ""]);
    // They are asked to release, by one mark.
    held();
    let force = server.starts("release --force", "L").tells("waiting up to ");
    refused("was revoked by");
    force.signal("TERM");
    // A user deletes the key, or another tool overwrites it.
    for (change, told) in [("DEL rlock:L", "was deleted"), ("SET rlock:L x", "was overwritten")] {
        held();
        server.cli(&change.split(' ').collect::<Vec<_>>());
        refused(told);
    }
}

#[test]
fn no_call_takes_long_when_many_slots_are_taken() {
    let server = server();
    let one = HOLDS.replace("'shared'", "'slots:60000'");
    let holds =
        one.replace("details.fence = token, i", "details.fence, details.slot = token, i, i");
    let holds = holds + "\nredis.call('HSET', KEYS[3], 'slots', string.rep('\\255', ARGV[1] / 8))";
    // The second time, all but one expire.
    for (left, slot) in [("600000", "20001"), ("-5", "1")] {
        server.cli(&["FLUSHALL"]);
        prepare(&server, &holds, &[MANY, left, ""]);
        prepare(&server, &one.replace("%08d", "1%07d"), &["1", "600000", ""]);
        server.run("exec -n --slots 60000 L printenv RLOCK_SLOT").exits(0).prints(slot);
        no_call_takes_long(&server);
    }
}

#[test]
fn many_holders_and_waiters_are_shown_page_by_page() {
    let server = server();
    prepare(&server, HOLDS, &[MANY, "600000", ""]);
    prepare(&server, WAITERS, &[MANY, LATER]);
    let seen = server.inspect("L");
    assert_eq!(seen["holders"].as_array().unwrap().len(), 1_000);
    assert_eq!(seen["waiters"].as_array().unwrap().len(), 1_000);
    server.run("inspect").shows(" 20000 holders: ");
    no_call_takes_long(&server);
    // One of them is removed.
    for (id, status) in [("00010000", 0), ("w0010000", 0), ("ffffffff", 77)] {
        server.run(&format!("release --force --now --id {id} L")).exits(status);
        no_call_takes_long(&server);
    }
}

/// A variable has less than 128 KiB.
#[test]
fn no_text_that_a_client_sends_keeps_a_server_busy() {
    let server = server();
    let unknown = (0..2_700).map(|it| format!("rlock:L={it:08}-0000-4000-8000-000000000000 "));
    let unknown: String = unknown.collect();
    for piece in ["x", " ", "\n", "\t", "=", "\u{e4}", "rlock:L=", "details:"] {
        let long = piece.repeat(100_000 / piece.len()) + "\t";
        let token = acquire(&server, &["--shared", "--owner", &"x".repeat(200)], "L");
        let held = [format!("rlock:L={long}"), format!("{unknown}rlock:L={token}")];
        for line in [
            "exec -n --shared --reentrant L true",
            "exec -w 100ms --supersede M true",
            "acquire -w 100ms --next --reentrant L",
            &format!("renew L {token}"),
            "inspect L",
            "release --force --id ffffffff L --reason",
            &format!("release --force --now --id {} L --reason", &token[..8]),
        ] {
            let reason = line.ends_with("--reason").then_some(&*long);
            for held in &held {
                // A server that loses its processor meanwhile takes longer, but not each time.
                let is_short = (0..5).any(|_| {
                    server.cli(&["CONFIG", "RESETSTAT"]);
                    let mut command = server.rlock(line.split(' ').chain(reason));
                    command.env("RLOCK_HELD", held).env("RLOCK_LABEL", &long).env("USER", &long);
                    assert!([0, 75, 77].contains(&run(&mut command).code()), "{line}");
                    let calls = times(&server, "cmdstat_eval").into_iter();
                    calls.map(|(calls, mean)| calls * mean).sum::<f64>() < 5_000.0
                });
                assert!(is_short, "{line} takes more than 5 ms with {piece:?}");
            }
        }
    }
}

#[test]
fn scores_that_another_client_wrote_hold_nobody_up() {
    let server = server();
    for (number, score) in
        (0..).zip(["inf", "-inf", "1e300", "-1e300", "9e15", "4000000000000.5", "-0.5"])
    {
        let name = format!("L{number}");
        let key = |what: &str| side_key(&name, what);
        let write = |what: &str, member: &str| server.cli(&["ZADD", &key(what), score, member]);
        // Of a holder that has ended, a waiter, and marks.
        write("holds", &acquire(&server, &["--ttl", "1s"], &name));
        let patient = support::waiter(&server, &["--ttl", "1s"], &name, "; read _ || :");
        write("queue", &server.waiters_token(&name));
        let marks = "for i = 1, 1000 do redis.call('ZADD', KEYS[1], ARGV[1], i) end";
        server.cli(&["EVAL", marks, "1", &key("tombstones"), score]);
        let mut patient = patient.prints_first("ENTERED");
        // Of a holder that renews.
        let holds = key("holds");
        let token = server.cli(&["ZRANGE", &holds, "0", "0"]);
        write("holds", &token);
        patient.say("");
        // A score in the past ends the lease.
        assert!([0, 76].contains(&patient.finish().code()), "{score}");
        let marks = server.cli_number(&["ZCOUNT", &key("tombstones"), "1e12", "1e14"]);
        assert!(marks > 0, "{score}: {marks}");
        // Until the guard, which has its own expiry.
        server.run(&format!("exec -w 9 {name} true")).exits(0);
        server.run(&format!("inspect {name}")).exits(1);
    }
}
