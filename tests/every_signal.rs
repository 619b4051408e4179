//! No signal to rlock, or to its group, lets a command run beside the next holder.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::libc;

use crate::support::*;

/// Real-time signals included.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// Appends "first" to a file again and again. A child does that, unless nobody can block the signal,
/// against which a process can protect only its own children: SIGKILL, and two that the C library
/// keeps for itself.
const FIRST: &str = "my $child = $ARGV[0] =~ /-(9|32|33)$/ ? 0 : fork;
    if ($child) { waitpid $child, 0; exit }
    open F, qq(>>), $ARGV[0];
    until (-e q(stop)) { syswrite F, qq(first\\n); select undef, undef, undef, 0.02 }";

#[test]
fn no_signal_lets_a_command_run_beside_the_next_holder() {
    for target in ["process", "group"] {
        let server = Server::start();
        let directory = server.directory();
        let written = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
        let holders = Vec::from_iter(SIGNALS.map(|signal| {
            let name = format!("{target}-{signal}");
            let exec = ["exec", "--ttl", "3s", &name, "perl", "-e", FIRST, &name];
            (signal, start(server.rlock(exec).process_group(0), directory), name)
        }));
        let mut waiters = Vec::new();
        for (signal, holder, name) in &holders {
            until(&format!("{name} runs"), || written(name).contains("first"));
            let second = format!("echo second >> {name}");
            let exec = ["exec", "-q", "-w", "60s", name, "sh", "-c", &second];
            waiters.push(start(&mut server.rlock(exec), directory));
            // It fails if the holder has ended, which a machine under load may have starved.
            send(*signal, if target == "group" { -pid(holder) } else { pid(holder) });
        }
        // All leases end that are not renewed.
        std::thread::sleep(Duration::from_millis(3500));
        fs::write(directory.join("stop"), "").unwrap();
        for (_, holder, _) in &holders {
            // A command that a signal has stopped under a living rlock ends now.
            send(libc::SIGCONT, -pid(holder));
        }
        for ((_, _, name), waiter) in holders.iter().zip(&mut waiters) {
            assert!(waiter.wait().unwrap().success(), "{name}");
            let written = written(name);
            assert!(written.ends_with("first\nsecond\n"), "{name}: {written}");
        }
    }
}

fn pid(process: &Process) -> i32 {
    process.id().try_into().unwrap()
}

/// Sends a signal to a process or, if the number is negative, to a group.
fn send(signal: i32, target: i32) {
    // SAFETY: it takes numbers only.
    unsafe { libc::kill(target, signal) };
}

fn start(command: &mut Command, directory: &Path) -> Process {
    command.current_dir(directory).stdin(Stdio::null());
    Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}
