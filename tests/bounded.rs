//! No call keeps a server busy for long. What one call leaves undone, later calls do.

use crate::support::{self, Finished, Server, until};

/// How many may expire together.
const MANY: &str = "20000";

/// Creates shared holds whose leases expire after the given milliseconds, which may be negative.
const HOLDS: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local deadline, token = now + ARGV[2], nil
    local details = decoded('')
    details.mode, details.ttl, details.attempt, details.status = 'shared', 30000, 1, ARGV[3]
    details.acquired, details.renewed, details.about = now, now, 'h\\nu\\n1\\nc\\nexec\\n'
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
    details.since, details.alive, details.about = 1, ARGV[2], 'h\\nu\\n1\\nc\\nexec\\n'
    for i = 1, ARGV[1] do
        local token = string.format('w%07d-of-a-waiter', i)
        details.owner = token
        redis.call('ZADD', KEYS[4], i, token)
        write_details(token, details)
    end
    redis.call('HSET', KEYS[3], 'ticket', ARGV[1], 'generation', 'l')";

fn prepare(server: &Server, script: &str, arguments: &[&str]) {
    let keys = ["rlock:L", "{rlock:L}?holds", "{rlock:L}?state", "{rlock:L}?queue"];
    let script = format!("{}{script}", support::DETAILS);
    server.cli(&[&["EVAL", &script, "4"][..], &keys, arguments].concat());
    // A script that is sent in full takes longer.
    server.run("inspect warm");
    server.run("exec warm true");
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
fn no_call_takes_long_when_many_leases_expire_together() {
    let server = Server::start();
    // No holder is left.
    prepare(&server, HOLDS, &[MANY, "-5", ""]);
    server.run("exec -n L true").exits(0);
    no_call_takes_long(&server);
    assert_eq!(server.cli(&["HLEN", "{rlock:L}?state"]), "2");

    // A client waits.
    prepare(&server, HOLDS, &[MANY, "-5", ""]);
    prepare(&server, WAITERS, &["2", "99999999999999"]);
    server.run("exec -n L true").exits(75);
    no_call_takes_long(&server);
    assert!(server.cli(&["GET", "rlock:L"]).starts_with("w0000001"));
    server.cli(&["FLUSHALL"]);

    // One of them is left.
    prepare(&server, HOLDS, &[MANY, "-5", ""]);
    prepare(&server, &HOLDS.replace("%08d", "1%07d"), &["1", "600000", ""]);
    server.run("exec -n L true").exits(75);
    no_call_takes_long(&server);
    server.run("exec -n -s L true").exits(0);
}

#[test]
fn no_call_takes_long_when_many_waiters_are_dead() {
    let server = Server::start();
    prepare(&server, WAITERS, &[MANY, "5"]);
    server.run("exec -n L true").exits(0);
    no_call_takes_long(&server);
    assert_eq!(server.cli(&["EXISTS", "{rlock:L}?queue"]), "0");
}

#[test]
fn no_call_takes_long_when_many_holds_are_revoked() {
    let server = Server::start();
    // At once, and holds that are kept after their release too.
    for (release, status) in [("release --force --now L", ""), ("release --force L", "cooling")] {
        prepare(&server, HOLDS, &[MANY, "600000", status]);
        server.run(release).exits(0);
        no_call_takes_long(&server);
        assert!(server.is_free("L"));
    }

    // When the holders are asked to release, by one mark.
    prepare(&server, HOLDS, &[MANY, "600000", ""]);
    let force = support::Running::start(&mut server.rlock(["release", "--force", "L"]));
    until("they are revoked", || server.inspect("L")["state"] == "revoked");
    no_call_takes_long(&server);
    let renew = "renew L 00000001-0000-4000-8000-000000000000";
    server.run(renew).exits(77).says("was revoked by");
    server.run("exec -n L true").exits(75);
    force.signal("TERM");
    force.end();

    // When a user deletes the key, or another tool overwrites it.
    for (change, told) in
        [(&["DEL", "rlock:L"][..], "was deleted"), (&["SET", "rlock:L", "x"], "was overwritten")]
    {
        server.cli(&["FLUSHALL"]);
        prepare(&server, HOLDS, &[MANY, "600000", ""]);
        server.cli(change);
        server.run("exec -n L true").exits(75);
        server.run(renew).says(told);
        no_call_takes_long(&server);
    }
}

#[test]
fn no_call_takes_long_when_many_slots_are_taken() {
    let server = Server::start();
    let one = HOLDS.replace("'shared'", "'slots:60000'");
    let holds =
        one.replace("details.fence = token, i", "details.fence, details.slot = token, i, i");
    let holds = holds + "\nredis.call('HSET', KEYS[3], 'slots', string.rep('\\255', ARGV[1] / 8))";
    let newcomer = || server.exec_script("-n --slots 60000 L", "echo $RLOCK_SLOT");
    prepare(&server, &holds, &[MANY, "600000", ""]);
    newcomer().prints("20001");
    no_call_takes_long(&server);
    server.run("release --force --now L").exits(0);
    no_call_takes_long(&server);

    // All but one expire.
    prepare(&server, &holds, &[MANY, "-5", ""]);
    prepare(&server, &one.replace("%08d", "1%07d"), &["1", "600000", ""]);
    newcomer().prints("1");
    no_call_takes_long(&server);
}

#[test]
fn many_holders_and_waiters_are_shown_page_by_page() {
    let server = Server::start();
    prepare(&server, HOLDS, &[MANY, "600000", ""]);
    prepare(&server, WAITERS, &[MANY, "99999999999999"]);
    let seen = server.inspect("L");
    assert_eq!(seen["holders"].as_array().unwrap().len(), 1_000);
    assert_eq!(seen["waiters"].as_array().unwrap().len(), 1_000);
    no_call_takes_long(&server);
    server.run("inspect").shows(" 20000 holders: ");
    no_call_takes_long(&server);
}

#[test]
fn no_call_takes_long_when_one_of_many_holds_or_waiters_is_removed() {
    let server = Server::start();
    prepare(&server, HOLDS, &[MANY, "60000", ""]);
    for (id, status) in [("00010000", 0), ("w0010000", 0), ("ffffffff", 77)] {
        if id.starts_with('w') {
            prepare(&server, WAITERS, &[MANY, "9000000000000"]);
        }
        server.run(&format!("release --force --now --id {id} L")).exits(status);
        no_call_takes_long(&server);
    }
}
