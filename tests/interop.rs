//! rlock and public client libraries respect each other's locks on the same key.

use std::process::Command;

use crate::support::{Finished, Running, Server, acquire, holder, python, run, until, waiter};

/// A library: how it makes a lock, and which key that lock uses.
struct Library {
    /// A Python expression for the lock with a name, which acquires and releases.
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

const LIBRARIES: [Library; 2] = [
    Library {
        python: "server.lock(name, timeout=60)",
        name: "rlock:L",
        key: "rlock:L",
        options: &[],
        not_owned: "LockNotOwnedError",
    },
    // Its prefix cannot be changed.
    Library {
        python: "__import__('pottery').Redlock(key=name, masters={server}, auto_release_time=60)",
        name: "L",
        key: "redlock:L",
        options: &["--prefix", "redlock:"],
        not_owned: "ReleaseUnlockedLock",
    },
];

/// Executes orders from stdin, one per line, and prints each result.
const PEER: &str = "
import redis, sys
server, name = redis.Redis.from_url(sys.argv[1]), sys.argv[2]
lock = eval(sys.argv[3])

print('READY', flush=True)
for line in sys.stdin:
    try:
        match line.strip():
            case 'try':
                said = lock.acquire(blocking=False)
            case 'wait':
                said = lock.acquire()
            case 'release':
                said = lock.release()
    except Exception as error:
        said = type(error).__name__
    print(said, flush=True)
";

impl Library {
    /// Starts a process that uses the library and does not hold the lock yet.
    fn start(&self, server: &Server) -> Running {
        let mut peer = Command::new(python());
        peer.args(["-c", PEER, &server.url(), self.name, self.python]);
        Running::start(&mut peer).prints_first("READY")
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
