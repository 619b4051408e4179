//! `release --force --id` revokes one hold, or removes one waiter, and says why.

use std::os::unix::process::ExitStatusExt;

use nix::libc::SIGINT;

use crate::support::*;

also_on_local! {
    one_of_several_holds_is_revoked_and_its_holder_prints_the_reason,
    now_revokes_one_hold_immediately,
    a_waiter_is_removed_and_prints_the_reason,
    a_forced_release_tells_whether_each_holder_released_the_lock_or_its_lease_expired,
    a_forced_release_that_is_interrupted_says_when_what_it_revoked_ends,
    an_id_that_is_gone_changes_nothing_and_names_the_present_holder,
}

/// The IDs of the holders or the waiters.
fn ids(server: &Server, what: &str) -> Vec<String> {
    let shown = server.inspect("L");
    let all = shown[what].as_array().unwrap();
    all.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn one_of_several_holds_is_revoked_and_its_holder_prints_the_reason() {
    let server = Server::start();
    let options = ["--shared", "--ttl", "1500ms"];
    let victim = holder(&server, &options, "L");
    let id = ids(&server, "holders").remove(0);
    let other = holder(&server, &options, "L");
    let reason = "bad build,\n see OPS-12";
    let arguments = ["release", "--force", "--id", &id, "--reason", reason, "L"];
    run(server.rlock(arguments).env("USER", "ana")).exits(0).shows("L: revoked ").shows(&id);
    victim.end().exits(76).says("was revoked by ana@").says(", reason: bad build,  see OPS-12");
    assert_eq!(ids(&server, "holders").len(), 1);
    server.run("inspect L").shows(", reason: bad build,");
    let entry = &server.inspect("L")["history"][0];
    assert_eq!((&entry["id"], &entry["ended"]), (&id.into(), &"revoked".into()), "{entry}");
    assert_eq!(entry["reason"], "bad build,  see OPS-12");
    assert!(entry["by"].as_str().unwrap().starts_with("ana@"));
    // Without --id, it is the reason for all.
    server.run("release --force --reason OPS-12 L").exits(0);
    other.end().exits(76).says(", reason: OPS-12");
}

#[test]
fn now_revokes_one_hold_immediately() {
    let server = Server::start();
    let [token, other] = [(); 2].map(|()| acquire(&server, &["--slots", "2", "--ttl", "1h"], "L"));
    let next = waiter(&server, &["--slots", "2"], "L", "next");
    let document = server.json(&format!("release --force --now --id {} L --json", &token[..8]));
    assert_eq!(document["status"], "released");
    assert_eq!(document["revoked"][0]["id"], token[..8], "{document}");
    next.finish().prints("ENTERED next");
    server.run(&format!("release L {token}")).exits(77).says("was revoked by ");
    server.run(&format!("release L {other}")).exits(0);
}

#[test]
fn a_waiter_is_removed_and_prints_the_reason() {
    let (server, first) = held(&[]);
    let victim = Running::start(&mut server.rlock(["acquire", "--json", "L"]));
    until("it waits", || server.waiting("L") == 1);
    let id = ids(&server, "waiters").remove(0);
    let next = waiter(&server, &[], "L", "next");
    // It learns this immediately, not at its next heartbeat, which is up to 10 s later.
    let mut longer = LongerWait::of("6s");
    let arguments = ["release", "--force", "--id", &id, "--reason", "stale", "--json", "L"];
    let document = run(server.rlock(arguments).env("USER", "ana")).exits(0).json();
    assert_eq!(document["status"], "removed");
    assert_eq!(document["removed"]["id"], id, "{document}");
    let told = victim.end().exits(79);
    longer.is_not_over();
    let told = told.says("removed from the queue by ana@").says(", reason: stale");
    let document = told.json();
    assert_eq!((&document["status"], &document["reason"]), (&"removed".into(), &"stale".into()));
    first.finish();
    next.finish().prints("ENTERED next");
}

#[test]
fn a_forced_release_tells_whether_each_holder_released_the_lock_or_its_lease_expired() {
    let server = Server::start();
    let brief = ["--shared", "--ttl", "2s"];
    let start = || {
        acquire(&server, &brief, "L");
        let alive = holder(&server, &["--shared", "--ttl", "6s"], "L");
        let mut dead = holder(&server, &brief, "L");
        dead.process.kill();
        (alive, dead.pid())
    };
    let (alive, dead) = start();
    let told = server.run("release --force L").exits(0).err();
    let released =
        format!("pid {} (sh) released the lock after its command had ended", alive.pid());
    assert!(told.contains(&released), "{told}");
    for pid in [dead, std::process::id()] {
        let expired = ") did not release the lock before its lease expired; check that nothing it ";
        let is_told = |line: &str| line.contains(&format!("pid {pid} (")) && line.contains(expired);
        assert!(told.lines().any(is_told), "{told}");
    }
    alive.end().exits(76);
    let (alive, dead) = start();
    let document = server.json("release --force -q --json L");
    let ended = |pid: u32| {
        let mut revoked = document["revoked"].as_array().unwrap().iter();
        revoked.find(|it| it["pid"] == pid).unwrap()["ended"].clone()
    };
    assert_eq!((ended(alive.pid()), ended(dead)), ("released".into(), "expired".into()));
    alive.end().exits(76);

    // Another operator frees the lock of a stopped holder, and a script releases its own.
    let stopped = holder(&server, &["--shared", "--ttl", "60s"], "L");
    stopped.signal("STOP");
    let id = ids(&server, "holders").remove(0);
    let token = acquire(&server, &["--shared", "--ttl", "1h"], "L");
    let mut force = server.starts("release --force", "L").tells("waiting up to ");
    server.run(&format!("release --force --now --id {id} L")).exits(0);
    force.told(&format!("pid {} (sh) no longer holds the lock", stopped.pid()));
    server.run(&format!("release L {token}")).exits(77);
    force.end().exits(0).says(" no longer holds the lock");
    stopped.ends_by("CONT").exits(76);
}

#[test]
fn a_forced_release_that_is_interrupted_says_when_what_it_revoked_ends() {
    let server = Server::start();
    acquire(&server, &["--ttl", "1h"], "L");
    let force = server.starts("release --force", "L").tells("waiting up to ");
    force.signal("INT");
    let ended = force.end();
    assert_eq!(ended.status.signal(), Some(SIGINT), "{ended:?}");
    ended.says("L: stopped by SIGINT while waiting; what was revoked ends within 59m");
    assert_eq!(server.inspect("L")["state"], "revoked");
}

#[test]
fn an_id_that_is_gone_changes_nothing_and_names_the_present_holder() {
    let server = Server::start();
    let release = || server.run("release --force --now --id 5f0c21aa L").exits(77);
    release().says("no holder or waiter has the id '5f0c21aa' (the lock is now free)");
    let present = holder(&server, &[], "L");
    release().says("held by ").says(&present.pid().to_string());
    present.finish().exits(0);
}

#[test]
fn one_client_is_removed_on_a_quorum() {
    let servers = quorum::servers(3);
    let all = quorum::at(&servers);
    let remove =
        |id: &str, reason: &str| all.run(&format!("release --force --id {id} --reason {reason} L"));
    let held = all.holder("L");
    let waits = all.waiter("L");
    servers[0].signal("STOP");
    let shown = all.inspect("L");
    let [holder, waiter] =
        ["holders", "waiters"].map(|what| shown[what][0]["id"].as_str().unwrap());
    remove(waiter, "old").exits(0);
    waits.end().exits(79).says(", reason: old");
    remove(holder, "why").exits(0);
    held.end().exits(76).says(", reason: why");
    remove(holder, "late").exits(77);
    servers[0].signal("CONT");
}
