//! rlock and public client libraries respect each other's locks on the same key.

use std::fs;
use std::process::Command;

use crate::support::{
    Finished, Running, Server, acquire, binary, holder, python, run, until, waiter,
};

/// A library: how it makes a lock, and which key that lock uses.
struct Library {
    /// Python that defines `new`, from a name to a lock that acquires and releases.
    python: &'static str,
    /// The library's name of the lock.
    name: &'static str,
    /// The key of that lock.
    key: &'static str,
    /// With these options, rlock calls it L.
    options: &'static [&'static str],
    /// The error that it raises when it releases a lock that it no longer holds.
    not_owned: &'static str,
}

const REDIS_PY: Library = Library {
    python: "def new(name):
        return server.lock(name, timeout=60)",
    name: "rlock:L",
    key: "rlock:L",
    options: &[],
    not_owned: "LockNotOwnedError",
};

/// Its prefix cannot be changed.
const POTTERY: Library = Library {
    python: "def new(name):
        from pottery import Redlock
        return Redlock(key=name, masters={server}, auto_release_time=60)",
    name: "L",
    key: "redlock:L",
    options: &["--prefix", "redlock:"],
    not_owned: "ReleaseUnlockedLock",
};

const LIBRARIES: [Library; 2] = [REDIS_PY, POTTERY];

/// Executes orders from stdin, one per line, and prints each result.
const BEFORE: &str = "
import sys, time
from redis import Redis
server = Redis.from_url(sys.argv[1])
";
const AFTER: &str = "
lock = new(sys.argv[2])

def count(file):
    with lock:
        with open(file) as old:
            number = int(old.read())
        # Work takes time, and whoever does not wait for its end is found out.
        time.sleep(0.01)
        with open(file, 'w') as anew:
            anew.write(f'{number + 1}\\n')

print('READY', flush=True)
for line in sys.stdin:
    order, *arguments = line.split()
    try:
        if order == 'try':
            said = lock.acquire(blocking=False)
        elif order == 'wait':
            said = lock.acquire()
        elif order == 'release':
            said = lock.release()
        elif order == 'count':
            said = count(*arguments)
    except Exception as error:
        said = type(error).__name__
    print(said, flush=True)
";

impl Library {
    /// Starts a process that uses the library and does not hold the lock yet.
    fn start(&self, server: &Server) -> Running {
        self.start_on(server, self.name)
    }

    fn start_on(&self, server: &Server, name: &str) -> Running {
        let program = [BEFORE, self.python, AFTER].concat();
        let mut python = Command::new(python());
        let peer = Running::start(python.args(["-c", &program, &server.url(), name]));
        peer.prints_first("READY")
    }

    /// The ways in which rlock can name the same lock: options, and a name.
    fn ways(&self) -> [(&'static [&'static str], &'static str); 2] {
        [(self.options, "L"), (&["--prefix", ""], self.key)]
    }
}

/// Gives an order to a process that uses a library, and returns its answer.
#[track_caller]
fn ask(peer: &mut Running, order: &str) -> String {
    peer.say(order);
    peer.line()
}

/// An rlock command about a lock.
fn about(server: &Server, command: &[&str], (options, name): (&[&str], &str)) -> Command {
    server.rlock(command.iter().chain(options).copied().chain([name]))
}

#[test]
fn rlock_waits_for_a_librarys_lock_and_never_touches_its_key() {
    for library in &LIBRARIES {
        let server = Server::start();
        let mut peer = library.start(&server);
        assert_eq!(ask(&mut peer, "try"), "True");
        let value = server.cli(&["GET", library.key]);
        assert_ne!(value, "");
        for way in library.ways() {
            run(about(&server, &["exec", "-n"], way).arg("true"))
                .exits(75)
                .says("held by another tool");
            let locks = run(&mut about(&server, &["inspect", "--json"], way)).exits(0).json();
            assert_eq!((&locks[0]["name"], &locks[0]["key"]), (&way.1.into(), &library.key.into()));
            assert_eq!(locks[0]["state"], "foreign");
        }
        let waiters = library.ways().map(|(options, name)| waiter(&server, options, name, "rlock"));
        assert_eq!(server.cli(&["GET", library.key]), value);
        // rlock has not changed its expiry either.
        let left = server.cli_number(&["PTTL", library.key]);
        assert!((1..=60_000).contains(&left), "{left}");
        assert_eq!(ask(&mut peer, "release"), "None");
        for waiter in waiters {
            waiter.finish().exits(0).prints("ENTERED rlock");
        }
        assert_eq!(ask(&mut peer, "try"), "True");
        peer.finish().exits(0);
    }
}

#[test]
fn a_library_cannot_take_a_lock_until_rlock_releases_it() {
    for library in &LIBRARIES {
        let server = Server::start();
        let mut peer = library.start(&server);
        for (options, name) in library.ways() {
            let first = holder(&server, options, name);
            let token = server.cli(&["GET", library.key]);
            assert_eq!(ask(&mut peer, "try"), "False");
            server.cli(&["CONFIG", "RESETSTAT"]);
            peer.say("wait");
            until("it is refused", || server.calls_of("set") > 0);
            assert_eq!(server.cli(&["GET", library.key]), token);
            // 76 if it had lost the lock.
            first.finish().exits(0);
            assert_eq!(peer.line(), "True");
            assert_ne!(server.cli(&["GET", library.key]), token);
            assert_eq!(ask(&mut peer, "release"), "None");
            run(&mut about(&server, &["inspect"], (options, name))).exits(1);
        }
        peer.finish().exits(0);
    }
}

#[test]
fn only_force_now_breaks_a_librarys_lock_and_the_library_notices() {
    for library in &LIBRARIES {
        let server = Server::start();
        let mut peer = library.start(&server);
        for way in library.ways() {
            assert_eq!(ask(&mut peer, "try"), "True");
            let value = server.cli(&["GET", library.key]);
            run(&mut about(&server, &["release", "--force"], way))
                .exits(75)
                .says("--force --now to delete its key");
            assert_eq!(server.cli(&["GET", library.key]), value);
            run(&mut about(&server, &["release", "--force", "--now"], way))
                .exits(0)
                .says("deleted the key of another tool");
            assert_eq!(server.cli(&["EXISTS", library.key]), "0");
            let token = acquire(&server, way.0, way.1);
            // Its late release does not affect the next holder.
            assert_eq!(ask(&mut peer, "release"), library.not_owned);
            assert_eq!(server.cli(&["GET", library.key]), token);
            run(about(&server, &["release"], way).arg(&token)).exits(0);
        }
        peer.finish().exits(0);
    }
}

#[test]
fn rlock_and_libraries_increment_a_counter_without_lost_updates() {
    let server = Server::start();
    let file = server.directory().join("count");
    fs::write(&file, "0\n").unwrap();
    // All on one key: the one library can name that of the other.
    let (options, name) = (POTTERY.options.join(" "), "L");
    // Bounded, in case the test fails and leaves them behind.
    let increment = format!(
        "echo READY
        while read _; do
            {rlock} exec -q -w 1m {options} {name} sh -c 'read n < {0}; sleep 0.01; echo $((n + 1)) > {0}' ||
                exit
            echo None
        done",
        file.display(),
        rlock = binary()
    );
    let mut processes: Vec<Running> = Vec::new();
    for _ in 0..5 {
        let mut shell = Command::new("sh");
        shell.args(["-c", &increment]).env("RLOCK_URL", server.url());
        processes.push(Running::start(&mut shell).prints_first("READY"));
        processes.push(REDIS_PY.start_on(&server, POTTERY.key));
        processes.push(POTTERY.start(&server));
    }
    // In rounds, so that no kind of them is through before another has begun.
    for _ in 0..5 {
        for process in &mut processes {
            process.say(&format!("count {}", file.display()));
        }
        for process in &mut processes {
            assert_eq!(process.line(), "None");
        }
        processes.rotate_left(1);
    }
    for process in processes {
        process.finish().exits(0);
    }
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), "75");
}
