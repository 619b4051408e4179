//! `release --force --id` revokes one hold, or removes one waiter, and says why.

use serde_json::Value;

use crate::support::{
    Finished, LongerWait, READY, Running, Server, acl, acquire, also_on_local, holder, rlock, run,
    until, waiter,
};

also_on_local! {
    one_of_several_holds_is_revoked_and_its_holder_prints_the_reason,
    now_revokes_one_hold_immediately,
    a_waiter_is_removed_and_prints_the_reason,
    an_id_that_is_gone_changes_nothing_and_names_the_present_holder,
    a_reason_is_recorded_when_all_holds_are_revoked,
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
    let told = run(server.rlock(arguments).env("USER", "ana")).exits(0);
    assert!(told.out().starts_with("L: revoked ") && told.out().contains(&id), "{told:?}");
    victim.end().exits(76).says("was revoked by ana@").says(", reason: bad build,  see OPS-12");
    assert_eq!(ids(&server, "holders").len(), 1);
    other.finish().exits(0);
    let shown = server.inspect("L");
    let entry = &shown["history"][1];
    assert_eq!((&entry["id"], &entry["ended"]), (&id.into(), &"revoked".into()), "{shown}");
    assert_eq!(entry["reason"], "bad build,  see OPS-12");
    assert!(entry["by"].as_str().unwrap().starts_with("ana@"));
    let page = server.run("inspect L").out();
    assert!(page.contains(", reason: bad build,"), "{page}");
}

#[test]
fn now_revokes_one_hold_immediately() {
    let server = Server::start();
    let token = acquire(&server, &["--slots", "2", "--ttl", "1h"], "L");
    let other = acquire(&server, &["--slots", "2", "--ttl", "1h"], "L");
    let next = waiter(&server, &["--slots", "2"], "L", "next");
    let arguments = ["release", "--force", "--now", "--id", &token[..8], "L", "--json"];
    let told = run(&mut server.rlock(arguments)).exits(0);
    let document: Value = serde_json::from_str(&told.out()).unwrap();
    assert_eq!(document["revoked"][0]["id"], token[..8], "{document}");
    next.finish().prints("ENTERED next");
    run(&mut server.rlock(["release", "L", &token])).exits(77).says("was revoked by ");
    run(&mut server.rlock(["release", "L", &other])).exits(0);
}

#[test]
fn a_waiter_is_removed_and_prints_the_reason() {
    let server = Server::start();
    let first = holder(&server, &[], "L");
    let victim = Running::start(&mut server.rlock(["acquire", "--json", "L"]));
    until("it waits", || server.waiting("L") == 1);
    let id = ids(&server, "waiters").remove(0);
    let next = waiter(&server, &[], "L", "next");
    // It learns this immediately, not at its next heartbeat, which is up to 10 s later.
    let mut longer = LongerWait::of("6s");
    let arguments = ["release", "--force", "--id", &id, "--reason", "stale", "--json", "L"];
    let told = run(server.rlock(arguments).env("USER", "ana"));
    let document: Value = serde_json::from_str(&told.out()).unwrap();
    assert_eq!((told.code(), &document["status"]), (0, &"removed".into()), "{told:?}");
    assert_eq!(document["removed"]["id"], id, "{document}");
    let told = victim.end();
    longer.is_not_over();
    assert_eq!(told.code(), 79, "{told:?}");
    assert!(told.err().contains("removed from the queue by ana@"), "{told:?}");
    assert!(told.err().ends_with(", reason: stale"), "{told:?}");
    let document: Value = serde_json::from_str(&told.out()).unwrap();
    assert_eq!((&document["status"], &document["reason"]), (&"removed".into(), &"stale".into()));
    first.finish();
    next.finish().prints("ENTERED next");
}

#[test]
fn an_id_that_is_gone_changes_nothing_and_names_the_present_holder() {
    let server = Server::start();
    let token = acquire(&server, &[], "L");
    let id = &token[..8];
    run(&mut server.rlock(["release", "L", &token])).exits(0);
    let arguments = ["release", "--force", "--now", "--id", id, "L"];
    let told = run(&mut server.rlock(arguments)).exits(77);
    assert!(
        told.err()
            .contains(&format!("no holder or waiter has the id '{id}' (the lock is now free)"))
    );
    let present = holder(&server, &[], "L");
    let told = run(&mut server.rlock(arguments)).exits(77);
    let held = told.err().contains("held by ") && told.err().contains(&present.pid().to_string());
    assert!(held, "{told:?}");
    present.finish().exits(0);
    for wrong in [
        vec!["release", "--id", id, "L"],
        vec!["release", "--reason", "x", "L"],
        vec!["release", "--force", "--id", "a*", "L"],
    ] {
        assert_eq!(run(&mut server.rlock(&wrong)).code(), 64, "{wrong:?}");
    }
}

#[test]
fn a_reason_is_recorded_when_all_holds_are_revoked() {
    let server = Server::start();
    let victim = holder(&server, &["--ttl", "1500ms"], "L");
    let arguments = ["release", "--force", "--reason", "OPS-12", "L"];
    assert_eq!(run(&mut server.rlock(arguments)).code(), 0);
    let told = victim.end();
    assert!(told.err().contains(", reason: OPS-12"), "{told:?}");
    assert_eq!(server.inspect("L")["history"][0]["reason"], "OPS-12");
}

#[test]
fn the_documented_acl_rule_allows_removing_one_client() {
    let server = Server::on_tcp(&[]);
    acl::set_up(&server, &acl::rule(&["+hscan"]));
    let token = acl::as_ci(&mut server.rlock(["acquire", "L"])).out();
    let arguments = ["release", "--force", "--id", &token[..8], "--now", "L"];
    let told = acl::as_ci(&mut server.rlock(arguments));
    assert_eq!(told.code(), 0, "{told:?}");
}

#[test]
fn one_client_is_removed_on_a_quorum() {
    let servers: Vec<Server> = (0..3).map(|_| Server::on_tcp(&[])).collect();
    servers.iter().for_each(|server| server.await_uptime(4));
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let at = |arguments: &[&str]| {
        let mut command = rlock(arguments);
        command.env("RLOCK_URL", urls.join(" ")).env("RLOCK_TTL", "3s");
        command
    };
    let ids = || -> Vec<String> {
        let told = run(&mut at(&["inspect", "--json", "L"]));
        let shown: Value = serde_json::from_str(&told.out()).unwrap();
        let both = ["holders", "waiters"].map(|what| shown[0][what].as_array().unwrap().clone());
        both.concat().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let held = Running::start(&mut at(&["exec", "L", "sh", "-c", READY])).prints_first("READY");
    let mut waits = Running::start(&mut at(&["exec", "L", "true"]));
    waits.told("waiting at position");
    servers[0].signal("STOP");
    let [holder, waiter] = ids().try_into().unwrap();
    let told = run(&mut at(&["release", "--force", "--id", &waiter, "--reason", "old", "L"]));
    assert_eq!(told.code(), 0, "{told:?}");
    let told = waits.end();
    assert_eq!(told.code(), 79, "{told:?}");
    assert!(told.err().ends_with(", reason: old"), "{told:?}");
    run(&mut at(&["release", "--force", "--id", &holder, "--reason", "why", "L"])).exits(0);
    held.end().exits(76).says(", reason: why");
    run(&mut at(&["release", "--force", "--id", &holder, "L"])).exits(77);
    servers[0].signal("CONT");
}
