//! A command runs only under a lease that is renewed.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::trace::Paused;
use crate::support::{
    self, Finished, LongerWait, READY, Running, Server, acquire, binary, holder, is_gone, run,
    until,
};

#[test]
fn a_command_that_outlives_its_ttl_keeps_the_lock() {
    let server = Server::start();
    let mut first = holder(&server, &["-v", "--ttl", "2s"], "L");
    // Four renewals take longer than a lease.
    for _ in 0..4 {
        first.told("renewed for");
    }
    server.run("exec -n L true").exits(75);
    assert_eq!(first.finish().code(), 0);
    assert!(server.is_free("L"));
}

#[test]
fn a_lock_that_is_lost_ends_the_command_with_76() {
    let server = Server::start();
    let mut first = holder(&server, &["--ttl", "3s"], "L");
    server.revoke("L");
    first.told("; stopping the command");
    assert_eq!(first.end().code(), 76);
}

#[test]
fn a_holder_that_loses_its_lock_prints_the_reason() {
    let server = Server::start();
    let told = |fault: &[&str], reason: &str| {
        let mut first = holder(&server, &["--ttl", "3s"], "L");
        let token = server.cli(&["GET", "rlock:L"]);
        server.cli(fault);
        first.told(&format!("L: the lock {reason}"));
        assert_eq!(first.end().code(), 76, "{fault:?}");
        // A server that has lost its data knows only about the release.
        let reason = if fault == ["FLUSHALL"] { "was released" } else { reason };
        for command in ["renew", "release"] {
            run(&mut server.rlock([command, "L", &token]))
                .exits(77)
                .says(&format!("this token's hold {reason}"));
        }
        server.cli(&["FLUSHALL"]);
    };
    told(&["DEL", "rlock:L"], "was deleted");
    told(&["SET", "rlock:L", "theirs"], "was overwritten by another tool");
    told(&["FLUSHALL"], "was forgotten by the server");
    // As an operator does it.
    let mut first = holder(&server, &["--ttl", "3s"], "L");
    let token = server.cli(&["GET", "rlock:L"]);
    let revoked =
        run(server.rlock(["release", "--force", "L"]).env("LOGNAME", "ana").env("USER", "ana"));
    assert_eq!(revoked.code(), 0, "{revoked:?}");
    first.told("L: the lock was revoked by ana@");
    assert_eq!(first.end().code(), 76);
    let refused = run(&mut server.rlock(["renew", "L", &token]));
    assert!(refused.err().contains("this token's hold was revoked by ana@"), "{refused:?}");
    assert!(server.run("inspect L").out().contains("revoked by ana@"));
}

#[test]
fn rejecting_an_expired_or_released_token_states_the_reason() {
    let server = Server::start();
    let expired = acquire(&server, &["--ttl", "2s"], "L");
    until("the lease expires", || server.is_free("L"));
    let refused = |command: &str, name: &str, token: &str| {
        let output = run(&mut server.rlock([command, name, token])).exits(77);
        output.err()
    };
    let told = refused("renew", "L", &expired);
    assert!(told.contains("this token's hold expired "), "{told}");
    assert!(told.ends_with(" ago; acquire the lock again"), "{told}");
    let told = refused("release", "L", &expired);
    assert!(told.ends_with(" ago; check the work since then, which ran unlocked"), "{told}");
    let released = acquire(&server, &[], "L");
    assert_eq!(run(&mut server.rlock(["release", "L", &released])).code(), 0);
    let told = refused("release", "L", &released);
    assert!(told.contains("hold was released ") && told.ends_with(" ago"), "{told}");
    // It remembers the token of the first attempt, but not that it held the lock.
    for known in ["does not hold the lock", "was released, or it never held"] {
        let told = refused("release", "another", &released);
        assert!(told.contains(known) && told.ends_with("; check NAME and RLOCK_TOKEN"), "{told}");
    }
    // More than the history keeps.
    for _ in 0..17 {
        server.run("exec L true").exits(0);
    }
    let told = refused("renew", "L", &released);
    assert!(told.contains("this token's hold was released"), "{told}");
}

#[test]
fn a_lock_that_another_tool_took_or_the_server_forgot_is_lost() {
    let server = Server::start();
    for fault in [&["SET", "rlock:L", "theirs"][..], &["FLUSHALL"]] {
        let mut first = holder(&server, &["--ttl", "3s"], "L");
        server.cli(fault);
        first.told("; stopping the command");
        assert_eq!(first.end().code(), 76, "{fault:?}");
        server.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a_lost_lock_ends_the_whole_group_and_kills_what_ignores_sigterm() {
    let server = Server::start();
    // The child ignores TERM, and so does its own child.
    let script = "trap '' TERM; sleep 1000 & echo $!; wait";
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", script]));
    let grandchild = first.line();
    server.revoke("L");
    assert_eq!(first.end().code(), 76);
    until("the grandchild is gone", || is_gone(&grandchild));
}

#[test]
fn a_lost_lock_ends_processes_that_have_left_the_group() {
    let server = Server::start();
    for script in [
        // A new session, and one whose parent has ended and which ignores SIGTERM.
        "setsid sleep 1000 & echo $!; wait",
        "(trap '' TERM; setsid sleep 1000 & echo $!); sleep 1000",
        "(setsid sh -c 'setsid sleep 1000 & echo $!' &); sleep 1000",
        // A process whose name is not valid UTF-8.
        "setsid sh -c 'printf \"\\377\" >/proc/$$/comm; echo $$; sleep 1000; :' & wait",
        // The command itself.
        "trap '' TERM; exec setsid sh -c 'echo $$; while :; do sleep 0.01; done'",
    ] {
        let mut first =
            Running::start(&mut server.rlock(["exec", "--ttl", "2s", "L", "sh", "-c", script]));
        let escaped = first.line();
        assert!(!is_gone(&escaped));
        server.revoke("L");
        assert_eq!(first.process.wait().unwrap().code(), Some(76));
        until("it is gone", || is_gone(&escaped));
    }
}

#[test]
fn a_lost_lock_ends_a_chain_of_processes_that_each_start_the_next_and_end() {
    let server = Server::start();
    let held = server.directory().join("held");
    // All processes of the chain share the lock on this file, which lasts until the last of them
    // has ended. They exit after a minute even if a broken build does not end them.
    let chain = "use POSIX 'setsid'; use Fcntl ':flock'; $SIG{TERM} = 'IGNORE'; $| = 1;
        open my $held, '>', $ARGV[0] or die; flock $held, LOCK_EX or die;
        my $end = time + 60; my $count = 0; exit if fork;
        while (time < $end) {
            setsid(); exit if fork;
            if (++$count == 50) { print \"UP\\n\"; close STDOUT; close STDERR }
        }";
    let script = "perl -e \"$0\" \"$1\"; exec sleep 60";
    let mut command = server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", script, chain]);
    let mut first = Running::start(command.arg(&held)).prints_first("UP");
    let mut lock = Command::new("flock");
    lock.arg("--nonblock").arg(&held).arg("true");
    assert_eq!(run(&mut lock).code(), 1);
    server.revoke("L");
    assert_eq!(first.process.wait().unwrap().code(), Some(76));
    assert_eq!(run(&mut lock).code(), 0);
}

#[test]
fn after_a_loss_exited_orphans_are_reaped_while_others_still_run() {
    let server = Server::start();
    let script = "exec 3<&0; trap '' TERM; setsid sh -c 'read _; (true & echo $!); read _' <&3 &
        trap - TERM; echo $$; exec sleep 60";
    // The grace period is a third of the TTL, and covers everything that follows.
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "15s", "L", "sh", "-c", script]));
    let command = first.line();
    server.revoke("L");
    until("the command has ended", || is_gone(&command));
    first.say("");
    let orphan = format!("/proc/{}", first.line());
    until("the orphan is reaped", || !std::path::Path::new(&orphan).exists());
    assert!(first.process.is_running());
    first.say("");
    assert_eq!(first.end().code(), 76);
}

#[test]
fn what_a_command_leaves_running_outlives_a_normal_end() {
    let server = Server::start();
    let script = "setsid sleep 1000 >&- 2>&- & echo $!";
    let output = run(&mut server.rlock(["exec", "L", "sh", "-c", script])).exits(0);
    let left = output.out();
    assert!(!is_gone(&left));
    support::send_signal(left.parse().unwrap(), "KILL");
}

#[test]
fn waiting_for_a_command_that_ignores_sigterm_uses_no_cpu() {
    let server = Server::start();
    let script = "TIMEFORMAT=%U+%S; time $RLOCK exec --ttl 3s L bash -c \
        'trap \"\" TERM; echo READY; read _ <> <(:)'";
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).env("RLOCK", binary());
    let first = Running::start(shell.env("RLOCK_URL", server.url())).prints_first("READY");
    server.revoke("L");
    let output = first.end().exits(76);
    let told = output.err();
    let seconds: f64 =
        told.lines().last().unwrap().split('+').map(|part| part.parse::<f64>().unwrap()).sum();
    // It is killed a second after SIGTERM.
    assert!(seconds < 0.5, "{seconds} s of CPU time");
}

#[test]
fn a_stderr_that_nobody_reads_does_not_keep_a_command_alive_without_its_lock() {
    let server = Server::start();
    let script = "head -c 1000000 /dev/zero >&2 & echo READY; sleep 1000";
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", script]));
    assert_eq!(first.line(), "READY");
    server.revoke("L");
    assert_eq!(first.process.wait().unwrap().code(), Some(76));
}

#[test]
fn a_loss_before_the_command_ends_causes_76_even_if_it_is_detected_later() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    server.revoke("L");
    first.finish().exits(76).says("before the loss was detected");
}

#[test]
fn a_lock_forgotten_in_a_restart_causes_76_even_if_only_the_release_detects_it() {
    let mut server = Server::start();
    let first = holder(&server, &[], "L");
    server.kill();
    server.start_again();
    let second = holder(&server, &[], "L");
    first.finish().exits(76).says("forgotten by the server");
    assert_eq!(second.finish().code(), 0);
}

#[test]
fn a_server_out_of_memory_still_renews_and_hands_over() {
    let server = Server::start();
    let first = holder(&server, &["--ttl", "3s"], "L");
    let next = support::waiter(&server, &[], "L", "next");
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    until("four renewals", || server.calls_of("evalsha") >= 4);
    assert_eq!(first.finish().code(), 0);
    assert_eq!(next.finish().out(), "ENTERED next");
}

#[test]
fn a_server_out_of_memory_still_releases_one_of_the_holds_of_an_owner() {
    let server = Server::start();
    let mine = ["--reentrant", "--owner", "me"];
    let tokens = [(); 2].map(|()| support::acquire(&server, &mine, "L"));
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for token in tokens {
        run(&mut server.rlock(["release", "L", &token])).exits(0);
    }
    assert!(server.is_free("L"));
}

#[test]
fn a_stopped_command_ends_too_when_the_lock_is_lost() {
    let server = Server::start();
    let stop = "echo READY; kill -STOP $$";
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", stop]));
    assert_eq!(first.line(), "READY");
    server.revoke("L");
    assert_eq!(first.end().code(), 76);
}

#[test]
fn an_unreachable_server_ends_the_command_before_the_lease_ends() {
    let server = Server::start();
    let mut first = holder(&server, &["--ttl", "3s"], "L");
    // A frozen server does not answer, and its keys expire once it continues.
    server.signal("STOP");
    first.told("was not renewed");
    assert_eq!(first.end().code(), 76);
    server.signal("CONT");
    server.run("exec L true").exits(0);
}

#[test]
fn a_holder_survives_a_short_absence_of_the_server() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let mut command = server.rlock(["exec", "-v", "--ttl", "3s", "L", "sh", "-c", READY]);
    let mut first = Running::start(command.env("RLOCK_URL", proxy.url())).prints_first("READY");
    for _ in 0..3 {
        proxy.cut();
        first.told("renewed");
    }
    first.finish().exits(0);
    assert!(server.is_free("L"));
}

#[test]
fn a_holder_says_once_that_a_renewal_is_late_and_once_that_it_is_over() {
    let server = Server::start();
    let options = ["--ttl", "12s", "--io-timeout", "500ms"];
    let quiet = [&options[..], &["-q"]].concat();
    let script = format!("{} acquire --while-pid $$ N >&2 && {READY}", binary());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("RLOCK_URL", server.url());
    let mut script = Running::start(shell.env("RLOCK_TTL", "12s").env("RLOCK_IO_TIMEOUT", "500ms"));
    assert_eq!(script.line(), "READY");
    let mut holders = [script, holder(&server, &options, "L"), holder(&server, &quiet, "M")];
    server.signal("STOP");
    for holder in &mut holders {
        let told = holder.told(" and was not renewed for ");
        assert!(told.ends_with("; retrying"), "{told}");
    }
    server.signal("CONT");
    for holder in &mut holders[..2] {
        holder.told("the lease was renewed after ");
    }
    for holder in holders {
        let output = holder.finish();
        assert_eq!((output.code(), output.err().as_str()), (0, ""), "{output:?}");
    }
}

#[test]
fn a_release_that_fails_is_a_warning_and_the_status_is_the_commands() {
    let mut server = Server::start();
    let mut command = server.rlock(["exec", "L", "sh", "-c", "echo READY; read _; exit 7"]);
    let mut first = Running::start(&mut command).prints_first("READY");
    server.kill();
    first.say("go");
    first.end().exits(7).says("not released").says("the lease expires within ");
}

#[test]
fn a_release_is_repeated_when_its_reply_is_lost() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    // So that the server knows the scripts already.
    server.run("exec L true");
    let script = "echo READY; read _; exit 7";
    let mut command = server.rlock(["exec", "--io-timeout", "1s", "L", "sh", "-c", script]);
    let mut first = Running::start(command.env("RLOCK_URL", proxy.url())).prints_first("READY");
    proxy.drop_replies(true);
    first.say("go");
    until("the lock is free", || server.is_free("L"));
    first.end().exits(7);
    server.run("inspect L").exits(1);
}

#[test]
fn killing_rlock_kills_its_command_and_frees_the_lock_within_one_ttl() {
    let server = Server::start();
    let script = "echo $$; exec sleep 1000";
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", script]));
    let command = first.line();
    let mut longer = LongerWait::of("10s");
    first.signal("KILL");
    assert_eq!(first.end().status.signal(), Some(9));
    // No process is left to renew the lease.
    let left = server.inspect("L")["ttl_ms"].as_u64();
    assert!(left.is_none_or(|left| left <= 3_000), "{left:?}");
    until("the command is gone", || is_gone(&command));
    server.run("exec L true").exits(0);
    longer.is_not_over();
}

#[test]
fn everything_but_the_guard_expires_by_itself_too() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let second = support::waiter(&server, &[], "L", "");
    // No process is left to read its message.
    second.signal("KILL");
    second.end();
    until("it is gone", || server.cli(&["INFO", "clients"]).contains("blocked_clients:0"));
    first.finish();
    let third = support::waiter(&server, &[], "L", "");
    let keys = server.cli(&["KEYS", "*"]);
    assert_eq!(keys.lines().count(), 7, "{keys}");
    for key in keys.lines() {
        assert!(server.cli_number(&["PTTL", key]) > 0, "{key}");
    }
    third.finish();
    until("the message expires", || server.cli(&["KEYS", "*mail*"]).is_empty());
    // A free lock keeps its fence and history for a day.
    let keys = server.cli(&["KEYS", "*"]);
    let mut keys: Vec<&str> = keys.lines().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["{rlock:L}?history", "{rlock:L}?state", "{rlock:L}?tombstones"]);
    let kept = server.cli(&["HKEYS", "{rlock:L}?state"]);
    assert_eq!(kept.lines().collect::<Vec<_>>(), ["fence", "generation"]);
    // And the ended tokens for a minute.
    assert!(server.cli_number(&["PTTL", keys[2]]) <= 60_000);
    let day = 24 * 3600 * 1000;
    for key in &keys[..2] {
        let left = server.cli_number(&["PTTL", key]);
        assert!((day - 60_000..=day + 60_000).contains(&left), "{key}: {left}");
    }
}

#[test]
fn the_commands_status_is_kept_when_a_renewal_is_under_way() {
    let server = Server::on_tcp(&[]);
    // The answer to a renewal takes 200 ms.
    let proxy = Proxy::to(server.port(), Duration::from_millis(100));
    for _ in 0..5 {
        let script = format!("{READY}; exit 9");
        let mut command = server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", &script]);
        let first = Running::start(command.env("RLOCK_URL", proxy.url())).prints_first("READY");
        let flights = proxy.flights();
        until("a renewal is under way", || proxy.flights() > flights);
        first.finish().exits(9);
        assert!(server.is_free("L"));
    }
}

#[test]
fn with_on_lost_continue_a_command_finishes_without_its_lock_and_rlock_exits_with_76() {
    let server = Server::start();
    let script = "echo READY; read _; echo finished";
    let options = ["exec", "--ttl", "3s", "--on-lost", "continue", "L", "sh", "-c", script];
    let mut first = Running::start(&mut server.rlock(options)).prints_first("READY");
    server.revoke("L");
    first.told("letting the command finish");
    first.say("go");
    first.end().exits(76).prints("finished");
}

#[test]
fn kill_after_is_the_time_a_command_has_to_clean_up() {
    let server = Server::start();
    let script = "trap 'echo cleaning; sleep 0.3; echo clean; exit' TERM; echo READY
        while :; do sleep 0.01; done";
    let run_with = |kill_after: &str| {
        let options = ["exec", "--ttl", "3s", "-k", kill_after, "L", "sh", "-c", script];
        let first = Running::start(&mut server.rlock(options)).prints_first("READY");
        server.revoke("L");
        let output = first.end().exits(76);
        output.out()
    };
    assert_eq!(run_with("1s"), "cleaning\nclean");
    assert_ne!(run_with("50ms"), "cleaning\nclean");
}

#[test]
fn with_on_unreachable_run_a_command_runs_unlocked_without_a_server() {
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
    // Any failure other than an absent server is still an error.
    let mut command = support::rlock(["exec", "--on-unreachable", "run", "L", "true"]);
    assert_eq!(run(command.env("RLOCK_URL", "http://x")).code(), 78);
}

#[test]
fn a_command_never_runs_unlocked_if_a_server_answers() {
    let server = Server::with(&["--enable-debug-command", "yes"]);
    let unlocked = ["exec", "-n", "--on-unreachable", "run", "L", "echo", "RUNS"];
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    run(&mut server.rlock(unlocked)).exits(69).prints("");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);

    server.cli(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    let redis_cli = || {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(server.socket());
        command
    };
    let looping = Running::start(redis_cli().args(["EVAL", "while true do end", "0"]));
    until("the server is busy", || run(redis_cli().arg("PING")).out().contains("BUSY"));
    let busy = run(&mut server.rlock(unlocked));
    server.cli(&["SCRIPT", "KILL"]);
    looping.end();
    assert_eq!((busy.code(), busy.out().as_str()), (69, ""), "{busy:?}");
}

#[test]
fn a_release_is_retried_until_the_server_is_back() {
    let server = Server::start();
    let mut first = holder(&server, &["--io-timeout", "1s"], "L");
    server.signal("STOP");
    first.say("");
    first.told("not released yet");
    server.signal("CONT");
    assert_eq!(first.finish().code(), 0);
    assert!(server.is_free("L"));

    let token = support::acquire(&server, &[], "L");
    server.signal("STOP");
    let release = ["release", "--io-timeout", "1s", "L", &token];
    let mut release = Running::start(&mut server.rlock(release));
    release.told("not released yet");
    server.signal("CONT");
    assert_eq!(release.end().code(), 0);
    assert!(server.is_free("L"));
}

#[test]
fn a_signal_ends_the_retries_of_a_release() {
    let server = Server::start();
    for status in [0, 3] {
        let name = format!("L{status}");
        let script = format!("{}; exit {status}", support::READY);
        let exec = ["exec", "--io-timeout", "1s", &name, "sh", "-c", &script];
        let mut first = Running::start(&mut server.rlock(exec)).prints_first("READY");
        server.signal("STOP");
        // Without the signal it would go on for 10 s.
        let mut longer = LongerWait::of("8s");
        first.say("");
        first.told("not released yet");
        first.signal("TERM");
        first.told("the lease expires within");
        assert_eq!(first.end().code(), status);
        longer.is_not_over();
        server.signal("CONT");
    }
}

#[test]
fn the_retries_of_a_release_end_with_the_lease() {
    let mut server = Server::start();
    let mut first = holder(&server, &["--ttl", "3s"], "L");
    server.kill();
    // Without the end of the lease it would go on for 10 s.
    let mut longer = LongerWait::of("7s");
    first.say("");
    first.told("the lease expires within");
    assert_eq!(first.end().code(), 0);
    longer.is_not_over();
}

#[test]
fn a_command_never_runs_unlocked_if_the_lock_is_busy() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    server.run("exec -n --on-unreachable run L true").exits(75);
    first.finish();
}

#[test]
fn a_holder_survives_brief_errors_of_the_server_and_stops_its_command_in_time_otherwise() {
    let server = Server::start();
    let options = ["exec", "-v", "--ttl", "3s", "L", "sh", "-c", READY];
    let mut first = Running::start(&mut server.rlock(options)).prints_first("READY");
    // The server requires a password for a moment.
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
    let told = first.told("was not renewed for");
    assert!(told.contains("password") && told.contains("the lease expires in"), "{told}");
    assert_eq!(first.end().code(), 76);
    // Its lease was not released and has not expired yet.
    let key = server.cli(&[&AUTH[..], &["EXISTS", "rlock:L"]].concat());
    assert_eq!(key, "1");
}

#[test]
fn after_a_pause_the_command_is_stopped_before_anything_else() {
    let server = Server::start();
    let ran = server.directory().join("ran");
    let script =
        format!("trap 'touch {0}' TERM; ps -o pgid= -p $$; read _; touch {0}", ran.display());
    // rlock alone, and the command with it.
    for is_alone in [true, false] {
        let command = ["exec", "--ttl", "2s", "L", "sh", "-c", &script];
        let mut first = Running::start(&mut server.rlock(command));
        let group = format!("-{}", first.line().trim());
        if !is_alone {
            assert_eq!(run(Command::new("kill").args(["-s", "STOP", "--", &group])).code(), 0);
        }
        let paused = Paused::new(first.pid());
        until("its lease ends", || server.is_free("L"));
        if !is_alone {
            first.say("go");
        }
        drop(paused);
        let told = first.told("was not renewed");
        assert!(told.contains("the lease has expired"), "{told}");
        assert_eq!(first.end().code(), 76);
        assert!(!ran.exists(), "alone: {is_alone}");
    }
}

#[test]
fn a_stopped_rlock_is_continued_in_time_to_end_its_command() {
    let server = Server::start();
    let script = "trap 'echo ENDING; exit' TERM; setsid sleep 1000 & echo $!; read _; echo GOES";
    for is_alone in [true, false] {
        let mut command = server.rlock(["exec", "--foreground", "--ttl", "2s", "L"]);
        let mut first = Running::start(command.args(["sh", "-c", script]).process_group(0));
        let grandchild = first.line();
        let group = format!("-{}", first.pid());
        let target = if is_alone { &group[1..] } else { &group };
        assert_eq!(run(Command::new("kill").args(["-s", "STOP", "--", target])).code(), 0);
        server.revoke("L");
        if !is_alone {
            first.say("go");
        }
        first.end().exits(76).prints("ENDING");
        assert!(is_gone(&grandchild));
    }
}

#[test]
fn a_renewal_is_one_command_on_one_connection() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let mut command = server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", READY]);
    let first = Running::start(command.env("RLOCK_URL", proxy.url())).prints_first("READY");
    // By then the server knows the script.
    until("a renewal", || server.calls_of("evalsha") >= 2);
    let flights = proxy.flights();
    server.cli(&["CONFIG", "RESETSTAT"]);
    until("five renewals", || server.calls_of("evalsha") >= 5);
    let sent = proxy.flights() - flights;
    let calls = usize::try_from(server.calls_of("evalsha")).unwrap();
    // One may be under way.
    assert!(sent.abs_diff(calls) <= 1, "{sent} flights, {calls} calls");
    assert_eq!(proxy.connections(), 1);
    assert_eq!(first.finish().code(), 0);
}

#[test]
fn the_thread_for_renewals_starts_long_before_one_is_due() {
    let server = Server::start();
    let first = holder(&server, &["--ttl", "1h"], "L");
    let threads = format!("/proc/{}/task", first.pid());
    until("a second thread", || std::fs::read_dir(&threads).unwrap().count() == 2);
    assert_eq!(first.finish().code(), 0);
}

#[test]
fn children_of_a_shell_also_get_time_to_clean_up_after_a_loss() {
    let server = Server::start();
    let worker = "trap 'echo cleaning; sleep 0.3; echo clean; exit' TERM; echo READY
        while :; do sleep 0.01; done";
    // The shell around it dies of SIGTERM at once.
    let shell = format!("bash -c \"{worker}\"; true");
    let mut first =
        Running::start(&mut server.rlock(["exec", "--ttl", "6s", "L", "sh", "-c", &shell]));
    assert_eq!(first.line(), "READY");
    server.revoke("L");
    first.end().exits(76).prints("cleaning\nclean");
}

#[test]
fn a_lost_lock_spares_processes_that_the_command_did_not_start() {
    let server = Server::start();
    let script =
        format!("sleep 1000 >&- 2>&- & echo $!; exec {} exec --ttl 3s L sh -c '{READY}'", binary());
    let mut shell = Command::new("bash");
    let mut first = Running::start(shell.args(["-c", &script]).env("RLOCK_URL", server.url()));
    let stranger = first.line();
    assert_eq!(first.line(), "READY");
    server.revoke("L");
    assert_eq!(first.end().code(), 76);
    assert!(!is_gone(&stranger));
    support::send_signal(stranger.parse().unwrap(), "KILL");
}

#[test]
fn a_lost_lock_spares_orphans_that_the_command_did_not_start() {
    let server = Server::start();
    // A process that existed before and ends only now leaves one that existed before and one
    // that did not. The command has an orphan too.
    let script = format!(
        "mkfifo go; sh -c 'sleep 1000 >&- 2>&- & echo $!; read _ <go; sleep 1001 >&- 2>&- & echo $!' &
        exec {} exec --ttl 3s L sh -c '(setsid sleep 1002 >&- 2>&- & echo $!); {READY}'",
        binary()
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env("RLOCK_URL", server.url()).current_dir(server.directory());
    let mut first = Running::start(&mut shell);
    let mut lines: Vec<String> = (0..3).map(|_| first.line()).collect();
    lines.retain(|line| line != "READY");
    std::fs::write(server.directory().join("go"), "\n").unwrap();
    lines.push(first.line());
    let parent_of = |pid: &str| run(Command::new("ps").args(["-o", "ppid=", "-p", pid])).out();
    let rlock = first.pid().to_string();
    until("all are orphans", || lines.iter().all(|pid| parent_of(pid).trim() == rlock));
    server.revoke("L");
    assert_eq!(first.end().code(), 76);
    let survivors: Vec<String> = lines.into_iter().filter(|pid| !is_gone(pid)).collect();
    for pid in &survivors {
        support::send_signal(pid.parse().unwrap(), "KILL");
    }
    assert_eq!(survivors.len(), 2);
}

#[test]
fn without_proc_rlock_warns_that_it_cannot_stop_every_process() {
    let server = Server::start();
    let script =
        format!("mount -t tmpfs none /proc; exec {} exec --ttl 3s L sh -c '{READY}'", binary());
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let first = Running::start(shell.env("RLOCK_URL", server.url())).prints_first("READY");
    server.revoke("L");
    let output = first.end().exits(76);
    assert_eq!(output.err().matches("; mount /proc").count(), 1, "{output:?}");
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
        let children = run(Command::new("ps").args(["-o", "pid=,pgid=", "--ppid", &rlock]));
        let others = |line: &str| {
            let (pid, group) = line.trim().split_once(' ').unwrap();
            // The ended process that still holds the command's group.
            pid != group.trim()
        };
        children.out().lines().filter(|line| others(line)).count() == 1
    });
    assert_eq!(first.finish().code(), 0);
}

support::also_on_local! {
    a_command_that_outlives_its_ttl_keeps_the_lock,
    a_lock_that_is_lost_ends_the_command_with_76,
    a_lost_lock_ends_the_whole_group_and_kills_what_ignores_sigterm,
    a_lost_lock_ends_processes_that_have_left_the_group,
    what_a_command_leaves_running_outlives_a_normal_end,
    waiting_for_a_command_that_ignores_sigterm_uses_no_cpu,
    a_stderr_that_nobody_reads_does_not_keep_a_command_alive_without_its_lock,
    a_loss_before_the_command_ends_causes_76_even_if_it_is_detected_later,
    a_stopped_command_ends_too_when_the_lock_is_lost,
    killing_rlock_kills_its_command_and_frees_the_lock_within_one_ttl,
    with_on_lost_continue_a_command_finishes_without_its_lock_and_rlock_exits_with_76,
    kill_after_is_the_time_a_command_has_to_clean_up,
    a_command_never_runs_unlocked_if_the_lock_is_busy,
    after_a_pause_the_command_is_stopped_before_anything_else,
    a_stopped_rlock_is_continued_in_time_to_end_its_command,
    children_of_a_shell_also_get_time_to_clean_up_after_a_loss,
    a_lost_lock_spares_processes_that_the_command_did_not_start,
    a_lost_lock_spares_orphans_that_the_command_did_not_start,
    orphans_are_reaped_however_they_end,
}

support::also_without_vfork! {
    a_lost_lock_ends_the_whole_group_and_kills_what_ignores_sigterm,
    a_lost_lock_ends_processes_that_have_left_the_group,
    killing_rlock_kills_its_command_and_frees_the_lock_within_one_ttl,
    orphans_are_reaped_however_they_end,
}
