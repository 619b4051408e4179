//! acquire --while-pid: a keeper holds the lock for as long as a process lives, and no longer.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::process::Command;

use support::{Finished, Running, Server, is_gone, run, until};

/// A shell script with the lock L, that says HELD when it has it and then does as it is told.
fn script(server: &Server, body: &str) -> Command {
    let mut shell = Command::new("sh");
    let rlock = env!("CARGO_BIN_EXE_rlock");
    shell.arg("-c").arg(format!(
        "t=$({rlock} acquire --ttl ${{TTL:-2s}} --label script --while-pid $$ L) || exit; echo HELD; {body}"
    ));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RLOCK_") {
            shell.env_remove(name);
        }
    }
    shell.env("RLOCK_URL", server.url());
    shell
}

/// The keeper of the lock, by the one thing that tells it apart.
fn keeper_of(script: u32) -> Option<String> {
    let found =
        Command::new("pgrep").args(["-f", "--", &format!("--while-pid {script} L$")]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    found.lines().next().map(str::to_owned)
}

#[test]
fn the_lock_is_held_for_longer_than_a_lease_and_freed_when_the_script_ends() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "read _"));
    assert_eq!(running.line(), "HELD");
    let holder = server.inspect("L")["holders"][0].clone();
    assert_eq!((&holder["kind"], &holder["label"]), (&"while-pid".into(), &"script".into()));
    assert_eq!((&holder["pid"], &holder["command"]), (&running.pid().into(), &"sh".into()));
    let fence = server.fence("L");
    // A third of the lease apart.
    let mut last = holder["renewed_at"].clone();
    for _ in 0..4 {
        let renewed = || server.inspect("L")["holders"][0]["renewed_at"].clone();
        until("it is renewed", || renewed() != last);
        last = renewed();
    }
    assert_eq!(server.fence("L"), fence);
    let keeper = keeper_of(running.pid()).unwrap();
    running.say("");
    assert_eq!(running.finish().code(), 0);
    until("it is freed", || server.is_free("L"));
    until("the keeper ends", || is_gone(&keeper));
}

#[test]
fn a_script_that_is_killed_frees_it_as_well() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "read _"));
    assert_eq!(running.line(), "HELD");
    running.signal("KILL");
    running.process.wait().unwrap();
    until("it is freed", || server.is_free("L"));
    assert!(run(&mut server.rlock(["inspect", "L"])).out().contains("released, held by"));
}

#[test]
fn a_script_may_release_and_renew_it_itself() {
    let server = Server::start();
    let rlock = env!("CARGO_BIN_EXE_rlock");
    // Longer than it takes the keeper to find out.
    let body =
        format!("{rlock} renew L \"$t\" || exit 9; {rlock} release L \"$t\"; echo $?; sleep 2");
    let mut running = Running::start(&mut script(&server, &body));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "0".into()));
    assert!(server.is_free("L"));
    assert_eq!(running.end().code(), 0);
}

#[test]
fn a_script_that_has_lost_it_is_stopped_with_all_that_it_has_started() {
    let server = Server::start();
    let body = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.01; done'";
    let mut command = script(&server, body);
    let mut running = Running::start(command.env("TTL", "3s"));
    assert_eq!(running.line(), "HELD");
    let stubborn = running.line();
    server.take_away("L");
    let output = running.end();
    assert!(!output.status.success(), "{output:?}");
    until("what it has started is stopped too", || is_gone(&stubborn));
}

#[test]
fn a_server_that_is_away_for_too_long_stops_the_script_before_others_can_have_the_lock() {
    let server = Server::with(&[]);
    let mut running = Running::start(&mut script(&server, "sleep 60"));
    assert_eq!(running.line(), "HELD");
    server.signal("STOP");
    let output = running.end();
    assert!(!output.status.success(), "{output:?}");
    server.signal("CONT");
}

#[test]
fn a_session_that_ends_does_not_take_the_keeper_along() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "read _"));
    assert_eq!(running.line(), "HELD");
    let keeper = keeper_of(running.pid()).unwrap();
    for signal in ["HUP", "INT", "TERM", "QUIT"] {
        support::send_signal(keeper.parse().unwrap(), signal);
    }
    let renewed = server.inspect("L")["holders"][0]["renewed_at"].clone();
    until("it goes on", || server.inspect("L")["holders"][0]["renewed_at"] != renewed);
    running.say("");
    running.finish();
    until("it is freed", || server.is_free("L"));
}

#[test]
fn what_cannot_be_watched_is_64_and_leaves_nothing_behind() {
    let server = Server::start();
    let mut ended = Command::new("true").spawn().unwrap();
    until("it has ended", || is_gone(&ended.id().to_string()));
    let zombie = ended.id().to_string();
    for bad in ["0", "-1", "x", "4194304", "2147483647", "1", &zombie] {
        let output = run(&mut server.rlock(["acquire", &format!("--while-pid={bad}"), "L"]));
        assert_eq!(output.code(), 64, "{output:?}");
    }
    ended.wait().unwrap();
    assert!(server.is_free("L"));
}

#[test]
fn the_keeper_holds_nothing_open_that_is_the_callers() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "exec 7>&-; read _"));
    assert_eq!(running.line(), "HELD");
    let keeper = keeper_of(running.pid()).unwrap();
    let ours = format!("/proc/{}/fd", std::process::id());
    let pipes: Vec<_> = std::fs::read_dir(ours)
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("pipe:"))
        .collect();
    for entry in std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap();
        assert!(!pipes.contains(&target), "{target:?}");
    }
    // A script that has a descriptor more than usual does not wait for the keeper.
    let rlock = env!("CARGO_BIN_EXE_rlock");
    let body = format!("exec 3>&1; t=$({rlock} acquire --while-pid $$ M); echo got $t");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("x=$({body}); echo \"$x\"")]).env("RLOCK_URL", server.url());
    assert!(run(&mut shell).out().starts_with("got "));
    running.say("");
    running.finish();
}

#[test]
fn a_script_that_has_released_it_is_left_alone_whatever_becomes_of_the_server() {
    let server = Server::start();
    let rlock = env!("CARGO_BIN_EXE_rlock");
    let body = format!("{rlock} release L \"$t\"; echo FREE; sleep 3; echo done");
    let mut running = Running::start(&mut script(&server, &body));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "FREE".into()));
    server.signal("STOP");
    assert_eq!(running.line(), "done");
    assert_eq!(running.end().code(), 0);
    server.signal("CONT");
}

#[test]
fn what_is_started_while_the_script_is_stopped_is_stopped_too() {
    let server = Server::start();
    let child = "trap \"sleep 987 & echo \\$!\" TERM; echo UP; while :; do sleep 0.01; done";
    let mut running = Running::start(&mut script(&server, &format!("sh -c '{child}'")));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "UP".into()));
    server.take_away("L");
    let late = running.line();
    until("it is stopped", || is_gone(&late));
    let _ = running.end();
}

support::also_on_local! {
    the_lock_is_held_for_longer_than_a_lease_and_freed_when_the_script_ends,
    a_script_that_is_killed_frees_it_as_well,
    a_script_may_release_and_renew_it_itself,
    a_script_that_has_lost_it_is_stopped_with_all_that_it_has_started,
    a_session_that_ends_does_not_take_the_keeper_along,
}
