//! The JSON documents have the fields and the values that the man pages list, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;

use serde_json::{Value, json};

use crate::support::server::free_port;
use crate::support::{
    Finished, Running, Server, acquire, at, holder, run, send_signal, until, waiter,
};
use crate::while_pid::held_back;

/// The section JSON of a man page: each field as a path, with its text.
fn page(subcommand: &str) -> BTreeMap<String, String> {
    let path = format!("{}/man/rlock-{subcommand}.1", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(path).unwrap();
    let page = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
    let section = page.split(".SH JSON\n").nth(1).unwrap().split("\n.SH ").next().unwrap();
    let entries = section.split(".TP\n").skip(1).map(|entry| entry.split_once('\n').unwrap());
    let fields = entries.flat_map(|(terms, text)| {
        let object = terms.split(", ").next().unwrap().rsplit_once('.').map_or("", |(it, _)| it);
        let path = move |term: &str| {
            if term.starts_with('.') { object.to_owned() + term } else { term.to_owned() }
        };
        terms.split(", ").map(move |term| (path(term), text.replace('\n', " ")))
    });
    fields.collect()
}

/// Adds the values of each field below `path`.
fn read(value: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    match value {
        Value::Object(object) => {
            let path = |name: &str| format!("{path}.{name}").trim_start_matches('.').to_owned();
            object.iter().for_each(|(name, value)| read(value, &path(name), found));
        }
        Value::Array(items) => {
            items.iter().for_each(|item| read(item, &format!("{path}[]"), found));
        }
        Value::String(text) => {
            found.entry(path.to_owned()).or_default().insert(text.clone());
        }
        _ => {
            found.entry(path.to_owned()).or_default();
        }
    }
}

/// Compares what a subcommand has printed with its page.
#[track_caller]
fn is_as_on_the_page(subcommand: &str, outputs: &[Output]) {
    let (page, inspect) = (page(subcommand), page("inspect"));
    let mut found = BTreeMap::new();
    for output in outputs {
        assert!(output.out().starts_with("{\"format\":1,"), "{output:?}");
        read(&output.json(), "", &mut found);
    }
    let is_printed = |path: &str| {
        found.keys().any(|it| {
            it == path
                || it.starts_with(&format!("{path}."))
                || it.starts_with(&format!("{path}[]"))
        })
    };
    for (path, values) in &found {
        // Clients are explained on the page of inspect.
        let client = path.split_once('.').and_then(|(object, name)| match object {
            "revoked[]" | "holders[]" | "superseded_by" => {
                Some(format!("locks[].holders[].{name}"))
            }
            "removed" => Some(format!("locks[].waiters[].{name}")),
            _ => None,
        });
        let text = page.get(path).or_else(|| page.get(&format!("{path}[]")));
        let text = text.or_else(|| inspect.get(&client?));
        let text = text.unwrap_or_else(|| panic!("{path} is not on the page of {subcommand}"));
        let name = path.rsplit('.').next().unwrap();
        let holders =
            &inspect[&format!("locks[].holders[].{}", if name == "kind" { name } else { "id" })];
        let text = if text.trim() == "As for holders." { holders } else { text };
        if ["status", "state", "mode", "kind", "ended"].contains(&name) {
            let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
            let missing = values.iter().find(|value| !words.contains(&value.as_str()));
            assert_eq!(missing, None, "{path} of {subcommand}: {text}");
        }
    }
    for path in page.keys() {
        let path = path.trim_end_matches("[]");
        assert!(is_printed(path), "{subcommand} prints no {path}");
    }
    // All before the last sentence. An internal error cannot be made at will.
    let listed = page["status"].split(". Without").next().unwrap();
    let (_, failures) = listed.split_once(": ").unwrap();
    let listed = failures.split([' ', ',', '.']).filter(|it| !["", "or", "internal"].contains(it));
    for status in listed {
        assert!(found["status"].contains(status), "{subcommand} prints no {status}");
    }
}

/// What a subcommand prints if it cannot do anything.
fn failures(line: &str) -> Vec<Output> {
    let away = format!("redis://127.0.0.1:{}", free_port());
    let failed = |url: &str, line: &str, status| run(&mut at(url, line)).exits(status);
    let misused = format!("{line} --no-such-option");
    vec![failed(&away, line, 69), failed("nonsense", line, 78), failed(&away, &misused, 64)]
}

/// The ID of the first holder or waiter of L.
fn first(server: &Server, what: &str) -> String {
    server.inspect("L")[what][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn what_acquire_prints_is_on_its_page() {
    let server = Server::on_tcp(&[]);
    let mut outputs = failures("acquire --json L");
    outputs.push(server.run("acquire --json --slots 2 slots").exits(0));
    let held = holder(&server, &[], "L");
    outputs.push(server.run("acquire --json -n L").exits(75));
    let waits = |options: &str| {
        let waits = Running::start(&mut at(&server.url(), &format!("acquire --json {options} L")));
        until("it waits", || server.waiting("L") == 1);
        waits
    };
    let old = waits("--supersede");
    let new = server.starts("acquire --json --supersede", "L");
    outputs.push(old.end().exits(79));
    server.run(&format!("release --force --id {} --reason old L", first(&server, "waiters")));
    outputs.push(new.end().exits(79));
    let stopped = waits("");
    stopped.signal("TERM");
    outputs.push(stopped.end());
    held.finish().exits(0);

    let pid = std::process::id().to_string();
    let mut kept = server.rlock(["acquire", "--json", "--while-pid", &pid, "L"]);
    let (kept, wire) = held_back(&server, &mut kept);
    server.run("release --force --now L").exits(0);
    acquire(&server, &[], "L");
    wire.part(false);
    outputs.push(kept.end().exits(76));
    is_as_on_the_page("acquire", &outputs);
}

#[test]
fn what_renew_and_release_print_is_on_their_pages() {
    let server = Server::start();
    let token = acquire(&server, &[], "L");
    let mut renewed = failures(&format!("renew --json L {token}"));
    let mut released = failures(&format!("release --json L {token}"));
    let waits = waiter(&server, &[], "L", "");
    let id = first(&server, "waiters");
    let mut release = |rest: &str, status| {
        released.push(server.run(&format!("release --json {rest}")).exits(status));
    };
    release(&format!("--force --id {id} L"), 0);
    release(&format!("--force --id {id} L"), 77);
    waits.end().exits(79);
    renewed.push(server.run(&format!("renew --json L {token}")).exits(0));
    release(&format!("L {token}"), 0);
    renewed.push(server.run(&format!("renew --json L {token}")).exits(77));
    let held = holder(&server, &["--ttl", "3s"], "L");
    release("--force L", 0);
    held.end().exits(76);
    server.cli(&["SET", "rlock:foreign", "theirs"]);
    release("--force foreign", 75);
    is_as_on_the_page("renew", &renewed);
    is_as_on_the_page("release", &released);
}

#[test]
fn what_inspect_prints_is_on_its_page_with_a_list_of_locks_even_on_failure() {
    let server = Server::start();
    let mut outputs = failures("inspect --json L");
    for output in &outputs {
        let document = output.json();
        assert_eq!((&document["locks"], &document["exit"]), (&json!([]), &output.code().into()));
        let message = document["message"].as_str().unwrap();
        assert!(output.err().ends_with(message), "{output:?}");
    }
    // A holder that is not revoked does not hide that another one is.
    let options = ["--slots", "2", "--ttl", "60s", "--label", "job/1"];
    let stopped = holder(&server, &options, "L");
    stopped.signal("STOP");
    let id = first(&server, "holders");
    let other = holder(&server, &options, "L");
    server.run("exec -n --slots 2 L true").exits(75);
    let waits = waiter(&server, &["--slots", "2"], "L", "");
    let force = server.starts(&format!("release --force --id {id}"), "L").tells("waiting up to ");
    let lock = server.inspect("L");
    let state = |of: u32| {
        let mut holders = lock["holders"].as_array().unwrap().iter();
        holders.find(|holder| holder["pid"] == of).unwrap()["state"].clone()
    };
    assert_eq!((state(stopped.pid()), state(other.pid())), (json!("revoked"), json!("held")));
    assert_eq!(lock["state"], "held");
    // Every other state, the latest hold of a free lock, and a lock that cannot be shown.
    server.run("exec --at-least 1h cooling true").exits(0);
    server.run("exec free true").exits(0);
    server.cli(&["SET", "rlock:foreign", "theirs"]);
    acquire(&server, &["--shared"], "bad");
    outputs.push(server.run("inspect --json -a").exits(0));
    outputs.push(server.run("inspect --json L").exits(0));
    server.spoil("bad");
    let partial = server.run("inspect --json").exits(0);
    let document = partial.json();
    assert_eq!((&document["status"], &document["exit"]), (&json!("config"), &json!(0)));
    assert!(document["message"].as_str().unwrap().starts_with("bad: "), "{document}");
    assert_eq!(document["locks"].as_array().unwrap().len(), 3, "{document}");
    outputs.push(partial);
    is_as_on_the_page("inspect", &outputs);
    force.signal("TERM");
    send_signal(stopped.pid(), "CONT");
    stopped.end().exits(76);
    other.finish().exits(0);
    waits.finish().exits(0);
}

#[test]
fn a_watch_of_a_server_that_does_not_answer_prints_documents_too() {
    let mut server = Server::start();
    let mut watch = server.starts("inspect --json -W", "50ms");
    let mut next = || serde_json::from_str::<Value>(&watch.line()).unwrap();
    assert_eq!(next(), json!({"format": 1, "locks": []}));
    server.kill();
    let mut failed = std::iter::repeat_with(next).skip_while(|it| it["status"].is_null());
    let failed = failed.next().unwrap();
    assert_eq!((&failed["status"], &failed["exit"]), (&json!("unreachable"), &json!(69)));
    assert_eq!((&failed["format"], &failed["locks"]), (&json!(1), &json!([])));
}
