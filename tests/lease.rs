//! A command runs only under a lease that is renewed.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{self, *};

#[test]
fn a_command_that_outlives_its_ttl_keeps_the_lock() {
    let (server, mut first) = held(&["-v", "--ttl", "2s"]);
    // Four renewals take longer than a lease.
    for _ in 0..4 {
        first.told("renewed for");
    }
    server.run("exec -n L true").exits(75);
    first.finish().exits(0);
    assert!(server.is_free("L"));
}

#[test]
fn a_holder_that_loses_its_lock_prints_the_reason() {
    let server = Server::start();
    for (fault, reason) in [
        (&["DEL", "rlock:L"][..], "was deleted"),
        (&["SET", "rlock:L", "theirs"], "was overwritten by another tool"),
        (&["FLUSHALL"], "was forgotten by the server"),
    ] {
        let mut first = holder(&server, &["--ttl", "3s"], "L");
        let token = server.cli(&["GET", "rlock:L"]);
        server.cli(fault);
        let told = first.told(&format!("L: the lock {reason}"));
        assert!(told.ends_with("; stopping the command"), "{told}");
        first.end().exits(76);
        // A server that has lost its data knows only about the release.
        let reason = if fault == ["FLUSHALL"] { "was released" } else { reason };
        for command in ["renew", "release"] {
            run(&mut server.rlock([command, "L", &token]))
                .exits(77)
                .says(&format!("this token's hold {reason}"));
        }
        server.cli(&["FLUSHALL"]);
    }
}

#[test]
fn the_last_line_of_a_run_that_lost_its_lock_is_its_result() {
    let server = Server::start();
    // The command ends before its lease, and the server answers neither a renewal nor the release.
    for (options, told) in [
        ("", "the lock was lost, and the command was stopped"),
        ("--on-lost continue", "the lock was lost, and the command ended without it"),
    ] {
        let options = format!("{options} --ttl 3s");
        let options: Vec<&str> = options.split_whitespace().collect();
        let mut first = holder(&server, &options, "L");
        server.signal("STOP");
        let output = if options.len() > 2 {
            first.told("letting the command finish");
            first.finish()
        } else {
            first.end().says(" was not renewed for ")
        };
        let output = output.exits(76);
        assert_eq!(output.err().lines().last(), Some(&*format!("rlock: L: {told}")), "{output:?}");
        server.signal("CONT");
        until("it is free", || server.is_free("L"));
    }
}

#[test]
fn rejecting_an_expired_or_released_token_states_the_reason() {
    let (server, expired) = acquired(&["--ttl", "2s"]);
    until("the lease expires", || server.is_free("L"));
    let refused = |command: &str, name: &str, token: &str| {
        run(&mut server.rlock([command, name, token])).exits(77).err()
    };
    let told = refused("renew", "L", &expired);
    assert!(told.contains("this token's hold expired "), "{told}");
    assert!(told.ends_with(" ago; acquire the lock again"), "{told}");
    let told = refused("release", "L", &expired);
    assert!(told.ends_with(" ago; check the work since then, which ran unlocked"), "{told}");
    let released = acquire(&server, &[], "L");
    run(&mut server.rlock(["release", "L", &released])).exits(0);
    let told = refused("release", "L", &released);
    assert!(told.contains("hold was released ") && told.ends_with(" ago"), "{told}");
    // Even after the history has forgotten it.
    for _ in 0..17 {
        server.run("exec L false").exits(1);
    }
    assert!(refused("renew", "L", &released).contains("hold was released"));
}

#[test]
fn a_lost_lock_ends_all_that_the_command_has_started() {
    let server = Server::start();
    // Each prints the ID of a process, which must end.
    let commands = [
        // Another process of the group. It ignores SIGTERM, as the command does.
        ("", "trap '' TERM; sleep 1000 & echo $!; wait"),
        ("--foreground", "trap '' TERM; sleep 1000 & echo $!; wait"),
        // A command that is stopped.
        ("", "echo $$; kill -STOP $$"),
        // A new session, and one whose parent has ended and which ignores SIGTERM.
        ("", "setsid sleep 1000 & echo $!; wait"),
        ("", "(trap '' TERM; setsid sleep 1000 & echo $!); sleep 1000"),
        ("", "(setsid sh -c 'setsid sleep 1000 & echo $!' &); sleep 1000"),
        // A process whose name is not valid UTF-8.
        ("", "setsid sh -c 'printf \"\\377\" >/proc/$$/comm; echo $$; sleep 1000; :' & wait"),
        // The command itself leaves the group.
        ("", "trap '' TERM; exec setsid sh -c 'echo $$; while :; do sleep 0.01; done'"),
    ];
    let holders = Vec::from_iter(commands.iter().enumerate().map(|(lock, (options, script))| {
        let mut holder = server.starts(&format!("exec --ttl 2s {options} {lock} sh -c"), script);
        let process = holder.line();
        assert!(!is_gone(&process), "{script}");
        (script, holder, process)
    }));
    for lock in 0..holders.len() {
        server.revoke(&lock.to_string());
    }
    for (script, mut holder, process) in holders {
        assert_eq!(holder.process.wait().unwrap().code(), Some(76), "{script}");
        until(script, || is_gone(&process));
    }
}

#[test]
fn a_lost_lock_ends_a_chain_of_processes_that_each_start_the_next_and_end() {
    let server = Server::start();
    // All processes share the lock on this file, which lasts until the last of them has ended. They
    // exit after a minute even if a broken build does not end them.
    let chain = "use POSIX 'setsid'; use Fcntl ':flock'; $SIG{TERM} = 'IGNORE'; $| = 1;
        open my $held, '>', 'held' or die; flock $held, LOCK_EX or die;
        my $end = time + 60; my $count = 0; if (fork) { sleep 60; exit }
        while (time < $end) {
            setsid(); exit if fork;
            if (++$count == 50) { print \"UP\\n\"; close STDOUT; close STDERR }
        }";
    let mut command = server.rlock(["exec", "--ttl", "3s", "L", "perl", "-e", chain]);
    let mut first = Running::start(command.current_dir(server.directory())).prints_first("UP");
    let lock = || {
        let mut flock = Command::new("flock");
        run(flock.args(["--nonblock", "held", "true"]).current_dir(server.directory())).code()
    };
    assert_eq!(lock(), 1);
    server.revoke("L");
    assert_eq!(first.process.wait().unwrap().code(), Some(76));
    assert_eq!(lock(), 0);
}

#[test]
fn after_a_loss_rlock_looks_only_at_what_the_command_has_started() {
    let server = Server::start();
    let log = server.directory().join("log");
    let strace = format!("strace -qq -e trace=openat,execve -o {}", log.display());
    let script = "trap '' TERM; (setsid sh -c 'echo READY; sleep 1000') & wait";
    let exec = format!("{strace} {} exec --ttl 3s L sh -c", support::binary());
    let mut first = Running::start(&mut server.program(&exec, script)).prints_first("READY");
    server.revoke("L");
    assert_eq!(first.process.wait().unwrap().code(), Some(76));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("/children\"") && !log.contains("\"/proc/1/"), "{log}");
}

#[test]
fn a_process_that_cannot_be_killed_delays_the_exit_only_for_a_moment_and_is_named() {
    let server = Server::start();
    // Root without the right to signal others.
    let drops = "setpriv --bounding-set=-kill --inh-caps=-all";
    let other = "setpriv --reuid=65534 --clear-groups sleep 1000 >&- 2>&-";
    let exec = format!("{drops} {} exec --ttl 2s L sh -c", support::binary());
    let script = format!("{other} & a=$!; {other} & echo $a $!; wait");
    let mut first = Running::start(&mut server.program(&exec, &script));
    let left = first.line();
    let left = || left.split(' ');
    until("they are another user's", || {
        left().all(|pid| std::fs::metadata(format!("/proc/{pid}")).unwrap().uid() == 65534)
    });
    let mut longer = LongerWait::of("5s");
    server.revoke("L");
    let told = first.end().exits(76).err();
    for pid in left() {
        support::send_signal(pid.parse().unwrap(), "KILL");
    }
    longer.is_not_over();
    let told = told.lines().find(|line| line.contains("cannot kill ")).unwrap();
    assert_eq!(told.matches("sleep (pid ").count(), 2, "{told}");
    assert!(told.ends_with(", uid 65534); stop what still runs without the lock"), "{told}");
}

#[test]
fn a_command_or_script_that_cannot_be_signaled_is_not_said_to_be_stopped() {
    let server = Server::start();
    // Root without the right to signal others, and a program that becomes another user.
    let drops = "setpriv --bounding-set=-kill --inh-caps=-all";
    let other = format!("setpriv --reuid=65534 --clear-groups sh -c '{READY}'");
    let exec = format!("exec {} exec --ttl 3s L {other}", support::binary());
    let keeper = format!("$rlock acquire --ttl 3s --while-pid $$ L >&2 && exec {other}");
    for (script, name, status) in [(exec, "the command", 76), (keeper, "the script (pid ", 0)] {
        let mut command = server.program(&format!("{drops} sh -c"), &script);
        let mut first = Running::start(&mut command).prints_first("READY");
        server.revoke("L");
        let told = first.told("; stop it yourself");
        assert!(told.contains(&format!("; cannot stop {name}")), "{told}");
        assert!(told.ends_with(": operation not permitted; stop it yourself"), "{told}");
        first.told("cannot kill sh (pid ");
        let told = first.finish().exits(status).err();
        assert!(!told.contains("stopped"), "{told}");
        until("the lock is free", || server.is_free("L"));
    }
}

#[test]
fn what_a_command_leaves_running_outlives_a_normal_end() {
    let server = Server::start();
    let left = server.starts("exec L sh -c", "setsid sleep 1000 >&- 2>&- & echo $!").end().out();
    assert!(!is_gone(&left));
    support::send_signal(left.parse().unwrap(), "KILL");
}

#[test]
fn a_stderr_that_nobody_reads_does_not_keep_a_command_alive_without_its_lock() {
    let server = Server::start();
    let script = "head -c 1000000 /dev/zero >&2 & sleep 1000";
    let mut command = server.rlock(["exec", "--ttl", "3s", "L", "sh", "-c", script]);
    let mut first = Process::start(command.stderr(Stdio::piped()));
    until("the lock is held", || !server.is_free("L"));
    server.revoke("L");
    assert_eq!(first.wait().unwrap().code(), Some(76));
}

#[test]
fn a_log_that_blocks_does_not_keep_a_command_alive_without_its_lock() {
    let server = Server::start();
    let log = server.directory().join("log");
    // As on a network file system that does not answer, because the network is down for both.
    let strace = format!("-f -qq -o /dev/null -e trace=write -P {}", log.display());
    let script = format!(
        "exec strace {strace} -e inject=write:delay_enter=60000000 $rlock exec --ttl 3s L \\
        sh -c 'trap \"\" TERM; echo $$; exec sleep 1000' 2>{}",
        log.display()
    );
    let mut first = Running::start(&mut server.program("sh -c", &script));
    let command = first.line();
    let mut longer = LongerWait::of("15s");
    server.signal("STOP");
    until("the command is gone", || is_gone(&command));
    longer.is_not_over();
}

#[test]
fn a_loss_before_the_command_ends_causes_76_even_if_it_is_detected_later() {
    let (server, first) = held(&[]);
    server.revoke("L");
    first.finish().exits(76).says("before the loss was detected");
}

#[test]
fn a_lock_forgotten_in_a_restart_causes_76_even_if_only_the_release_detects_it() {
    let (mut server, first) = held(&[]);
    server.kill();
    server.start_again();
    let second = holder(&server, &[], "L");
    first.finish().exits(76).says("forgotten by the server");
    second.finish().exits(0);
}

#[test]
fn a_command_that_ends_during_a_renewal_keeps_its_status_and_its_lock_is_released() {
    let server = Server::on_tcp(&[]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let first = Client::of(proxy.url()).holder("--ttl 3s L");
    proxy.delay(Duration::from_millis(500));
    let before = proxy.flights();
    until("a renewal is under way", || proxy.flights() > before);
    first.finish().exits(0);
    assert!(server.is_free("L"));
}

#[test]
fn waiting_for_a_command_that_ignores_sigterm_uses_no_cpu() {
    let server = Server::start();
    let script = "TIMEFORMAT=%U+%S; time $rlock exec --ttl 3s L bash -c \
        'trap \"\" TERM; echo READY; read _ <> <(:)'";
    let first = Running::start(&mut server.program("bash -c", script)).prints_first("READY");
    server.revoke("L");
    let told = first.end().exits(76).err();
    let times = told.lines().last().unwrap().split('+');
    let seconds: f64 = times.map(|time| time.parse::<f64>().unwrap()).sum();
    // It is killed a second after SIGTERM.
    assert!(seconds < 0.5, "{seconds} s of CPU time");
}

#[test]
fn a_holder_says_once_that_a_renewal_is_late_and_once_that_it_is_over() {
    let server = Server::start();
    let options = "--ttl 12s --io-timeout 500ms";
    let acquire = format!("$rlock acquire {options} --while-pid $$ N >&2 && {READY}");
    let exec = |options: &str| server.starts(&format!("exec {options} sh -c"), READY);
    let script = Running::start(&mut server.program("sh -c", &acquire));
    let holders = [script, exec(&format!("{options} L")), exec(&format!("{options} -q M"))];
    let mut holders = holders.map(|holder| holder.prints_first("READY"));
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
        let output = holder.finish().exits(0);
        assert_eq!(output.err(), "");
    }
}

#[test]
fn a_preloaded_library_with_another_clock_changes_no_lease() {
    let find = "echo /usr/lib/*/faketime/libfaketime.so.1";
    let library = run(Command::new("sh").args(["-c", find])).out();
    assert!(std::path::Path::new(&library).exists(), "{library}");
    // Ahead, behind, slow, fast, frozen, and from a date on.
    let clocks = ["+1h", "-1h", "+0 x0.2", "+0 x5", "2020-01-01 00:00:00", "@2020-01-01 00:00:00"];
    for server in [Server::start(), Server::local()] {
        let exec = |clock: &str, options: &str, script: &str| {
            let line = format!("exec {options} sh -c");
            let mut command = server.rlock(line.split(' ').chain([script]));
            command.env("LD_PRELOAD", &library).env("FAKETIME", clock);
            command
        };
        let held = "trap '' TERM; echo READY; sleep 1000";
        let holders = Vec::from_iter(clocks.iter().enumerate().map(|(lock, clock)| {
            let options = format!("-v --ttl 2s {lock}");
            (lock, clock, Running::start(&mut exec(clock, &options, held)))
        }));
        let holders = Vec::from_iter(holders.into_iter().map(|(lock, clock, mut holder)| {
            // Four renewals take longer than a lease.
            for _ in 0..4 {
                holder.told("renewed for");
            }
            server.run(&format!("exec -n {lock} true")).exits(75);
            run(&mut exec(clock, "-n 0", "true")).exits(75);
            (clock, holder)
        }));
        if server.is_local() {
            (0..holders.len()).for_each(|lock| server.revoke(&lock.to_string()));
        } else {
            server.signal("STOP");
        }
        // The sleep of each would last longer than any limit.
        for (clock, holder) in holders {
            assert_eq!(holder.end().code(), 76, "{clock}");
        }
    }
}

#[test]
fn a_release_is_retried_until_the_lease_ends_and_its_failure_is_only_a_warning() {
    let mut server = Server::start();
    let script = "echo READY; read _; exit 7";
    let first = server.starts("exec --ttl 3s L sh -c", script).prints_first("READY");
    server.kill();
    // Without the end of the lease it would go on for 10 s.
    let mut longer = LongerWait::of("7s");
    first.finish().exits(7).says("not released").says("the lease expires within ");
    longer.is_not_over();
}

#[test]
fn killing_rlock_kills_its_command_and_frees_the_lock_within_one_ttl() {
    let server = Server::start();
    let mut first = server.starts("exec --ttl 3s L sh -c", "echo $$; exec sleep 1000");
    let command = first.line();
    assert_eq!(first.ends_by("KILL").status.signal(), Some(9));
    // No process is left to renew the lease.
    let left = server.inspect("L")["ttl_ms"].as_u64();
    assert!(left.is_none_or(|left| left <= 3_000), "{left:?}");
    until("the command is gone", || is_gone(&command));
    server.run("exec L true").exits(0);
}

#[test]
fn kill_after_is_the_time_a_command_and_its_children_have_to_clean_up() {
    let server = Server::start();
    let worker = "trap 'echo cleaning; sleep 0.3; echo clean; exit' TERM; echo READY
        while :; do sleep 0.01; done";
    // The shell around it dies of SIGTERM at once.
    let shell = format!("bash -c \"{worker}\"; true");
    let said = |kill_after: &str| {
        let exec = format!("exec --ttl 3s -k {kill_after} L sh -c");
        server.revokes(server.starts(&exec, &shell).prints_first("READY")).out()
    };
    assert_eq!(said("1s"), "cleaning\nclean");
    assert_ne!(said("50ms"), "cleaning\nclean");
}

#[test]
fn with_on_unreachable_run_a_command_runs_unlocked_without_a_server() {
    let runs_at = |url: &str, command: &[&str]| {
        let exec = ["exec", "--on-unreachable", "run", "L"].iter().chain(command);
        run(rlock(exec).env("RLOCK_URL", url))
    };
    let unlocked = |command: &[&str]| runs_at("redis://127.0.0.1:1", command);
    unlocked(&["sh", "-c", "echo in; echo \"<$RLOCK_TOKEN>\"; exit 7"])
        .exits(7)
        .prints("in\n<>")
        .says("running the command without a lock");
    assert_eq!(unlocked(&["sh", "-c", "kill -9 $$"]).status.signal(), Some(9));
    unlocked(&["no-such-command"]).exits(127);
    // Any failure other than an absent server is still an error.
    runs_at("http://x", &["true"]).exits(78);
}

#[test]
fn a_command_never_runs_unlocked_if_a_server_answers() {
    let server = Server::start();
    let unlocked = || server.run("exec -n --on-unreachable run L echo RUNS").prints("");
    let first = holder(&server, &[], "L");
    unlocked().exits(75);
    first.finish();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    unlocked().exits(69);
}

#[test]
fn a_command_never_runs_unlocked_if_a_server_answers_only_at_first() {
    // It accepts the password, or tells its version, but no script runs while writes are paused.
    let server = Server::start();
    server.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    let paused = |server: &Server, password: &[&str]| {
        server.cli(&[password, &["CLIENT", "PAUSE", "60000", "WRITE"]].concat());
    };
    paused(&server, &["-a", "secret", "--no-auth-warning"]);
    let exec = "exec -n --io-timeout 300ms --on-unreachable run L echo RUNS";
    let mut exec_there = server.rlock(exec.split(' '));
    run(exec_there.env("RLOCK_PASSWORD", "secret")).prints("").exits(69);
    let three = quorum::servers(3);
    three[..2].iter().for_each(|server| server.signal("STOP"));
    paused(&three[2], &[]);
    quorum::at(&three).run(exec).prints("").exits(69);
    three[..2].iter().for_each(|server| server.signal("CONT"));
    // A part of an answer is one, too.
    for part in ["-", "-LOADING Redis"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(part.as_bytes()).unwrap();
            // Until the client gives up.
            let _ = client.read_to_end(&mut Vec::new());
        });
        run(&mut at(&url, exec)).prints("").exits(69);
        server.join().unwrap();
    }
}

#[test]
fn a_release_is_retried_until_the_server_is_back_or_a_signal_arrives() {
    let server = Server::start();
    for is_signaled in [false, true] {
        let mut first = holder(&server, &["--io-timeout", "1s"], "L");
        server.signal("STOP");
        // Without the signal it would go on for 10 s.
        let mut longer = LongerWait::of("8s");
        first.say("");
        first.told("not released yet");
        if is_signaled {
            first.signal("TERM");
            first.told("the lease expires within");
        } else {
            server.signal("CONT");
        }
        first.end().exits(0);
        longer.is_not_over();
        server.signal("CONT");
        assert!(is_signaled || server.is_free("L"));
    }
}

#[test]
fn after_a_pause_the_command_is_stopped_before_anything_else() {
    let server = Server::start();
    let ran = server.directory().join("ran");
    let script =
        format!("trap 'touch {0}' TERM; ps -o pgid= -p $$; read _; touch {0}", ran.display());
    // rlock alone, and the command with it.
    for is_alone in [true, false] {
        let mut first = server.starts("exec --ttl 2s L sh -c", &script);
        let group = format!("-{}", first.line().trim());
        if !is_alone {
            run(Command::new("kill").args(["-s", "STOP", "--", &group])).exits(0);
        }
        let paused = Paused::new(first.pid());
        until("its lease ends", || server.is_free("L"));
        if !is_alone {
            first.say("go");
        }
        drop(paused);
        first.end().exits(76).says("the lease has expired");
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
        run(Command::new("kill").args(["-s", "STOP", "--", target])).exits(0);
        if !is_alone {
            first.say("go");
        }
        server.revokes(first).prints("ENDING");
        assert!(is_gone(&grandchild));
    }
}

#[test]
fn a_lost_lock_spares_processes_that_the_command_did_not_start() {
    let server = Server::start();
    // A child from before, and another that ends only now and leaves two orphans, one from before
    // and a new one. The command has orphans too: one has cleared its environment, and one in its
    // group has replaced it.
    let script = format!(
        "mkfifo go; sleep 999 >&- 2>&- & echo $!
        sh -c 'sleep 1000 >&- 2>&- & echo $!; read _ <go; sleep 1001 >&- 2>&- & echo $!' &
        exec $rlock exec --ttl 3s L sh -c '(setsid sleep 1002 >&- 2>&- & echo $!)
        (env -i setsid sleep 1003 >&- 2>&- & echo $!)
        (trap \"\" TERM; env -i A=1 sleep 1004 >&- 2>&- & echo $!); {READY}'",
    );
    let mut shell = server.program("bash -c", &script);
    let mut first = Running::start(shell.current_dir(server.directory()));
    let mut lines: Vec<String> = (0..6).map(|_| first.line()).collect();
    lines.retain(|line| line != "READY");
    std::fs::write(server.directory().join("go"), "\n").unwrap();
    lines.push(first.line());
    let parent_of = |pid: &str| run(Command::new("ps").args(["-o", "ppid=", "-p", pid])).out();
    let rlock = first.pid().to_string();
    until("all are its children", || lines.iter().all(|pid| parent_of(pid).trim() == rlock));
    server.revokes(first);
    lines.retain(|pid| !is_gone(pid));
    for pid in &lines {
        support::send_signal(pid.parse().unwrap(), "KILL");
    }
    assert_eq!(lines.len(), 3);
}

/// `exec` in a shell keeps its children, so not all of rlock's children are the command's.
#[test]
fn beside_other_children_a_lost_lock_ends_what_the_command_runs_without_its_environment() {
    let server = Server::start();
    // The shell ends at SIGTERM, or only at SIGKILL; what it runs, at SIGKILL.
    for trap in [":", "trap \"\" TERM"] {
        let child = "setsid sh -c \"trap '' TERM; echo \\$\\$; exec sleep 999 >&- 2>&-\"";
        let command = format!("{trap}; {child} & {child} & {child} & wait");
        let script = format!(
            "sleep 998 >&- 2>&- & exec $rlock exec --ttl 3s L env -i PATH=$PATH bash -c '{}'",
            command.replace('\'', "'\\''")
        );
        let mut first = Running::start(&mut server.program("bash -c", &script));
        let started: Vec<String> = (0..3).map(|_| first.line()).collect();
        server.revokes(first);
        let left = Vec::from_iter(started.iter().filter(|pid| !is_gone(pid)));
        left.iter().for_each(|pid| support::send_signal(pid.parse().unwrap(), "KILL"));
        assert!(left.is_empty(), "{trap}: {left:?}");
    }
}

#[test]
fn without_proc_rlock_and_a_keeper_warn_that_they_cannot_stop_every_process() {
    let server = Server::start();
    let exec = format!("mount -t tmpfs none /proc; exec $rlock exec --ttl 3s L sh -c '{READY}'");
    // Nobody can watch process 1.
    let keeper = "sh -c '$rlock acquire --ttl 3s --while-pid $$ L >&2 && echo READY; sleep 60'; :";
    for (namespaces, script) in [("--mount", &*exec), ("--pid --fork", keeper)] {
        let first = Running::start(&mut server.contained(namespaces, script)).prints_first("READY");
        server.revoke("L");
        let told = first.end().err();
        assert_eq!(told.matches("; mount /proc").count(), 1, "{namespaces}: {told}");
    }
}

#[test]
fn orphans_are_reaped_however_they_end() {
    let server = Server::start();
    // The first dies by a real-time signal.
    let script = "(setsid sh -c 'kill -34 $$' &)
        for i in 1 2 3 4 5; do (setsid true &); done; echo $PPID; read _ || :";
    let mut first = server.starts("exec L sh -c", script);
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
    first.finish().exits(0);
}

support::also_on_local! {
    a_command_that_outlives_its_ttl_keeps_the_lock,
    what_a_command_leaves_running_outlives_a_normal_end,
    a_loss_before_the_command_ends_causes_76_even_if_it_is_detected_later,
    killing_rlock_kills_its_command_and_frees_the_lock_within_one_ttl,
}

support::also_without_vfork! {
    a_lost_lock_ends_all_that_the_command_has_started,
    killing_rlock_kills_its_command_and_frees_the_lock_within_one_ttl,
    orphans_are_reaped_however_they_end,
}
