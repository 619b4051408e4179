//! A test that waits in vain fails, and names what it waited for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use crate::support::limit::{limit, set_limit};
use crate::support::{Running, run, until};

/// Runs until its stdin ends, and does not do what the test waits for.
fn busy() -> Running {
    let mut running = Running::start(Command::new("sh").args(["-c", "echo a; echo b >&2; cat"]));
    assert_eq!((running.line(), running.told("b")), ("a".into(), "b".into()));
    running
}

#[track_caller]
fn fails(parts: &[&str], wait: impl FnOnce()) {
    let usual = limit();
    set_limit(Duration::from_millis(50));
    let failed = catch_unwind(AssertUnwindSafe(wait)).expect_err("it waited in vain");
    set_limit(usual);
    let told = failed.downcast_ref::<String>().unwrap();
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
}

#[test]
fn a_wait_in_vain_fails_the_test_and_names_what_it_waited_for() {
    let mut running = busy();
    fails(&["a line", "stdout"], || drop(running.line()));
    fails(&["\"READY\"", "stderr"], || drop(running.told("READY")));
    fails(&["the end of process"], || drop(running.process.wait()));
    fails(&["sleep"], || drop(run(Command::new("sleep").arg("1000"))));
    fails(&["it rains"], || until("it rains", || false));
    // Endless output is a wait in vain too.
    let mut endless = Command::new("sh");
    endless.args(["-c", "while :; do echo y; echo y >&2; done"]);
    let mut running = Running::start(&mut endless);
    fails(&["\"READY\"", "stderr"], || drop(running.told("READY")));
    fails(&["its end", "stdout"], || drop(running.end()));
}
