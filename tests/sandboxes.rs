//! In a sandbox that refuses system calls, rlock works, or names the call.

use nix::errno::Errno;
use nix::libc;

use crate::support::*;

#[test]
fn a_command_starts_even_if_a_sandbox_refuses_vfork() {
    let server = Server::start();
    for errno in [Errno::EINVAL, Errno::ENOSYS, Errno::EPERM] {
        for group in [&[][..], &["--foreground"]] {
            let arguments = [&["exec"], group, &["L", "sh", "-c", "cat; echo $RLOCK_NAME; exit 3"]];
            let mut command = server.rlock(arguments.concat());
            let mut first = Running::start(refuse(&mut command, &[Refused::Vfork], errno));
            first.say("in");
            first.finish().exits(3).prints("in\nL");
        }
    }
}

#[test]
fn a_process_limit_does_not_matter_without_the_lock() {
    let (server, first) = held(&[]);
    let limited = |url: &str, options: &[&str]| {
        let mut command = rlock([&["exec"], options, &["L", "echo", "RUNS"]].concat());
        run(refuse(command.env("RLOCK_URL", url), &[Refused::Call(libc::SYS_clone)], Errno::EAGAIN))
    };
    limited(&server.url(), &["-n"]).exits(75);
    limited("redis://127.0.0.1:1", &["--on-unreachable", "run"]).exits(0).prints("RUNS");
    first.finish();
    limited(&server.url(), &[]).exits(70);
    limited(&server.url(), &["--foreground"]).exits(70);
    assert!(server.is_free("L"));
}

#[test]
fn without_a_thread_for_renewals_the_command_ends_before_its_lease() {
    let server = Server::start();
    let mut command = server.rlock(["exec", "--ttl", "2s", "L", "sh", "-c", "echo RUNS; sleep 60"]);
    run(refuse(&mut command, &[Refused::Thread, Refused::Call(libc::SYS_clone3)], Errno::EAGAIN))
        .exits(76)
        .prints("RUNS")
        .says("cannot start a thread for renewals: resource temporarily unavailable");
}

#[test]
fn renewing_and_releasing_need_no_recent_system_calls() {
    let server = Server::start();
    let recent = [libc::SYS_clone3, libc::SYS_close_range, libc::SYS_timer_create];
    let exec = server.rlock(["exec", "--ttl", "2s", "L", "sh", "-c", READY]);
    let keeper = format!("$rlock acquire --while-pid $$ --ttl 2s L && {READY}");
    let keeper = server.program("sh -c", &keeper);
    for (mut command, call) in [(exec, libc::SYS_pidfd_open), (keeper, libc::SYS_prlimit64)] {
        let refused = [&recent[..], &[call]].concat();
        let refused = Vec::from_iter(refused.into_iter().map(Refused::Call));
        let mut first = Running::start(refuse(&mut command, &refused, Errno::ENOSYS));
        while first.line() != "READY" {}
        server.is_renewed();
        first.finish().exits(0);
        until("it is released", || server.is_free("L"));
    }
}

#[test]
fn a_system_call_that_rlock_cannot_do_without_is_named() {
    let server = Server::start();
    let exec = ["exec", "L", "sleep", "1000"];
    let pid = std::process::id().to_string();
    let acquire = ["acquire", "--while-pid", &pid, "L"];
    for (arguments, refused, name) in [
        (&exec[..], Refused::Call(libc::SYS_clone), "clone"),
        (&exec, Refused::Call(libc::SYS_setpgid), "setpgid"),
        (&exec, Refused::Call(libc::SYS_signalfd4), "signalfd4"),
        (&exec, Refused::Call(libc::SYS_eventfd2), "eventfd2"),
        (&exec, Refused::Call(libc::SYS_timerfd_create), "timerfd_create"),
        (&exec, Refused::Call(libc::SYS_waitid), "waitid"),
        (&exec, Refused::Prctl(libc::PR_SET_PDEATHSIG), "prctl"),
        (&acquire, Refused::Call(libc::SYS_pidfd_open), "pidfd_open"),
    ] {
        let output = run(refuse(&mut server.rlock(arguments), &[refused], Errno::EPERM));
        let expected = format!(": {name}: operation not permitted");
        assert_eq!(output.code(), 70, "{refused:?}: {output:?}");
        assert!(output.err().ends_with(&expected), "{refused:?}: {output:?}");
        assert!(server.is_free("L"), "{refused:?}");
    }
}

#[test]
fn without_timers_rlock_and_a_keeper_warn_that_nothing_resumes_them() {
    let server = Server::start();
    let exec = format!("$rlock exec -q L sh -c '{READY}'");
    let keeper = format!("$rlock acquire -q --while-pid $$ L >&2 && {READY}; :");
    for script in [exec, keeper] {
        let limited = server.program("bash -c", &format!("ulimit -i 0; {script}"));
        // A keeper warns once the script already runs.
        let running = Running::start(&mut { limited }).prints_first("READY");
        let rest = running.tells("; raise ulimit -i").finish().exits(0).err();
        assert!(!rest.contains("ulimit"), "told twice: {rest}");
        until("it is released", || server.is_free("L"));
    }
    run(refuse(
        &mut server.rlock(["exec", "L", "true"]),
        &[Refused::Call(libc::SYS_timer_create)],
        Errno::EPERM,
    ))
    .exits(0)
    .says("timer_create: operation not permitted; allow this call");
    let exec = server.rlock(["exec", "--on-lost", "continue", "L", "true"]);
    let timers = [Refused::Call(libc::SYS_timer_create)];
    let told = run(refuse(&mut { exec }, &timers, Errno::EPERM)).exits(0).err();
    assert_eq!(told, "", "nothing would be stopped");
}

#[test]
fn if_rlock_or_a_keeper_cannot_go_on_all_is_dead_before_the_lock_is_free() {
    let server = Server::start();
    let fails = "strace -f -qq -o /dev/null -e trace=timerfd_settime
        -e inject=timerfd_settime:error=ENOMEM:when=20+ sh -c";
    let [started, child] = ["setsid", "exec"]
        .map(|starts| format!("(trap '' TERM; {starts} sleep 1000 >&- 2>&-) & echo $!"));
    // Each signal is an event, and so is each renewal.
    let wakes = "for i in $(seq 40); do kill -WINCH $PPID; sleep 0.01; done; sleep 1000";
    let exec = "exec $rlock exec L sh -c \"$SCRIPT\"".to_owned();
    let keeper = format!("$rlock acquire --ttl 600ms --while-pid $$ L >&2; {child}; sleep 1000");
    for (script, told) in [(exec, "cannot wait for events: timerfd_settime"), (keeper, "")] {
        let mut strace = server.program(fails, &script);
        let mut first = Running::start(strace.env("SCRIPT", format!("{started}; {wakes}")));
        let process = first.line();
        let runs = format!("$rlock exec L grep '^State:.[^Z]' /proc/{process}/status");
        let next = server.bash(&runs).prints("");
        assert_ne!(next.code(), 0, "{script}: {next:?}");
        first.end().says(told);
    }
}

#[test]
fn a_keeper_that_may_not_signal_promises_nothing() {
    let server = Server::start();
    let pid = std::process::id().to_string();
    let mut acquire = server.rlock(["acquire", "--while-pid", &pid, "L"]);
    let signals = [Refused::Call(libc::SYS_pidfd_send_signal)];
    run(refuse(&mut acquire, &signals, Errno::EPERM))
        .exits(70)
        .prints("")
        .says("cannot stop a process: pidfd_send_signal: operation not permitted");
    assert!(server.is_free("L"));
}

#[test]
fn a_pid_namespace_without_an_init_is_named() {
    let server = Server::start();
    for options in ["", "--foreground"] {
        run(&mut server.contained("--pid", &format!("exec $rlock exec {options} L true")))
            .exits(70)
            .says(
                "cannot start a process: its PID namespace would have no init; use unshare --fork",
            );
    }
    assert!(server.is_free("L"));
    run(&mut server.contained("--pid --fork", "$rlock exec L true")).exits(0);
}

#[test]
fn a_loss_says_that_orphans_keep_running_if_rlock_cannot_adopt_them() {
    let server = Server::start();
    let mut command = server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", READY]);
    let adoption = [Refused::Prctl(libc::PR_SET_CHILD_SUBREAPER)];
    let first = Running::start(refuse(&mut command, &adoption, Errno::EINVAL));
    let told = server.revokes(first.prints_first("READY")).err();
    assert_eq!(told.matches("; allow prctl(").count(), 1, "{told}");
}

#[test]
fn a_lost_lock_ends_the_group_of_the_command_even_if_rlock_cannot_find_processes() {
    let server = Server::start();
    let script = server.directory().join("work");
    // The command ends when it is asked to, but not another process of its group.
    let work = "sh -c 'trap \"\" TERM; echo $$; exec sleep 1000' & sleep 1000";
    std::fs::write(&script, work).unwrap();
    let exec = format!("exec --ttl 3s L sh {}", script.display());
    let mut not_adopted = server.rlock(exec.split(' '));
    let adoption = [Refused::Prctl(libc::PR_SET_CHILD_SUBREAPER)];
    refuse(&mut not_adopted, &adoption, Errno::EINVAL);
    let no_proc = format!("mount -t tmpfs none /proc; exec $rlock {exec}");
    for mut command in [not_adopted, server.contained("--mount", &no_proc)] {
        let mut first = Running::start(&mut command);
        let other = first.line();
        server.revokes(first);
        assert!(is_gone(&other), "{command:?}");
    }
}

#[test]
fn a_stack_that_is_too_small_is_an_error_rather_than_a_crash() {
    let server = Server::start();
    let told = "the limit on the stack is too small; raise ulimit -s";
    server.bash("ulimit -s 32; exec $rlock exec L true").exits(70).says(told);
    server.bash("ulimit -s 64; exec $rlock exec L true").exits(0);
}

#[test]
fn with_a_read_only_root_commands_and_keepers_run() {
    let server = Server::start();
    for rlock in ["exec L echo RAN", "acquire --while-pid $! L && echo RAN"] {
        let mount = "mount -o remount,ro,bind / || exit";
        let script = format!("{mount}; sleep 1000 & $rlock {rlock}; touch /x; kill $!");
        let output = run(&mut server.contained("--mount", &script)).says("Read-only file system");
        assert!(output.out().ends_with("RAN"), "{output:?}");
    }
}
