//! `local:` in a directory that is used under several clocks: by containers of one host, each of
//! which may have its own boot ID or time namespace, and before and after a reboot.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Finished, LongerWait, READY, Running, rlock, run, state_file};
use tempfile::TempDir;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A directory of locks that clients use under several clocks.
struct Host(TempDir);

/// How a clock differs from the clock of the host.
#[derive(Clone, Copy, Debug)]
enum Clock {
    Own,
    /// Another boot ID, as in a container whose runtime hides the ID of the host.
    Boot(u32),
    /// In a time namespace that is this many seconds ahead of the host.
    Ahead(i32),
}

use Clock::{Ahead, Boot, Own};

impl Host {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap())
    }

    fn locks(&self) -> PathBuf {
        self.0.path().join("locks")
    }

    /// rlock under a clock.
    #[track_caller]
    fn rlock(&self, clock: Clock, arguments: &[&str]) -> Command {
        let plain = rlock(arguments);
        let mut command = match clock {
            Own => plain,
            Boot(number) => {
                let id = self.0.path().join(format!("boot-{number}"));
                fs::write(&id, format!("00000000-0000-4000-8000-{number:012}\n")).unwrap();
                let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
                inside(&["-m", "sh", "-c", script, id.to_str().unwrap(), BOOT_ID], &plain)
            }
            Ahead(seconds) => {
                let seconds = seconds.to_string();
                // Unlike what it starts, unshare itself stays outside of the namespace.
                inside(&["-T", "--fork", "--kill-child", "--boottime", &seconds], &plain)
            }
        };
        command.env("RLOCK_URL", format!("local:{}", self.locks().display()));
        command
    }

    /// Starts an exec under a clock, which holds the lock until `finish`.
    #[track_caller]
    fn holder(&self, clock: Clock, options: &[&str]) -> Running {
        let command = ["L", "--", "sh", "-c", READY];
        let arguments: Vec<&str> =
            ["exec"].iter().chain(options).chain(&command).copied().collect();
        Running::start(&mut self.rlock(clock, &arguments)).prints_first("READY")
    }

    #[track_caller]
    fn is_busy(&self, clock: Clock) {
        run(&mut self.rlock(clock, &["exec", "-n", "L", "echo", "ENTERED"])).exits(75).prints("");
    }

    /// Waits for a grant under a clock and returns its fence.
    #[track_caller]
    fn fence(&self, clock: Clock) -> u64 {
        let output =
            run(&mut self.rlock(clock, &["exec", "L", "sh", "-c", "echo $RLOCK_FENCE"])).exits(0);
        output.out().parse().unwrap()
    }
}

/// The same command in new namespaces. The test fails on a kernel without them.
#[track_caller]
fn inside(options: &[&str], plain: &Command) -> Command {
    let namespaces: Vec<&&str> = options.iter().take_while(|it| it.starts_with('-')).collect();
    let namespace = namespaces.first().unwrap();
    let probe = run(Command::new("unshare").args([namespace, "true"]));
    assert!(
        probe.status.success(),
        "this test needs root and a kernel that lets it `unshare {namespace}`: {probe:?}"
    );
    let mut command = Command::new("unshare");
    command.args(options);
    if options.contains(&"--boottime") {
        command.arg("--");
    }
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[test]
fn containers_of_one_host_exclude_each_other() {
    for (one, other) in [(Own, Boot(1)), (Boot(1), Own), (Boot(1), Boot(2)), (Own, Ahead(100_000))]
    {
        let host = Host::new();
        let holder = host.holder(one, &["--ttl", "1h"]);
        host.is_busy(other);
        host.is_busy(other);
        holder.finish().exits(0);
        assert!(host.fence(other) > 0);
    }
}

#[test]
fn the_offset_of_a_clock_does_not_change_the_length_of_a_lease() {
    for (one, other) in [(Ahead(100_000), Own), (Own, Ahead(-1)), (Ahead(100_000), Ahead(200_000))]
    {
        let host = Host::new();
        run(&mut host.rlock(one, &["acquire", "--ttl", "2s", "L"])).exits(0);
        let start = Instant::now();
        host.is_busy(other);
        // A lease that is longer by the difference of the clocks outlasts every limit of a test.
        host.fence(other);
        let took = start.elapsed();
        assert!(took > Duration::from_millis(1_900), "{one:?} {other:?}: {took:?}");
    }
}

#[test]
fn a_holder_that_renews_keeps_clients_with_another_clock_out() {
    let host = Host::new();
    let holder = host.holder(Own, &["--ttl", "2s"]);
    // Longer than its lease from the first look, and from any later one.
    let patient = ["exec", "-w", "6s", "L", "echo", "ENTERED"];
    run(&mut host.rlock(Boot(1), &patient)).exits(75).prints("");
    holder.finish().exits(0);
}

#[test]
fn a_dead_holder_under_another_clock_blocks_for_one_ttl_from_the_first_request() {
    let (host, seen_later) = (Host::new(), Host::new());
    for host in [&host, &seen_later] {
        run(&mut host.rlock(Boot(1), &["acquire", "--ttl", "5s", "L"])).exits(0);
    }
    // The length of the lease, which is over by its own clock too, as after a long reboot.
    std::thread::sleep(Duration::from_millis(5_100));
    let start = Instant::now();
    host.is_busy(Own);
    // Most of the lease. A later look, under any clock, must not start it again.
    std::thread::sleep(Duration::from_millis(3_500));
    for clock in [Own, Boot(2), Ahead(100_000)] {
        host.is_busy(clock);
    }
    seen_later.is_busy(Own);
    host.fence(Own);
    assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
    seen_later.is_busy(Own);
}

#[test]
fn waiters_under_different_clocks_acquire_the_lock_in_order() {
    let host = Host::new();
    let holder = host.holder(Own, &[]);
    let log = host.0.path().join("log");
    let waiters: Vec<Running> = [Boot(1), Own, Ahead(100_000), Boot(2)]
        .into_iter()
        .enumerate()
        .map(|(number, clock)| {
            let note = format!("echo {number} >> {}", log.display());
            let mut waiter =
                Running::start(&mut host.rlock(clock, &["exec", "L", "--", "sh", "-c", &note]));
            waiter.told(&format!("waiting at position {}", number + 1));
            waiter
        })
        .collect();
    // Unless they are woken, each looks again after 10 s.
    let mut longer = LongerWait::of("8s");
    assert_eq!(holder.finish().code(), 0);
    for waiter in waiters {
        waiter.end().exits(0);
    }
    assert_eq!(fs::read_to_string(log).unwrap(), "0\n1\n2\n3\n");
    longer.is_not_over();
}

#[test]
fn a_waiter_that_died_under_another_clock_is_passed_over() {
    let host = Host::new();
    let holder = host.holder(Own, &["--ttl", "3s"]);
    let mut dead =
        Running::start(&mut host.rlock(Boot(1), &["exec", "--ttl", "1500ms", "L", "true"]));
    dead.told("waiting at position 1");
    dead.signal("KILL");
    dead.process.wait().unwrap();
    let mut next = Running::start(&mut host.rlock(Own, &["exec", "L", "true"]));
    next.told("waiting at position 2");
    assert_eq!(holder.finish().code(), 0);
    next.end().exits(0);
}

#[test]
fn a_cooling_lock_stays_busy_under_every_clock() {
    let host = Host::new();
    let output = run(&mut host.rlock(Own, &["exec", "--at-least", "3s", "L", "true"]));
    let start = Instant::now();
    assert_eq!(output.code(), 0, "{output:?}");
    host.is_busy(Boot(1));
    host.fence(Boot(1));
    assert!(start.elapsed() > Duration::from_millis(2_500), "{:?}", start.elapsed());
}

#[test]
fn a_hold_can_be_renewed_and_released_under_another_clock() {
    let host = Host::new();
    let token = run(&mut host.rlock(Boot(1), &["acquire", "--ttl", "3s", "L"])).out();
    run(&mut host.rlock(Own, &["renew", "--ttl", "1h", "L", &token])).exits(0);
    // The length of the first lease.
    std::thread::sleep(Duration::from_millis(3_100));
    host.is_busy(Boot(1));
    host.is_busy(Own);
    run(&mut host.rlock(Ahead(100_000), &["release", "L", &token])).exits(0);
    assert!(host.fence(Boot(1)) > 0);
}

#[test]
fn the_fencing_token_grows_across_a_reboot() {
    let host = Host::new();
    let before = host.fence(Boot(1));
    // As if a clock that was far ahead had granted it.
    let ahead = before + 10_000_000;
    let state = host.locks().join(".rlock:L.state");
    let text = state_file::read(&state);
    let [was, is] = [before, ahead].map(|fence| format!("\"fence\":{fence}"));
    assert!(text.contains(&was));
    state_file::write(&state, &text.replace(&was, &is));
    assert_eq!(host.fence(Boot(2)), ahead + 1);
}
