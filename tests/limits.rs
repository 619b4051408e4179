//! A test that waits in vain fails, and says what it waited for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use crate::support::limit::set_limit;
use crate::support::{Running, run, until};

/// Something that goes on until its stdin ends, and does not do what is waited for.
fn busy() -> Running {
    let mut running = Running::start(Command::new("sh").args(["-c", "echo a; echo b >&2; cat"]));
    assert_eq!((running.line(), running.told("b")), ("a".into(), "b".into()));
    running
}

#[track_caller]
fn fails(parts: &[&str], wait: impl FnOnce()) {
    set_limit(Duration::from_millis(50));
    let failed = catch_unwind(AssertUnwindSafe(wait)).expect_err("it waited in vain");
    let told = failed.downcast_ref::<String>().unwrap();
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
}

#[test]
fn what_is_waited_for_in_vain_fails_the_test_and_is_named() {
    let mut running = busy();
    fails(&["a line", "stdout"], || drop(running.line()));
    fails(&["\"READY\"", "stderr"], || drop(running.told("READY")));
    fails(&["the end of process"], || drop(running.process.wait()));
    let mut running = busy();
    fails(&["its end", "stdout"], || {
        running.say("c");
        drop(running.end());
    });
    fails(&["sleep"], || drop(run(Command::new("sleep").arg("1000"))));
    fails(&["it rains"], || until("it rains", || false));
}
