//! At a terminal, a command under rlock is a job like any other.

use std::time::Duration;

use crate::support::pty::Terminal;
use crate::support::{self, Finished, Server, run, until};

const INTERRUPT: &str = "\x03";
const QUIT: &str = "\x1c";
const SUSPEND: &str = "\x1a";

#[test]
fn a_command_can_read_the_terminal() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.enters("$rlock exec L sh -c 'read x; echo got-$x'; echo status-$?");
    until("it runs", || !server.is_free("L"));
    terminal.enters("abc");
    terminal.sees("got-abc");
    terminal.sees("status-0");
    // The shell controls the terminal again.
    terminal.enters("read y; echo shell-$y");
    terminal.enters("def");
    terminal.sees("shell-def");
}

#[test]
fn a_waiter_whose_process_group_is_outside_of_its_namespace_shows_its_status() {
    let server = Server::start();
    let first = support::holder(&server, &[], "L");
    let mut terminal = Terminal::start(&server);
    let unshare = "unshare --user --map-root-user --pid --fork --kill-child";
    terminal.enters(&format!("{unshare} $rlock exec L true; echo status-$?"));
    terminal.sees("waiting at position 1");
    first.finish();
    terminal.sees("rlock: L: acquired after ");
    terminal.sees("status-0");
}

#[test]
fn a_narrow_terminal_shows_the_holder_of_a_lock_with_a_long_name_and_many_waiters() {
    let server = Server::start();
    let name = "deploy:production:eu-west-1:payments-service:blue-green:canary-7";
    let first = support::holder(&server, &[], name);
    let mut waiters: Vec<_> = (0..12)
        .map(|_| support::Running::start(&mut server.rlock(["exec", name, "true"])))
        .collect();
    waiters.iter_mut().for_each(|waiter| drop(waiter.told("waiting at position")));
    let mut terminal = Terminal::start(&server);
    terminal.enters(&format!("$rlock exec {name} true"));
    terminal.sees("\rwaiting at position 13: held by");
    terminal.types(INTERRUPT);
    terminal.sees("$ ");
    terminal.enters(&format!("$rlock inspect {name}"));
    let page = terminal.sees("waiting  2 more");
    assert!(page.contains("held by") && page.contains("waiting  10. "), "{page}");
    first.finish();
}

#[test]
fn an_interactive_shell_under_exec_has_job_control() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.enters("$rlock exec L bash --norc -i; echo status-$?");
    until("it runs", || !server.is_free("L"));
    terminal.enters("PS1='inner> '");
    terminal.sees("inner> ");
    terminal.enters("sh -c 'echo up; read x; echo got-$x'");
    terminal.sees("up\r\n");
    terminal.types(SUSPEND);
    terminal.sees("Stopped");
    terminal.sees("inner> ");
    terminal.enters("fg");
    terminal.enters("abc");
    terminal.sees("got-abc");
    terminal.enters("sleep 1000");
    terminal.belongs_to("sleep");
    terminal.types(INTERRUPT);
    terminal.sees("inner> ");
    terminal.enters("exit 7");
    terminal.sees("status-7");
    // The outer shell controls the terminal again.
    terminal.enters("read y; echo shell-$y");
    terminal.enters("def");
    terminal.sees("shell-def");
}

#[test]
fn ctrl_c_ends_a_watch_between_two_frames_and_a_shell_sees_130() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    for is_stopped in [false, true] {
        terminal.enters("$rlock inspect --io-timeout 1h --watch=1ms L");
        terminal.sees("L: free");
        if is_stopped {
            // Ctrl-C does not wait for a reply.
            server.signal("STOP");
        }
        terminal.types(INTERRUPT);
        let restored = "\r\x1b[K\x1b[?25h";
        let frames = terminal.sees(restored);
        let last = frames.trim_end_matches(restored).rsplit("\x1b[?25l").next().unwrap();
        assert!(last.contains("\x1b[?25h"), "{last:?}");
        terminal.sees("$ ");
        terminal.enters("echo status-$?");
        terminal.sees("status-130");
        terminal.sees("$ ");
    }
    server.signal("CONT");
}

#[test]
fn a_watch_ignores_ctrl_c_if_its_caller_does() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.enters("(trap '' INT; exec $rlock inspect --watch=10ms L)");
    terminal.sees("L: free");
    terminal.types(INTERRUPT);
    terminal.sees("^C");
    terminal.sees("L: free");
    terminal.types(QUIT);
    terminal.sees("$ ");
    terminal.enters("echo status-$?");
    terminal.sees("status-131");
}

#[test]
fn a_list_has_labels_if_the_terminal_is_wide_enough() {
    let server = Server::start();
    let label = "https://ci.example/jobs/813";
    support::acquire(&server, &["--shared", "--label", label], "a-rather-long-name");
    support::acquire(&server, &["--shared"], "a-rather-long-name");
    let mut terminal = Terminal::start(&server);
    let mut list = |setting: &str| {
        terminal.enters(&format!("{setting} $rlock inspect"));
        terminal.sees("NAME");
        let table = terminal.sees("1 lock");
        terminal.sees("$ ");
        table
    };
    let (narrow, wide) = (list(""), list("COLUMNS=200"));
    assert!(!narrow.contains("https") && narrow.contains(" 2 holders: "), "{narrow}");
    assert!(wide.contains("LABEL") && wide.contains(label), "{wide}");
    let wide = list("stty cols 200;");
    assert!(wide.contains(label), "{wide}");
}

#[test]
fn what_needs_attention_is_colored_unless_the_user_wants_none() {
    let server = Server::start();
    server.cli(&["SET", "rlock:L", "held without an expiry"]);
    let mut terminal = Terminal::start(&server);
    for (setting, is_colored) in [
        ("TERM=xterm", true),
        ("TERM=dumb", false),
        ("env -u TERM", false),
        ("NO_COLOR=1 TERM=xterm", false),
        ("NO_COLOR= TERM=xterm", true),
    ] {
        for name in ["", "L"] {
            terminal.enters(&format!("{setting} $rlock inspect {name}; echo status-$?"));
            let shown = terminal.sees("status-0");
            assert!(shown.contains("expiry"), "{shown}");
            assert_eq!(shown.contains("\u{1b}[33m"), is_colored, "{setting}: {shown}");
        }
    }
    terminal.enters("TERM=xterm $rlock inspect | cat; echo status-$?");
    assert!(!terminal.sees("status-0").contains('\u{1b}'));
}

#[test]
fn a_watch_of_a_long_list_keeps_its_summary() {
    let server = Server::start();
    for number in 1..=9 {
        support::acquire(&server, &[], &format!("lock-{number}"));
    }
    let mut terminal = Terminal::start(&server);
    terminal.enters("stty rows 8; $rlock inspect -W");
    let frame = terminal.sees("9 locks");
    assert!(frame.contains("lock-4 ") && frame.contains("(5 more lines)"), "{frame}");
    assert!(!frame.contains("lock-5"), "{frame}");
    terminal.types(INTERRUPT);
    terminal.sees("$ ");
}

#[test]
fn a_watch_keeps_the_last_list_while_the_server_is_unreachable() {
    let mut server = Server::start();
    support::acquire(&server, &["--ttl", "1h"], "L");
    let mut terminal = Terminal::start(&server);
    terminal.enters("$rlock inspect --watch=50ms");
    terminal.sees("1 lock");
    server.kill();
    terminal.sees("; retrying");
    terminal.sees("\x1b[H");
    let frame = terminal.sees("; retrying");
    for part in ["NAME", "L  ", "1 lock", " old: "] {
        assert!(frame.contains(part), "{part:?}: {frame:?}");
    }
    server.start_again();
    terminal.sees("no lock is held under prefix 'rlock:' on ");
    terminal.types(INTERRUPT);
    terminal.sees("$ ");
}

#[test]
fn a_wait_updates_one_line() {
    let server = Server::start();
    let mut first = support::holder(&server, &["--label", "job/17"], "L");
    let mut terminal = Terminal::start(&server);
    terminal.enters("stty cols 200; $rlock exec -w 60 L echo EN''TERED");
    terminal.sees("waiting at position 1, ");
    let rest = terminal.sees("\u{1b}[K");
    assert!(rest.contains("s left: held by "), "{rest}");
    assert!(rest.contains(&format!("pid {} (sh) for ", first.pid())), "{rest}");
    // The same line again, with other times.
    let again = terminal.sees("\u{1b}[K");
    assert!(again.starts_with("\rrlock: L: waiting at position 1, 5"), "{again}");
    first.say("");
    first.finish();
    let end = terminal.sees("ENTERED");
    assert!(end.contains("\r\u{1b}[K"), "the line is gone: {end:?}");
    // -q is quiet there too.
    let mut first = support::holder(&server, &[], "L");
    terminal.enters("$rlock exec -q -w 1 L true; echo status-$?");
    let shown = terminal.sees("status-75");
    assert!(!shown.contains("waiting"), "{shown}");
    first.say("");
    first.finish();
}

#[test]
fn a_wait_stays_on_one_line_with_wide_characters() {
    let server = Server::start();
    let first = support::holder(&server, &["--label", &"日本".repeat(60)], "L");
    let mut terminal = Terminal::start(&server);
    terminal.enters("stty cols 120; $rlock exec L echo ENTER''ED");
    terminal.sees("\rwaiting at position 1: ");
    let rest = terminal.sees("\u{1b}[K");
    let line = format!("waiting at position 1: {}", rest.trim_end_matches("\u{1b}[K"));
    assert!(line.contains("日本"), "{line}");
    let columns: usize = line.chars().map(|c| if c > '\u{1100}' { 2 } else { 1 }).sum();
    assert!(columns <= 120, "{columns}: {line}");
    first.finish();
    terminal.sees("ENTERED");
}

#[test]
fn an_interrupt_stops_the_script() {
    let server = Server::start();
    for command in ["sleep 1000", "sh -c 'read x'", "sh -c 'read x; echo go-$x; exec sleep 1000'"] {
        let script = server.directory().join("script");
        let lines = format!("$rlock exec L {command}\necho next-$((1 + 1))\n");
        std::fs::write(&script, lines).unwrap();
        let mut terminal = Terminal::start(&server);
        terminal.enters(&format!("bash {}", script.display()));
        until("it runs", || !server.is_free("L"));
        if command.contains("go-") {
            terminal.enters("x");
            terminal.sees("go-x");
        }
        terminal.types(INTERRUPT);
        terminal.sees("$ ");
        terminal.enters("echo status-$?");
        let shown = terminal.sees("status-130");
        assert!(!shown.contains("next-2"), "{command}: {shown}");
        assert!(server.is_free("L"));
    }
}

#[test]
fn an_interrupt_at_any_moment_of_startup_stops_the_script() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    for delay in 0..40 {
        terminal.enters("bash -c 'echo up; $rlock exec L sleep 1000; echo next-$((1 + 1))'");
        terminal.sees("\r\nup");
        // The test is about this moment, so it has no event to wait for.
        std::thread::sleep(Duration::from_micros(delay * 500));
        terminal.types(INTERRUPT);
        terminal.sees("$ ");
        terminal.enters("echo status-$?");
        let shown = terminal.sees("status-130");
        assert!(!shown.contains("next-2"), "after {delay}: {shown}");
        terminal.sees("$ ");
    }
}

#[test]
fn a_job_can_be_suspended_and_brought_back() {
    let server = Server::start();
    // One that never touches the terminal, and one that reads from it.
    let go = server.directory().join("go");
    let until_go = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
    for (command, answer) in [
        (format!("sh -c 'echo up; {until_go}; echo got-x'"), ""),
        ("sh -c 'echo up; read x; echo got-$x'".to_owned(), "x\n"),
    ] {
        let mut terminal = Terminal::start(&server);
        terminal.enters(&format!("$rlock exec L {command}; echo status-$?"));
        terminal.sees("up\r\n");
        terminal.belongs_to("rlock");
        terminal.suspends();
        terminal.enters("echo alive-$((1 + 1))");
        terminal.sees("alive-2");
        terminal.enters("fg");
        terminal.sees("exec L");
        std::fs::write(&go, "").unwrap();
        terminal.types(answer);
        terminal.sees("got-x");
        terminal.enters("echo again-$((1 + 1))");
        terminal.sees("again-2");
    }
}

#[test]
fn a_suspended_job_ends_before_its_lease_does() {
    let server = Server::start();
    for command in ["sh -c", "setsid -w sh -c"] {
        let mut terminal = Terminal::start(&server);
        let ran = server.directory().join("ran");
        // It ignores both, and would go on as soon as it is continued.
        let script = format!("trap \"\" TSTP TERM; echo up; sleep 1000; touch {}", ran.display());
        terminal.enters(&format!("$rlock exec --ttl 1s L {command} '{script}'"));
        terminal.sees("up\r\n");
        terminal.types(SUSPEND);
        terminal.sees("Stopped");
        // Nobody continues the job.
        terminal.sees("rlock was stopped; stopping the command");
        server.run("exec L true").exits(0);
        terminal.enters("while kill -0 %1; do :; done 2> /dev/null; wait %1; echo status-$?");
        terminal.sees("status-76");
        assert!(!ran.exists());
    }
}

#[test]
fn a_lost_job_ends_though_it_is_suspended_meanwhile() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    let script = "trap \"echo ending\" TERM; echo up; while :; do sleep 0.01; done";
    terminal.enters(&format!("$rlock exec --ttl 2s L bash -c '{script}'; echo status-$?"));
    terminal.sees("up\r\n");
    server.revoke("L");
    terminal.sees("ending\r\n");
    terminal.types(SUSPEND);
    terminal.sees("status-76");
}

#[test]
fn exec_in_a_pipeline_does_not_take_the_terminal() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.enters("$rlock exec L echo in | (cat; read x < /dev/tty; echo got-$x)");
    terminal.sees("\r\nin\r\n");
    terminal.enters("abc");
    terminal.sees("got-abc");
}

#[test]
fn a_background_job_that_wants_the_terminal_waits_for_it() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.enters("$rlock exec L sh -c 'read x; echo got-$x' &");
    until("it runs", || !server.is_free("L"));
    terminal.sees("$ ");
    // The shell reports a stopped job at its next prompt.
    until("it is stopped", || {
        let job = run(std::process::Command::new("ps").args(["-eo", "stat,args"]));
        job.out()
            .lines()
            .any(|line| line.starts_with('T') && line.contains("rlock exec L sh -c read x"))
    });
    terminal.enters("fg");
    terminal.sees("exec L");
    terminal.enters("abc");
    terminal.sees("got-abc");
}

#[test]
fn in_the_foreground_group_an_interrupt_reaches_the_command_once() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    let script = r#"$| = 1; $SIG{INT} = sub { $n++; print "int-$n\n" }; print "up\n";
        sleep 1 until $n; print "got-", scalar <STDIN>"#;
    let file = server.directory().join("command");
    std::fs::write(&file, script).unwrap();
    terminal.enters(&format!("$rlock exec --foreground L perl {}; echo status-$?", file.display()));
    terminal.sees("up\r\n");
    terminal.types(INTERRUPT);
    terminal.sees("int-1");
    terminal.enters("abc");
    let shown = terminal.sees("got-abc");
    assert!(!shown.contains("int-2"), "{shown}");
    terminal.sees("status-0");
}

#[test]
fn in_the_foreground_group_a_command_can_be_interrupted_suspended_and_brought_back() {
    let server = Server::start();
    let script = server.directory().join("script");
    let lines = "$rlock exec --foreground L sh -c 'echo up; exec sleep 1000'\necho next-$((1 + 1))";
    std::fs::write(&script, lines).unwrap();
    let mut terminal = Terminal::start(&server);
    terminal.enters(&format!("bash {}", script.display()));
    terminal.sees("up\r\n");
    terminal.types(INTERRUPT);
    terminal.sees("$ ");
    terminal.enters("echo status-$?");
    let shown = terminal.sees("status-130");
    assert!(!shown.contains("next-2"), "{shown}");

    // It runs on for longer than a command may take to stop.
    for _ in 0..5 {
        let script = "echo up; read x; sleep 0.4; echo got-$x";
        terminal.enters(&format!("$rlock exec --foreground L sh -c '{script}'"));
        terminal.sees("up\r\n");
        terminal.suspends();
        terminal.enters("fg");
        terminal.sees("exec --foreground L");
        terminal.enters("abc");
        terminal.sees("got-abc");
    }
    server.run("exec L true").exits(0);
}

#[test]
fn in_the_foreground_group_an_interrupt_reaches_a_command_that_has_left_it() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.enters("$rlock exec --foreground L setsid sh -c 'echo up; exec sleep 1000'");
    terminal.sees("up\r\n");
    terminal.types(INTERRUPT);
    terminal.sees("$ ");
    terminal.enters("echo status-$?");
    terminal.sees("status-130");
}

#[test]
fn suspending_only_rlock_suspends_no_other_process() {
    let server = Server::start();
    let script = server.directory().join("script");
    let lines = "cd ${0%/*}
        $rlock exec L sh -c 'echo up; until [ -e go ]; do sleep 0.01; done' & p=$!
        until $rlock inspect L > /dev/null; do :; done
        kill -TSTP $p
        until grep -q '^[0-9]* (rlock) T' /proc/$p/stat; do :; done
        echo goes-$((1 + 1)); kill -CONT $p; touch go; wait $p; echo done-$?";
    std::fs::write(&script, lines).unwrap();
    let mut terminal = Terminal::start(&server);
    terminal.enters(&format!("bash {}", script.display()));
    terminal.sees("goes-2");
    terminal.sees("done-0");
}

support::also_on_local! {
    a_command_can_read_the_terminal,
    an_interactive_shell_under_exec_has_job_control,
    an_interrupt_stops_the_script,
    a_job_can_be_suspended_and_brought_back,
    a_suspended_job_ends_before_its_lease_does,
    a_lost_job_ends_though_it_is_suspended_meanwhile,
    exec_in_a_pipeline_does_not_take_the_terminal,
    a_background_job_that_wants_the_terminal_waits_for_it,
    in_the_foreground_group_an_interrupt_reaches_the_command_once,
    in_the_foreground_group_a_command_can_be_interrupted_suspended_and_brought_back,
    in_the_foreground_group_an_interrupt_reaches_a_command_that_has_left_it,
    suspending_only_rlock_suspends_no_other_process,
}

support::also_without_vfork! {
    a_job_can_be_suspended_and_brought_back,
}
