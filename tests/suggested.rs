//! A command that a message suggests does what was meant, and nothing else, when it is typed as it
//! stands.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::errors::{MISTAKES, rows, shows_no_secret};
use crate::support::*;

also_on_local! {
    the_remedy_of_inspect_ends_only_the_hold_whose_process_is_dead,
    a_holder_that_came_meanwhile_is_not_touched,
    what_a_forced_release_suggests_is_about_the_same_lock,
}

/// What stands before each command that could end the hold of a holder that lives.
const IF_DEAD: &str = "if the holder and everything that it started are dead, run rlock release ";

/// How the hold of a lock stands, whether it needs attention, and what the commands of
/// inspect and of a forced release free: this hold, the whole lock, or nothing.
const STANDINGS: &[(&str, i32, &str, &str)] = &[
    ("held", 0, "", ""),
    ("held by acquire", 0, "", "--id ID L"),
    ("held by a dead process", 1, "--id ID L", "--id ID L"),
    ("not renewed", 1, "", "--id ID L"),
    ("revoked a moment ago", 0, "", ""),
    ("revoked, not released", 1, "--id ID L", "--id ID L"),
    ("revoked, held by acquire", 1, "--id ID L", "--id ID L"),
    ("kept by --at-least", 0, "", ""),
    ("closed", 1, "L", "L"),
    ("held by another tool", 1, "L", "L"),
    ("held by another tool for a while", 0, "", "L"),
    ("held by another version", 0, "", ""),
];

/// A server whose lock L stands like this, and what has to run for that.
fn standing(state: &str) -> (Server, Vec<Running>) {
    let server = Server::with_clock(Duration::ZERO, &[]);
    let mut running = Vec::new();
    let revoke = || {
        let force = Running::start(&mut server.rlock(["release", "--force", "L"]));
        until("it is revoked", || server.inspect("L")["state"] == "revoked");
        force.ends_by("TERM");
    };
    match state {
        "held by acquire" | "revoked, held by acquire" => drop(acquire(&server, &[], "L")),
        "kept by --at-least" => drop(server.run("exec --at-least 1h L true").exits(0)),
        "held by another tool" => drop(server.cli(&["SET", "rlock:L", "theirs"])),
        "held by another tool for a while" => {
            server.cli(&["SET", "rlock:L", "theirs", "EX", "60"]);
        }
        "held by another version" => {
            let token = "5f0c21aa-0000-8000-8000-000000000000";
            server.cli(&["SET", "rlock:L", token, "EX", "60"]);
        }
        "closed" => {
            let holder = holder(&server, &["--on-lost", "continue"], "L");
            running.extend([holder, waiter(&server, &[], "L", "later")]);
            server.forget_all();
            let closed = || server.inspect("L").to_string().contains(r#""id":"closed""#);
            until("it is closed", closed);
        }
        _ => running.push(holder(&server, &[], "L")),
    }
    match state {
        "held by a dead process" => running[0].process.kill(),
        "not renewed" | "revoked a moment ago" | "revoked, not released" => {
            running[0].signal("STOP");
        }
        _ => {}
    }
    if state.contains("revoked") {
        revoke();
    }
    if state.contains(", not released") || state == "not renewed" {
        server.step_clock(21_000);
    }
    (server, running)
}

/// What inspect says about the lock, or a forced release, which is given up if it waits.
fn told(server: &Server, state: &str, by_force: bool) -> String {
    let ends = state == "kept by --at-least" || state.contains("by another");
    match by_force {
        false => server.run("inspect L").exits(0).out(),
        true if ends => server.run("release --force L").err(),
        true => {
            let mut force = Running::start(&mut server.rlock(["release", "--force", "L"]));
            let told = force.told(" up to ");
            force.ends_by("TERM");
            told
        }
    }
}

#[test]
fn no_message_about_a_hold_leads_to_harm() {
    for (state, attention, of_page, of_force) in STANDINGS {
        for (by_force, id) in [(false, of_page), (true, of_force)] {
            let (server, running) = standing(state);
            let other = holder(&server, &[], "M");
            server.run("inspect --attention L").exits(*attention);
            for line in ["acquire -n L", "exec -w 10ms L true", "release L", "unlock L"] {
                let output = server.run(line);
                let told = output.out() + &output.err();
                assert!(!told.contains("--now") && !told.contains("--force"), "{state}: {told}");
            }
            let own = server.inspect("L")["holders"][0]["id"].as_str().unwrap_or("none").to_owned();
            let told = told(&server, state, by_force);
            let command = told.split_once(IF_DEAD).map(|(_, rest)| rest.lines().next().unwrap());
            let named = command.map(|it| it.replace(&own, "ID").replace("--force --now ", ""));
            assert_eq!(named.unwrap_or_default(), if id.is_empty() { "" } else { id }, "{told}");
            assert_eq!(told.matches("--now").count(), command.iter().count(), "{state}: {told}");
            if command.is_some() {
                types(&server, suggested(&told)).exits(0);
                let held = server.inspect("L")["holders"].to_string();
                assert!(!held.contains(&own), "{state}: {held}");
            }
            drop(running);
            other.finish().exits(0);
        }
    }
}

/// The command in a message. It ends with the line.
#[track_caller]
fn suggested(told: &str) -> &str {
    let begins = |begin: &str| told.find(begin);
    let start =
        begins("RLOCK_URL=URL rlock ").or(begins("rlock release ")).or(begins("rlock inspect "));
    let start = start.unwrap_or_else(|| panic!("no command in {told}"));
    told[start..].lines().next().unwrap()
}

/// Types a command in a shell that uses this server.
#[track_caller]
fn types(server: &Server, command: &str) -> Output {
    let program = server.directory().join("rlock");
    if !program.exists() {
        symlink(binary(), &program).unwrap();
    }
    let mut shell: Command = server.program("sh -c", command);
    let path = std::env::var("PATH").unwrap();
    run(shell.env("PATH", format!("{}:{path}", server.directory().display())))
}

/// An rlock on a server that only its options name, where the environment names another one.
fn elsewhere(here: &Server, other: &Server, prefix: &str, words: &[&str]) -> Command {
    let mut command = rlock(words[..1].iter().chain(&["--url", &here.url(), "--prefix", prefix]));
    command.args(&words[1..]).env("RLOCK_URL", other.url()).env("RLOCK_PREFIX", "other:");
    command
}

/// The processes that hold a lock.
fn holders(mut inspect: Command) -> Vec<u64> {
    let lock = run(&mut inspect).json()["locks"][0].clone();
    let pid = |holder: &Value| holder["pid"].as_u64().unwrap();
    lock["holders"].as_array().unwrap().iter().map(pid).collect()
}

#[test]
fn the_remedy_of_inspect_ends_only_the_hold_whose_process_is_dead() {
    let (here, other) = (Server::start(), Server::start());
    for (prefix, name) in [("rlock:", "deploy;id>x"), ("a;b:", "it's"), ("", "-n")] {
        let start = |server: &Server| {
            let words = ["exec", "--slots", "2", "--ttl", "60s", "--", name, "sh", "-c"];
            let mut exec = elsewhere(server, &other, prefix, &words);
            Running::start(exec.arg(READY)).prints_first("READY")
        };
        let (mut dead, alive, others) = (start(&here), start(&here), start(&other));
        dead.process.kill();
        let inspect =
            |server| elsewhere(server, &other, prefix, &["inspect", "--json", "--", name]);
        let mut page = elsewhere(&here, &other, prefix, &["inspect", "--", name]);
        let page = run(&mut page).exits(0).out();
        types(&other, suggested(&page)).exits(0).shows("revoked").shows(&dead.pid().to_string());
        assert_eq!(holders(inspect(&here)), [u64::from(alive.pid())], "{page}");
        assert_eq!(holders(inspect(&other)), [u64::from(others.pid())], "{page}");
        types(&other, suggested(&page)).exits(77);
        alive.finish().exits(0);
        others.finish().exits(0);
    }
    assert!(!here.directory().join("x").exists());
}

#[test]
fn a_holder_that_came_meanwhile_is_not_touched() {
    let server = Server::start();
    holder(&server, &["--ttl", "60s"], "L").process.kill();
    let page = server.run("inspect L").exits(0).out();
    types(&server, suggested(&page)).exits(0);
    let next = holder(&server, &[], "L");
    // The remedy of the refusal shows who holds the lock now.
    let refused = types(&server, suggested(&page)).exits(77).err();
    types(&server, suggested(&refused)).exits(0).shows(&format!("pid {} (sh)", next.pid()));
    next.finish().exits(0);
}

#[test]
fn a_command_on_a_url_with_a_password_shows_none_and_touches_no_server() {
    let (here, other) = (Server::on_tcp(&["--requirepass", "s3cret"]), Server::start());
    let url = here.tcp_url().replace("//", "//:s3cret@");
    let [dead, _] = [&url, &other.url()].map(|url| {
        let mut holder = rlock(["exec", "--ttl", "60s", "L", "sh", "-c", READY]);
        let mut holder = Running::start(holder.env("RLOCK_URL", url)).prints_first("READY");
        holder.process.kill();
        holder.pid()
    });
    let inspect = || run(rlock(["inspect", "--url", &url, "L"]).env("RLOCK_URL", other.url()));
    let page = inspect().exits(0);
    shows_no_secret(&page);
    let command = page.out();
    let command = suggested(&command);
    let refused = types(&other, command).exits(78);
    shows_no_secret(&refused);
    inspect().exits(0);
    types(&other, &command.replace("=URL", &format!("={url}"))).exits(0).shows(&dead.to_string());
    inspect().exits(1);
    other.run("inspect L").exits(0);
}

#[test]
fn what_a_forced_release_suggests_is_about_the_same_lock() {
    let (here, other) = (Server::start(), Server::start());
    let on = |server: &Server, words: &[&str]| elsewhere(server, &other, "p:", words);
    let kept = ["acquire", "--shared", "--ttl", "1h", "L"];
    for server in [&here, &here, &other] {
        run(&mut on(server, &kept)).exits(0);
    }
    let holds = |server| holders(on(server, &["inspect", "--json", "L"])).len();
    let mut force = Running::start(&mut on(&here, &["release", "--force", "L"]));
    for left in [1, 0] {
        // It names one holder, and the next force the other one.
        let told = force.told(IF_DEAD);
        types(&other, suggested(&told)).exits(0);
        assert_eq!((holds(&here), holds(&other)), (left, 1), "{told}");
        if left > 0 {
            force.ends_by("TERM");
            force = Running::start(&mut on(&here, &["release", "--force", "L"]));
        }
    }
    force.end().exits(0).says("no longer holds the lock");
    let unknown = run(&mut on(&here, &["release", "--force", "--id", "ffffffff", "L"])).exits(77);
    types(&other, suggested(&unknown.err())).exits(1).shows("L: free\n  history  ");
}

#[test]
fn what_is_said_about_another_tools_lock_deletes_its_key() {
    let (here, other) = (Server::start(), Server::start());
    for server in [&here, &other] {
        server.cli(&["SET", "p:L", "theirs"]);
    }
    let on = |words: &[&str]| elsewhere(&here, &other, "p:", words);
    for told in [
        run(&mut on(&["inspect", "L"])).exits(0).out(),
        run(&mut on(&["release", "--force", "L"])).exits(75).err(),
    ] {
        here.cli(&["SET", "p:L", "theirs"]);
        types(&other, suggested(&told)).exits(0);
        assert_eq!(
            (here.cli(&["EXISTS", "p:L"]), other.cli(&["EXISTS", "p:L"])),
            ("0".into(), "1".into())
        );
    }
}

#[test]
fn what_is_said_about_a_command_line_touches_no_lock() {
    let (server, _) = acquired(&[]);
    let (before, keys) = (server.stored("L"), server.cli(&["DBSIZE"]));
    let mut typed = 0;
    for (_, answer) in rows(MISTAKES) {
        // The others have another placeholder.
        if let Some((_, command)) = answer.split_once("run rlock ") {
            let command = format!("rlock {}", command.replace("NAME", "L"));
            let shown = match command.rsplit(' ').next() {
                Some("--help") => "Usage: ",
                Some("--version") => concat!("rlock ", env!("CARGO_PKG_VERSION")),
                _ => "L: ",
            };
            types(&server, &command).exits(0).shows(shown);
            typed += 1;
        }
    }
    assert!(typed > 0);
    assert_eq!(server.stored("L"), before);
    assert_eq!(server.cli(&["DBSIZE"]), keys);
}
