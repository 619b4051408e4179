//! `local:` in a directory that is used under several clocks: by containers of one host, each of
//! which may have its own boot ID or time namespace, and before and after a reboot.

use std::fs;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::clock::Clock as WallClock;
use crate::support::*;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A directory of locks that clients use under several clocks.
struct Host(Server);

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
        Self(Server::local())
    }

    /// rlock under a clock. Needs root, and a kernel with these namespaces.
    fn rlock(&self, clock: Clock, arguments: &[&str]) -> Command {
        let mut command = match clock {
            Own => return self.0.rlock(arguments),
            Boot(number) => {
                let id = self.0.directory().join(format!("boot-{number}"));
                fs::write(&id, format!("00000000-0000-4000-8000-{number:012}\n")).unwrap();
                let mount = format!("mount --bind {} {BOOT_ID}", id.display());
                let script = format!("{mount} && exec $rlock \"$0\" \"$@\"");
                self.0.program("unshare -m sh -c", &script)
            }
            Ahead(seconds) => {
                // Unlike what it starts, unshare itself stays outside of the namespace.
                let unshare = format!("unshare -T --fork --kill-child --boottime {seconds} --");
                self.0.program(&unshare, binary())
            }
        };
        command.args(arguments);
        command
    }

    /// Runs an rlock under a clock, with the words of this line.
    #[track_caller]
    fn run(&self, clock: Clock, line: &str) -> Output {
        run(&mut self.rlock(clock, &Vec::from_iter(line.split(' '))))
    }

    /// Starts an exec under a clock, which holds the lock until `finish`.
    #[track_caller]
    fn holder(&self, clock: Clock, ttl: &str) -> Running {
        let exec = ["exec", "--ttl", ttl, "L", "sh", "-c", READY];
        Running::start(&mut self.rlock(clock, &exec)).prints_first("READY")
    }

    #[track_caller]
    fn is_busy(&self, clock: Clock) {
        self.run(clock, "exec -n L echo ENTERED").exits(75).prints("");
    }

    /// Waits for a grant under a clock and returns its fence.
    #[track_caller]
    fn fence(&self, clock: Clock) -> u64 {
        self.run(clock, "exec L printenv RLOCK_FENCE").exits(0).out().parse().unwrap()
    }
}

#[test]
fn containers_of_one_host_exclude_each_other() {
    for (one, other) in [(Own, Boot(1)), (Boot(1), Own), (Boot(1), Boot(2)), (Own, Ahead(100_000))]
    {
        let host = Host::new();
        let before = host.fence(one);
        let holder = host.holder(one, "1h");
        host.is_busy(other);
        host.is_busy(other);
        holder.finish().exits(0);
        assert!(host.fence(other) > before);
    }
}

#[test]
fn a_wall_clock_that_was_wrong_at_first_harms_nothing() {
    for (year, is_first) in [(1970, true), (1970, false), (2099, true), (2099, false)] {
        let host = Host::new();
        let mut last = if is_first { 0 } else { host.fence(Own) };
        // In a boot whose first use of the lock comes before the time is set.
        let wall = host.0.directory().join("wall");
        fs::write(&wall, ((year - 1970) * 31_600_000_000_000i64).to_le_bytes()).unwrap();
        let acquire = ["acquire", "-n", "--json", "--ttl", "100ms", "L"];
        let mut early = host.rlock(Boot(1), &acquire);
        WallClock::of(&wall).give_to(&mut early);
        let mut grown = vec![run(&mut early).exits(0).json()["fence"].as_u64().unwrap()];
        grown.extend([Boot(1), Own, Boot(1), Ahead(100_000), Own].map(|clock| host.fence(clock)));
        for fence in grown {
            assert!(fence > last, "{year} {is_first}");
            last = fence;
        }
        // A hold from before counts as any other.
        host.run(Boot(1), "acquire --ttl 1h L").exits(0);
        host.is_busy(Own);
    }
}

#[test]
fn the_offset_of_a_clock_does_not_change_the_length_of_a_lease() {
    for (one, other, command) in [
        (Ahead(100_000), Own, "acquire --ttl 2s L"),
        (Own, Ahead(-1), "acquire --ttl 2s L"),
        (Ahead(100_000), Ahead(200_000), "acquire --ttl 2s L"),
        (Own, Boot(1), "exec --at-least 2s L true"),
    ] {
        let host = Host::new();
        let start = Instant::now();
        host.run(one, command).exits(0);
        host.is_busy(other);
        // A lease that is longer by the difference of the clocks outlasts every limit of a test.
        host.fence(other);
        assert!(start.elapsed() >= Duration::from_secs(2), "{other:?}: {:?}", start.elapsed());
    }
}

#[test]
fn a_holder_that_renews_keeps_clients_with_another_clock_out() {
    let host = Host::new();
    let holder = host.holder(Own, "2s");
    // Longer than its lease from the first look, and from any later one.
    host.run(Boot(1), "exec -w 5s L echo ENTERED").exits(75).prints("");
    holder.finish().exits(0);
}

#[test]
fn a_dead_holder_under_another_clock_blocks_for_one_ttl_from_the_first_request() {
    let host = Host::new();
    host.run(Boot(1), "acquire --ttl 4s L").exits(0);
    // The length of the lease, which is over by its own clock too, as after a long reboot.
    sleep(Duration::from_millis(4_100));
    let start = Instant::now();
    host.is_busy(Own);
    // Most of the lease. A later look, under any clock, must not start it again.
    sleep(Duration::from_millis(2_500));
    for clock in [Own, Boot(2), Ahead(100_000)] {
        host.is_busy(clock);
    }
    host.fence(Own);
    assert!(start.elapsed() >= Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn waiters_under_different_clocks_acquire_the_lock_in_order() {
    let host = Host::new();
    let holder = host.holder(Own, "30s");
    let log = host.0.directory().join("log");
    let waiters = [Boot(1), Own, Ahead(100_000), Boot(2)].map(|clock| {
        let note = format!("echo '{clock:?}' >> {}", log.display());
        Running::start(&mut host.rlock(clock, &["exec", "L", "sh", "-c", &note]))
            .tells("waiting at position")
    });
    // Unless they are woken, each looks again after 10 s.
    let mut longer = LongerWait::of("8s");
    holder.finish().exits(0);
    for waiter in waiters {
        waiter.end().exits(0);
    }
    assert_eq!(fs::read_to_string(log).unwrap(), "Boot(1)\nOwn\nAhead(100000)\nBoot(2)\n");
    longer.is_not_over();
}

#[test]
fn a_waiter_that_died_under_another_clock_is_passed_over() {
    let host = Host::new();
    let holder = host.holder(Own, "3s");
    let wait = |clock, position: &str| {
        Running::start(&mut host.rlock(clock, &["exec", "--ttl", "1500ms", "L", "true"]))
            .tells(&format!("waiting at position {position}"))
    };
    let mut dead = wait(Boot(1), "1");
    dead.process.kill();
    let next = wait(Own, "2");
    holder.finish().exits(0);
    next.end().exits(0);
}

#[test]
fn a_hold_can_be_renewed_and_released_under_another_clock() {
    let host = Host::new();
    let token = host.run(Boot(1), "acquire --ttl 3s L").exits(0).out();
    host.run(Own, &format!("renew --ttl 1h L {token}")).exits(0);
    // The length of the first lease.
    sleep(Duration::from_millis(3_100));
    host.is_busy(Boot(1));
    host.is_busy(Own);
    host.run(Ahead(100_000), &format!("release L {token}")).exits(0);
    host.fence(Boot(1));
}
