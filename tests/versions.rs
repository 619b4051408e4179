//! rlock and rlock 0.1.0 on the same servers never hold a lock at once.
//!
//! `versions/0.1.0/` contains what 0.1.0 sends to a server: the scripts, captured with `MONITOR`
//! from that release, without the part that they share. The keys and arguments here were captured
//! along with them. `versions/meet` builds 0.1.0 and runs the two programs together.

use std::fs;
use std::process::Command;

use crate::support::{Finished, Server, acquire, holder, rlock, run, waiter};

/// The beginning of every script of 0.1.0.
const SHARED: &str = include_str!("versions/0.1.0/shared.lua");

/// A request of 0.1.0: the rest of its script, and the hash by which 0.1.0 calls that script.
struct Script {
    rest: &'static str,
    hash: &'static str,
}

const ACQUIRE: Script = Script {
    rest: include_str!("versions/0.1.0/acquire.lua"),
    hash: "6253d94eff13549a946a1802be473eff5a4c0fcb",
};
const RENEW: Script = Script {
    rest: include_str!("versions/0.1.0/renew.lua"),
    hash: "3703f2ee98b55c24cbeefa1f691bf4615dccc14f",
};
const RELEASE: Script = Script {
    rest: include_str!("versions/0.1.0/release.lua"),
    hash: "42981bf4acc8efd04d759569f3f0b63d1707eb7f",
};

/// The token of the client that runs 0.1.0.
const TOKEN: &str = "e6d685ac-ad14-4679-bf32-2d5948fd2f57";

/// The modes of 0.1.0.
const MODES: [&str; 3] = ["exclusive", "shared", "slots:2"];

/// The file of a lock that 0.1.0 keeps in `local:`, without the hold.
const LOCK_FILE: &str = "rlock lock 1\n\
    {\"clock\":{\"boot\":\"19c6265a-1014-4dfb-8211-ba895be6f24f\",\"booted\":1795320658585},\
    \"lock\":{\"guard\":null,\"written\":null,\"mode\":null,\"fence\":1795388750288,\"holds\":[],\
    \"queue\":[],\"past\":[]}}\n";

/// Sends a request about the lock L as 0.1.0 does, and returns the lines of the reply.
#[track_caller]
fn call(server: &Server, script: &Script, token: &str, arguments: &[&str]) -> Vec<String> {
    let source = [SHARED, script.rest].concat();
    assert_eq!(server.cli(&["SCRIPT", "LOAD", &source]), script.hash);
    let mail = format!("{{rlock:L}}:mail:{token}");
    let [holds, state, queue, past] =
        ["holds", "state", "queue", "past"].map(|name| format!("{{rlock:L}}:{name}"));
    let keys = ["rlock:L", &holds, &state, &queue, &mail, &past];
    let request = ["EVALSHA", script.hash, "6"];
    let reply = server.cli(&[&request, &keys[..], &["0", token], arguments].concat());
    reply.lines().map(str::to_owned).collect()
}

/// Requests the lock L as 0.1.0 does. A heartbeat of 0 ms does not wait.
#[track_caller]
fn request(server: &Server, mode: &str, heartbeat: &str) -> Vec<String> {
    let owner = "605b207c-ce5e-4fc6-ba97-31bc0d046634";
    let client = "ci-3\nana\n4242\nmake\nexec\n";
    let arguments = ["30000", heartbeat, mode, "0", "", owner, "", "", client, "0"];
    call(server, &ACQUIRE, TOKEN, &arguments)
}

/// Acquires the lock L as 0.1.0 does, and returns its fencing token.
#[track_caller]
fn acquire_with_0_1_0(server: &Server) -> u64 {
    let reply = request(server, "exclusive", "0");
    assert_eq!(reply[0], "granted", "{reply:?}");
    reply[1].parse().unwrap()
}

/// Three servers that are one quorum and have been up for longer than the lease of an `at` command.
fn quorum() -> [Server; 3] {
    let servers = [(); 3].map(|()| Server::on_tcp(&[]));
    servers.iter().for_each(|server| server.await_uptime(2));
    servers
}

fn at(servers: &[Server], arguments: &[&str]) -> Command {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let mut command = rlock(arguments);
    command.env("RLOCK_URL", urls.join(" ")).env("RLOCK_TTL", "2s");
    command
}

#[test]
fn a_lock_of_0_1_0_is_busy_until_0_1_0_releases_it() {
    let server = Server::start();
    acquire_with_0_1_0(&server);
    for options in [&[][..], &["--shared"], &["--slots", "2"]] {
        let exec = ["exec", "-n"].iter().chain(options).chain(&["L", "true"]);
        let busy = run(&mut server.rlock(exec));
        assert_eq!(busy.code(), 75, "{busy:?}");
        assert!(busy.err().contains("held by another tool"), "{busy:?}");
    }
    assert_eq!(server.inspect("L")["state"], "foreign");
    for refused in ["renew", "release"] {
        assert_eq!(run(&mut server.rlock([refused, "L", TOKEN])).code(), 77);
    }
    let revocation = run(&mut server.rlock(["release", "--force", "L"]));
    assert_eq!(revocation.code(), 75, "{revocation:?}");
    assert!(revocation.err().contains("--force --now"), "{revocation:?}");

    let waiter = waiter(&server, &[], "L", "next");
    assert_eq!(call(&server, &RENEW, TOKEN, &["30000"])[0], "renewed");
    assert_eq!(call(&server, &RELEASE, TOKEN, &[""]), ["released"]);
    assert_eq!(waiter.finish().out(), "ENTERED next");
}

#[test]
fn version_0_1_0_finds_a_lock_busy_until_it_is_released() {
    let server = Server::start();
    for options in [&[][..], &["--shared"], &["--slots", "2"]] {
        let first = holder(&server, options, "L");
        for mode in MODES {
            assert_eq!(request(&server, mode, "0")[0], "busy");
        }
        let token = server.cli(&["GET", "rlock:L"]);
        assert_eq!(call(&server, &RENEW, &token, &["30000"]), ["not-held"]);
        assert_eq!(call(&server, &RELEASE, &token, &[""]), ["not-held"]);
        assert_eq!(request(&server, "exclusive", "10000")[0], "queued");
        // 76 if it had lost the lock.
        assert_eq!(first.finish().code(), 0);
        acquire_with_0_1_0(&server);
        assert_eq!(call(&server, &RELEASE, TOKEN, &[""]), ["released"]);
    }
}

#[test]
fn the_queue_of_0_1_0_does_not_delay_a_release() {
    let server = Server::start();
    acquire_with_0_1_0(&server);
    assert_eq!(call(&server, &RELEASE, TOKEN, &[""]), ["released"]);
    let first = acquire(&server, &[], "L");
    assert_eq!(request(&server, "exclusive", "10000")[0], "queued");
    assert_eq!(run(&mut server.rlock(["release", "L", &first])).code(), 0);
    // The waiter of 0.1.0 has not checked the lock yet, so it is free.
    let second = acquire(&server, &["-n"], "L");
    assert_eq!(request(&server, "exclusive", "10000")[0], "queued");
    assert_eq!(run(&mut server.rlock(["release", "L", &second])).code(), 0);
    acquire_with_0_1_0(&server);
}

#[test]
fn a_fencing_token_is_larger_than_all_of_0_1_0() {
    let server = Server::start();
    let old = acquire_with_0_1_0(&server);
    assert_eq!(call(&server, &RELEASE, TOKEN, &[""]), ["released"]);
    acquire(&server, &[], "L");
    let new = server.fence("L");
    // Milliseconds and microseconds of the same clock.
    assert!(new / 1000 >= old, "{new} after {old}");
}

#[test]
fn a_quorum_lets_only_one_of_the_versions_in() {
    let servers = quorum();
    for server in &servers[1..] {
        acquire_with_0_1_0(server);
    }
    let busy = run(&mut at(&servers, &["exec", "-n", "L", "true"]));
    assert_eq!(busy.code(), 75, "{busy:?}");
    for server in &servers[1..] {
        assert_eq!(call(server, &RELEASE, TOKEN, &[""]), ["released"]);
    }

    let held = run(&mut at(&servers, &["acquire", "L"]));
    assert_eq!(held.code(), 0, "{held:?}");
    let busy = servers.iter().filter(|server| request(server, "exclusive", "0")[0] == "busy");
    assert!(busy.count() >= 2);
}

#[test]
fn a_file_of_0_1_0_is_refused_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("local:{}", directory.path().display());
    let file = directory.path().join("rlock:L.lock");
    fs::write(&file, LOCK_FILE).unwrap();
    for arguments in [
        &["exec", "-n", "L", "true"][..],
        &["exec", "-w", "1m", "L", "true"],
        &["renew", "L", TOKEN],
        &["release", "L", TOKEN],
        &["release", "--force", "--now", "L"],
        &["inspect", "L"],
    ] {
        let refused = run(rlock(arguments).env("RLOCK_URL", &url));
        assert_eq!(refused.code(), 78, "{arguments:?}: {refused:?}");
        let fault = format!("{}: lock file of rlock 0.1.0", file.display());
        assert!(refused.err().contains(&fault), "{refused:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), LOCK_FILE);
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(run(rlock(["exec", "-n", "L", "true"]).env("RLOCK_URL", &url)).code(), 0);
}

#[test]
fn a_lock_file_recreated_by_0_1_0_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("local:{}", directory.path().display());
    assert_eq!(run(rlock(["exec", "-n", "L", "true"]).env("RLOCK_URL", &url)).code(), 0);
    fs::write(directory.path().join("rlock:L.lock"), LOCK_FILE).unwrap();
    let refused = run(rlock(["exec", "-n", "L", "true"]).env("RLOCK_URL", &url));
    assert_eq!(refused.code(), 78, "{refused:?}");
}

#[test]
fn version_0_1_0_refuses_a_file_of_this_version() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("local:{}", directory.path().display());
    assert_eq!(run(rlock(["exec", "-n", "L", "true"]).env("RLOCK_URL", &url)).code(), 0);
    // 0.1.0 opens this file even if the lock is free, and exits with status 78 unless the file begins
    // as its own files do.
    let file = fs::read_to_string(directory.path().join("rlock:L.lock")).unwrap();
    assert!(!file.starts_with("rlock lock 1\n"), "{file}");
}
