//! Each signal reaches the command unchanged, and none is lost.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::time::{Duration, Instant};

use crate::support::{self, *};

/// The test is about this moment, so it has no event to wait for.
fn spin(time: Duration) {
    let moment = Instant::now() + time;
    while Instant::now() < moment {
        std::hint::spin_loop();
    }
}

#[test]
fn each_signal_reaches_the_command_as_itself() {
    let server = Server::start();
    let signals = "HUP INT QUIT TERM USR1 USR2 WINCH ALRM VTALRM PROF XCPU IO PWR ABRT";
    let script = format!(
        "for s in {signals}; do trap \"echo $s\" $s; done
        echo READY; while read line; do :; done; while :; do sleep 0.01; done"
    );
    let mut first = server.starts("exec L bash -c", &script).prints_first("READY");
    drop(first.stdin.take());
    for signal in signals.split(' ') {
        first.signal(signal);
        assert_eq!(first.line(), signal);
    }
    first.ends_by("KILL");
}

#[test]
fn a_command_may_clean_up_under_the_lock() {
    let server = Server::start();
    let script =
        "trap 'echo cleaning; read _; exit 3' TERM; echo READY; while :; do sleep 0.01; done";
    let mut first = server.starts("exec --ttl 2s L bash -c", script).prints_first("READY");
    first.signal("TERM");
    assert_eq!(first.line(), "cleaning");
    server.is_renewed();
    server.run("exec -n L true").exits(75);
    first.finish().exits(3);
}

#[test]
fn a_signal_reaches_the_commands_whole_group() {
    let server = Server::start();
    let script = "sleep 1000 & sleep 1000 & echo READY; wait";
    let first = server.starts("exec L sh -c", script).prints_first("READY");
    first.signal("TERM");
    // stdout ends only when the last of the group is gone.
    assert_eq!(first.end().status.signal(), Some(15));
}

#[test]
fn a_signal_reaches_a_command_that_has_left_its_group() {
    let server = Server::start();
    let script = "trap 'echo TERM; exit 3' TERM; echo READY; while :; do sleep 0.01; done";
    for leave in ["setsid", "setpgrp(0, 0)"] {
        let leave = format!("use POSIX; {leave}; exec @ARGV");
        let exec = ["exec", "L", "perl", "-e", &leave, "bash", "-c", script];
        let first = Running::start(&mut server.rlock(exec)).prints_first("READY");
        first.ends_by("TERM").exits(3).prints("TERM");
    }
}

#[test]
fn a_signal_that_the_caller_blocks_neither_ends_a_wait_nor_reaches_the_command() {
    let server = Server::start();
    let script = "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM));
        exec $ENV{rlock}, 'exec', 'L', 'sh', '-c', 'echo READY; read _'";
    let before = holder(&server, &[], "L");
    let mut first = Running::start(&mut server.program("perl -e", script));
    first.told("waiting at position 1");
    first.signal("TERM");
    before.finish();
    assert_eq!(first.line(), "READY");
    first.signal("TERM");
    assert_eq!(first.ends_by("USR1").status.signal(), Some(10));
}

#[test]
fn sigterm_at_any_moment_of_startup_takes_effect_and_leaves_no_lock() {
    let server = Server::start();
    for delay in 0..50 {
        let name = format!("L{delay}");
        let mut first = server.starts(&format!("exec -n {name} sh -c"), "sleep 1000 & wait");
        spin(Duration::from_millis(delay));
        first.signal("TERM");
        let status = first.process.wait().unwrap();
        assert_eq!(status.signal(), Some(15), "after {delay} ms: {status:?}");
        // A request may be left behind only if the signal killed rlock before it could handle it.
        if delay > 20 {
            assert!(server.is_free(&name), "after {delay} ms");
        }
    }
}

#[test]
fn rlock_resumes_after_a_sigstop_at_any_moment_of_startup() {
    let server = Server::start();
    for delay in 0..50 {
        let mut command = server.rlock(["exec", "-n", "L", "sh", "-c", "echo $$"]);
        let first = Running::start(command.process_group(0));
        spin(Duration::from_micros(delay * 400));
        for signal in ["STOP", "CONT"] {
            let group = format!("-{}", first.pid());
            run(std::process::Command::new("kill").args(["-s", signal, "--", &group])).exits(0);
        }
        assert_ne!(first.end().exits(0).out(), "");
    }
}

#[test]
fn a_signal_after_the_command_ends_rlock_once_the_lock_is_free() {
    let server = Server::on_tcp(&[]);
    server.run("exec L true");
    // A failure takes precedence over the signal, because it stops a script as well.
    for (command, code, signal) in [("exit 0", None, Some(15)), ("exit 7", Some(7), None)] {
        let proxy = Proxy::to(server.port(), Duration::from_millis(200));
        let mut exec = server.rlock(["exec", "L", "sh", "-c", command]);
        let first = Running::start(exec.env("RLOCK_URL", proxy.url()));
        // The first flight asks for the lock, the second releases it.
        until("it is releasing the lock", || proxy.flights() == 2);
        let ended = first.ends_by("TERM").status;
        assert_eq!((ended.code(), ended.signal()), (code, signal));
        assert!(server.is_free("L"));
    }
}

#[test]
fn process_1_of_a_container_exits_with_128_plus_the_signal() {
    let server = Server::start();
    let contained =
        |exec: &str| server.contained("--pid --fork --kill-child", &format!("exec $rlock {exec}"));
    run(&mut contained("exec L sh -c 'echo $PPID; kill -9 $$'")).exits(137).prints("1");

    let first = holder(&server, &[], "L");
    let waiting = Running::start(&mut contained("exec L true")).tells("waiting at position 1");
    let children = format!("/proc/{0}/task/{0}/children", waiting.pid());
    let process_1 = std::fs::read_to_string(children).unwrap();
    support::send_signal(process_1.trim().parse().unwrap(), "TERM");
    waiting.end().exits(143);
    first.finish().exits(0);
}

#[test]
fn in_the_foreground_group_signals_are_passed_on() {
    let server = Server::start();
    let script = "trap 'echo TERM; exit 3' TERM
        echo $(ps -o pgid= -p $$) $(ps -o pgid= -p $PPID); while :; do sleep 0.01; done";
    let mut first = server.starts("exec --foreground L bash -c", script);
    let groups = first.line();
    let (its, ours) = groups.split_once(' ').unwrap();
    assert_eq!(its, ours);
    first.ends_by("TERM").exits(3).prints("TERM");
}

#[test]
fn a_signal_while_rlock_gives_up_prevents_an_unlocked_run() {
    let server = Server::start();
    server.signal("STOP");
    for delay in [0, 100, 300] {
        let exec = "exec --io-timeout 1s --on-unreachable run L echo";
        let first = server.starts(exec, "RUNS");
        // The test is about this moment, so it has no event to wait for.
        std::thread::sleep(Duration::from_millis(delay));
        let output = first.ends_by("TERM").prints("");
        assert_eq!(output.status.signal(), Some(15), "after {delay} ms: {output:?}");
    }
}

#[test]
fn a_waiter_that_has_seen_a_holder_never_runs_unlocked() {
    let (mut server, _first) = held(&[]);
    let exec = "exec -w 1s --on-unreachable run L echo";
    let second = server.starts(exec, "RUNS").tells("waiting at position 1");
    server.kill();
    second.end().exits(69).prints("");
}

support::also_on_local! {
    sigterm_at_any_moment_of_startup_takes_effect_and_leaves_no_lock,
}

support::also_without_vfork! {
    a_signal_reaches_the_commands_whole_group,
    sigterm_at_any_moment_of_startup_takes_effect_and_leaves_no_lock,
    rlock_resumes_after_a_sigstop_at_any_moment_of_startup,
    in_the_foreground_group_signals_are_passed_on,
}

#[test]
fn the_end_of_the_parent_is_a_sigterm_if_desired() {
    let server = Server::start();
    let start = |url: &str, command: &str| {
        let exec = "$rlock exec --die-with-parent --on-unreachable run L";
        let script = format!("{exec} {command} & wait");
        Running::start(server.program("sh -c", &script).env("RLOCK_URL", url))
    };
    let command = "sh -c 'trap \"echo told; exit\" TERM; echo READY; while :; do sleep 0.01; done'";
    let mut holder = start(&server.url(), command).prints_first("READY");
    let waiter = start(&server.url(), "echo ran");
    until("it waits", || server.waiting("L") == 1);
    waiter.ends_by("KILL").prints("");
    until("it has left the queue", || server.waiting("L") == 0);
    holder.signal("KILL");
    assert_eq!(holder.line(), "told");
    until("the lock is released", || server.is_free("L"));
    let mut unlocked = start("redis://127.0.0.1:1", command).prints_first("READY");
    unlocked.signal("KILL");
    assert_eq!(unlocked.line(), "told");
}
