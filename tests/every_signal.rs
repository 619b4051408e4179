//! No signal to rlock, or to its group, lets a command run beside the next holder.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::libc;

use crate::support::limit::Process;
use crate::support::pty::Terminal;
use crate::support::{Server, until};

/// Real-time signals included.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// Appends the process ID of rlock to a file, and then "first" again and again. A child does that,
/// unless nobody can block the signal, against which a process can protect only its own children:
/// SIGKILL, and two that the C library keeps for itself.
const FIRST: &str = "my $rlock = getppid; my $child = $ARGV[0] =~ /-(9|32|33)$/ ? 0 : fork;
    if ($child) { waitpid $child, 0; exit }
    open F, qq(>>), $ARGV[0]; syswrite F, $rlock . qq(\\n);
    until (-e q(stop)) { syswrite F, qq(first\\n); select undef, undef, undef, 0.02 }";

/// A holder that is sent a signal.
struct Holder {
    name: String,
    signal: i32,
    /// Unless it is a job of the terminal, whose group gets the signal.
    process: Option<Process>,
}

#[test]
fn no_signal_lets_a_command_run_beside_the_next_holder() {
    let server = Server::start();
    let directory = server.directory();
    let holder = |signal| {
        let name = format!("process-{signal}");
        let exec = ["exec", "--ttl", "3s", &name, "perl", "-e", FIRST, &name];
        let process = start(server.rlock(exec).process_group(0), directory);
        Holder { name, signal, process: Some(process) }
    };
    send_and_judge(&server, SIGNALS.map(holder).collect());
    let mut terminal = Terminal::start(&server);
    let exec = format!("$rlock exec --ttl 3s job-$n perl -e '{FIRST}' job-$n");
    let all = format!("for n in {{1..{}}}; do", SIGNALS.end());
    terminal.enters(&format!("cd {}; {all} {exec} & done", directory.display()));
    let job = |signal| {
        let name = format!("job-{signal}");
        Holder { name, signal, process: None }
    };
    send_and_judge(&server, SIGNALS.map(job).collect());
}

/// Sends each holder its signal, and checks that its command does not run beside the next one's.
fn send_and_judge(server: &Server, holders: Vec<Holder>) {
    let directory = server.directory();
    let run = |holder: &Holder| until_it_runs(&directory.join(&holder.name));
    let pids: Vec<i32> = holders.iter().map(run).collect();
    let mut waiters = Vec::new();
    for (Holder { name, signal, process }, rlock) in holders.iter().zip(&pids) {
        let second = format!("echo second >> {name}");
        let exec = ["exec", "-q", "-w", "60s", name, "sh", "-c", &second];
        waiters.push(start(&mut server.rlock(exec), directory));
        // It fails if the holder has ended, which a machine under load may have starved.
        // SAFETY: it takes numbers only.
        unsafe { libc::kill(if process.is_none() { -rlock } else { *rlock }, *signal) };
    }
    // All leases end that are not renewed.
    std::thread::sleep(Duration::from_millis(3500));
    let stop = directory.join("stop");
    std::fs::write(&stop, "").unwrap();
    for rlock in &pids {
        // A command that a signal has stopped under a living rlock ends now.
        // SAFETY: it takes numbers only.
        unsafe { libc::kill(-rlock, libc::SIGCONT) };
    }
    for (holder, waiter) in holders.iter().zip(&mut waiters) {
        assert!(waiter.wait().unwrap().success(), "{}", holder.name);
        let written = std::fs::read_to_string(directory.join(&holder.name)).unwrap();
        assert!(written.ends_with("first\nsecond\n"), "{}: {written}", holder.name);
    }
    std::fs::remove_file(stop).unwrap();
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
