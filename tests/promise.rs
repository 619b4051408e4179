//! The whole promise: whatever happens to the server, the network or rlock, no two commands run
//! under one lock at once.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::{Running, Server, send_signal, until};

/// Sets the number of rounds. The default is two rounds for each kind of fault.
const ROUNDS_VARIABLE: &str = "RLOCK_TEST_ROUNDS";
/// Sets the seed of the first round, to repeat a failure. Each later round adds one to it.
const SEED_VARIABLE: &str = "RLOCK_TEST_SEED";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    ServerFrozen,
    ServerRestartedEmpty,
    ServerFlushed,
    HolderPartitioned,
    BothPartitioned,
    HolderStopped,
    HolderKilled,
    KeyDeleted,
}

const FAULTS: [Fault; 8] = [
    Fault::ServerFrozen,
    Fault::ServerRestartedEmpty,
    Fault::ServerFlushed,
    Fault::HolderPartitioned,
    Fault::BothPartitioned,
    Fault::HolderStopped,
    Fault::HolderKilled,
    Fault::KeyDeleted,
];

fn millis(random: &mut Random, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + random.below(to - from))
}

/// Appends its name, its fence and the time to a file, again and again, until its time is over.
/// Some ignore SIGTERM.
const COMMAND: &str = r#"
    use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);
    my ($file, $name, $seconds, $stubborn) = @ARGV;
    $SIG{TERM} = 'IGNORE' if $stubborn;
    open my $out, '>>', $file or die;
    my $end = clock_gettime(CLOCK_MONOTONIC) + $seconds;
    while ((my $now = clock_gettime(CLOCK_MONOTONIC)) < $end) {
        syswrite $out, sprintf("%s %s %.6f\n", $name, $ENV{RLOCK_FENCE}, $now);
        sleep 0.001;
    }
"#;

/// When a command ran, by its own clock, and its fence.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: f64,
    end: f64,
    fence: u64,
}

fn runs(file: &Path) -> BTreeMap<String, Run> {
    let mut runs = BTreeMap::<String, Run>::new();
    // SIGKILL may have cut off the last line.
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap().to_owned();
        let fence = words.next().and_then(|fence| fence.parse().ok());
        let time = words.next().and_then(|time| time.parse().ok());
        if let (Some(fence), Some(time)) = (fence, time) {
            runs.entry(name).or_insert(Run { start: time, end: time, fence }).end = time;
        }
    }
    runs
}

/// One holder, one waiter, one fault. Returns for how many seconds both commands ran.
fn round(fault: Fault, seed: u64) -> f64 {
    let random = &mut Random(seed);
    let mut server = Server::on_tcp(&[]);
    let file = server.directory().join("runs");
    let ttl = millis(random, 600, 1_500);
    let wires = [(); 2].map(|()| Proxy::to(server.port(), Duration::ZERO));
    let exec = |wire: &Proxy, name: &str, time: Duration, stubborn: bool| {
        let ttl = format!("{}ms", ttl.as_millis());
        let mut command = server.rlock(["exec", "--ttl", &ttl, "L", "perl", "-e", COMMAND]);
        command.env("RLOCK_URL", wire.url()).arg(&file).arg(name);
        command.arg(time.as_secs_f64().to_string()).args(stubborn.then_some("stubborn"));
        Running::start(&mut command)
    };
    let mut first =
        exec(&wires[0], "first", ttl + millis(random, 700, 2_700), random.below(2) == 0);
    until("the first command runs", || {
        let runs = runs(&file).contains_key("first");
        assert!(runs || first.process.is_running(), "seed {seed}: {:?}", first.told(""));
        runs
    });
    let mut second = exec(&wires[1], "second", millis(random, 50, 500), false);
    second.told("waiting at position 1");

    // The moment of the fault. Its length is random too.
    std::thread::sleep(millis(random, 0, 700));
    let lasting = millis(random, 0, 2_500);
    match fault {
        Fault::ServerFrozen => {
            server.signal("STOP");
            std::thread::sleep(lasting);
            server.signal("CONT");
        }
        Fault::ServerRestartedEmpty => {
            server.kill();
            std::thread::sleep(lasting);
            server.start_again();
        }
        Fault::ServerFlushed => drop(server.cli(&["FLUSHALL"])),
        Fault::KeyDeleted => drop(server.cli(&["DEL", "rlock:L"])),
        Fault::HolderPartitioned | Fault::BothPartitioned => {
            let parted = if fault == Fault::BothPartitioned { &wires[..] } else { &wires[..1] };
            parted.iter().for_each(|wire| wire.part(true));
            std::thread::sleep(lasting);
            parted.iter().for_each(|wire| wire.part(false));
        }
        Fault::HolderStopped => {
            send_signal(first.pid(), "STOP");
            std::thread::sleep(lasting);
            send_signal(first.pid(), "CONT");
        }
        Fault::HolderKilled => send_signal(first.pid(), "KILL"),
    }
    let story = format!("seed {seed}, {fault:?}, TTL {ttl:?}, fault for {lasting:?}");
    assert_eq!(second.process.wait().unwrap().code(), Some(0), "{story}");
    let status = first.process.wait().unwrap().code();
    match fault {
        Fault::HolderKilled => assert_eq!(status, None, "{story}"),
        _ => assert!(matches!(status, Some(0 | 76)), "{story}: {status:?}"),
    }
    let runs = runs(&file);
    let (first, second) = (runs["first"], runs["second"]);
    assert!(first.fence < second.fence, "{story}: {runs:?}");
    assert!(first.start < second.start, "{story}: {runs:?}");
    let both = first.end.min(second.end) - second.start;
    match fault {
        // No process can stop the command while rlock is stopped.
        Fault::HolderStopped => assert!(both < lasting.as_secs_f64(), "{story}: {runs:?}"),
        _ => assert!(both < 0.0, "{story}: {both} s of {runs:?}"),
    }
    both.max(0.0)
}

#[test]
fn no_two_commands_run_at_once_whatever_fails() {
    let number = |variable| std::env::var(variable).ok().map(|text| text.parse::<u64>().unwrap());
    let rounds = number(ROUNDS_VARIABLE).unwrap_or(2 * FAULTS.len() as u64);
    let seed = number(SEED_VARIABLE).unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    println!("{rounds} rounds from seed {seed}");

    let (next, overlaps) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let (failed, failures) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (next, overlaps, failed) = (&next, &overlaps, failed.clone());
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number as u64 >= rounds {
                        break;
                    }
                    let seed = seed + number as u64;
                    let fault = FAULTS[(seed % FAULTS.len() as u64) as usize];
                    let played = std::panic::catch_unwind(|| round(fault, seed));
                    match played {
                        Ok(both) => {
                            let mut overlaps = overlaps.lock().unwrap();
                            overlaps.entry(fault).or_insert_with(Vec::new).push(both);
                        }
                        Err(_) => drop(failed.send(fault)),
                    }
                }
            });
        }
    });
    drop(failed);
    for (fault, overlaps) in overlaps.into_inner().unwrap() {
        let (rounds, longest) = (overlaps.len(), overlaps.iter().copied().fold(0.0, f64::max));
        let count = overlaps.iter().filter(|both| **both > 0.0).count();
        println!("{fault:?}: {rounds} rounds, {count} overlaps, the longest of {longest:.3} s");
    }
    let failures: Vec<Fault> = failures.iter().collect();
    assert!(failures.is_empty(), "seed {seed}: {failures:?}");
}
