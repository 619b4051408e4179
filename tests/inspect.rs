//! inspect shows the holders and waiters of a lock to people and to programs.

use std::process::Command;

use crate::support::{
    self, Finished, Running, Server, acquire, binary, holder, run, state_file, waiter,
};
use serde_json::Value;

fn names(document: &Value) -> Vec<&str> {
    document.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

fn json(server: &Server, arguments: &[&str]) -> Value {
    let output = run(&mut server.rlock(["inspect", "--json"].iter().chain(arguments)));
    serde_json::from_str(&output.out()).unwrap()
}

#[test]
fn inspect_shows_the_holder_and_the_queue() {
    let server = Server::start();
    let script = "echo $RLOCK_TOKEN; read _ || :";
    let exec = ["exec", "--label", "job/17", "deploy:prod", "sh", "-c", script];
    let mut first = Running::start(&mut server.rlock(exec));
    let token = first.line();
    let second = waiter(&server, &["--label", "job/18"], "deploy:prod", "");
    let third = waiter(&server, &[], "deploy:prod", "");

    let output = server.run("inspect deploy:prod").exits(0);
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
fn inspecting_a_free_lock_exits_with_1_and_prints_one_object() {
    let server = Server::start();
    server.run("inspect L").exits(1).prints("L: free");
    let output = server.run("inspect --json L").exits(1);
    let document: Value = serde_json::from_str(&output.out()).unwrap();
    let wanted = serde_json::json!([{
        "name": "L", "key": "rlock:L", "state": "free", "mode": null, "slots": null, "fence": null,
        "ttl_ms": null, "holders": [], "waiters": [], "history": [],
        "attention": [], "skipped": {"count": 0, "last_at": null, "last_by": null},
    }]);
    assert_eq!(document, wanted);
    // It keeps its fencing token and its history.
    server.run("exec L true").exits(0);
    let free = server.inspect("L");
    assert_eq!(free["state"], "free");
    assert_eq!(free["fence"], free["history"][0]["fence"]);
    assert_eq!(free["history"][0]["command"], "true");
    assert_eq!(json(&server, &[]), Value::Array(vec![]));
}

#[test]
fn all_locks_are_listed_in_order_and_only_under_the_prefix() {
    let server = Server::start();
    server.run("inspect").exits(0);
    assert_eq!(json(&server, &[]), Value::Array(vec![]));
    for name in ["b", "c", "a"] {
        acquire(&server, &[], name);
    }
    acquire(&server, &["--prefix", "other:"], "d");
    assert_eq!(names(&json(&server, &[])), ["a", "b", "c"]);
    assert_eq!(names(&json(&server, &["--prefix", "other:"])), ["d"]);
    let table = server.run("inspect").out();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 5, "{table}");
    assert!(rows[0].starts_with("NAME") && rows[1].starts_with("a "), "{table}");
    assert!(rows[3].starts_with("c "), "{table}");
    assert_eq!(rows[4], "3 locks");
}

#[test]
fn another_tools_locks_are_listed_and_other_keys_are_not() {
    let server = Server::start();
    acquire(&server, &[], "ours");
    server.cli(&["SET", "unrelated", "1"]);
    server.cli(&["SET", "rlock:theirs", r"\xff\xfe"]);
    // redis-cli cannot send this as an argument.
    server.cli(&["EVAL", "redis.call('SET', KEYS[1], '\\255\\254')", "1", "rlock:theirs"]);
    let document = json(&server, &[]);
    // Nothing but an operator ends a lock without an expiry.
    assert_eq!(names(&document), ["theirs", "ours"]);
    assert_eq!(document[0]["state"], "foreign");
    assert_eq!(document[0]["ttl_ms"], Value::Null);
    let table = server.run("inspect").out();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert!(rows[1].starts_with("theirs") && rows[1].contains("another tool"), "{table}");
    assert_eq!(rows[3], "2 locks; 1 needs attention");
}

#[test]
fn a_lock_shows_how_its_last_holds_ended() {
    let server = Server::start();
    let go = |arguments: &[&str]| run(&mut server.rlock(arguments));
    assert_eq!(go(&["exec", "--label", "job/1", "L", "sh", "-c", "exit 3"]).code(), 3);
    go(&["exec", "L", "sh", "-c", "kill -9 $$"]);
    assert_eq!(go(&["exec", "L", "no-such-command"]).code(), 127);
    acquire(&server, &["--ttl", "2s"], "L");
    assert_eq!(go(&["exec", "L", "true"]).code(), 0);
    acquire(&server, &[], "L");
    assert_eq!(go(&["release", "--force", "--now", "L"]).code(), 0);
    let token = acquire(&server, &[], "L");

    let document = json(&server, &["L"]);
    let history = document[0]["history"].as_array().unwrap();
    let told: Vec<String> = history
        .iter()
        .map(|past| format!("{} {}", past["ended"].as_str().unwrap(), past["outcome"]))
        .collect();
    assert_eq!(
        told,
        [
            "revoked null",
            "released \"exit 0\"",
            "expired null",
            "released \"exit 127\"",
            "released \"signal 9\"",
            "released \"exit 3\"",
        ]
    );
    assert!(history[0]["by"].as_str().unwrap().contains('@'), "{history:?}");
    // The man page explains each field.
    let page = include_str!("../man/rlock-inspect.1");
    let fields = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let lock = &document[0];
    let all = [lock, &lock["holders"][0], &history[0]].map(fields).concat();
    for field in all.into_iter().chain(fields(&lock["skipped"])) {
        assert!(page.contains(&field), "{field} is not in rlock-inspect(1)");
    }
    assert_eq!((&history[5]["command"], &history[5]["label"]), (&"sh".into(), &"job/1".into()));
    assert!(history[5]["fence"].as_u64() < history[4]["fence"].as_u64());
    assert!((100..5_000).contains(&history[2]["held_ms"].as_u64().unwrap()));
    assert_eq!(go(&["release", "L", &token]).code(), 0);

    // It is also shown for a free lock.
    let page = go(&["inspect", "L"]);
    assert_eq!(page.code(), 1);
    let page = page.out();
    assert!(page.starts_with("L: free\n  history  "), "{page}");
    for part in ["(sh) for ", ", exit 3, job/1", ", signal 9", "expired, held by", ", revoked by "]
    {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    // An end that no client has recorded yet is shown too.
    acquire(&server, &["--ttl", "2s"], "L");
    support::until("it has expired", || server.is_free("L"));
    assert!(go(&["inspect", "L"]).out().lines().nth(1).unwrap().contains("expired"));
    // The history has a limit. Ordinary holds leave the others in it.
    for _ in 0..20 {
        go(&["exec", "L", "true"]);
    }
    let history = server.inspect("L")["history"].clone();
    let told = history
        .as_array()
        .unwrap()
        .iter()
        .map(|past| format!("{} {}", past["ended"].as_str().unwrap(), past["outcome"]));
    let told: Vec<String> = told.filter(|past| past != "released \"exit 0\"").collect();
    let failed = ["released \"exit 127\"", "released \"signal 9\"", "released \"exit 3\""];
    assert_eq!(told, [&["expired null", "revoked null", "expired null"][..], &failed].concat());
    assert_eq!(history.as_array().unwrap().len(), 16);
}

#[test]
fn all_shows_when_a_free_lock_last_ran_and_how_often_it_was_skipped_since() {
    let server = Server::start();
    let go = |arguments: &[&str]| run(&mut server.rlock(arguments));
    for prefix in ["rlock:", "{app}:", "x"] {
        let all = |more: &[&str]| json(&server, &[&["--all", "--prefix", prefix], more].concat());
        let nightly = || {
            let found = all(&["night*"]);
            assert_eq!(names(&found), ["nightly"]);
            found[0].clone()
        };
        let options = ["--prefix", prefix, "--label", "job/1"];
        acquire(&server, &["--prefix", prefix], "held");
        let first = holder(&server, &options, "nightly");
        for limit in [&["-n"][..], &["-n"], &["-w", "100ms"]] {
            let skipped = [&["exec", "--prefix", prefix], limit, &["nightly", "true"]].concat();
            assert_eq!(go(&skipped).code(), 75);
        }
        // A waiter that is stopped is not turned away.
        let stopped = waiter(&server, &options[..2], "nightly", "");
        stopped.signal("TERM");
        stopped.end();
        assert_eq!(nightly()["skipped"]["count"], 3);
        first.finish();
        let lock = nightly();
        assert_eq!((&lock["state"], &lock["skipped"]["count"]), (&"free".into(), &3.into()));
        assert_eq!(lock["history"][0]["outcome"], "exit 0");
        let by = lock["skipped"]["last_by"].as_str().unwrap();
        assert!(by.contains('@') && by.ends_with(" (true)"), "{lock}");
        assert!(lock["skipped"]["last_at"].as_str() > lock["history"][0]["acquired_at"].as_str());
        assert_eq!(names(&all(&[])), ["held", "nightly"]);
        assert_eq!(names(&json(&server, &["--prefix", prefix])), ["held"]);

        let table = go(&["inspect", "-a", "--prefix", prefix]).out();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[2].starts_with("nightly  free for ") && rows[2].ends_with("job/1"), "{table}");
        assert!(rows[2].contains(", exit 0: ") && rows[2].contains(" (sh)  "), "{table}");
        assert!(rows[2].contains("  3 times, last ") && !rows[2].contains("expiry"), "{table}");
        assert_eq!(rows[3], "2 locks");
        let listed = go(&["inspect", "-a", "--names", "--prefix", prefix]);
        assert_eq!(listed.out(), "held\nnightly");
        let page = go(&["inspect", "--prefix", prefix, "nightly"]).out();
        assert!(page.contains("\n  skipped  3 times, last ") && page.contains("(true)"), "{page}");
        let check = go(&["inspect", "-a", "--attention", "--prefix", prefix]);
        assert_eq!((check.code(), check.out()), (0, String::new()));

        // The next hold starts anew, even if nothing records its end.
        acquire(&server, &["--prefix", prefix, "--ttl", "100ms"], "nightly");
        support::until("it has expired", || nightly()["state"] == "free");
        let lock = nightly();
        let none = serde_json::json!({"count": 0, "last_at": null, "last_by": null});
        assert_eq!((&lock["skipped"], &lock["history"][0]["ended"]), (&none, &"expired".into()));
    }
}

#[test]
fn a_skipped_run_costs_one_request_and_leaves_nothing_that_does_not_expire() {
    let server = Server::start();
    let busy = || server.run("exec -n L true").code();
    server.cli(&["SET", "rlock:L", "theirs"]);
    assert_eq!(busy(), 75);
    server.cli(&["CONFIG", "RESETSTAT"]);
    assert_eq!(busy(), 75);
    assert_eq!(server.calls_of("evalsha"), 1);
    let left: u64 = server.cli(&["PTTL", "{rlock:L}?state"]).parse().unwrap();
    assert!(left > 80_000_000, "{left}");
    assert_eq!(server.inspect("L")["skipped"]["count"], 2);
    // Without memory to record it, the client still learns that the lock is busy.
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(busy(), 75);
    assert_eq!(server.inspect("L")["skipped"]["count"], 2);
}

#[test]
fn a_hold_tells_how_long_it_waited_for_its_grant() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    assert_eq!(server.inspect("L")["holders"][0]["waited_ms"], 0);
    let script = ["exec", "L", "sh", "-c", support::READY];
    let mut second = Running::start(&mut server.rlock(script));
    second.told("waiting at position");
    let waiting = || server.inspect("L")["waiters"][0]["waiting_ms"].as_u64().unwrap();
    support::until("it has waited", || waiting() >= 200);
    first.finish();
    assert_eq!(second.line(), "READY");
    let waited = server.inspect("L")["holders"][0]["waited_ms"].as_u64().unwrap();
    assert!(waited >= 200, "{waited}");
    assert_eq!(json(&server, &[])[0]["holders"][0]["waited_ms"], waited);
    second.finish();
    let token = acquire(&server, &[], "L");
    let history = server.inspect("L")["history"].clone();
    let of = |number: usize| history[number]["waited_ms"].clone();
    assert_eq!((of(0), of(1)), (waited.into(), 0.into()), "{history}");
    assert_eq!(run(&mut server.rlock(["release", "L", &token])).code(), 0);
}

#[test]
fn a_hold_of_an_earlier_version_does_not_tell_how_long_it_waited() {
    let server = Server::start();
    server.run("exec L true").exits(0);
    let forget = "
        local entry = redis.call('RPOP', KEYS[1]):gsub('\\n(%d+) %d+\\n', '\\n%1\\n')
        redis.call('RPUSH', KEYS[1], entry)";
    server.cli(&["EVAL", forget, "1", "{rlock:L}?history"]);
    acquire(&server, &[], "L");
    let past = &server.inspect("L")["history"][0];
    assert_eq!(past["waited_ms"], Value::Null);
    assert!(past["acquired_at"].as_str().unwrap().starts_with("20"), "{past}");
    assert!(past["fence"].as_u64().unwrap() > 1_700_000_000_000, "{past}");
    assert_eq!(past["command"], "true");
}

#[test]
fn a_list_shows_each_lock_as_inspect_name_does() {
    let server = Server::start();
    acquire(&server, &["--label", "job/1", "--at-least", "1h"], "exclusive");
    acquire(&server, &["--shared"], "shared");
    acquire(&server, &["--shared", "--owner", "me"], "shared");
    acquire(&server, &["--slots", "3"], "slots");
    let token = acquire(&server, &["--at-least", "1h"], "cooling");
    assert_eq!(run(&mut server.rlock(["release", "cooling", &token])).code(), 0);
    let mut first = holder(&server, &[], "waited-for");
    let second = waiter(&server, &[], "waited-for", "");
    if !server.is_local() {
        server.cli(&["SET", "rlock:foreign", "1", "PX", "60000"]);
        acquire(&server, &[], "deleted");
        server.cli(&["DEL", "rlock:deleted"]);
        server.run("acquire -n deleted").exits(75);
    }
    let list = json(&server, &[]);
    for lock in list.as_array().unwrap() {
        let name = lock["name"].as_str().unwrap();
        let mut alone = json(&server, &[name])[0].clone();
        alone.as_object_mut().unwrap().remove("history");
        // Times that differ between two commands.
        let timeless = |lock: &Value| {
            let mut text = lock.to_string();
            for passing in ["\"ttl_ms\":", "\"waiting_ms\":"] {
                let parts: Vec<&str> = text.split(passing).collect();
                let cut =
                    |part: &&str| part.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
                text = parts.iter().map(cut).collect::<Vec<_>>().join(passing);
            }
            text
        };
        assert_eq!(timeless(lock), timeless(&alone), "{name}");
    }
    assert!(list.as_array().unwrap().len() >= 5);
    first.say("");
    first.finish();
    second.finish();
}

#[test]
fn thousands_are_listed_completely() {
    let server = Server::start();
    let fill = "for i = 1, 3000 do redis.call('SET', 'rlock:n' .. i, 'x') end";
    server.cli(&["EVAL", fill, "0"]);
    acquire(&server, &[], "ours");
    let list = json(&server, &[]);
    assert_eq!(list.as_array().unwrap().len(), 3001);
    assert_eq!(list[3000]["name"], "ours");
    assert!(names(&list).is_sorted());
}

#[test]
fn what_needs_attention_comes_first_and_says_why() {
    let server = Server::start();
    acquire(&server, &[], "a");
    // Nothing runs under this lock any more.
    server.run("exec --at-least 1m A true").exits(0);
    let mut dead = holder(&server, &["--ttl", "60s"], "b");
    let pid = dead.pid();
    dead.signal("KILL");
    dead.process.wait().unwrap();
    let mut stopped = holder(&server, &["--ttl", "3s"], "c");
    stopped.signal("STOP");
    let table = || server.run("inspect").out();
    support::until("nobody has renewed it", || table().contains("not renewed for"));
    let table = table();
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].ends_with("ATTENTION"), "{table}");
    assert!(rows[1].starts_with("b ") && rows[1].ends_with("process not found"), "{table}");
    assert!(rows[2].starts_with("c ") && rows[2].contains("not renewed for"), "{table}");
    assert!(rows[3].starts_with("a "), "{table}");
    assert!(rows[4].starts_with("A ") && rows[4].contains("released by"), "{table}");
    assert_eq!(rows[5], "4 locks; 2 need attention");
    let page = server.run("inspect b").out();
    assert!(page.contains(&format!("process {pid} not found on this host")), "{page}");
    assert!(page.contains("rlock release --force --now b"), "{page}");
    stopped.signal("CONT");
    stopped.say("");
    stopped.end();
}

#[test]
fn a_monitoring_check_fails_only_if_a_lock_needs_attention() {
    let server = Server::start();
    let check = |arguments: &[&str]| {
        let output =
            run(&mut server.rlock(["inspect", "--attention"].iter().chain(arguments).copied()));
        assert_eq!(output.err(), "", "{arguments:?}");
        (output.code(), output.out())
    };
    let none = (0, String::new());
    assert_eq!(check(&[]), none);
    let alive = holder(&server, &[], "alive");
    for nothing in [&[][..], &["alive"], &["free"], &["a*"]] {
        assert_eq!(check(nothing), none, "{nothing:?}");
    }
    assert_eq!(check(&["--json"]), (0, "[]".into()));
    let mut dead = holder(&server, &["--ttl", "60s"], "dead");
    dead.signal("KILL");
    dead.process.wait().unwrap();
    let (code, table) = check(&[]);
    assert_eq!(code, 1);
    assert!(table.contains("\ndead ") && !table.contains("alive"), "{table}");
    let (code, page) = check(&["dead"]);
    assert!(code == 1 && page.contains("  warning  process "), "{page}");
    assert_eq!(check(&["--names"]), (1, "dead".into()));
    let (code, document) = check(&["--json"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((code, names(&document)), (1, vec!["dead"]));
    for nothing in [&["alive"][..], &["a*"]] {
        assert_eq!(check(nothing), none, "{nothing:?}");
    }
    alive.finish();
}

#[test]
fn a_lock_that_cannot_be_read_needs_attention() {
    let server = Server::start();
    acquire(&server, &[], "good");
    acquire(&server, &[], "bad");
    server.spoil("bad");
    let output = server.run("inspect --attention");
    assert_eq!((output.code(), output.out()), (1, String::new()));
    assert!(output.err().contains("bad: "), "{output:?}");
    let output = server.run("inspect --attention good");
    assert_eq!((output.code(), output.out()), (0, String::new()));
}

#[test]
fn the_attention_check_fails_if_the_server_is_unreachable() {
    let mut server = Server::start();
    server.kill();
    server.run("inspect --attention").exits(69);
}

#[test]
fn a_list_is_in_the_order_asked_for() {
    let server = Server::start();
    let oldest = holder(&server, &[], "m");
    let middle = holder(&server, &["--ttl", "1h"], "a");
    let newest = holder(&server, &["--ttl", "60s"], "z");
    let waiters = [waiter(&server, &[], "m", ""), waiter(&server, &[], "z", "")];
    let more = waiter(&server, &[], "z", "");
    let sorted = |order: &[&str]| names(&json(&server, order)).join(" ");
    assert_eq!(sorted(&[]), "a m z");
    assert_eq!(sorted(&["--sort", "name"]), "a m z");
    assert_eq!(sorted(&["--sort", "age"]), "m a z");
    assert_eq!(sorted(&["--sort", "waiting"]), "z m a");
    assert_eq!(sorted(&["--sort", "lease"]), "m z a");
    let table = server.run("inspect --sort age").out();
    let column = table.lines().map(|row| row.split(' ').next().unwrap()).collect::<Vec<_>>();
    assert_eq!(column[..4], ["NAME", "m", "a", "z"], "{table}");
    server.run("inspect --sort size").exits(64);
    for held in [oldest, middle, newest] {
        held.finish();
    }
    for waiting in waiters.into_iter().chain([more]) {
        waiting.finish();
    }
}

#[test]
fn a_lock_of_another_tool_is_sorted_by_what_is_known_of_it() {
    let server = Server::start();
    server.cli(&["SET", "rlock:foreign", "1", "PX", "600000"]);
    acquire(&server, &["--ttl", "60s"], "short");
    acquire(&server, &["--ttl", "1h"], "long");
    server.cli(&["SET", "rlock:eternal", "1"]);
    let sorted = |order: &str| names(&json(&server, &["--sort", order])).join(" ");
    assert_eq!(sorted("age"), "short long eternal foreign");
    assert_eq!(sorted("lease"), "short foreign long eternal");
    let old = json(&server, &["--older-than", "0"]);
    assert!(!names(&old).contains(&"foreign"), "{old}");
}

#[test]
fn only_locks_that_have_been_held_for_long_are_listed() {
    let server = Server::start();
    acquire(&server, &["--shared"], "L");
    let older = |limit: &str, arguments: &[&str]| {
        let options = ["inspect", "--older-than", limit];
        let output = run(&mut server.rlock(options.iter().chain(arguments)));
        (output.code(), output.out())
    };
    support::until("it is old", || older("200ms", &["--names"]).1 == "L");
    // The age of a lock is that of its oldest holder.
    acquire(&server, &["--shared"], "L");
    assert_eq!(older("200ms", &["--names"]), (0, "L".into()));
    assert_eq!(older("1h", &["--names"]), (0, String::new()));
    assert_eq!(older("1h", &["--json"]), (0, "[]".into()));
    // Of one lock, only a check could tell it from a free one.
    for limit in ["200ms", "1h"] {
        assert_eq!(older(limit, &["L"]), (64, String::new()));
    }
    assert_eq!(older("200ms", &["L", "--attention", "--names"]), (1, "L".into()));
    assert_eq!(older("1h", &["L", "--attention"]), (0, String::new()));
    // A pager is told of a hung holder and of a dead one by one check.
    let mut dead = holder(&server, &["--ttl", "60s"], "dead");
    dead.signal("KILL");
    dead.process.wait().unwrap();
    server.run("exec --at-least 1h cooling sleep 0.3").exits(0);
    let (code, table) = older("200ms", &["--attention"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(code == 1 && rows[1].contains("held for longer than 200ms"), "{table}");
    assert!(rows[2].starts_with("dead ") && rows[2].contains("process not found"), "{table}");
    assert_eq!(rows[3..], ["2 locks; 2 need attention"], "{table}");
    let (_, page) = older("200ms", &["--attention", "L"]);
    assert!(page.contains("  warning  held for longer than 200ms, for "), "{page}");
    assert!(page.contains("  kind     acquire, nothing renews it"), "{page}");
    let (_, document) = older("200ms", &["--attention", "--json"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    let reason = |lock: usize| document[lock]["attention"][0].as_str().unwrap().to_owned();
    assert!(reason(0).starts_with("held for longer than 200ms"), "{document}");
    assert!(reason(1).starts_with("process "), "{document}");
    assert_eq!(server.inspect("L")["attention"], serde_json::json!([]));
    assert_eq!(older("1y", &[]).0, 64);
}

#[test]
fn a_list_without_locks_says_where_it_looked() {
    let server = Server::start();
    let looked = |arguments: &[&str]| {
        let output = run(&mut server.rlock(["inspect"].iter().chain(arguments)));
        assert_eq!((output.code(), output.out()), (0, String::new()), "{output:?}");
        output.err()
    };
    let place = server.url();
    let place = place.strip_prefix("unix://").unwrap_or(&place);
    let under = |prefix: &str| format!("under prefix '{prefix}' on {place}");
    assert_eq!(looked(&[]), format!("rlock: no lock is held {}", under("rlock:")));
    assert_eq!(
        looked(&["--prefix", "x:", "a*"]),
        format!("rlock: no lock that matches 'a*' is held {}", under("x:"))
    );
    assert_eq!(
        looked(&["--older-than", "90m"]),
        format!("rlock: no lock has been held for longer than 1h30m {}", under("rlock:"))
    );
    for silent in [&["-q"][..], &["--names"], &["--attention"]] {
        assert_eq!(looked(silent), "", "{silent:?}");
    }
}

#[test]
fn a_piped_list_is_not_truncated() {
    let server = Server::start();
    let label = format!("https://ci.example/{}/813", "long/".repeat(60));
    let name = "n".repeat(150);
    acquire(&server, &["--shared", "--label", &label], &name);
    acquire(&server, &["--shared"], &name);
    let mut list = server.rlock(["inspect"]);
    let table = run(list.env("COLUMNS", "40")).out();
    for whole in ["LABEL", &name, " 2 holders: ", &label] {
        assert!(table.contains(whole), "{whole}: {table}");
    }
}

#[test]
fn slots_are_shown_together() {
    let server = Server::start();
    let slots = ["--slots", "3", "--label"];
    acquire(&server, &[&slots[..], &["job/1"]].concat(), "L");
    let first = server.run("inspect L").out();
    assert!(first.starts_with("L: 1 of 3 slots taken\n  holder   "), "{first}");
    acquire(&server, &[&slots[..], &["job/2"]].concat(), "L");
    let page = server.run("inspect L").out();
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines[0], "L: 2 of 3 slots taken");
    assert_eq!(lines.iter().filter(|line| line.starts_with("  holder   ")).count(), 2, "{page}");
    for label in ["  label    job/1", "  label    job/2"] {
        assert!(lines.contains(&label), "{page}");
    }
    let table = server.run("inspect").out();
    assert!(table.lines().nth(1).unwrap().contains("  2 of 3 slots: "), "{table}");
}

#[test]
fn a_cooling_lock_does_not_look_held() {
    let server = Server::start();
    server.run("exec --at-least 1h L true").exits(0);
    let page = server.run("inspect L").exits(0);
    let page = page.out();
    assert!(page.starts_with("L: released by ") && !page.contains(": held by"), "{page}");
    assert!(page.contains("\n  lease    kept for another 59m"), "{page}");
    let table = server.run("inspect").out();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split("  ").collect();
    assert!(row[1..].join("").trim().starts_with("released by "), "{table}");
    assert!(table.ends_with("1 lock"), "{table}");
    let busy = server.run("exec -n L true").err();
    assert!(busy.contains("L: released by ") && busy.contains("; kept for another 59m"), "{busy}");
}

#[test]
fn a_server_that_may_evict_locks_is_named() {
    let server = Server::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    acquire(&server, &[], "L");
    let page = server.run("inspect L").out();
    assert!(page.contains("maxmemory-policy allkeys-lru"), "{page}");
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert!(!server.run("inspect L").out().contains("maxmemory"));
}

#[test]
fn a_watch_continues_while_the_server_is_unreachable() {
    let mut server = Server::start();
    acquire(&server, &[], "L");
    let mut watch = Running::start(&mut server.rlock(["inspect", "--watch=50ms", "L"]));
    assert!(watch.line().starts_with("L: held by"));
    server.kill();
    while !watch.line().contains("retrying") {}
    server.start_again();
    while watch.line() != "L: free" {}
    watch.signal("TERM");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&watch.end().status), Some(15));
    let mut json = Running::start(&mut server.rlock(["inspect", "--json", "-W=50ms"]));
    assert_eq!((json.line(), json.line()), ("[]".into(), "[]".into()));
    json.signal("TERM");
    json.end();
}

#[test]
fn a_pattern_lists_the_locks_that_match() {
    let server = Server::start();
    for name in ["deploy:prod", "deploy:test", "backup"] {
        acquire(&server, &[], name);
    }
    let listed = |pattern: &str| {
        let output = run(&mut server.rlock(["inspect", "--json", pattern])).exits(0);
        let locks: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
        let names = locks.as_array().unwrap().iter().map(|lock| lock["name"].to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(listed("deploy:*"), r#""deploy:prod" "deploy:test""#);
    assert_eq!(listed("*[!dpt]"), "");
    assert_eq!(listed("?ackup"), r#""backup""#);
    server.run("inspect a[").exits(64);
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
    server.run("inspect L");
    server.run("inspect");
    assert_eq!(server.stored("L"), before);
    first.finish();
    second.finish();
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let server = Server::start();
    acquire(&server, &[], "L");
    let script = format!("{} inspect | :; echo ${{PIPESTATUS[0]}}", binary());
    for _ in 0..5 {
        let mut shell = std::process::Command::new("bash");
        let output = run(shell.args(["-c", &script]).env("RLOCK_URL", server.url()));
        // The pipe may also close after rlock has written.
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
    let output = server.run("inspect").exits(0);
    assert!(output.out().contains("\ngood "), "{output:?}");
    assert!(output.err().contains("bad: ") && output.err().lines().count() == 1, "{output:?}");
}

/// Replaces one text in all stored data, as any user with write access could.
fn forge(server: &Server, text: &str, forged: &str) {
    if !server.is_local() {
        let script = "
            local from, to = ARGV[1]:gsub('-', '%%-'), ARGV[2]:gsub('%%', '%%%%')
            local function forged(text) return (text:gsub(from, to)) end
            for _, key in ipairs(redis.call('KEYS', '*')) do
                local kind = redis.call('TYPE', key).ok
                if kind == 'string' then
                    redis.call('SET', key, forged(redis.call('GET', key)), 'KEEPTTL')
                elseif kind == 'zset' then
                    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
                        local score = redis.call('ZSCORE', key, member)
                        redis.call('ZREM', key, member)
                        redis.call('ZADD', key, score, forged(member))
                    end
                elseif kind == 'hash' then
                    for _, field in ipairs(redis.call('HKEYS', key)) do
                        local value = redis.call('HGET', key, field)
                        redis.call('HDEL', key, field)
                        redis.call('HSET', key, forged(field), forged(value))
                    end
                end
            end";
        server.cli(&["EVAL", script, "0", text, forged]);
        return;
    }
    let forged = serde_json::to_string(forged).unwrap();
    let file = server.locks().join(".rlock:L.state");
    let kept = state_file::read(&file).replace(text, forged.trim_matches('"'));
    state_file::write(&file, &kept);
}

#[test]
fn text_from_other_clients_cannot_control_a_terminal() {
    let server = Server::start();
    let token = acquire(&server, &["--owner", "own3r", "--label", "lab3l"], "L");
    let evil = "\u{1b}[2J\u{9b}2\u{202e}\u{2066}";
    forge(&server, &token, &format!("{evil}{token}"));
    forge(&server, "own3r", &format!("own3r{evil}"));
    forge(&server, "lab3l", &format!("lab3l{evil}"));
    let is_harmless = |text: &str| {
        !text.contains(|c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2066}".contains(c))
    };
    for arguments in [
        &["inspect", "L"][..],
        &["inspect"],
        &["inspect", "--json"],
        &["inspect", "--json", "L"],
        &["acquire", "-n", "L"],
        &["acquire", "-n", "--json", "L"],
        &["release", "--force", "--now", "L"],
        &["inspect", "L"],
    ] {
        let output = run(&mut server.rlock(arguments));
        let (out, err) = (output.out(), output.err());
        assert!(is_harmless(&out) && is_harmless(&err), "{arguments:?}: {out:?} {err:?}");
        let shown = out + &err;
        assert!(shown.contains("[2J") || shown.contains(" pid "), "{arguments:?}: {shown:?}");
    }
}

#[test]
fn a_generated_owner_is_truncated_and_cannot_be_used_to_reenter() {
    let server = Server::start();
    let owner = || server.inspect("L")["holders"][0]["owner"].as_str().unwrap().to_owned();
    let first = holder(&server, &[], "L");
    let shown = owner();
    assert_eq!(shown.len(), 8, "{shown}");
    // The stored data does not help either.
    let kept = server.stored("L").join(" ");
    let is_of_token = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut claims: Vec<&str> = kept.split(|c| !is_of_token(c)).filter(|c| c.len() >= 8).collect();
    assert!(claims.iter().any(|claim| claim.len() == 36 && claim.starts_with(&shown)), "{kept}");
    claims.push(&shown);
    for claim in claims {
        let reenter = ["acquire", "-n", "--reentrant", "--owner", claim, "L"];
        assert_eq!(run(&mut server.rlock(reenter)).code(), 75, "{claim}");
    }
    first.finish();
    for chosen in ["release team 7", "5f0c21aa-0000-4000-8000-000000000000", "="] {
        acquire(&server, &["--owner", chosen, "--reentrant"], "L");
        assert_eq!(owner(), chosen);
        acquire(&server, &["-n", "--reentrant", "--owner", chosen], "L");
        server.run("release --force --now L").exits(0);
    }
}

#[test]
fn a_suggested_command_is_safe_to_paste() {
    let server = Server::start();
    for (name, typed) in [("deploy;id>x", "'deploy;id>x'"), ("it's", r"'it'\''s'"), ("a:b", "a:b")]
    {
        let mut dead = holder(&server, &["--ttl", "60s"], name);
        dead.signal("KILL");
        dead.process.wait().unwrap();
        let page = run(&mut server.rlock(["inspect", name])).out();
        let (_, suggested) = page.split_once("run rlock release --force --now ").unwrap();
        assert_eq!(suggested.lines().next(), Some(typed), "{page}");
    }
}

#[test]
fn a_suggested_command_is_about_the_inspected_lock() {
    let server = Server::start();
    let other = holder(&server, &["--ttl", "60s"], "L");
    let mut dead = holder(&server, &["--ttl", "60s", "--prefix", "a;b:"], "L");
    dead.signal("KILL");
    dead.process.wait().unwrap();
    let page = server.run("inspect --prefix a;b: L").out();
    let (_, suggested) = page.split_once("run rlock ").unwrap();
    let rlock = binary();
    let pasted = format!("{rlock} {}", suggested.lines().next().unwrap());
    run(Command::new("sh").args(["-c", &pasted]).env("RLOCK_URL", server.url())).exits(0);
    server.run("inspect --prefix a;b: L").exits(1);
    assert_eq!(other.finish().code(), 0);
}

#[test]
fn a_holder_that_proc_hides_is_not_taken_for_dead() {
    let server = Server::start();
    let alive = holder(&server, &["--ttl", "60s"], "L");
    // With as little information about others as hidepid shows.
    let script = "mount -t tmpfs none /proc && mkdir /proc/self && exec \"$@\"";
    let look = server.rlock(["inspect", "L"]);
    let mut hidden = Command::new("unshare");
    hidden.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    hidden.arg(look.get_program()).args(look.get_args()).env("RLOCK_URL", server.url());
    let output = run(&mut hidden).exits(0);
    assert!(!output.out().contains("not found on this host"), "{output:?}");
    assert_eq!(alive.finish().code(), 0);
}

#[test]
fn columns_stay_aligned_whatever_the_width_of_names() {
    let server = Server::start();
    for name in ["plain", "日本語の名前", "🚀", "e\u{301}te\u{301}"] {
        acquire(&server, &[], name);
    }
    let table = server.run("inspect").out();
    // Characters that are two columns wide, and none.
    let columns = |text: &str| -> usize {
        text.chars().map(|c| if c == '\u{301}' { 0 } else { 1 + usize::from(c > '\u{1100}') }).sum()
    };
    let rows: Vec<&str> = table.lines().collect();
    let second = columns(rows[0].split("HELD").next().unwrap());
    for row in &rows[1..5] {
        let name = row.split(' ').next().unwrap();
        let gap = row[name.len()..].len() - row[name.len()..].trim_start().len();
        assert_eq!(columns(name) + gap, second, "{table}");
    }
}

support::also_on_local! {
    a_hold_tells_how_long_it_waited_for_its_grant,
    a_list_is_in_the_order_asked_for,
    only_locks_that_have_been_held_for_long_are_listed,
    a_list_without_locks_says_where_it_looked,
    a_piped_list_is_not_truncated,
    slots_are_shown_together,
    a_cooling_lock_does_not_look_held,
    a_monitoring_check_fails_only_if_a_lock_needs_attention,
    a_lock_that_cannot_be_read_needs_attention,
    text_from_other_clients_cannot_control_a_terminal,
    a_generated_owner_is_truncated_and_cannot_be_used_to_reenter,
    a_suggested_command_is_safe_to_paste,
    columns_stay_aligned_whatever_the_width_of_names,
    inspect_shows_the_holder_and_the_queue,
    inspecting_a_free_lock_exits_with_1_and_prints_one_object,
    all_locks_are_listed_in_order_and_only_under_the_prefix,
    inspecting_changes_nothing,
    a_closed_pipe_is_not_an_error,
    one_lock_that_cannot_be_read_does_not_hide_the_others,
    a_lock_shows_how_its_last_holds_ended,
    all_shows_when_a_free_lock_last_ran_and_how_often_it_was_skipped_since,
    a_list_shows_each_lock_as_inspect_name_does,
    what_needs_attention_comes_first_and_says_why,
}
