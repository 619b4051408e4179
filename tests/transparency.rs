//! `rlock exec NAME -- COMMAND` behaves like COMMAND; flock(1) is the oracle where it has an answer.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::support::{self, *};

#[test]
fn rlock_exits_with_every_status_of_its_command() {
    let server = Server::start();
    for status in 0..=255 {
        let exit = format!("exit {status}");
        let output = run(&mut server.rlock(["exec", "status", "sh", "-c", &exit])).exits(status);
        assert_eq!(output.err(), "");
    }
}

#[test]
fn rlock_dies_by_the_signal_that_killed_its_command() {
    let server = Server::start();
    // The last one is a real-time signal, for which most libraries have no name.
    for signal in [1, 2, 3, 6, 9, 13, 15, 40] {
        let kill = format!("kill -{signal} $$");
        let ended = server.starts("exec L bash -c", &kill).end().status;
        // The environment of the tests may ignore a signal from the start.
        let plain = run(Command::new("bash").args(["-c", &kill])).status;
        assert_eq!((ended.signal(), ended.code()), (plain.signal(), plain.code()), "{signal}");
        assert!(!ended.core_dumped());
    }
}

/// Checks that a command behaves the same under flock and under rlock, after the same preparation.
fn same_as_under_flock(prepare: &str, script: &str) {
    let server = Server::start();
    let wrapped = |wrapper: &str| {
        let all = format!("{prepare}\n{wrapper} bash -c \"$SCRIPT\"; echo \"outside $?\"");
        let mut shell = server.program("bash -c", &all);
        let output = run(shell.env("SCRIPT", script).env("FILE", server.directory().join("flock")));
        (output.out(), output.err())
    };
    assert_eq!(wrapped("$rlock exec L --"), wrapped("flock $FILE"), "{prepare}; {script}");
}

#[test]
fn ignored_signals_stay_ignored_and_others_do_not() {
    let dispositions = "grep -E '^Sig(Ign|Cgt)' /proc/self/status";
    same_as_under_flock(":", dispositions);
    same_as_under_flock("trap '' HUP", dispositions);
    same_as_under_flock("trap '' INT QUIT TERM USR1 USR2 WINCH PIPE", dispositions);
    same_as_under_flock("trap '' XFSZ ALRM VTALRM PROF XCPU IO PWR ABRT STKFLT", dispositions);
}

#[test]
fn a_command_may_leave_its_group_and_session_as_under_flock() {
    for command in [
        // It forks if it leads a group, and returns before its command ends, which takes 300 ms.
        "setsid sh -c 'sleep 0.3; echo inside'",
        "setsid -w sh -c 'echo inside; exit 3'",
        "perl -e 'use POSIX; print setsid() == $$ ? \"leads\" : \"refused: $!\"'",
        "perl -e 'use POSIX; print setpgid(0, 0) ? \"leads\" : \"refused: $!\"'",
    ] {
        same_as_under_flock(":", &format!("exec {command}"));
    }
}

#[test]
fn with_sigchld_ignored_rlock_sees_the_command_end_and_the_command_inherits_it() {
    let server = Server::start();
    // A shell cannot ignore SIGCHLD for its children, Perl can.
    let script = "$SIG{CHLD} = 'IGNORE';
        exec $ENV{rlock}, qw(exec L grep ^SigIgn /proc/self/status /nonexistent)";
    let output = run(&mut server.program("perl -e", script)).exits(2);
    let ignored = u64::from_str_radix(output.out().split_whitespace().last().unwrap(), 16).unwrap();
    assert_ne!(ignored & (1 << (17 - 1)), 0, "{output:?}");
}

#[test]
fn blocked_signals_stay_blocked() {
    let server = Server::start();
    let blocked = |wrapper: &str| {
        let script = format!(
            "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR1, SIGCHLD));
            exec {wrapper} qw(grep ^SigBlk /proc/self/status)"
        );
        run(&mut server.program("perl -e", &script)).out()
    };
    let plain = blocked("");
    assert_eq!(blocked("$ENV{rlock}, qw(exec L --),"), plain);
    assert!(plain.ends_with("010200"), "{plain}");
}

#[test]
fn closed_descriptors_stay_closed_and_rlock_leaks_none() {
    let server = Server::start();
    // The shell opens the list itself, as one more number on both sides.
    let list = "sh -c 'cd /proc/$$/fd && echo *'";
    for closed in ["", "exec <&-;", "exec 2>&-;", "exec <&- 2>&-;"] {
        let listed = |wrapper: &str| {
            run(&mut server.program("bash -c", &format!("{closed} exec {wrapper} {list}"))).out()
        };
        assert_eq!(listed("$rlock exec L"), listed(""), "{closed}");
    }
}

#[test]
fn umask_directory_arguments_and_environment_pass_through() {
    same_as_under_flock("umask 027; cd /", "umask; pwd; env | grep -v -e ^RLOCK_ -e ^_= | sort");
    let server = Server::start();
    let odd = ["printf", "%s|", "", " a  b ", "-x", "--", "ü\n", "*"];
    let output = run(&mut server.rlock(["exec", "L"].iter().chain(&odd)));
    assert_eq!(output.stdout, "| a  b |-x|--|ü\n|*|".as_bytes());
}

#[test]
fn options_end_at_the_commands_first_word() {
    let server = Server::start();
    for before in ["-n L", "L -n", "L -n --"] {
        server.run(&format!("exec {before} echo -n -w 5")).exits(0).prints("-w 5");
    }
}

#[test]
fn stdin_and_stdout_are_the_commands_own_to_the_last_byte() {
    let server = Server::start();
    let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let path = server.directory().join("bytes");
    std::fs::write(&path, &bytes).unwrap();
    let input = std::fs::File::open(&path).unwrap();
    let output = output_of(server.rlock(["exec", "L", "cat"]).stdin(input));
    assert!(output.stdout == bytes);
}

#[test]
fn the_command_learns_about_its_lock_from_its_environment() {
    let server = Server::start();
    let script = "echo $RLOCK_NAME; echo $RLOCK_TOKEN; echo $RLOCK_FENCE; echo $RLOCK_HELD";
    let mut command = server.rlock(["exec", "inner", "sh", "-c", script]);
    let told = run(command.env("RLOCK_HELD", "rlock:outer=t0")).out();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!((lines[0], lines[1].len()), ("inner", 36));
    assert!(lines[2].parse::<u64>().unwrap() > 1_700_000_000_000);
    assert_eq!(lines[3], format!("rlock:outer=t0 rlock:inner={}", lines[1]));
}

#[test]
fn a_command_that_cannot_run_has_the_shells_status_and_frees_the_lock() {
    let server = Server::start();
    server
        .run("exec L no-such-command")
        .exits(127)
        .says("command not found; correct its name or PATH");
    let script = |name: &str, text: &str| {
        let path = server.directory().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        path.display().to_string()
    };
    for (program, status, told) in [
        ("/".to_owned(), 126, "is a directory"),
        ("/etc/passwd".into(), 126, "not executable; run chmod +x -- /etc/passwd"),
        (script("a", "#! /nosuch/sh -e\n"), 127, "interpreter /nosuch/sh not found; correct its"),
        (script("b", "#!/bin/sh\r\n:\r\n"), 127, "/bin/sh not found; remove the carriage return"),
        ("echo hi".into(), 127, "command not found; to run a shell command, use sh -c"),
        ("cd".into(), 127, "cd: is a shell builtin; to run a shell command, use sh -c"),
        ("ulimit".into(), 127, "ulimit: is a shell builtin; "),
        (".".into(), 126, ".: is a shell builtin; "),
    ] {
        run(&mut server.rlock(["exec", "L", &program])).exits(status).says(told);
    }
    server.run("inspect L").exits(1);
}

#[test]
fn a_program_is_found_as_by_env_and_a_script_needs_no_interpreter_line() {
    let server = Server::start();
    let directory = server.directory().display();
    let prepare = "mkdir bin plain && echo 'echo $0 $# $1' | tee bin/script >plain/script && chmod +x bin/script";
    run(Command::new("sh").args(["-c", prepare]).current_dir(server.directory()));
    for (program, path, status) in [
        ("./script", String::new(), 0),
        ("script", format!("{directory}/bin"), 0),
        ("script", format!("{directory}/plain:../missing:../bin"), 0),
        ("script", format!("{directory}/plain:../missing"), 126),
        ("script", "../missing".to_owned(), 127),
        ("missing/script", String::new(), 127),
        ("", format!("{directory}/bin"), 127),
    ] {
        let run_by = |wrapper: &mut Command| {
            let words = [program, "a word", ""];
            run(wrapper.args(words).env("PATH", &path).current_dir(server.directory().join("bin")))
        };
        let rlock = run_by(&mut server.rlock(["exec", "L"]));
        let env = run_by(&mut Command::new("/usr/bin/env"));
        assert_eq!(rlock.out(), env.out(), "{program} in {path}: {rlock:?}");
        assert_eq!((rlock.code(), env.code()), (status, status), "{program} in {path}: {rlock:?}");
    }
}

support::also_on_local! {
    closed_descriptors_stay_closed_and_rlock_leaks_none,
    the_command_learns_about_its_lock_from_its_environment,
    a_command_that_cannot_run_has_the_shells_status_and_frees_the_lock,
}

support::also_without_vfork! {
    rlock_dies_by_the_signal_that_killed_its_command,
    a_command_may_leave_its_group_and_session_as_under_flock,
    closed_descriptors_stay_closed_and_rlock_leaks_none,
    stdin_and_stdout_are_the_commands_own_to_the_last_byte,
    the_command_learns_about_its_lock_from_its_environment,
    a_command_that_cannot_run_has_the_shells_status_and_frees_the_lock,
    a_program_is_found_as_by_env_and_a_script_needs_no_interpreter_line,
}
