//! `local:` when rlock dies in the middle of a change.

use std::fs;

use nix::libc::SYS_flock;

use crate::support::server::on_local;
use crate::support::trace::kill_at;
use crate::support::{Finished, Server, acquire, run, waiter};

const FILES: [&str; 2] = [".rlock:L.state", "rlock:L.lock"];

/// The names of all files but drafts, which the sweep removes, and the mark of the sweep.
fn names(server: &Server) -> Vec<String> {
    let files = fs::read_dir(server.locks()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter(|name| !name.ends_with(".draft") && name != ".swept").collect();
    names.sort();
    names
}

/// What rlock reads: whether the lock is free, its fencing token, and whether its lease is long.
fn state(server: &Server) -> (bool, u64, bool) {
    let seen = server.inspect("L");
    let lease = seen["ttl_ms"].as_u64().unwrap_or(0);
    (seen["state"] == "free", seen["fence"].as_u64().unwrap(), lease > 5_400_000)
}

fn is_held(server: &Server) -> bool {
    !server.is_free("L")
}

/// Kills rlock at each system call of a change in turn. After each kill, calls `check` with whether
/// the state has changed. The system calls of a change begin when rlock locks the state.
#[track_caller]
fn each_death(server: &Server, prepare: impl Fn() -> Vec<String>, check: impl Fn(bool)) {
    let mut has_changed = Vec::new();
    for calls in 0.. {
        let arguments = prepare();
        let before = state(server);
        let killed = kill_at(&mut server.rlock(&arguments), SYS_flock, calls);
        let changed = state(server) != before;
        check(changed);
        has_changed.push(changed);
        if !killed {
            break;
        }
    }
    assert!(has_changed.len() > 10, "{has_changed:?}");
    assert!(has_changed.is_sorted() && !has_changed[0], "the change is one step: {has_changed:?}");
    assert!(has_changed.pop().unwrap(), "the last one was not killed");
}

#[test]
fn a_death_at_any_system_call_leaves_the_old_state_or_the_new_one() {
    on_local(|| {
        let server = Server::start();
        let revoke = || server.run("release --force --now L");
        let arguments = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        // The state then keeps its size, so that each change makes the same system calls.
        for _ in 0..70 {
            server.run("exec L true");
        }

        let free = || {
            revoke();
            arguments(&["acquire", "-n", "L"])
        };
        each_death(&server, free, |changed| {
            assert_eq!(names(&server), FILES);
            assert_eq!(is_held(&server), changed);
            let next = server.run("exec -n L true");
            assert_eq!(next.code(), if changed { 75 } else { 0 }, "{next:?}");
        });

        let held = |words: &'static [&str]| {
            let server = &server;
            move || {
                revoke();
                let token = acquire(server, &["--ttl", "1h"], "L");
                arguments(&[words, &["L", &token]].concat())
            }
        };
        each_death(&server, held(&["release"]), |changed| {
            assert_eq!(names(&server), FILES);
            assert_eq!(is_held(&server), !changed);
            let next = server.run("exec -n L true");
            assert_eq!(next.code(), if changed { 0 } else { 75 }, "{next:?}");
        });
        each_death(&server, held(&["renew", "--ttl", "2h"]), |_| {
            assert_eq!(names(&server), FILES);
            server.run("exec -n L true").exits(75);
        });
    });
}

#[test]
fn a_death_at_any_system_call_leaves_the_other_waiters_in_the_queue() {
    on_local(|| {
        let server = Server::start();
        let token = acquire(&server, &["--ttl", "1h"], "L");
        let mut waiters: Vec<_> =
            ["1", "2", "3"].map(|word| waiter(&server, &["--label", word], "L", word)).into();
        let mut deaths = 0;
        // The one that dies enters the queue and leaves it again.
        while kill_at(&mut server.rlock(["acquire", "-w", "50ms", "L"]), SYS_flock, deaths) {
            let lock = server.inspect("L");
            let labels = lock["waiters"].as_array().unwrap().iter().map(|waiter| &waiter["label"]);
            assert!(labels.take(3).eq(["1", "2", "3"]), "after {deaths} calls: {lock}");
            deaths += 1;
        }
        assert!(deaths > 20, "{deaths}");
        run(&mut server.rlock(["release", "L", &token]));
        for (waiter, word) in waiters.iter_mut().zip(["1", "2", "3"]) {
            assert_eq!(waiter.line(), format!("ENTERED {word}"));
        }
    });
}

#[test]
fn a_death_in_the_first_changes_of_a_lock_does_not_keep_others_out() {
    on_local(|| {
        for has_state in [false, true] {
            for calls in 0.. {
                let server = Server::start();
                if has_state {
                    server.run("exec L true");
                }
                let mut change = server.rlock(["acquire", "-n", "L"]);
                let killed = kill_at(&mut change, SYS_flock, calls);
                let held = is_held(&server);
                for _ in 0..2 {
                    let next = server.run("exec -n L true");
                    assert_eq!(next.code(), if held { 75 } else { 0 }, "{next:?}");
                }
                assert_eq!(names(&server), FILES);
                if !killed {
                    assert!(held);
                    break;
                }
            }
        }
    });
}
