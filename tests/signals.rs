//! Each signal reaches the command unchanged, and none is lost.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::proxy::Proxy;
use crate::support::{self, Finished, READY, Running, Server, binary, holder, is_gone, run, until};

#[test]
fn each_signal_reaches_the_command_as_itself() {
    let server = Server::start();
    let script = "for s in HUP INT QUIT TERM USR1 USR2 WINCH ALRM VTALRM PROF XCPU IO PWR ABRT
        do trap \"echo $s\" $s; done
        echo READY; while read line; do :; done; while :; do sleep 0.01; done";
    let mut first = Running::start(&mut server.rlock(["exec", "L", "bash", "-c", script]))
        .prints_first("READY");
    drop(first.stdin.take());
    let ignored = |signal: u32| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1_u64 << (signal - 1)) != 0
    };
    for (signal, number) in [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("USR1", 10),
        ("USR2", 12),
        ("WINCH", 28),
        ("ALRM", 14),
        ("VTALRM", 26),
        ("PROF", 27),
        ("XCPU", 24),
        ("IO", 29),
        ("PWR", 30),
        ("ABRT", 6),
        ("TERM", 15),
    ] {
        // rlock and its command also ignore the signals that the tests ignore.
        if !ignored(number) {
            first.signal(signal);
            assert_eq!(first.line(), signal);
        }
    }
    first.signal("KILL");
    first.end();
}

#[test]
fn a_command_may_clean_up_under_the_lock() {
    let server = Server::start();
    let script =
        "trap 'echo cleaning; read _; exit 3' TERM; echo READY; while :; do sleep 0.01; done";
    let mut command = server.rlock(["exec", "-v", "--ttl", "2s", "L", "bash", "-c", script]);
    let mut first = Running::start(&mut command).prints_first("READY");
    first.signal("TERM");
    assert_eq!(first.line(), "cleaning");
    // Four renewals take longer than a lease.
    for _ in 0..4 {
        first.told("renewed for");
    }
    server.run("exec -n L true").exits(75);
    assert_eq!(first.finish().code(), 3);
}

#[test]
fn a_signal_reaches_the_commands_whole_group() {
    let server = Server::start();
    let script = "sleep 1000 & sleep 1000 & echo READY; wait";
    let first =
        Running::start(&mut server.rlock(["exec", "L", "sh", "-c", script])).prints_first("READY");
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
        let mut first = Running::start(&mut server.rlock(exec)).prints_first("READY");
        first.signal("TERM");
        assert_eq!(first.line(), "TERM");
        assert_eq!(first.end().code(), 3);
    }
}

#[test]
fn a_timer_set_by_the_caller_ends_the_command_and_its_children() {
    let server = Server::start();
    for options in [&["exec"][..], &["exec", "--foreground"]] {
        let script = "sleep 1000 & exec sleep 1000";
        let mut perl = std::process::Command::new("perl");
        perl.args(["-e", "alarm 1; exec @ARGV", binary()]).args(options);
        perl.args(["L", "sh", "-c", script]).env("RLOCK_URL", server.url());
        let mut first = Running::start(&mut perl);
        assert_eq!(first.process.wait().unwrap().signal(), Some(14));
        assert!(server.is_free("L"));
        if options.len() == 1 {
            // stdout ends only when the last of the group is gone.
            first.end();
        }
    }
}

#[test]
fn a_signal_that_the_caller_blocks_neither_ends_a_wait_nor_reaches_the_command() {
    let server = Server::start();
    let script = "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); exec @ARGV";
    let command = ["L", "sh", "-c", READY];
    let mut perl = std::process::Command::new("perl");
    perl.args(["-e", script, binary(), "exec"]).args(command).env("RLOCK_URL", server.url());
    let before = holder(&server, &[], "L");
    let mut first = Running::start(&mut perl);
    first.told("waiting at position 1");
    first.signal("TERM");
    before.finish();
    assert_eq!(first.line(), "READY");
    first.signal("TERM");
    first.signal("USR1");
    let output = first.end();
    assert_eq!(output.status.signal(), Some(10), "{output:?}");
}

#[test]
fn a_log_that_has_reached_its_limit_does_not_end_rlock() {
    let server = Server::start();
    let log = server.directory().join("log");
    // Half a line fits.
    std::fs::write(&log, [b'x'; 1000]).unwrap();
    let script = format!("ulimit -f 1; exec \"$@\" 2>> {}", log.display());
    let mut first = Running::start(
        std::process::Command::new("bash")
            .args(["-c", &script, "-", binary()])
            .args(["exec", "-v", "--ttl", "2s", "L", "sh", "-c"])
            .arg("trap 'echo XFSZ' XFSZ; echo READY; read _; kill -XFSZ $$; exit 7")
            .env("RLOCK_URL", server.url()),
    );
    assert_eq!(first.line(), "READY");
    let renewed = server.inspect("L")["holders"][0]["renewed_at"].clone();
    until("it is renewed", || server.inspect("L")["holders"][0]["renewed_at"] != renewed);
    first.say("go");
    first.end().exits(7).prints("XFSZ");
    assert_eq!(std::fs::metadata(&log).unwrap().len(), 1024);
}

#[test]
fn sigterm_at_any_moment_of_startup_takes_effect_and_leaves_no_lock() {
    let server = Server::start();
    for delay in 0..50 {
        let name = format!("L{delay}");
        let exec = ["exec", "-n", &name, "sh", "-c", "sleep 1000 & wait"];
        let mut first = Running::start(&mut server.rlock(exec));
        // The test is about this moment, so it has no event to wait for.
        let moment = Instant::now() + Duration::from_micros(delay * 1000);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
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
        let name = format!("L{delay}");
        let mut command = server.rlock(["exec", &name, "sh", "-c", "echo $$"]);
        command.process_group(0);
        let first = Running::start(&mut command);
        let group = format!("-{}", first.pid());
        let kill = |signal: &str| {
            let mut kill = std::process::Command::new("kill");
            run(kill.args(["-s", signal, "--", &group]));
        };
        // The test is about this moment, so it has no event to wait for.
        let moment = Instant::now() + Duration::from_micros(delay * 400);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        kill("STOP");
        kill("CONT");
        let output = first.end().exits(0);
        assert_ne!(output.out(), "");
        assert!(server.is_free(&name));
    }
}

#[test]
fn a_signal_after_the_command_ends_rlock_once_the_lock_is_free() {
    let server = Server::on_tcp(&[]);
    server.run("exec L true");
    for (status, end) in [(0, None), (7, Some(7))] {
        let proxy = Proxy::to(server.port(), Duration::from_millis(200));
        let script = format!("exit {status}");
        let mut command = server.rlock(["exec", "L", "sh", "-c", &script]);
        let mut first = Running::start(command.env("RLOCK_URL", proxy.url()));
        // The first flight asks for the lock, the second releases it.
        until("it is releasing the lock", || proxy.flights() == 2);
        first.signal("TERM");
        let ended = first.process.wait().unwrap();
        // A failure takes precedence over the signal, because it stops a script as well.
        assert_eq!((ended.code(), ended.signal()), (end, end.is_none().then_some(15)));
        assert!(server.is_free("L"));
    }
}

#[test]
fn under_nohup_neither_rlock_nor_its_command_receives_sighup() {
    let server = Server::start();
    let mut nohup = std::process::Command::new("nohup");
    nohup.arg(binary()).args(["exec", "L", "sh", "-c", support::READY]);
    let mut first = Running::start(nohup.env("RLOCK_URL", server.url())).prints_first("READY");
    first.signal("HUP");
    first.say("go");
    assert_eq!(first.end().code(), 0);
}

#[test]
fn process_1_of_a_container_exits_with_128_plus_the_signal() {
    let server = Server::start();
    let contained = |arguments: &[&str]| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        unshare.arg(binary()).args(arguments);
        unshare.env("RLOCK_URL", server.url());
        unshare
    };
    let killed = run(&mut contained(&["exec", "L", "sh", "-c", "echo $PPID; kill -9 $$"]));
    assert_eq!((killed.code(), killed.out()), (137, "1".into()), "{killed:?}");

    let first = support::holder(&server, &[], "L");
    let mut waiting = Running::start(&mut contained(&["exec", "L", "true"]));
    waiting.told("waiting at position 1");
    let children = format!("/proc/{0}/task/{0}/children", waiting.pid());
    let process_1 = std::fs::read_to_string(children).unwrap();
    support::send_signal(process_1.trim().parse().unwrap(), "TERM");
    assert_eq!(waiting.end().code(), 143);
    assert_eq!(first.finish().code(), 0);
}

#[test]
fn in_the_foreground_group_signals_are_passed_on_and_a_lost_lock_ends_the_whole_tree() {
    let server = Server::start();
    let group = "echo $(ps -o pgid= -p $$) $(ps -o pgid= -p $PPID)";
    let script = format!("trap 'echo TERM; exit 3' TERM; {group}; while :; do sleep 0.01; done");
    let options = ["exec", "--foreground", "L", "bash", "-c", &script];
    let mut first = Running::start(&mut server.rlock(options));
    let groups = first.line();
    let (its, ours) = groups.split_once(' ').unwrap();
    assert_eq!(its, ours);
    first.signal("TERM");
    assert_eq!(first.line(), "TERM");
    assert_eq!(first.end().code(), 3);

    let script = "trap '' TERM; sleep 1000 & echo $!; wait";
    let options = ["exec", "--foreground", "--ttl", "3s", "L", "sh", "-c", script];
    let mut first = Running::start(&mut server.rlock(options));
    let grandchild = first.line();
    server.revoke("L");
    assert_eq!(first.end().code(), 76);
    until("the grandchild is gone", || is_gone(&grandchild));
}

#[test]
fn a_signal_while_rlock_gives_up_prevents_an_unlocked_run() {
    let server = Server::start();
    server.signal("STOP");
    let options = ["exec", "--io-timeout", "600ms", "--on-unreachable", "run", "L", "echo", "RUNS"];
    for delay in (0..=300).step_by(50) {
        let first = Running::start(&mut server.rlock(options));
        // The test is about this moment, so it has no event to wait for.
        std::thread::sleep(Duration::from_millis(delay));
        first.signal("TERM");
        let output = first.end();
        assert_eq!(output.status.signal(), Some(15), "after {delay} ms: {output:?}");
        assert_eq!(output.out(), "", "after {delay} ms");
    }
}

#[test]
fn a_waiter_that_has_seen_a_holder_never_runs_unlocked() {
    let mut server = Server::start();
    let first = support::holder(&server, &[], "L");
    let options = ["exec", "-w", "1s", "--on-unreachable", "run", "L", "echo", "RUNS"];
    let mut second = Running::start(&mut server.rlock(options));
    second.told("waiting at position 1");
    server.kill();
    let output = second.end();
    assert_eq!((output.code(), output.out()), (69, String::new()), "{output:?}");
    assert_eq!(first.finish().code(), 0);
}

support::also_on_local! {
    each_signal_reaches_the_command_as_itself,
    a_command_may_clean_up_under_the_lock,
    a_signal_reaches_the_commands_whole_group,
    a_signal_reaches_a_command_that_has_left_its_group,
    a_timer_set_by_the_caller_ends_the_command_and_its_children,
    sigterm_at_any_moment_of_startup_takes_effect_and_leaves_no_lock,
    rlock_resumes_after_a_sigstop_at_any_moment_of_startup,
    under_nohup_neither_rlock_nor_its_command_receives_sighup,
    process_1_of_a_container_exits_with_128_plus_the_signal,
    in_the_foreground_group_signals_are_passed_on_and_a_lost_lock_ends_the_whole_tree,
}

support::also_without_vfork! {
    a_signal_reaches_the_commands_whole_group,
    sigterm_at_any_moment_of_startup_takes_effect_and_leaves_no_lock,
    rlock_resumes_after_a_sigstop_at_any_moment_of_startup,
    in_the_foreground_group_signals_are_passed_on_and_a_lost_lock_ends_the_whole_tree,
}

#[test]
fn a_command_that_is_continued_before_it_could_stop_runs_on() {
    let server = Server::start();
    let fifo = server.directory().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // It cannot stop until the process that it starts has opened the FIFO and executed its program.
    let script = format!(
        "import os, time; print('READY', os.getpid(), flush=True)
opens = [(os.POSIX_SPAWN_OPEN, 0, '{}', os.O_RDONLY, 0)]
os.posix_spawn('/bin/true', ['true'], os.environ, file_actions=opens)",
        fifo.display()
    );
    let exec = ["exec", "--foreground", "L", "python3", "-c", &script];
    let mut first = Running::start(server.rlock(exec).process_group(0));
    let told = first.line();
    let has_state = |pid: &str, state: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(&format!(") {state} "))
    };
    let (rlock, command) = (first.pid().to_string(), told.strip_prefix("READY ").unwrap());
    until("the command waits", || has_state(command, "D"));
    first.signal("TSTP");
    until("rlock has stopped", || has_state(&rlock, "T"));
    first.signal("CONT");
    until("rlock waits for events", || has_state(&rlock, "S"));
    std::fs::write(&fifo, "").unwrap();
    until("the command ends", || is_gone(command));
    assert_eq!(first.finish().code(), 0);
}

#[test]
fn the_end_of_the_parent_is_a_sigterm_if_desired() {
    let server = Server::start();
    let exec = format!("{} exec --die-with-parent --on-unreachable run L", binary());
    let start_at = |url: &str, command: &str| {
        let script = format!("{exec} {command} & wait");
        Running::start(Command::new("sh").arg("-c").arg(script).env("RLOCK_URL", url))
    };
    let start = |command: &str| start_at(&server.url(), command);
    let command = "sh -c 'trap \"echo told; exit\" TERM; echo READY; while :; do sleep 0.01; done'";
    let mut holder = start(command).prints_first("READY");
    let waiter = start("echo ran");
    until("it waits", || server.waiting("L") == 1);
    waiter.signal("KILL");
    assert_eq!(waiter.end().out(), "");
    until("it has left the queue", || server.waiting("L") == 0);
    holder.signal("KILL");
    assert_eq!(holder.line(), "told");
    until("the lock is released", || server.is_free("L"));
    let mut unlocked = start_at("redis://127.0.0.1:1", command).prints_first("READY");
    unlocked.signal("KILL");
    assert_eq!(unlocked.line(), "told");
}
