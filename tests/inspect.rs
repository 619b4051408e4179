//! inspect shows the holders and waiters of a lock to people and to programs.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::time::Duration;

use crate::errors::{fails, replicated};
use crate::support::{self, *};
use serde_json::{Value, json};

/// What `inspect --json` prints without locks.
const NONE: &str = "{\"format\":1,\"locks\":[]}";

fn names(document: &Value) -> Vec<&str> {
    document.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

fn listed(server: &Server, options: &str) -> Value {
    locks(&server.run(&format!("inspect --json {options}")))
}

/// The locks in a document of `inspect --json`.
fn locks(output: &Output) -> Value {
    output.json()["locks"].clone()
}

#[test]
fn inspect_shows_the_holder_and_the_queue_and_changes_nothing() {
    let server = Server::start();
    let script = "echo $RLOCK_TOKEN; read _ || :";
    let mut first = server.starts("exec --label job/17 deploy:prod sh -c", script);
    let token = first.line();
    let second = waiter(&server, &["--label", "job/18"], "deploy:prod", "");
    let third = waiter(&server, &[], "deploy:prod", "");
    let before = server.stored("deploy:prod");

    let page = server.run("inspect deploy:prod").exits(0).shows("deploy:prod: held by ");
    let [one, two, three] = [&first, &second, &third].map(|it| format!("pid {} (sh)", it.pid()));
    for part in [&*one, "job/17", "1. ", &two, "job/18", "2. ", &three] {
        assert!(page.out().contains(part), "no {part:?}: {page:?}");
    }

    let lock = server.inspect("deploy:prod");
    assert!(!lock.to_string().contains(&token), "a token is nobody else's business");
    let (holder, waiters) = (&lock["holders"][0], lock["waiters"].as_array().unwrap());
    for (object, fields) in [
        (&lock, json!({"name": "deploy:prod", "key": "rlock:deploy:prod", "state": "held"})),
        (&lock, json!({"mode": "exclusive", "slots": null, "fence": holder["fence"]})),
        (holder, json!({"id": token[..8], "pid": first.pid(), "command": "sh"})),
        (holder, json!({"label": "job/17", "kind": "exec"})),
        (&waiters[0], json!({"position": 1, "pid": second.pid(), "label": "job/18"})),
        (&waiters[1], json!({"position": 2, "pid": third.pid(), "label": null})),
    ] {
        for (field, value) in fields.as_object().unwrap() {
            assert_eq!(&object[field], value, "{field}");
        }
    }
    assert!((1..=30_000).contains(&lock["ttl_ms"].as_u64().unwrap()));
    assert!(holder["fence"].as_u64().unwrap() > 1_700_000_000_000);
    let acquired = holder["acquired_at"].as_str().unwrap();
    assert!(acquired.starts_with("20") && acquired.ends_with('Z') && acquired.len() == 24);
    assert!(waiters[0]["waiting_ms"].is_u64());

    // A list shows the same, without the history.
    let list = listed(&server, "");
    for field in ["fence", "key", "state", "mode", "attention", "skipped"] {
        assert_eq!(list[0][field], lock[field], "{field}");
    }
    assert_eq!(list[0]["waiters"][1]["pid"], third.pid());
    assert_eq!(server.stored("deploy:prod"), before);
    for running in [first, second, third] {
        running.finish();
    }
}

#[test]
fn inspecting_a_free_lock_exits_with_1_and_prints_one_object() {
    let server = Server::start();
    server.run("inspect L").exits(1).prints("L: free");
    let document = server.run("inspect --json L").exits(1).json();
    let wanted = json!({"format": 1, "locks": [{
        "name": "L", "key": "rlock:L", "state": "free", "mode": null, "slots": null, "fence": null,
        "ttl_ms": null, "holders": [], "holder_count": 0, "waiters": [], "waiter_count": 0,
        "history": [],
        "attention": [], "skipped": {"count": 0, "last_at": null, "last_by": null},
    }]});
    assert_eq!(document, wanted);
    // It keeps its fencing token and its history.
    server.run("exec L true").exits(0);
    let free = server.inspect("L");
    assert_eq!((&free["state"], &free["fence"]), (&json!("free"), &free["history"][0]["fence"]));
    assert_eq!(free["history"][0]["command"], "true");
    assert_eq!(server.json("inspect --json"), json!({"format": 1, "locks": []}));
}

#[test]
fn another_tools_locks_are_listed_and_other_keys_are_not() {
    let server = Server::start();
    acquire(&server, &["--ttl", "60s"], "short");
    acquire(&server, &["--ttl", "1h"], "long");
    server.cli(&["SET", "unrelated", "1"]);
    server.cli(&["SET", "rlock:foreign", "1", "PX", "600000"]);
    // redis-cli cannot send this as an argument.
    server.cli(&["EVAL", "redis.call('SET', KEYS[1], '\\255\\254')", "1", "rlock:eternal"]);
    let list = listed(&server, "");
    // Nothing but an operator ends a lock without an expiry.
    assert_eq!(names(&list), ["eternal", "foreign", "long", "short"]);
    assert_eq!((&list[0]["state"], &list[0]["ttl_ms"]), (&"foreign".into(), &Value::Null));
    let table = server.run("inspect").out();
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[1].starts_with("eternal") && rows[1].contains("another tool"), "{table}");
    assert_eq!(rows[5..], ["4 locks; 1 needs attention"], "{table}");
    // They are sorted by what is known of them.
    let sorted = |order: &str| names(&listed(&server, order)).join(" ");
    assert_eq!(sorted("--sort age"), "short long eternal foreign");
    assert_eq!(sorted("--sort lease"), "short foreign long eternal");
    assert_eq!(sorted("--older-than 0"), "long short");
}

#[test]
fn a_lock_shows_how_its_last_holds_ended() {
    let server = Server::start();
    server.exec_script("--label job/1 L", "exit 3").exits(3);
    server.exec_script("L", "kill -9 $$");
    server.run("exec L no-such-command").exits(127);
    acquire(&server, &["--ttl", "500ms"], "L");
    server.run("exec L true").exits(0);
    acquire(&server, &[], "L");
    server.run("release --force --now L").exits(0);
    let token = acquire(&server, &[], "L");

    let lock = &server.inspect("L");
    let history = lock["history"].as_array().unwrap();
    let told = |past: &Value| format!("{} {}", past["ended"].as_str().unwrap(), past["outcome"]);
    assert_eq!(
        history.iter().map(told).collect::<Vec<_>>(),
        [
            "revoked null",
            "released \"exit 0\"",
            "expired null",
            "released \"not started\"",
            "released \"signal 9\"",
            "released \"exit 3\"",
        ]
    );
    assert!(history[0]["by"].as_str().unwrap().contains('@'), "{history:?}");
    assert_eq!((&history[5]["command"], &history[5]["label"]), (&json!("sh"), &json!("job/1")));
    assert!(history[5]["fence"].as_u64() < history[4]["fence"].as_u64());
    assert!((100..5_000).contains(&history[2]["held_ms"].as_u64().unwrap()));
    server.run(&format!("release L {token}")).exits(0);

    // It is also shown for a free lock.
    let page = server.run("inspect L").exits(1).out();
    assert!(page.starts_with("L: free\n  history  "), "{page}");
    for part in ["(sh) for ", ", exit 3, job/1", ", signal 9", "expired, held by", ", revoked by "]
    {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    // An end that no client has recorded yet is shown too.
    acquire(&server, &["--ttl", "500ms"], "L");
    support::until("it has expired", || server.is_free("L"));
    assert!(server.run("inspect L").out().lines().nth(1).unwrap().contains("expired"));
}

#[test]
fn all_shows_when_a_free_lock_last_ran_and_how_often_it_was_skipped_since() {
    let server = Server::start();
    for prefix in ["rlock:", "{app}:"] {
        let client = Client::of(server.url()).with("RLOCK_PREFIX", prefix);
        let nightly = || {
            let found = locks(&client.run("inspect --json --all night*"));
            assert_eq!(names(&found), ["nightly"]);
            found[0].clone()
        };
        client.acquire("held");
        let first = client.holder("--label job/1 nightly");
        for limit in ["-n", "-n", "-w100ms"] {
            client.run(&format!("exec {limit} nightly true")).exits(75);
        }
        // A waiter that is stopped is not turned away.
        let stopped = client.waiter("nightly");
        stopped.ends_by("TERM");
        first.finish();
        let lock = nightly();
        assert_eq!((&lock["state"], &lock["skipped"]["count"]), (&json!("free"), &json!(3)));
        assert_eq!(lock["history"][0]["outcome"], "exit 0");
        let by = lock["skipped"]["last_by"].as_str().unwrap();
        assert!(by.contains('@') && by.ends_with(" (true)"), "{lock}");
        assert!(lock["skipped"]["last_at"].as_str() > lock["history"][0]["acquired_at"].as_str());
        assert_eq!(names(&locks(&client.run("inspect --json"))), ["held"]);

        let table = client.run("inspect -a").out();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[2].starts_with("nightly  free for ") && rows[2].ends_with("job/1"), "{table}");
        for part in [", exit 0: ", " (sh)  ", "  3 times, last "] {
            assert!(rows[2].contains(part), "no {part:?}: {table}");
        }
        assert_eq!(rows[3], "2 locks");
        client.run("inspect -a --names").prints("held\nnightly");
        client.run("inspect nightly").shows("\n  skipped  3 times, last ").shows("(true)");
        client.run("inspect -a --attention").exits(0).prints("");

        // The next hold starts anew, even if nothing records its end.
        client.acquire("--ttl 500ms nightly");
        support::until("it has expired", || nightly()["state"] == "free");
        let lock = nightly();
        let none = json!({"count": 0, "last_at": null, "last_by": null});
        assert_eq!((&lock["skipped"], &lock["history"][0]["ended"]), (&none, &json!("expired")));
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
    let left: u64 = server.cli(&["PTTL", &side_key("L", "state")]).parse().unwrap();
    assert!(left > 80_000_000, "{left}");
    assert_eq!(server.inspect("L")["skipped"]["count"], 2);
    // Without memory to record it, the client still learns that the lock is busy.
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(busy(), 75);
    assert_eq!(server.inspect("L")["skipped"]["count"], 2);
}

#[test]
fn a_hold_tells_how_long_it_waited_for_its_grant() {
    let (server, first) = held(&[]);
    let mut second = waiter(&server, &[], "L", "; read _ || :");
    let waiting = || server.inspect("L")["waiters"][0]["waiting_ms"].as_u64().unwrap();
    support::until("it has waited", || waiting() >= 200);
    first.finish();
    second.line();
    let waited = listed(&server, "")[0]["holders"][0]["waited_ms"].clone();
    assert!(waited.as_u64().unwrap() >= 200, "{waited}");
    second.finish();
    let history = server.inspect("L")["history"].clone();
    let of = |number: usize| &history[number]["waited_ms"];
    assert_eq!((of(0), of(1)), (&waited, &json!(0)), "{history}");
}

#[test]
fn thousands_of_locks_are_listed_completely_in_a_handful_of_round_trips() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let fill = "for i = 1, 3000 do redis.call('SET', 'rlock:n' .. i, 'theirs') end";
    server.cli(&["EVAL", fill, "0"]);
    // Nor is a list cut that no terminal shows.
    let label = "long".repeat(100);
    acquire(&server, &["--label", &label], "ours");
    run(at(&proxy.url(), "inspect").env("COLUMNS", "40")).shows("\nours ").shows(&label);
    // A large flight may arrive in several pieces, which the proxy counts one by one.
    assert!(proxy.flights() < 100, "{}", proxy.flights());
    let list = listed(&server, "");
    assert_eq!((names(&list).len(), &list[3000]["name"]), (3001, &json!("ours")));
    assert!(names(&list).is_sorted());
}

#[test]
fn what_needs_attention_comes_first_says_why_and_fails_a_monitoring_check() {
    let server = Server::start();
    let check = |options: &str| {
        let output = server.run(&format!("inspect --attention {options}"));
        assert_eq!(output.err(), "", "{options}");
        output
    };
    acquire(&server, &[], "a");
    // Nothing runs under this lock any more.
    server.run("exec --at-least 1m A true").exits(0);
    for nothing in ["", "a", "free", "a*"] {
        check(nothing).exits(0).prints("");
    }
    check("--json").exits(0).prints(NONE);
    let mut dead = holder(&server, &["--ttl", "60s"], "b");
    let pid = dead.pid();
    dead.process.kill();
    let stopped = holder(&server, &["--ttl", "3s"], "c");
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
    check("--names").exits(1).prints("b\nc");
    assert_eq!(names(&locks(&check("--json").exits(1))), ["b", "c"]);
    check("b")
        .exits(1)
        .shows(&format!("  warning  process {pid} not found on this host"))
        .shows("run rlock release --force --now --id ");
    for nothing in ["a", "A*"] {
        check(nothing).exits(0).prints("");
    }
    stopped.signal("CONT");
    stopped.finish();
}

/// Checks that neither a list nor a check says that all is well.
#[track_caller]
fn sees_not_all(url: &str, status: i32, told: &str) {
    for line in ["inspect", "inspect --attention", "inspect -a --names"] {
        fails(&mut at(url, line), status, &[told]);
    }
    let output = run(&mut at(url, "inspect --json")).exits(status);
    assert_eq!(output.json()["locks"], json!([]), "{output:?}");
}

#[test]
fn what_inspect_cannot_see_is_an_error_and_not_a_list_without_locks() {
    // One node of a cluster, unless it has all hash slots.
    let cluster = Cluster::start(3, 0);
    let master = cluster.owner(0, "rlock:L").unwrap();
    run(&mut at(&cluster.url(), "acquire L")).exits(0);
    for (number, node) in cluster.nodes().iter().enumerate() {
        sees_not_all(&node.tcp_url(), 78, "is a cluster node; use a redis+cluster:// URL");
        let status = if number == master { 0 } else { 78 };
        run(&mut at(&node.tcp_url(), "inspect L")).exits(status);
    }
    let single = Server::on_tcp(&["--cluster-enabled", "yes"]);
    sees_not_all(&single.tcp_url(), 69, "its cluster is down");
    let cluster = single.tcp_url().replace("redis:", "redis+cluster:");
    sees_not_all(&cluster, 69, "no node of the cluster is a master");
    single.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    until("the cluster is up", || single.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    acquire(&single, &[], "L");
    single.run("inspect").exits(0).shows("\nL ");
    // Since Valkey 9, a cluster may have several databases.
    let told = match single.cli(&["SELECT", "2"]).contains("not allowed in cluster mode") {
        true => "has only database 0, as in a cluster; use a redis+cluster:// URL",
        false => "has no such database",
    };
    sees_not_all(&format!("{}/2", single.tcp_url()), 78, told);

    // A directory that does not exist.
    let local = Server::local();
    let typo = local.url() + "-typo";
    let told = "-typo does not exist; correct the URL";
    sees_not_all(&typo, 78, told);
    for line in ["inspect L", "release --force L", "release --force --id 5f0c21aa L"] {
        fails(&mut at(&typo, line), 78, &[told]);
    }

    // A replica that has lost its master.
    let (mut master, replica) = replicated();
    run(&mut at(&replica.tcp_url(), "inspect --attention")).exits(0).prints("");
    set_up(&replica, &rule("ci", &["+scan"]));
    let blind = Client::of(replica.url()).with_user("ci");
    for line in ["inspect --attention", "inspect --attention L"] {
        blind.run(line).exits(0).says("so rlock cannot tell whether its master is missing");
    }
    master.kill();
    until("it has noticed", || replica.reports("_status:down"));
    let told = "is a replica that has lost its master; restore the master, or use its address";
    for serves_stale_data in ["yes", "no"] {
        replica.cli(&["CONFIG", "SET", "replica-serve-stale-data", serves_stale_data]);
        sees_not_all(&replica.tcp_url(), 78, told);
        fails(&mut at(&replica.tcp_url(), "inspect --attention L"), 78, &[told]);
    }
}

#[test]
fn a_lock_that_cannot_be_read_decides_the_status_and_does_not_hide_the_others() {
    let server = Server::start();
    acquire(&server, &[], "bad");
    server.spoil("bad");
    // The status does not depend on the other locks.
    for shown in ["", "good"] {
        for options in ["", "--names", "--json", "--attention"] {
            let output = server.run(&format!("inspect {options}")).exits(78).says("rlock: bad: ");
            assert_eq!(output.err().lines().count(), 1, "{output:?}");
            let wanted = if options == "--attention" { "" } else { shown };
            assert!(output.out().contains(wanted), "{output:?}");
        }
        if shown.is_empty() {
            acquire(&server, &[], "good");
        }
    }
    server.run("inspect --attention").prints("");
    server.run("inspect --attention good").exits(0).prints("");
}

#[test]
fn a_list_is_in_the_order_asked_for_and_only_under_the_prefix() {
    let server = Server::start();
    acquire(&server, &[], "m");
    acquire(&server, &["--ttl", "1h"], "a");
    acquire(&server, &["--ttl", "60s"], "z");
    acquire(&server, &["--prefix", "other:"], "d");
    let _waiters = ["m", "z", "z"].map(|name| waiter(&server, &[], name, ""));
    for (options, order) in [
        ("", "a m z"),
        ("--sort name", "a m z"),
        ("--sort age", "m a z"),
        ("--sort waiting", "z m a"),
        ("--sort lease", "m z a"),
        ("--prefix other:", "d"),
    ] {
        assert_eq!(names(&listed(&server, options)).join(" "), order, "{options}");
    }
}

#[test]
fn only_locks_that_have_been_held_for_long_are_listed() {
    let (server, _) = acquired(&["--shared"]);
    let older = |options: &str| server.run(&format!("inspect --older-than {options}"));
    support::until("it is old", || older("200ms --names").out() == "L");
    // The age of a lock is that of its oldest holder.
    acquire(&server, &["--shared"], "L");
    older("200ms --names").exits(0).prints("L");
    older("1h --json").exits(0).prints(NONE);
    older("1h L --attention").exits(0).prints("");
    // A pager is told of a hung holder and of a dead one by one check.
    holder(&server, &["--ttl", "60s"], "dead").process.kill();
    server.run("exec --at-least 1h cooling sleep 0.3").exits(0);
    let table = older("200ms --attention").exits(1).out();
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[1].contains("held for longer than 200ms"), "{table}");
    assert!(rows[2].starts_with("dead ") && rows[2].contains("process not found"), "{table}");
    assert_eq!(rows[3..], ["2 locks; 2 need attention"], "{table}");
    let reason = "held for longer than 200ms, for ";
    older("200ms --attention L").exits(1).shows(&format!("  warning  {reason}"));
    older("200ms --attention --json").exits(1).shows(&format!("\"attention\":[\"{reason}"));
    assert_eq!(server.inspect("L")["attention"], json!([]));
}

#[test]
fn a_list_without_locks_says_where_it_looked() {
    let server = Server::start();
    let place = server.url();
    let place = place.strip_prefix("unix://").unwrap_or(&place);
    for (options, what, prefix) in [
        ("", "no lock is held", "rlock:"),
        ("--prefix x: a*", "no such lock", "x:"),
        ("--older-than 90m", "no such lock", "rlock:"),
    ] {
        let output = server.run(&format!("inspect {options}")).exits(0).prints("");
        assert_eq!(output.err(), format!("rlock: {what} under prefix '{prefix}' on {place}"));
    }
    for silent in ["-q", "--names", "--attention"] {
        let output = server.run(&format!("inspect {silent}")).exits(0).prints("");
        assert_eq!(output.err(), "", "{silent}");
    }
}

#[test]
fn a_name_that_was_never_used_is_not_taken_for_a_free_lock() {
    let server = Server::start();
    server.run("exec deploy:prod true").exits(0);
    let unknown = "never used, or not in the past day";
    for (line, status, told) in [
        ("inspect deploy:prdo", 1, "rlock: deploy:prdo: UNKNOWN"),
        ("inspect other", 1, "rlock: other: UNKNOWN"),
        ("release --force depoy:prod", 0, "rlock: depoy:prod: no hold to revoke: UNKNOWN"),
        ("inspect deploy:prod", 1, ""),
        ("inspect --json deploy:prdo", 1, ""),
        ("inspect --attention deploy:prdo", 0, ""),
        ("release --force deploy:prod", 0, "rlock: deploy:prod: no hold to revoke"),
    ] {
        let output = server.run(line).exits(status);
        assert_eq!(output.err(), told.replace("UNKNOWN", unknown), "{line}");
    }
}

#[test]
fn only_a_person_is_told_a_similar_name_and_soon() {
    let server = Server::start();
    server.run("exec deploy:prod true").exits(0);
    let mut terminal = Terminal::start(&server);
    for line in ["inspect deploy:prdo", "inspect rlock:deploy:prod", "release --force depoy:prod"] {
        terminal.answers(&format!("$rlock {line}"), "nearest name: deploy:prod");
    }
    let scans = server.calls_of("scan");
    assert!(scans >= 3);
    for (line, status) in [
        ("inspect -q deploy:prdo", 1),
        ("inspect --names deploy:prdo", 1),
        ("inspect --json deploy:prdo", 1),
        ("inspect --attention deploy:prdo", 0),
        ("release --force -q depoy:prod", 0),
        ("release --force --json depoy:prod", 0),
        ("inspect deploy:prdo 2>&1 | cat", 0),
    ] {
        terminal.answers(&format!("$rlock {line}; echo status-$?"), &format!("status-{status}"));
    }
    assert_eq!(server.calls_of("scan"), scans);
    // The search ends long before it has seen all keys.
    let fill = "for key = 1, 300000 do redis.call('SET', key, '') end";
    server.cli(&["EVAL", fill, "0"]);
    terminal.answers("$rlock inspect other", "never used, or not in the past day");
    assert!((1..150).contains(&(server.calls_of("scan") - scans)));
}

#[test]
fn numbers_are_whole_even_if_lists_are_not() {
    let server = Server::start();
    // Copies the first holder, or the first waiter, as often as ARGV[1] says. Two waiters are dead.
    let crowd = |name: &str, of: &str, count: &str| {
        let script = "
            local known = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
            local details = details_of(known[1])
            details.alive = '9000000000000'
            for number = 1, tonumber(ARGV[1]) do
              local token = string.format('%s%07d', KEYS[2]:sub(1, 1), number)
              write_details(token, details)
              redis.call('ZADD', KEYS[1], known[2], token)
            end
            for number = 1, KEYS[2] == 'queue' and 2 or 0 do
              redis.call('ZADD', KEYS[1], known[2], '!' .. number)
            end";
        let (script, side) = (support::DETAILS.to_owned() + script, |it| side_key(name, it));
        server.cli(&["EVAL", &script, "3", &side(of), of, &side("state"), count]);
    };
    for (name, holders, waiters) in [("A", "110", "120"), ("L", "1019", "1150")] {
        acquire(&server, &["--shared", "--ttl", "1h"], name);
        let waiter = waiter(&server, &[], name, "");
        crowd(name, "holds", holders);
        crowd(name, "queue", waiters);
        waiter.ends_by("KILL");
    }
    let list = server.run("inspect --sort waiting").out();
    let rows: Vec<&str> = list.lines().collect();
    assert!(rows[1].starts_with("L     1020 holders: ") && rows[1].contains("  1151"), "{list}");
    assert!(rows[2].starts_with("A     111 holders: ") && rows[2].contains("  121"), "{list}");
    assert_eq!(rows[3], "2 locks; 1272 waiting");
    let page = server.run("inspect L").out();
    assert!(page.starts_with("L: 1020 holders\n"), "{page}");
    for told in ["  holder   20 more", "  waiting  153 more"] {
        assert!(page.lines().any(|line| line == told), "no {told:?}: {page}");
    }
    let document = |lock: &Value| {
        let listed = |what: &str| json!(lock[what].as_array().unwrap().len());
        [
            listed("holders"),
            lock["holder_count"].clone(),
            listed("waiters"),
            lock["waiter_count"].clone(),
        ]
    };
    assert_eq!(document(&listed(&server, "")[1]), [100, 1_020, 98, 1_151]);
    assert_eq!(document(&server.inspect("L")), [1_000, 1_020, 998, 1_151]);
}

#[test]
fn holders_stand_together_and_before_the_waiters() {
    let (server, _) = acquired(&["--shared", "--ttl", "10m"]);
    acquire(&server, &["--shared", "--ttl", "1h"], "L");
    let waiter = waiter(&server, &[], "L", "");
    let mut force = server.starts("release --force", "L");
    // It waits for the longest lease.
    assert!(force.told("waiting up to 59m").ends_with(" for 2 holders"));
    // Each holder has a line.
    (0..2).for_each(|_| drop(force.told(" --id ")));
    let page = server.run("inspect L").out();
    assert!(
        page.starts_with("L: 2 holders\n  holder   ") && page.matches("L: ").count() == 1,
        "{page}"
    );
    assert_eq!(page.matches("\n  kind     acquire, nothing renews it; ").count(), 2, "{page}");
    assert!(page.rfind("\n  holder ") < page.find("\n  waiting "), "{page}");
    // What was never renewed does not look renewed.
    assert!(!page.contains(", renewed "), "{page}");
    for running in [force, waiter] {
        running.ends_by("KILL");
    }
}

#[test]
fn slots_are_shown_together() {
    let server = Server::start();
    for (taken, label) in [(1, "job/1"), (2, "job/2")] {
        server.run(&format!("acquire --slots 3 --label {label} L")).exits(0);
        let page = server.run("inspect L").out();
        let heading = format!("L: {taken} of 3 slots taken\n  holder   ");
        assert!(page.starts_with(&heading), "{page}");
        assert_eq!(page.matches("\n  holder   ").count(), taken, "{page}");
        for line in [format!("\n  label    {label}"), format!("\n  slot     {taken}\n")] {
            assert!(page.contains(&line), "no {line:?}: {page}");
        }
    }
    server.run("inspect").shows("  2 of 3 slots: ");
}

#[test]
fn a_cooling_lock_does_not_look_held() {
    let server = Server::start();
    server.run("exec --at-least 1h L true").exits(0);
    let page = server.run("inspect L").exits(0).shows("\n  lease    kept for another 59m").out();
    assert!(page.starts_with("L: released by ") && !page.contains(": held by"), "{page}");
    server.run("exec -n L true").says("L: released by ").says("; kept for another 59m");
}

#[test]
fn a_server_that_may_evict_locks_is_named() {
    let server = Server::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    acquire(&server, &[], "L");
    server.run("inspect L").shows("maxmemory-policy allkeys-lru");
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert!(!server.run("inspect L").out().contains("maxmemory"));
}

#[test]
fn a_watch_without_a_terminal_repeats_until_a_signal() {
    let server = Server::start();
    for (options, shown) in [("-W=50ms L", "L: free"), ("--watch=50ms --json", NONE)] {
        let mut watch = Running::start(&mut at(&server.url(), &format!("inspect {options}")));
        assert_eq!((watch.line(), watch.line()), (shown.into(), shown.into()));
        assert_eq!(watch.ends_by("TERM").status.signal(), Some(15));
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let (server, _) = acquired(&[]);
    for _ in 0..5 {
        let output = server.bash("$rlock inspect | :; echo ${PIPESTATUS[0]}");
        // The pipe may also close after rlock has written.
        assert!(["0", "141"].contains(&&*output.out()), "{output:?}");
        assert_eq!(output.err(), "");
    }
}

#[test]
fn a_generated_owner_is_truncated_and_cannot_be_used_to_reenter() {
    let server = Server::start();
    let owner = || server.inspect("L")["holders"][0]["owner"].as_str().unwrap().to_owned();
    let reenter = |owner: &str| {
        run(&mut server.rlock(["acquire", "-n", "--reentrant", "--owner", owner, "L"]))
    };
    acquire(&server, &[], "L");
    let shown = owner();
    assert_eq!(shown.len(), 8, "{shown}");
    // The stored data does not help either.
    let kept = server.stored("L").join(" ");
    let is_of_token = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut claims: Vec<&str> = kept.split(|c| !is_of_token(c)).filter(|c| c.len() >= 8).collect();
    assert!(claims.iter().any(|claim| claim.len() == 36 && claim.starts_with(&shown)), "{kept}");
    claims.push(&shown);
    for claim in claims {
        reenter(claim).exits(75);
    }
    server.run("release --force --now L").exits(0);
    let chosen = "5f0c21aa-0000-4000-8000-000000000000";
    reenter(chosen).exits(0);
    assert_eq!(owner(), chosen);
    reenter(chosen).exits(0);
}

#[test]
fn a_holder_that_proc_hides_is_not_taken_for_dead() {
    let (server, alive) = held(&["--ttl", "60s"]);
    // With as little information about others as hidepid shows.
    let look = "mount -t tmpfs none /proc && mkdir /proc/self && exec $rlock inspect L";
    let output = run(&mut server.contained("--mount", look)).exits(0);
    assert!(!output.out().contains("not found on this host"), "{output:?}");
    alive.finish().exits(0);
}

support::also_on_local! {
    a_name_that_was_never_used_is_not_taken_for_a_free_lock,
    a_hold_tells_how_long_it_waited_for_its_grant,
    a_list_is_in_the_order_asked_for_and_only_under_the_prefix,
    a_list_without_locks_says_where_it_looked,
    a_lock_that_cannot_be_read_decides_the_status_and_does_not_hide_the_others,
    a_generated_owner_is_truncated_and_cannot_be_used_to_reenter,
    inspect_shows_the_holder_and_the_queue_and_changes_nothing,
    inspecting_a_free_lock_exits_with_1_and_prints_one_object,
    a_lock_shows_how_its_last_holds_ended,
    all_shows_when_a_free_lock_last_ran_and_how_often_it_was_skipped_since,
}
