//! The JSON documents have the fields and the values that the man pages list, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;

use nix::errno::Errno;
use nix::libc::SYS_signalfd4;
use serde_json::Value;

use crate::support::*;
use crate::while_pid::held_back;

/// The section JSON of a man page: each field as a path, with its text.
fn page(subcommand: &str) -> BTreeMap<String, String> {
    let path = format!("{}/man/rlock-{subcommand}.1", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(path).unwrap().replace('\\', "\u{0}");
    let section = page.split(".SH JSON\n").nth(1).unwrap().split("\n.SH ").next().unwrap();
    let mut fields = BTreeMap::new();
    for entry in section.split(".TP\n\u{0}fB").skip(1) {
        let (terms, text) = entry.split_once("\u{0}fR\n").unwrap();
        let mut last = "";
        for term in terms.split(", ") {
            let path = match term.strip_prefix('.') {
                Some(name) => format!("{}.{name}", last.rsplit_once('.').unwrap().0),
                None => term.to_owned(),
            };
            if !term.starts_with('.') {
                last = term;
            }
            fields.insert(path, text.replace('\u{0}', "").replace('\n', " "));
        }
    }
    fields
}

/// The values of each field in these documents, by its path.
fn fields(value: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    match value {
        Value::Object(fields_of) => {
            for (name, value) in fields_of {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                fields(value, &path, found);
            }
        }
        Value::Array(items) => {
            found.entry(format!("{path}[]")).or_default();
            items.iter().for_each(|item| fields(item, &format!("{path}[]"), found));
        }
        value => {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            found.entry(path.to_owned()).or_default().insert(shown);
        }
    }
}

/// The fields of a client are on the page of inspect.
fn on_the_page_of_inspect(path: &str) -> Option<String> {
    let all = [
        ("revoked[].", "holders"),
        ("holders[].", "holders"),
        ("superseded_by.", "holders"),
        ("removed.", "waiters"),
    ];
    let (begin, what) = all.into_iter().find(|(begin, _)| path.starts_with(begin))?;
    Some(format!("locks[].{what}[].{}", &path[begin.len()..]))
}

/// Compares what a subcommand has printed with its page. An internal error is not made.
#[track_caller]
fn is_as_on_the_page(subcommand: &str, outputs: &[Output]) {
    let mut found = BTreeMap::new();
    for output in outputs {
        for line in output.out().lines() {
            assert!(line.starts_with("{\"format\":1,"), "{line}");
            fields(&serde_json::from_str(line).unwrap(), "", &mut found);
        }
    }
    let (page, inspect) = (page(subcommand), page("inspect"));
    for (path, values) in &found {
        // A list of objects is on the page by their fields.
        if path.ends_with("[]") && page.keys().any(|other| other.starts_with(path)) {
            continue;
        }
        let text = page.get(path).or_else(|| inspect.get(&on_the_page_of_inspect(path)?));
        let text = text.unwrap_or_else(|| panic!("{path} is not on the page of {subcommand}"));
        let name = path.rsplit('.').next().unwrap();
        let text = match text.trim() {
            "As for holders." => &inspect[&format!("locks[].holders[].{name}")],
            "As for waiters." => &inspect[&format!("locks[].waiters[].{name}")],
            _ => text,
        };
        if ["status", "state", "mode", "kind", "ended", "format", "role"].contains(&name) {
            let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
            let is_missing = |value: &&String| *value != "null" && !words.contains(&value.as_str());
            let missing = values.iter().find(is_missing);
            assert_eq!(missing, None, "{path} of {subcommand}: {text}");
        }
    }
    for path in page.keys() {
        let is_found = |other: &String| other == path || other.starts_with(&format!("{path}."));
        assert!(found.keys().any(is_found), "{subcommand} does not print {path}: {found:#?}");
    }
    let listed = page["status"].replace("Absent if locks is complete.", "");
    let listed = listed.replace("On failure, even if only some locks are missing:", "");
    let listed =
        listed.replace("On failure:", "").replace(" or ", " ").replace(['.', ',', ':'], " ");
    let mut listed: BTreeSet<String> = listed.split_whitespace().map(str::to_owned).collect();
    listed.remove("internal");
    let mut printed = found["status"].clone();
    printed.remove("internal");
    assert_eq!(printed, listed, "{subcommand}");
}

/// What a subcommand prints if it cannot do anything.
fn failures(line: &str) -> Vec<Output> {
    let away = format!("redis://127.0.0.1:{}", free_port());
    let failed = |url: &str, line: &str, status| run(&mut at(url, line)).exits(status);
    vec![
        failed(&away, line, 69),
        failed("nonsense", line, 78),
        failed(&away, &format!("{line} --no-such-option"), 64),
    ]
}

#[test]
fn what_acquire_prints_is_on_its_page() {
    let server = Server::on_tcp(&[]);
    let mut outputs = failures("acquire --json L");
    outputs.push(server.run("acquire --json --slots 2 --ttl 60s slots").exits(0));
    let first = holder(&server, &[], "L");
    outputs.push(server.run("acquire --json -n L").exits(75));
    let waits = |options: &str, count| {
        let waits = Running::start(&mut at(&server.url(), &format!("acquire --json {options} L")));
        until("it waits", || server.waiting("L") == count);
        waits
    };
    let old = waits("--supersede", 1);
    let new = waits("--supersede", 1);
    outputs.push(old.end().exits(79));
    let id = server.inspect("L")["waiters"][0]["id"].as_str().unwrap().to_owned();
    run(&mut server.rlock(["release", "--force", "--id", &id, "--reason", "old", "L"])).exits(0);
    outputs.push(new.end().exits(79));
    let stopped = waits("", 1);
    outputs.push(stopped.ends_by("TERM"));
    first.finish().exits(0);

    let pid = std::process::id().to_string();
    let mut kept = server.rlock(["acquire", "--json", "--while-pid", &pid, "L"]);
    let (kept, wire) = held_back(&server, &mut kept);
    server.run("release --force --now L").exits(0);
    acquire(&server, &[], "L");
    wire.part(false);
    outputs.push(kept.end().exits(76));
    is_as_on_the_page("acquire", &outputs);
    let mut refused = server.rlock(["acquire", "--json", "M"]);
    refuse(&mut refused, &[Refused::Call(SYS_signalfd4)], Errno::EPERM);
    assert_eq!(run(&mut refused).exits(70).json()["status"], "internal");
}

#[test]
fn what_renew_and_release_print_is_on_their_pages() {
    let (server, token) = acquired(&[]);
    let mut renewed = failures(&format!("renew --json L {token}"));
    let mut released = failures(&format!("release --json L {token}"));
    renewed.push(server.run(&format!("renew --json L {token}")).exits(0));
    let waits = waiter(&server, &[], "L", "");
    let id = server.inspect("L")["waiters"][0]["id"].as_str().unwrap().to_owned();
    released.push(server.run(&format!("release --json --force --id {id} L")).exits(0));
    waits.end().exits(79);
    released.push(server.run(&format!("release --json --force --id {id} L")).exits(77));
    released.push(server.run(&format!("release --json L {token}")).exits(0));
    for (outputs, subcommand) in [(&mut renewed, "renew"), (&mut released, "release")] {
        outputs.push(server.run(&format!("{subcommand} --json L {token}")).exits(77));
    }
    let held = holder(&server, &["--ttl", "3s"], "L");
    released.push(server.run("release --json --force L").exits(0));
    held.end().exits(76);
    server.cli(&["SET", "rlock:foreign", "theirs"]);
    released.push(server.run("release --json --force foreign").exits(75));
    is_as_on_the_page("renew", &renewed);
    is_as_on_the_page("release", &released);
}

#[test]
fn what_inspect_prints_is_on_its_page_with_a_list_of_locks_even_on_failure() {
    let server = Server::start();
    let mut outputs = failures("inspect --json");
    outputs.extend(failures("inspect --json L"));
    for (output, name) in outputs.iter().zip([false, false, false, true, true, false]) {
        let document = output.json();
        let none = (&Value::Array(vec![]), &output.code().into());
        assert_eq!((&document["locks"], &document["exit"]), none);
        assert_eq!(document["name"].as_str(), name.then_some("L"), "{document}");
        let told = [if name { "L: " } else { "" }, document["message"].as_str().unwrap()];
        assert_eq!(format!("rlock: {}", told.concat()), output.err());
    }
    outputs.extend(failures("inspect --json --servers"));
    outputs.push(server.run("inspect --json --servers").exits(1));
    // Of two holders, one is revoked, which the other one does not hide.
    let options = ["--slots", "2", "--ttl", "60s", "--label", "job/1"];
    let [stopped, other] = [(); 2].map(|()| holder(&server, &options, "L"));
    stopped.signal("STOP");
    server.run("exec -n --slots 2 L true").exits(75);
    let waits = waiter(&server, &["--slots", "2"], "L", "");
    let lock = server.inspect("L");
    let mut holders = lock["holders"].as_array().unwrap().iter();
    let id = holders.find(|it| it["pid"] == stopped.pid()).unwrap()["id"].as_str().unwrap();
    let force = server.starts(&format!("release --force --id {id}"), "L").tells("waiting up to ");
    let lock = server.inspect("L");
    let holders = lock["holders"].as_array().unwrap().iter();
    let states = holders.map(|it| (it["pid"].as_u64().unwrap(), it["state"].as_str().unwrap()));
    let expected = [(stopped.pid(), "revoked"), (other.pid(), "held")].map(|(p, s)| (p.into(), s));
    assert_eq!((BTreeSet::from_iter(states), &lock["state"]), (expected.into(), &"held".into()));
    // Every other state, and the latest hold of a free lock.
    server.run("exec --at-least 1h cooling true").exits(0);
    server.run("exec free true").exits(0);
    server.cli(&["SET", "rlock:foreign", "theirs"]);
    acquire(&server, &["--shared"], "shared");
    outputs.push(server.run("inspect --json -a").exits(0));
    outputs.push(server.run("inspect --json L").exits(0));
    // Some locks cannot be shown.
    acquire(&server, &[], "bad");
    server.spoil("bad");
    let partial = server.run("inspect --json").exits(78);
    let document = partial.json();
    assert_eq!((&document["status"], &document["exit"]), (&"config".into(), &78.into()));
    assert!(document["message"].as_str().unwrap().starts_with("bad: "), "{document}");
    assert_eq!(document["locks"].as_array().unwrap().len(), 4, "{document}");
    outputs.push(partial);
    is_as_on_the_page("inspect", &outputs);
    force.signal("TERM");
    stopped.ends_by("CONT").exits(76);
    other.finish().exits(0);
    waits.finish().exits(0);
}

#[test]
fn a_watch_of_a_server_that_does_not_answer_prints_documents_too() {
    let (mut server, _) = acquired(&["--ttl", "1h"]);
    let mut watch = server.starts("inspect --json -W", "50ms");
    let mut next = || serde_json::from_str::<Value>(&watch.line()).unwrap();
    assert_eq!(next()["locks"][0]["name"], "L");
    server.kill();
    let failed = std::iter::repeat_with(next).find(|document| document["status"] != Value::Null);
    let failed = failed.unwrap();
    assert_eq!((&failed["status"], &failed["exit"]), (&"unreachable".into(), &69.into()));
    assert_eq!((&failed["format"], &failed["locks"]), (&1.into(), &Value::Array(vec![])));
    assert!(failed["message"].as_str().unwrap().contains("cannot connect"), "{failed}");
}
