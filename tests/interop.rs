//! rlock and public client libraries respect each other's locks on the same key.

use std::process::Command;

use crate::support::*;

/// A library: how it makes a lock, and which key that lock uses.
struct Library {
    /// A Python expression for the lock L, which acquires and releases.
    python: &'static str,
    /// With this prefix, rlock means the same lock.
    prefix: &'static str,
    /// The error that it raises when it releases a lock that it no longer holds.
    not_owned: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        python: "server.lock('rlock:L', timeout=60)",
        prefix: "rlock:",
        not_owned: "LockNotOwnedError",
    },
    // Its prefix cannot be changed.
    Library {
        python: "__import__('pottery').Redlock(key='L', masters={server}, auto_release_time=60)",
        prefix: "redlock:",
        not_owned: "ReleaseUnlockedLock",
    },
];

/// Calls methods of the lock, one per line of stdin, and prints each result.
const PEER: &str = "
import redis, sys
server = redis.Redis.from_url(sys.argv[1])
lock = eval(sys.argv[2])

print('READY', flush=True)
for call in sys.stdin:
    try:
        said = eval('lock.' + call)
    except Exception as error:
        said = type(error).__name__
    print(said, flush=True)
";

const TRY: &str = "acquire(blocking=False)";

/// A server, a process that uses the library, and the key of its lock.
fn start(library: &Library) -> (Server, Running, String) {
    let server = Server::start();
    let mut peer = Command::new(python());
    peer.args(["-c", PEER, &server.url(), library.python]);
    let peer = Running::start(&mut peer).prints_first("READY");
    (server, peer, format!("{}L", library.prefix))
}

/// Lets a process that uses a library call a method of the lock, and returns what it prints.
#[track_caller]
fn ask(peer: &mut Running, call: &str) -> String {
    peer.say(call);
    peer.line()
}

#[test]
fn rlock_waits_for_a_librarys_lock_and_never_touches_its_key() {
    for library in &LIBRARIES {
        let (server, mut peer, key) = start(library);
        let prefix = library.prefix;
        assert_eq!(ask(&mut peer, TRY), "True");
        let value = server.cli(&["GET", &key]);
        assert_ne!(value, "");
        // The key may also be the name, without a prefix.
        for (prefix, name) in [(&*format!("--prefix {prefix}"), "L"), ("--prefix=", &*key)] {
            server.run(&format!("exec -n {prefix} {name} true")).exits(75).says("another tool");
            let locks = server.json(&format!("inspect --json {prefix} {name}"))["locks"].clone();
            assert_eq!((&locks[0]["name"], &locks[0]["key"]), (&name.into(), &(&*key).into()));
            assert_eq!(locks[0]["state"], "foreign");
        }
        let waiter = waiter(&server, &["--prefix", prefix], "L", "rlock");
        assert_eq!(server.cli(&["GET", &key]), value);
        // rlock has not changed its expiry either.
        let left = server.cli_number(&["PTTL", &key]);
        assert!((1..=60_000).contains(&left), "{left}");
        assert_eq!(ask(&mut peer, "release()"), "None");
        waiter.finish().exits(0).prints("ENTERED rlock");
        assert_eq!(ask(&mut peer, TRY), "True");
    }
}

/// Turns the record of L into one of another format, and one of that format into rlock's own.
fn exchange_formats(server: &Server) {
    let exchange = "
        for _, pair in ipairs { '24', '12', '41' } do
            local before, after = pair:match('(.)(.)')
            for _, key in ipairs(redis.call('KEYS', '{rlock:L}[?]' .. before .. '*')) do
                redis.call('RENAME', key, (key:gsub('?.', '?' .. after)))
            end
        end";
    server.cli(&["EVAL", exchange, "0"]);
}

#[test]
fn two_formats_of_rlock_exclude_each_other_in_all_modes() {
    const MODES: [&str; 3] = ["--exclusive", "--shared", "--slots=3"];
    for held in MODES {
        let (server, token) = acquired(&[held]);
        exchange_formats(&server);
        for asked in MODES {
            let other = "held by another version of rlock, whose key expires in";
            server.run(&format!("exec -n {asked} L true")).exits(75).says(other);
        }
        assert_eq!(server.inspect("L")["state"], "foreign");
        server.run("release --force L").exits(75).says("another version of rlock");
        let waits = waiter(&server, &[held], "L", "in");
        waits.signal("STOP");
        exchange_formats(&server);
        server.run(&format!("renew L {token}")).exits(0);
        server.run(&format!("release L {token}")).exits(0);
        exchange_formats(&server);
        waits.signal("CONT");
        waits.finish().exits(0).prints("ENTERED in");
    }
}

#[test]
fn a_library_cannot_take_a_lock_until_rlock_releases_it() {
    for library in &LIBRARIES {
        let (server, mut peer, key) = start(library);
        let first = holder(&server, &["--prefix", library.prefix], "L");
        let token = server.cli(&["GET", &key]);
        assert_eq!(ask(&mut peer, TRY), "False");
        server.cli(&["CONFIG", "RESETSTAT"]);
        peer.say("acquire()");
        until("it is refused", || server.calls_of("set") > 0);
        assert_eq!(server.cli(&["GET", &key]), token);
        // 76 if it had lost the lock.
        first.finish().exits(0);
        assert_eq!(peer.line(), "True");
        assert_ne!(server.cli(&["GET", &key]), token);
        assert_eq!(ask(&mut peer, "release()"), "None");
    }
}

#[test]
fn only_force_now_breaks_a_librarys_lock_and_the_library_notices() {
    for library in &LIBRARIES {
        let (server, mut peer, key) = start(library);
        let prefix = library.prefix;
        assert_eq!(ask(&mut peer, TRY), "True");
        let value = server.cli(&["GET", &key]);
        let force = format!("release --force --prefix {prefix} L");
        server.run(&force).exits(75).says("if the holder and everything that it started are dead, run rlock release --force --now");
        assert_eq!(server.cli(&["GET", &key]), value);
        server.run(&format!("{force} --now")).exits(0).says("deleted the key of another tool");
        assert_eq!(server.cli(&["EXISTS", &key]), "0");
        let token = acquire(&server, &["--prefix", prefix], "L");
        // Its late release does not affect the next holder.
        assert_eq!(ask(&mut peer, "release()"), library.not_owned);
        assert_eq!(server.cli(&["GET", &key]), token);
    }
}
