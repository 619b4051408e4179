//! `local:` when rlock dies in the middle of a change.

use std::rc::Rc;

use nix::libc::SYS_flock;

use crate::local::names;
use crate::support::*;

/// Whether the lock is held. Checks that clients agree about that, and that nothing is left behind.
#[track_caller]
fn is_held(server: &Server) -> bool {
    let is_free = server.is_free("L");
    server.run("exec -n L true").exits(if is_free { 0 } else { 75 });
    let mut left = names(server);
    // The sweep removes drafts, and leaves its mark.
    left.retain(|name| !name.ends_with(".draft") && name != ".swept");
    left.sort();
    assert_eq!(left, [".rlock:L.state", "rlock:L.lock"]);
    !is_free
}

/// Kills rlock at each system call of a change in turn, and checks that the change happens at one
/// of them. The system calls of a change begin when rlock locks the state.
#[track_caller]
fn each_death(was_held: bool, prepare: impl Fn() -> (Rc<Server>, String)) {
    let mut has_changed = Vec::new();
    for calls in 0.. {
        let (server, line) = prepare();
        let killed = kill_at(&mut server.rlock(line.split(' ')), SYS_flock, calls);
        has_changed.push(is_held(&server) != was_held);
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
    let server = Rc::new(Server::local());
    let revoke = || server.run("release --force --now L").exits(0);
    // The state then keeps its size, so that each change makes the same system calls.
    for _ in 0..70 {
        server.run("exec L true");
    }
    each_death(false, || {
        revoke();
        (server.clone(), "acquire -n L".to_owned())
    });
    each_death(true, || {
        revoke();
        (server.clone(), format!("release L {}", acquire(&server, &[], "L")))
    });
    // The first changes of a lock, too.
    for has_state in [false, true] {
        each_death(false, || {
            let server = Server::local();
            if has_state {
                server.run("exec L true");
            }
            (server.into(), "acquire -n L".to_owned())
        });
    }
}

#[test]
fn a_death_at_any_system_call_leaves_the_other_waiters_in_the_queue() {
    let server = Server::local();
    let token = acquire(&server, &["--ttl", "1h"], "L");
    let words = ["1", "2", "3"];
    let waiters = words.map(|word| waiter(&server, &["--label", word], "L", word));
    let mut deaths = 0;
    // The one that dies enters the queue and leaves it again.
    while kill_at(&mut server.rlock(["acquire", "-w", "50ms", "L"]), SYS_flock, deaths) {
        let lock = server.inspect("L");
        let labels = lock["waiters"].as_array().unwrap().iter().map(|waiter| &waiter["label"]);
        assert!(labels.take(3).eq(words), "after {deaths} calls: {lock}");
        deaths += 1;
    }
    assert!(deaths > 20, "{deaths}");
    run(&mut server.rlock(["release", "L", &token])).exits(0);
    for (waiter, word) in waiters.into_iter().zip(words) {
        waiter.end().exits(0).prints(&format!("ENTERED {word}"));
    }
}
