//! A command that asks for an enclosing lock does not wait for itself.

use crate::support::{self, *};

#[test]
fn a_command_that_asks_for_an_enclosing_lock_fails_at_once() {
    let server = Server::start();
    let reentrant = "(see RLOCK_HELD); use --reentrant";
    let slot = "--reentrant cannot enter it; use another lock";
    for (outer, inner, told) in [
        ("L", "exec L true", reentrant),
        ("L", "exec -n L true", reentrant),
        ("L", "exec -w 1h L true", reentrant),
        ("L", "acquire L", reentrant),
        // Even if it would not have to wait.
        ("-s L", "exec -n -s L true", reentrant),
        ("--slots 2 L", "exec -n --slots 2 L true", "use another lock"),
        // No option enters a slot again.
        ("--slots 2 L", "exec --reentrant L true", slot),
        ("--slots 1 L", "exec --slots 1 L true", "use another lock"),
        // At any depth.
        ("L", "exec M $rlock exec L true", reentrant),
    ] {
        let script = format!("$rlock {inner}; echo $?");
        server.exec_script(outer, &script).prints("75").says(told);
        // It leaves no entry in the queue, to which the lock would be granted.
        assert!(server.is_free("L"), "{inner}");
    }
    // In a script that holds the lock through acquire.
    let script = "eval \"$($rlock acquire --shell A)\"; $rlock exec A true; echo $?";
    server.exec_script("L", script).prints("75");
    server.exec_script("L", "$rlock exec -E 9 L true; echo $?").prints("9");
    // Enclosing holds that are unreadable or have no token do not hide the others.
    let bad = r#"RLOCK_HELD="$(printf '\377=\377') $RLOCK_HELD rlock:L=1 x=$(printf '\303')""#;
    let script = format!("export {bad}; $rlock exec M $rlock exec L true; echo $?");
    server.exec_script("L", &script).prints("75").says(reentrant);
}

#[test]
fn a_command_waits_for_the_lock_of_its_sibling() {
    let (server, sibling) = held(&[]);
    let nested = ["exec", "outer", binary(), "exec", "L", "echo", "in"];
    let nested = Running::start(&mut server.rlock(nested)).tells("waiting at position 1");
    sibling.finish();
    nested.finish().prints("in");
}

#[test]
fn an_ended_enclosing_hold_blocks_nothing() {
    let (server, first) = held(&[]);
    let mut command = server.rlock(["exec", "L", "echo", "in"]);
    command.env("RLOCK_HELD", "rlock:L=00000000-0000-4000-8000-000000000000");
    let left_over = Running::start(&mut command).tells("waiting at position 1");
    first.finish();
    left_over.finish().prints("in");
}

support::also_on_local! {
    a_command_that_asks_for_an_enclosing_lock_fails_at_once,
    an_ended_enclosing_hold_blocks_nothing,
}
