//! At a terminal, a command under rlock is what it is under flock(1).

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use crate::support::*;

const TABLE: &str = include_str!("terminal_table.txt");

/// How many terminals are used at once.
const TERMINALS: usize = 4;

/// Each prints "up" as soon as ^C can no longer be lost. dash loses one just before it forks.
const PROGRAMS: [(&str, &str); 6] = [
    // A whole command, without a space inside a word, because the shell splits it.
    ("up", r#"perl -e $|=print("up\n");sleep"#),
    // Perl loses one just before it blocks, so it looks for input again and again.
    (
        "catches",
        r"$|=1; $SIG{INT}=sub{print qq(caught-).++$n}; print qq(up\n);
        1 until select($in = qq(\1), undef, undef, 0.01); <STDIN>; exit 3",
    ),
    (
        "continues",
        r"$|=1; $SIG{CONT}=sub{$n++}; for (1,2) {print qq(up\n); <STDIN>} print qq(continued-$n\n)",
    ),
    ("awaits", r"$|=1; print qq(up\n); select(undef, undef, undef, 0.01) until -e q(go)"),
    (
        "hears",
        r"$|=1; for (qw(HUP CONT)) {$SIG{$_}=sub{$n{$_[0]}++}} print qq(up\n);
        select(undef, undef, undef, 0.01) until $n{HUP} && $n{CONT};
        select(undef, undef, undef, 0.2); open F, q(>), q(heard); print F %n{HUP}, %n{CONT}",
    ),
    // A terminal whose session a command leads. It types a line, and is closed at once when that
    // says that it is up.
    (
        "window",
        r"import os, pty, sys
leader, keys = pty.fork()
if leader == 0: os.execvp(sys.argv[2], sys.argv[2:])
os.write(keys, (sys.argv[1] + '\n').encode())
seen = b''
while b'up' not in seen: seen += os.read(keys, 99)
os.close(keys)",
    ),
];

#[test]
fn at_a_terminal_a_command_behaves_as_under_flock() {
    let server = Server::start();
    let cases: Vec<&str> = TABLE.split("\n= ").skip(1).collect();
    assert!(cases.len() >= 20);
    let next = Mutex::new(cases.into_iter());
    let differences = Mutex::new(String::new());
    let work = || {
        set_limit(Duration::from_secs(30));
        loop {
            let case = next.lock().unwrap().next();
            let Some(case) = case else { return };
            let [exec, front] =
                ["", "--foreground"].map(|it| format!("{} exec {it} FILE", binary()));
            let flock = ["flock FILE", "flock --no-fork FILE", "flock --no-fork FILE"];
            let flock = shown(&server, flock, case);
            let rlock = shown(&server, [&exec, &exec, &front], case);
            if flock != rlock || flock.contains("never shown") {
                let difference = format!("{case}\n-- flock:\n{flock}\n-- rlock:\n{rlock}\n\n");
                differences.lock().unwrap().write_str(&difference).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..TERMINALS {
            scope.spawn(work);
        }
    });
    let differences = differences.into_inner().unwrap();
    assert!(differences.is_empty(), "{differences}");
}

/// What the terminal shows, without prompts and process IDs.
fn shown(server: &Server, [lock, waits, front]: [&str; 3], case: &str) -> String {
    let directory = tempfile::tempdir_in(server.directory()).unwrap();
    let name = directory.path().file_name().unwrap().to_string_lossy();
    let mut shell = bash(server);
    shell.current_dir(directory.path()).envs(PROGRAMS);
    for (variable, command, file) in
        [("lock", lock, "1"), ("other", lock, "2"), ("waits", waits, "3"), ("front", front, "4")]
    {
        shell.env(variable, command.replace("FILE", &format!("{name}{file}")));
    }
    let played = catch_unwind(AssertUnwindSafe(|| play(Terminal::of(shell), case)));
    let shown = played.unwrap_or_else(|panic| match panic.downcast::<String>() {
        Ok(message) => format!("never shown: {message}"),
        Err(_) => "never shown".into(),
    });
    let shown = shown.replace("$ ", "");
    let lines = shown.lines().map(|line| match line.split_once("] ") {
        Some((job, pid)) if pid.trim().parse::<u32>().is_ok() => format!("{job}] PID"),
        _ => line.trim_end().to_owned(),
    });
    let mut lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    // bash may say twice that a job of several processes has stopped.
    lines.dedup_by(|second, first| second == first && first.contains("Stopped"));
    lines.join("\n")
}

fn play(mut terminal: Terminal, case: &str) -> String {
    let mut shown = String::new();
    // Echo would come sooner or later than what the command writes.
    terminal.answers("stty -echo; echo be''gins", "begins");
    for step in case.lines().skip(1).filter(|line| !line.is_empty()) {
        match (step, step.get(2..).unwrap_or_default()) {
            ("stops", _) => shown += &terminal.suspends(),
            ("^C", _) => terminal.types("\x03"),
            ("^Z", _) => terminal.types("\x1a"),
            ("^\\", _) => terminal.types("\x1c"),
            ("^V", _) => terminal.types(" "),
            (_, line) if step.starts_with("> ") => terminal.enters(line),
            (_, text) if step.starts_with("< ") => shown += &terminal.sees(text),
            _ => panic!("not a step: {step}"),
        }
    }
    shown
}
