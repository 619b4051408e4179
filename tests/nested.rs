//! A command that asks for an enclosing lock does not wait for itself.

use crate::support::{self, Finished, Running, Server, binary, holder, run};

#[test]
fn a_command_that_asks_for_an_enclosing_lock_fails_at_once() {
    let rlock = binary();
    let server = Server::start();
    for inner in ["exec L true", "exec -n L true", "exec -w 1h L true", "acquire L"] {
        let script = format!("{rlock} {inner}; echo $?");
        let output = run(&mut server.rlock(["exec", "L", "sh", "-c", &script]));
        assert_eq!(output.out(), "75", "{inner}: {output:?}");
        assert!(output.err().contains("(see RLOCK_HELD); use --reentrant"), "{output:?}");
        // It leaves no entry in the queue, to which the lock would be granted.
        assert!(server.is_free("L"));
    }
    // Even if it would not have to wait.
    for mode in ["-s", "--slots 2"] {
        let script = format!("{rlock} exec -n {mode} L true; echo $?");
        let outer = format!("exec {mode} L sh -c");
        let outer = outer.split(' ').chain([script.as_str()]);
        assert_eq!(run(&mut server.rlock(outer)).out(), "75", "{mode}");
    }
    // No option enters a slot again.
    let script = format!("{rlock} exec --reentrant L true; echo $?");
    let output = run(&mut server.rlock(["exec", "--slots", "2", "L", "sh", "-c", &script]));
    assert_eq!(output.out(), "75", "{output:?}");
    assert!(output.err().ends_with("--reentrant cannot enter it; use another lock"), "{output:?}");
    // At any depth.
    let deep = format!("{rlock} exec M {rlock} exec -E 9 L true; echo $?");
    let output = run(&mut server.rlock(["exec", "L", "sh", "-c", &deep]));
    assert_eq!(output.out(), "9", "{output:?}");
    // In a script that holds the lock through acquire.
    let script = format!("eval \"$({rlock} acquire --shell A)\"; {rlock} exec A true; echo $?");
    let output = run(&mut server.rlock(["exec", "L", "sh", "-c", &script]));
    assert_eq!(output.out(), "75", "{output:?}");
}

#[test]
fn an_unreadable_enclosing_hold_does_not_hide_the_others() {
    let rlock = binary();
    let server = Server::start();
    let bad = r#"RLOCK_HELD="$(printf '\377=\377') $RLOCK_HELD x=$(printf '\303')""#;
    let script = format!("export {bad}; {rlock} exec M {rlock} exec L true; echo $?");
    let output = run(&mut server.rlock(["exec", "L", "sh", "-c", &script]));
    assert_eq!(output.out(), "75", "{output:?}");
    assert!(output.err().contains("(see RLOCK_HELD); use --reentrant"), "{output:?}");
}

#[test]
fn locks_of_other_names_nest() {
    let server = Server::start();
    let output = run(&mut server.rlock(["exec", "a", binary(), "exec", "b", "echo", "in"]));
    assert_eq!(output.out(), "in");
}

#[test]
fn a_command_waits_for_the_lock_of_its_sibling() {
    let rlock = binary();
    let server = Server::start();
    let sibling = holder(&server, &[], "L");
    let script = format!("{rlock} exec L echo in");
    let mut nested = Running::start(&mut server.rlock(["exec", "outer", "sh", "-c", &script]));
    nested.told("waiting at position 1");
    sibling.finish();
    nested.finish().prints("in");
}

#[test]
fn an_ended_enclosing_hold_blocks_nothing() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let mut command = server.rlock(["exec", "L", "echo", "in"]);
    command.env("RLOCK_HELD", "rlock:L=00000000-0000-4000-8000-000000000000");
    let mut left_over = Running::start(&mut command);
    left_over.told("waiting at position 1");
    first.finish();
    left_over.finish().prints("in");
}

support::also_on_local! {
    a_command_that_asks_for_an_enclosing_lock_fails_at_once,
    an_unreadable_enclosing_hold_does_not_hide_the_others,
    locks_of_other_names_nest,
    a_command_waits_for_the_lock_of_its_sibling,
    an_ended_enclosing_hold_blocks_nothing,
}
