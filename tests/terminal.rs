//! At a terminal, a command under rlock is a job like any other: see also `terminal_table.rs`.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};

use crate::support::{self, *};

const INTERRUPT: &str = "\x03";
const SUSPEND: &str = "\x1a";

#[test]
fn ctrl_c_ends_a_watch_between_two_frames_and_a_shell_sees_130() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    for is_stopped in [false, true] {
        terminal.answers("$rlock inspect --io-timeout 1h --watch=1ms L", "L: free");
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
        terminal.answers("echo status-$?", "status-130");
        terminal.sees("$ ");
    }
    server.signal("CONT");
}

#[test]
fn a_watch_ends_at_ctrl_c_even_if_the_terminal_takes_no_more_of_a_frame() {
    let server = Server::start();
    let (_unread, terminal) = ends();
    let mut watch = server.rlock(["inspect", "--watch=1ms"]);
    watch.stdout(terminal.try_clone().unwrap()).env("RLOCK_PREFIX", "p".repeat(200));
    let mut watch = Process::start(&mut watch);
    let asked = || [PollFd::new(terminal.as_fd(), PollFlags::POLLOUT)];
    fcntl(&terminal, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    // The last byte, if it is too small for the end of a line.
    let fill = || (&terminal).write(b"x").is_err();
    until("the terminal is full", || fill() && poll(&mut asked(), 0u8) == Ok(0));
    support::send_signal(watch.id(), "INT");
    assert_eq!(watch.wait().unwrap().signal(), Some(libc::SIGINT));
}

#[test]
fn a_waiter_ends_at_a_signal_even_if_the_terminal_has_no_room_for_its_message() {
    let (server, holder) = support::held(&[]);
    let (mut user, terminal) = ends();
    let set = |flags| fcntl(&terminal, FcntlArg::F_SETFL(flags)).unwrap();
    let fill = |most| (0..most).take_while(|_| (&terminal).write(b"x").is_ok()).count();
    let mut make_room = || {
        user.read_exact(&mut [0; 1000]).unwrap();
        until("it has room", || fill(1) == 1);
    };
    set(OFlag::O_NONBLOCK);
    fill(usize::MAX);
    make_room();
    let room = fill(usize::MAX);
    // Now it takes some bytes, but not all of a line.
    make_room();
    fill(room - 20);
    set(OFlag::empty());
    let mut waiter = server.rlock(["exec", "L", "true"]);
    let mut waiter = Process::start(waiter.stderr(terminal));
    until("it waits", || server.waiting("L") == 1);
    support::send_signal(waiter.id(), "TERM");
    assert_eq!(waiter.wait().unwrap().signal(), Some(libc::SIGTERM));
    holder.finish().exits(0);
}

#[test]
fn q_ends_a_watch_whose_first_line_has_the_time_and_the_server() {
    let server = Server::on_tcp(&["--requirepass", "s3cret"]);
    let mut terminal = Terminal::start(&server);
    let url = server.tcp_url().replace("//", "//:s3cret@");
    terminal.enters(&format!("stty cols 60; RLOCK_URL={url} $rlock inspect -W; echo status-$?"));
    terminal.sees("\x1b[2J\x1b[H20");
    let line = terminal.sees("\x1b[K");
    let place = format!("Z  127.0.0.1:{}  rlock:*\x1b[K", server.port());
    assert!(line.ends_with(&place), "{line:?}");
    // Also while the server does not answer. Nothing that is typed is shown.
    server.signal("STOP");
    terminal.types("~q");
    let end = terminal.sees("status-0");
    assert!(!end.contains('~'), "{end:?}");
    server.signal("CONT");
    // The terminal shows again what is typed.
    terminal.sees("$ ");
    terminal.types("echo again");
    terminal.sees("echo again");
}

#[test]
fn a_watch_can_be_suspended_and_leaves_the_terminal_as_it_was() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.answers("$rlock inspect -W=50ms L", "L: free");
    terminal.presses(SUSPEND, "Stopped");
    let mode = terminal.answers("stty -a; fg", "L: free");
    assert!(mode.contains(" icanon ") && mode.contains(" echo "), "{mode:?}");
    terminal.presses("q", "$ ");
    // A signal ends it too.
    terminal.enters("timeout --foreground 1 $rlock inspect -W=50ms L; echo status-$?; stty -a");
    terminal.sees("status-124");
    let mode = terminal.sees(" echoe ");
    assert!(mode.contains(" icanon ") && mode.contains(" echo "), "{mode:?}");
}

#[test]
fn whatever_signal_ends_a_watch_it_ends_by_that_and_leaves_the_terminal_as_it_was() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    let script = server.directory().join("script");
    let signals = [("HUP", 129), ("QUIT", 131), ("USR1", 138), ("TERM", 143)];
    let watches = signals.map(|(signal, status)| (signal, "", status));
    // Into a pipe, it reads no keys.
    for (signal, pipe, status) in watches.into_iter().chain([("QUIT", "| cat", 0)]) {
        // An interactive shell would restore the terminal itself.
        let watch = format!("sh -c 'echo pid-$$-; exec $rlock inspect -W=50ms L' {pipe}");
        std::fs::write(&script, format!("{watch}\necho status-$?; stty -a\n")).unwrap();
        terminal.answers(&format!("sh {}", script.display()), "pid-");
        let pid = terminal.sees("-");
        terminal.sees("L: free");
        support::send_signal(pid.trim_end_matches('-').parse().unwrap(), signal);
        terminal.sees(&format!("status-{status}"));
        let mode = terminal.sees(" echoe ");
        assert!(mode.contains(" icanon ") && mode.contains(" echo "), "{signal} {pipe}: {mode:?}");
    }
}

#[test]
fn a_list_is_cut_to_the_terminal_but_the_name_last() {
    let server = Server::start();
    let label = "https://ci.example/jobs/813";
    support::acquire(&server, &["--shared", "--label", label], "a-rather-long-name");
    support::acquire(&server, &["--shared"], "a-rather-long-name");
    let mut terminal = Terminal::start(&server);
    let list = |terminal: &mut Terminal, setting: &str| {
        terminal.answers(&format!("{setting} $rlock inspect"), "NAME");
        terminal.sees("1 lock")
    };
    let narrow = list(&mut terminal, "COLUMNS=50");
    assert!(
        !narrow.contains("https") && narrow.contains("a-rather-long-name  2 holders"),
        "{narrow}"
    );
    // What is hidden is told.
    let hidden = "hidden; widen the terminal or use --json";
    terminal.sees(&format!("LABEL {hidden}"));
    terminal.answers("COLUMNS=50 $rlock inspect --servers", &format!("REPLICAS {hidden}"));
    let narrow = list(&mut terminal, "");
    assert!(
        narrow.contains("a-rather-long-name  2 holders: ") && narrow.contains("https…"),
        "{narrow}"
    );
    for setting in ["COLUMNS=200", "stty cols 200;"] {
        let wide = list(&mut terminal, setting);
        assert!(wide.contains("LABEL") && wide.contains(label), "{wide}");
    }
}

#[test]
fn what_needs_attention_is_colored_unless_the_user_wants_none() {
    let server = Server::start();
    server.cli(&["SET", "rlock:L", "held without an expiry"]);
    let mut terminal = Terminal::start(&server);
    for (command, is_colored) in [
        ("TERM=xterm $rlock inspect", true),
        ("NO_COLOR= TERM=xterm $rlock inspect L", true),
        ("TERM=dumb $rlock inspect L", false),
        ("NO_COLOR=1 TERM=xterm $rlock inspect L", false),
        ("TERM=xterm $rlock inspect | cat", false),
    ] {
        let shown = terminal.answers(&format!("{command}; echo status-$?"), "status-0");
        assert!(shown.contains("expiry"), "{shown}");
        assert_eq!(shown.contains("\u{1b}[33m"), is_colored, "{command}: {shown}");
    }
}

#[test]
fn a_watch_of_a_long_list_keeps_its_summary() {
    let server = Server::start();
    for number in 1..=9 {
        support::acquire(&server, &[], &format!("lock-{number}"));
    }
    let mut terminal = Terminal::start(&server);
    let frame = terminal.answers("stty rows 8; $rlock inspect -W", "9 locks");
    assert!(frame.contains("lock-3 ") && frame.contains("(6 more lines)"), "{frame}");
    assert!(!frame.contains("lock-4"), "{frame}");
    terminal.presses(INTERRUPT, "$ ");
}

#[test]
fn a_watch_keeps_the_last_list_while_the_server_is_unreachable() {
    let (mut server, _) = support::acquired(&["--ttl", "1h"]);
    let mut terminal = Terminal::start(&server);
    terminal.answers("$rlock inspect --watch=50ms", "1 lock");
    server.kill();
    terminal.sees("; retrying");
    terminal.sees("\x1b[H");
    let frame = terminal.sees("; retrying");
    for part in ["NAME", "L  ", "1 lock", " old: "] {
        assert!(frame.contains(part), "{part:?}: {frame:?}");
    }
    server.start_again();
    terminal.sees("no lock is held under prefix 'rlock:' on ");
    terminal.presses(INTERRUPT, "$ ");
}

#[test]
fn a_wait_updates_one_line_even_with_wide_characters() {
    let (server, first) = support::held(&["--label", &"日本".repeat(60)]);
    let mut terminal = Terminal::start(&server);
    let shown = terminal.answers("$rlock exec -q -w 1 L true; echo status-$?", "status-75");
    assert!(!shown.contains("waiting"), "{shown}");
    terminal
        .answers("stty cols 120; $rlock exec -w 60 L echo EN''TERED", "\rwaiting at position 1, ");
    terminal.sees("\u{1b}[K");
    // The same line again, with other times.
    let line = terminal.sees("\u{1b}[K");
    assert!(line.starts_with("\rwaiting at position 1, 5"), "{line}");
    assert!(line.contains("s left: held by ") && line.contains("日本"), "{line}");
    assert!(line.contains(&format!("pid {} (sh) for ", first.pid())), "{line}");
    let shown = line.trim_start_matches('\r').trim_end_matches("\u{1b}[K");
    let columns: usize = shown.chars().map(|c| if c > '\u{1100}' { 2 } else { 1 }).sum();
    assert!(columns <= 120, "{columns}: {line}");
    first.finish();
    let end = terminal.sees("ENTERED");
    assert!(end.contains("\r\u{1b}[K"), "the line is gone: {end:?}");
}

#[test]
fn an_interrupt_at_any_moment_of_startup_stops_the_script_and_leaves_no_lock() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    for delay in 0..40 {
        terminal
            .answers("bash -c 'echo up; $rlock exec L sleep 1000; echo next-$((1 + 1))'", "\r\nup");
        // The test is about this moment, so it has no event to wait for.
        std::thread::sleep(Duration::from_micros(delay * 500));
        terminal.presses(INTERRUPT, "$ ");
        // The shell may end a moment before rlock has released the lock.
        let shown = terminal.answers("$rlock exec -w 5s L echo status-$?", "status-130\r\n");
        assert!(!shown.contains("next-2"), "after {delay}: {shown}");
        terminal.sees("$ ");
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
        terminal.answers(&format!("$rlock exec --ttl 3s L {command} '{script}'"), "up\r\n");
        terminal.presses(SUSPEND, "Stopped");
        // Nobody continues the job.
        terminal.sees("rlock was not running for ");
        terminal.sees("; stopping the command");
        server.run("exec L true").exits(0);
        terminal.enters("while kill -0 %1; do :; done 2> /dev/null; wait %1; echo status-$?");
        terminal.sees("status-76");
        assert!(!ran.exists());
    }
}

#[test]
fn in_the_background_no_message_stops_a_job_that_waits_or_holds_a_lock() {
    let (server, first) = support::held(&[]);
    let mut terminal = Terminal::start(&server);
    terminal.answers("stty -echo tostop; echo ready", "ready");
    let ran = server.directory().join("ran");
    terminal.answers(&format!("$rlock exec L touch {} &", ran.display()), "waiting at position 1");
    until("it waits", || server.waiting("L") == 1);
    terminal.answers("$rlock release --force L &", "revoked");
    first.end().exits(76);
    until("it runs", || ran.exists());
    terminal.enters("$rlock acquire --ttl 1h --while-pid $$ L &");
    let is_long = |left: u64| left > 1_800_000;
    until("it is held", || server.inspect("L")["ttl_ms"].as_u64().is_some_and(is_long));
    terminal.answers("wait; echo over-$?", "over-0");
}

#[test]
fn a_lost_job_ends_though_it_is_suspended_meanwhile() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    let script = "trap \"echo ending\" TERM; echo up; while :; do sleep 0.01; done";
    terminal
        .answers(&format!("$rlock exec --ttl 2s L bash -c '{script}'; echo status-$?"), "up\r\n");
    server.revoke("L");
    terminal.sees("ending\r\n");
    terminal.presses(SUSPEND, "status-76");
}

support::also_without_vfork! {
    a_suspended_job_ends_before_its_lease_does,
}

#[test]
fn in_the_foreground_group_an_interrupt_reaches_a_command_that_has_left_it() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal
        .answers("$rlock exec --foreground L setsid sh -c 'echo up; exec sleep 1000'", "up\r\n");
    terminal.presses(INTERRUPT, "$ ");
    terminal.answers("echo status-$?", "status-130");
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
    terminal.answers(&format!("bash {}", script.display()), "goes-2");
    terminal.sees("done-0");
}
