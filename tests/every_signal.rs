//! No signal to rlock, or to its group, lets a command run beside the next holder.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::libc;

use crate::support::pty::Terminal;
use crate::support::server::limit::Process;
use crate::support::{Server, until};

/// Real-time signals included.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// Appends the process ID of rlock to a file, and then "first" again and again.
const FIRST: &str = "open F, qq(>>), $ARGV[0]; syswrite F, getppid . qq(\\n);
    until (-e q(stop)) { syswrite F, qq(first\\n); select undef, undef, undef, 0.02 }";

/// A holder that is sent a signal.
struct Holder {
    name: String,
    signal: i32,
    to_group: bool,
    _process: Option<Process>,
}

#[test]
fn no_signal_lets_a_command_run_beside_the_next_holder() {
    let server = Server::start();
    let directory = server.directory();
    let mut holders = Vec::new();
    for (kind, to_group) in [("process", false), ("group", true)] {
        for signal in SIGNALS {
            let name = format!("{kind}-{signal}");
            let exec = ["exec", "--ttl", "3s", &name, "perl", "-e", FIRST, &name];
            let process = start(server.rlock(exec).process_group(0), directory);
            holders.push(Holder { name, signal, to_group, _process: Some(process) });
        }
    }
    let mut terminal = Terminal::start(&server);
    let exec = format!("$rlock exec --ttl 3s job-$n perl -e '{FIRST}' job-$n");
    let all = format!("for n in {{1..{}}}; do", SIGNALS.end());
    terminal.enters(&format!("cd {}; {all} {exec} & done", directory.display()));
    for signal in SIGNALS {
        let name = format!("job-{signal}");
        holders.push(Holder { name, signal, to_group: true, _process: None });
    }

    let run = |holder: &Holder| until_it_runs(&directory.join(&holder.name));
    let pids: Vec<i32> = holders.iter().map(run).collect();
    let mut waiters = Vec::new();
    for (Holder { name, signal, to_group, .. }, rlock) in holders.iter().zip(pids) {
        let second = format!("echo second >> {name}");
        waiters
            .push(start(&mut server.rlock(["exec", "-q", name, "sh", "-c", &second]), directory));
        // SAFETY: it takes numbers only.
        let sent = unsafe { libc::kill(if *to_group { -rlock } else { rlock }, *signal) };
        assert_eq!(sent, 0, "{name}");
    }
    // All leases end that are not renewed.
    std::thread::sleep(Duration::from_millis(3500));
    std::fs::write(directory.join("stop"), "").unwrap();
    for (holder, waiter) in holders.iter().zip(&mut waiters) {
        assert!(waiter.wait().unwrap().success(), "{}", holder.name);
        let written = std::fs::read_to_string(directory.join(&holder.name)).unwrap();
        assert!(written.ends_with("first\nsecond\n"), "{}: {written}", holder.name);
    }
}

fn start(command: &mut Command, directory: &Path) -> Process {
    command.current_dir(directory).stdin(Stdio::null());
    Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Waits until the command has written, and returns the process ID of its rlock.
fn until_it_runs(file: &Path) -> i32 {
    let mut written = String::new();
    until(&format!("{} is written", file.display()), || {
        written = std::fs::read_to_string(file).unwrap_or_default();
        written.contains("first")
    });
    written.lines().next().unwrap().parse().unwrap()
}
