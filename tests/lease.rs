//! A command runs under a lease that is renewed, and not without one.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use support::proxy::Proxy;
use support::{Finished, READY, Running, Server, holder, is_gone, run, until};

#[test]
fn a_command_that_outlives_its_ttl_keeps_the_lock() {
    let server = Server::start();
    let mut first = holder(&server, &["-v", "--ttl", "300ms"], "L");
    // Ten renewals are three leases' worth of time.
    for _ in 0..10 {
        first.told("renewed for");
    }
    assert_eq!(run(&mut server.rlock(["exec", "-n", "L", "true"])).code(), 75);
    assert_eq!(first.finish().code(), 0);
    assert!(server.is_free("L"));
}

#[test]
fn a_lock_that_is_lost_ends_the_command_with_76() {
    let server = Server::start();
    let mut first = holder(&server, &["--ttl", "600ms"], "L");
    server.take_away("L");
    first.told("the lock was lost");
    assert_eq!(first.end().code(), 76);
}

#[test]
fn a_lock_that_another_tool_took_or_the_server_forgot_is_lost() {
    let server = Server::start();
    for fault in [&["SET", "rlock:L", "theirs"][..], &["FLUSHALL"]] {
        let mut first = holder(&server, &["--ttl", "600ms"], "L");
        server.cli(fault);
        first.told("the lock was lost");
        assert_eq!(first.end().code(), 76, "{fault:?}");
        server.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a_lost_lock_takes_the_whole_group_and_what_will_not_end_is_killed() {
    let server = Server::start();
    // The child ignores TERM, and so does its own child.
    let script = "trap '' TERM; sleep 1000 & echo $!; wait";
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "600ms", "L", "sh", "-c", script]));
    let grandchild = first.line();
    server.take_away("L");
    assert_eq!(first.end().code(), 76);
    until("the grandchild is gone", || is_gone(&grandchild));
}

#[test]
fn a_lost_lock_takes_those_along_that_have_left_the_group() {
    let server = Server::start();
    for script in [
        // A session of its own, and one that has lost its parent already and ignores SIGTERM.
        "setsid sleep 1000 & echo $!; wait",
        "(trap '' TERM; setsid sleep 1000 & echo $!); sleep 1000",
        "(setsid sh -c 'setsid sleep 1000 & echo $!' &); sleep 1000",
    ] {
        let mut first =
            Running::start(&mut server.rlock(["exec", "--ttl", "600ms", "L", "sh", "-c", script]));
        let escaped = first.line();
        assert!(!is_gone(&escaped));
        server.take_away("L");
        assert_eq!(first.process.wait().unwrap().code(), Some(76));
        until("it is gone", || is_gone(&escaped));
    }
}

#[test]
fn what_a_command_leaves_running_outlives_a_normal_end() {
    let server = Server::start();
    let script = "setsid sleep 1000 >&- 2>&- & echo $!";
    let output = run(&mut server.rlock(["exec", "L", "sh", "-c", script]));
    assert_eq!(output.code(), 0);
    let left = output.out();
    assert!(!is_gone(&left));
    support::send_signal(left.parse().unwrap(), "KILL");
}

#[test]
fn waiting_for_a_command_that_will_not_end_costs_nothing() {
    let server = Server::start();
    let script = "TIMEFORMAT=%U+%S; time $RLOCK exec --ttl 3s L bash -c \
        'trap \"\" TERM; echo READY; read _ <> <(:)'";
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).env("RLOCK", env!("CARGO_BIN_EXE_rlock"));
    let mut first = Running::start(shell.env("RLOCK_URL", server.url()));
    assert_eq!(first.line(), "READY");
    server.take_away("L");
    let output = first.end();
    assert_eq!(output.code(), 76, "{output:?}");
    let told = output.err();
    let seconds: f64 =
        told.lines().last().unwrap().split('+').map(|part| part.parse::<f64>().unwrap()).sum();
    // It is killed a second after it was asked to end.
    assert!(seconds < 0.5, "{seconds} s of CPU time");
}

#[test]
fn a_stderr_that_nobody_reads_does_not_keep_a_command_alive_without_its_lock() {
    let server = Server::start();
    let script = "head -c 1000000 /dev/zero >&2 & echo READY; sleep 1000";
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "600ms", "L", "sh", "-c", script]));
    assert_eq!(first.line(), "READY");
    server.take_away("L");
    assert_eq!(first.process.wait().unwrap().code(), Some(76));
}

#[test]
fn a_lock_lost_under_a_command_that_ended_before_anybody_noticed_is_76_too() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    server.take_away("L");
    let output = first.finish();
    assert_eq!(output.code(), 76, "{output:?}");
    assert!(output.err().contains("was lost while the command ran"), "{output:?}");
}

#[test]
fn a_server_out_of_memory_still_renews_and_hands_over() {
    let server = Server::start();
    let first = holder(&server, &["--ttl", "600ms"], "L");
    let next = support::waiter(&server, &[], "L", "next");
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    until("five renewals", || server.calls_of("evalsha") >= 5);
    assert_eq!(first.finish().code(), 0);
    assert_eq!(next.finish().out(), "ENTERED next");
}

#[test]
fn a_stopped_command_ends_too_when_the_lock_is_lost() {
    let server = Server::start();
    let stop = "echo READY; kill -STOP $$";
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "600ms", "L", "sh", "-c", stop]));
    assert_eq!(first.line(), "READY");
    server.take_away("L");
    assert_eq!(first.end().code(), 76);
}

#[test]
fn an_unreachable_server_ends_the_command_before_the_lease_ends() {
    let server = Server::start();
    let mut first = holder(&server, &["--ttl", "1s"], "L");
    // Frozen, it says nothing, and what it holds expires as soon as it goes on.
    server.signal("STOP");
    first.told("could not be renewed");
    assert_eq!(first.end().code(), 76);
    server.signal("CONT");
    assert_eq!(run(&mut server.rlock(["exec", "L", "true"])).code(), 0);
}

#[test]
fn a_short_absence_of_the_server_is_ridden_out() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let mut command = server.rlock(["exec", "-v", "--ttl", "1500ms", "L", "sh", "-c", READY]);
    let mut first = Running::start(command.env("RLOCK_URL", proxy.url()));
    assert_eq!(first.line(), "READY");
    for _ in 0..3 {
        proxy.cut();
        first.told("renewed");
    }
    let output = first.finish();
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(server.is_free("L"));
}

#[test]
fn a_release_that_fails_is_a_warning_and_the_status_is_the_commands() {
    let mut server = Server::start();
    let mut command = server.rlock(["exec", "L", "sh", "-c", "echo READY; read _; exit 7"]);
    let mut first = Running::start(&mut command);
    assert_eq!(first.line(), "READY");
    server.kill();
    first.say("go");
    let output = first.end();
    assert_eq!(output.code(), 7);
    assert!(output.err().contains("not released"), "{output:?}");
    assert!(output.err().contains("frees itself within 30s"), "{output:?}");
}

#[test]
fn a_lost_reply_to_the_release_is_asked_for_again() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    // So that the server knows the scripts already.
    run(&mut server.rlock(["exec", "L", "true"]));
    let script = "echo READY; read _; exit 7";
    let mut command = server.rlock(["exec", "--io-timeout", "200ms", "L", "sh", "-c", script]);
    let mut first = Running::start(command.env("RLOCK_URL", proxy.url()));
    assert_eq!(first.line(), "READY");
    proxy.drop_replies(true);
    first.say("go");
    until("the lock is free", || server.is_free("L"));
    let output = first.end();
    assert_eq!(output.code(), 7);
    assert_eq!(run(&mut server.rlock(["inspect", "L"])).code(), 1);
}

#[test]
fn an_rlock_that_is_killed_takes_its_command_along_and_frees_the_lock_within_one_ttl() {
    let server = Server::start();
    let script = "echo $$; exec sleep 1000";
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "500ms", "L", "sh", "-c", script]));
    let command = first.line();
    let start = Instant::now();
    first.signal("KILL");
    assert_eq!(first.end().status.signal(), Some(9));
    until("the command is gone", || is_gone(&command));
    assert_eq!(run(&mut server.rlock(["exec", "L", "true"])).code(), 0);
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn everything_but_the_guard_expires_by_itself_too() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let second = support::waiter(&server, &[], "L", "");
    // Nobody is left to read its message.
    second.signal("KILL");
    second.end();
    until("it is gone", || server.cli(&["INFO", "clients"]).contains("blocked_clients:0"));
    first.finish();
    let third = support::waiter(&server, &[], "L", "");
    let keys = server.cli(&["KEYS", "*"]);
    assert_eq!(keys.lines().count(), 6, "{keys}");
    for key in keys.lines() {
        assert!(server.cli_number(&["PTTL", key]) > 0, "{key}");
    }
    third.finish();
    until("the message expires", || server.cli(&["KEYS", "*mail*"]).is_empty());
    // A free lock leaves its fence and its past, for a day and no longer.
    let keys = server.cli(&["KEYS", "*"]);
    let mut keys: Vec<&str> = keys.lines().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["{rlock:L}:past", "{rlock:L}:state"]);
    assert_eq!(server.cli(&["HKEYS", "{rlock:L}:state"]), "fence");
    let day = 24 * 3600 * 1000;
    for key in keys {
        let left = server.cli_number(&["PTTL", key]);
        assert!((day - 60_000..=day + 60_000).contains(&left), "{key}: {left}");
    }
}

#[test]
fn the_commands_status_is_kept_when_a_renewal_is_under_way() {
    let server = Server::on_tcp(&[]);
    // The first renewal is sent after a third of a second and answered 80 ms later.
    let proxy = Proxy::to(server.port(), Duration::from_millis(40));
    for _ in 0..5 {
        let script = "sleep 0.37; exit 9";
        let mut command = server.rlock(["exec", "--ttl", "1s", "L", "sh", "-c", script]);
        let output = run(command.env("RLOCK_URL", proxy.url()));
        assert_eq!(output.code(), 9, "{output:?}");
        assert!(server.is_free("L"));
    }
}

#[test]
fn a_command_that_may_continue_finishes_without_its_lock_and_is_76_all_the_same() {
    let server = Server::start();
    let script = "echo READY; read _; echo finished";
    let options = ["exec", "--ttl", "600ms", "--on-lost", "continue", "L", "sh", "-c", script];
    let mut first = Running::start(&mut server.rlock(options));
    assert_eq!(first.line(), "READY");
    server.take_away("L");
    first.told("letting the command finish");
    first.say("go");
    let output = first.end();
    assert_eq!((output.code(), output.out()), (76, "finished".into()));
}

#[test]
fn kill_after_is_the_time_a_command_has_to_clean_up() {
    let server = Server::start();
    let script = "trap 'echo cleaning; sleep 0.3; echo clean; exit' TERM; echo READY
        while :; do sleep 0.01; done";
    let run_with = |kill_after: &str| {
        let options = ["exec", "--ttl", "3s", "-k", kill_after, "L", "sh", "-c", script];
        let mut first = Running::start(&mut server.rlock(options));
        assert_eq!(first.line(), "READY");
        server.take_away("L");
        let output = first.end();
        assert_eq!(output.code(), 76);
        output.out()
    };
    assert_eq!(run_with("1s"), "cleaning\nclean");
    assert_ne!(run_with("50ms"), "cleaning\nclean");
}

#[test]
fn without_a_server_a_command_may_run_unlocked_as_itself() {
    let unlocked = |script: &str| {
        let mut command =
            support::rlock(["exec", "--on-unreachable", "run", "L", "sh", "-c", script]);
        run(command.env("RLOCK_URL", "redis://127.0.0.1:1"))
    };
    let output = unlocked("echo in; echo \"<$RLOCK_TOKEN>\"; exit 7");
    assert_eq!((output.code(), output.out()), (7, "in\n<>".into()));
    assert!(output.err().contains("running the command without a lock"), "{output:?}");
    assert_eq!(unlocked("kill -9 $$").status.signal(), Some(9));
    let mut command = support::rlock(["exec", "--on-unreachable", "run", "L", "no-such-command"]);
    assert_eq!(run(command.env("RLOCK_URL", "redis://127.0.0.1:1")).code(), 127);
    // What is not absence is an error as ever.
    let mut command = support::rlock(["exec", "--on-unreachable", "run", "L", "true"]);
    assert_eq!(run(command.env("RLOCK_URL", "http://x")).code(), 78);
}

#[test]
fn a_busy_lock_is_no_reason_to_run_unlocked() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let busy = run(&mut server.rlock(["exec", "-n", "--on-unreachable", "run", "L", "true"]));
    assert_eq!(busy.code(), 75);
    first.finish();
}

#[test]
fn a_server_that_answers_with_errors_is_ridden_out_or_ends_the_command_in_time() {
    let server = Server::start();
    let options = ["exec", "-v", "--ttl", "1500ms", "L", "sh", "-c", READY];
    let mut first = Running::start(&mut server.rlock(options));
    assert_eq!(first.line(), "READY");
    // A password from one moment to the next, and no more.
    const AUTH: [&str; 3] = ["-a", "pw", "--no-auth-warning"];
    let refuse = || {
        server.cli(&["CONFIG", "SET", "requirepass", "pw"]);
        server.cli(&[&AUTH[..], &["CLIENT", "KILL", "TYPE", "normal"]].concat());
    };
    refuse();
    first.told("not renewed");
    server.cli(&[&AUTH[..], &["CONFIG", "SET", "requirepass", ""]].concat());
    first.told("renewed for");
    refuse();
    let told = first.told("could not be renewed for");
    assert!(told.contains("password") && told.contains("it ends in"), "{told}");
    assert_eq!(first.end().code(), 76);
    // Its lease, which nobody has released, is not over yet.
    let key = server.cli(&[&AUTH[..], &["EXISTS", "rlock:L"]].concat());
    assert_eq!(key, "1");
}

#[test]
fn after_a_pause_the_command_is_stopped_before_anything_else() {
    let server = Server::start();
    let ran = server.directory().join("ran");
    let script = format!("trap 'touch {0}' TERM; echo $$; read _; touch {0}", ran.display());
    // rlock alone, its group, and the command with it.
    for paused in ["rlock", "group", "both"] {
        let mut command = server.rlock(["exec", "--ttl", "400ms", "L", "sh", "-c", &script]);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut first = Running::start(&mut command);
        let group = first.line();
        let kill = |signal: &str, target: &str| {
            let status = Command::new("kill").args(["-s", signal, "--", target]).status().unwrap();
            assert!(status.success(), "{signal} {target}");
        };
        let ours = if paused == "rlock" { "" } else { "-" }.to_owned() + &first.pid().to_string();
        if paused == "both" {
            kill("STOP", &format!("-{group}"));
        }
        kill("STOP", &ours);
        until("its lease ends", || server.is_free("L"));
        if paused == "both" {
            first.say("go");
        }
        kill("CONT", &ours);
        let told = first.told("could not be renewed");
        assert!(told.contains("it has ended"), "{told}");
        assert_eq!(first.end().code(), 76);
        assert!(!ran.exists(), "{paused}");
    }
}

#[test]
fn a_renewal_is_one_command_on_one_connection() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let mut command = server.rlock(["exec", "--ttl", "900ms", "L", "sh", "-c", READY]);
    let mut first = Running::start(command.env("RLOCK_URL", proxy.url()));
    assert_eq!(first.line(), "READY");
    // By then the server knows the script.
    until("a renewal", || server.calls_of("evalsha") >= 2);
    let flights = proxy.flights();
    server.cli(&["CONFIG", "RESETSTAT"]);
    until("ten renewals", || server.calls_of("evalsha") >= 10);
    let sent = proxy.flights() - flights;
    let calls = usize::try_from(server.calls_of("evalsha")).unwrap();
    // One may be on its way.
    assert!(sent.abs_diff(calls) <= 1, "{sent} flights, {calls} calls");
    assert_eq!(proxy.connections(), 1);
    assert_eq!(first.finish().code(), 0);
}

#[test]
fn what_a_shell_has_started_may_clean_up_too_when_the_lock_is_lost() {
    let server = Server::start();
    let worker = "trap 'echo cleaning; sleep 0.3; echo clean; exit' TERM; echo READY
        while :; do sleep 0.01; done";
    // The shell around it dies of SIGTERM at once.
    let shell = format!("bash -c \"{worker}\"; true");
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "6s", "L", "sh", "-c", &shell]));
    assert_eq!(first.line(), "READY");
    server.take_away("L");
    let output = first.end();
    assert_eq!((output.code(), output.out()), (76, "cleaning\nclean".into()));
}

#[test]
fn a_lost_lock_spares_what_the_command_has_not_started() {
    let server = Server::start();
    let script = format!(
        "sleep 1000 >&- 2>&- & echo $!; exec {} exec --ttl 600ms L sh -c '{READY}'",
        env!("CARGO_BIN_EXE_rlock")
    );
    let mut shell = Command::new("bash");
    let mut first = Running::start(shell.args(["-c", &script]).env("RLOCK_URL", server.url()));
    let stranger = first.line();
    assert_eq!(first.line(), "READY");
    server.take_away("L");
    assert_eq!(first.end().code(), 76);
    assert!(!is_gone(&stranger));
    support::send_signal(stranger.parse().unwrap(), "KILL");
}

#[test]
fn orphans_are_reaped_however_they_end() {
    let server = Server::start();
    // The first dies by a real-time signal.
    let script = "(setsid sh -c 'kill -34 $$' &)
        for i in 1 2 3 4 5; do (setsid true &); done; echo $PPID; read _ || :";
    let mut first = Running::start(&mut server.rlock(["exec", "L", "sh", "-c", script]));
    let rlock = first.line();
    until("no zombie is left", || {
        let children = run(Command::new("ps").args(["-o", "stat=,comm=", "--ppid", &rlock]));
        children.out().lines().count() == 1
    });
    assert_eq!(first.finish().code(), 0);
}

support::also_on_local! {
    a_command_that_outlives_its_ttl_keeps_the_lock,
    a_lock_that_is_lost_ends_the_command_with_76,
    a_lost_lock_takes_the_whole_group_and_what_will_not_end_is_killed,
    a_lost_lock_takes_those_along_that_have_left_the_group,
    what_a_command_leaves_running_outlives_a_normal_end,
    waiting_for_a_command_that_will_not_end_costs_nothing,
    a_stderr_that_nobody_reads_does_not_keep_a_command_alive_without_its_lock,
    a_lock_lost_under_a_command_that_ended_before_anybody_noticed_is_76_too,
    a_stopped_command_ends_too_when_the_lock_is_lost,
    an_rlock_that_is_killed_takes_its_command_along_and_frees_the_lock_within_one_ttl,
    a_command_that_may_continue_finishes_without_its_lock_and_is_76_all_the_same,
    kill_after_is_the_time_a_command_has_to_clean_up,
    a_busy_lock_is_no_reason_to_run_unlocked,
    after_a_pause_the_command_is_stopped_before_anything_else,
    what_a_shell_has_started_may_clean_up_too_when_the_lock_is_lost,
    a_lost_lock_spares_what_the_command_has_not_started,
    orphans_are_reaped_however_they_end,
}
