//! If rlock itself was not running, it says so, and blames no server that would have answered.

use std::time::Duration;

use crate::support::{self, *};

const NOT_RUNNING: &str = "rlock was not running for ";
const CAUSES: &str = " (suspended, or the host was overloaded)";

/// A command, and a script with a keeper, that hold L and K with a lease of this length, and the
/// processes that renew them.
fn holders(server: &Server, ttl: &str) -> [(Running, u32); 2] {
    let exec = server.starts(&format!("exec --ttl {ttl} L sh -c"), READY);
    let acquire = format!("$rlock acquire --ttl {ttl} --while-pid $$ K >&2 && {READY}");
    let script = Running::start(&mut server.program("sh -c", &acquire));
    [exec, script].map(|holder| {
        let holder = holder.prints_first("READY");
        let keeper = format!("--while-pid {} K$", holder.pid());
        let keeper = run(std::process::Command::new("pgrep").args(["-f", "--", &keeper])).out();
        let renews = keeper.lines().next().map_or(holder.pid(), |keeper| keeper.parse().unwrap());
        (holder, renews)
    })
}

#[test]
fn a_suspended_rlock_and_a_suspended_keeper_name_the_cause_once_they_are_continued() {
    let server = Server::start();
    for (mut holder, renews) in holders(&server, "3s") {
        support::send_signal(renews, "STOP");
        // It is continued so late that it stops what runs, or just renews the lease before.
        let told = holder.told(NOT_RUNNING);
        assert!(told.contains(CAUSES), "{told}");
        holder.finish();
    }
}

#[test]
fn a_suspended_rlock_and_a_suspended_keeper_warn_that_the_lease_was_nearly_over() {
    let server = Server::start();
    let mut holders = holders(&server, "18s");
    holders.iter().for_each(|(_, renews)| support::send_signal(*renews, "STOP"));
    let mut stopped = vec![("L", holders[0].1), ("K", holders[1].1)];
    until("renewals are late", || {
        let is_late = |(lock, _): &(&str, u32)| server.lease_left(lock) < 8_800;
        let late = stopped.extract_if(.., |it| is_late(it));
        late.for_each(|(_, renews)| support::send_signal(renews, "CONT"));
        stopped.is_empty()
    });
    for (holder, _) in &mut holders {
        let told = holder.told("; retrying");
        assert!(told.contains(NOT_RUNNING) && told.contains(CAUSES), "{told}");
        holder.told("the lease was renewed after ");
    }
    for (holder, _) in holders {
        holder.finish().exits(0);
    }
}

#[test]
fn a_suspended_waiter_says_so_and_goes_on_until_its_limit() {
    let (server, first) = held(&[]);
    let waiters = ["--ttl 3s L echo RAN", "--ttl 3s -w 2s L true"]
        .map(|line| server.rlock(["exec"].into_iter().chain(line.split(' '))))
        .map(|mut waiter| Running::start(&mut waiter).tells("waiting at position "));
    waiters.iter().for_each(|waiter| waiter.signal("STOP"));
    support::acquire(&server, &["--ttl", "8s"], "clock");
    until("both are late", || server.is_free("clock"));
    waiters.iter().for_each(|waiter| waiter.signal("CONT"));
    let [mut waits, gives_up] = waiters;
    let told =
        gives_up.end().exits(75).says(NOT_RUNNING).says(CAUSES).says("; gave up after ").err();
    assert!(!told.contains("answer"), "{told}");
    waits.told(NOT_RUNNING);
    first.finish().exits(0);
    waits.end().exits(0).prints("RAN");
}

#[test]
fn a_reply_that_arrived_while_rlock_was_suspended_is_read() {
    let server = Server::on_tcp(&[]);
    let wire = Proxy::to(server.port(), Duration::ZERO);
    let client = Client::of(wire.url());
    client.run("exec L true").exits(0);
    let before = wire.flights();
    wire.part(true);
    let asks = client.start("exec --io-timeout 2s L true");
    until("it asks", || wire.flights() > before);
    asks.signal("STOP");
    wire.part(false);
    support::acquire(&server, &["--ttl", "4s"], "clock");
    until("the time for a reply is over", || server.is_free("clock"));
    asks.ends_by("CONT").exits(0);
}

#[test]
fn a_server_that_is_silent_is_blamed() {
    let server = Server::on_tcp(&[]);
    // The first answer takes so long that a renewal awaits its own until the command is stopped.
    let wire = Proxy::to(server.port(), Duration::from_millis(400));
    let mut first = Client::of(wire.url()).holder("--ttl 6s L");
    wire.part(true);
    let told = first.told("; stopping the command");
    assert!(told.contains(": no answer yet; "), "{told}");
    first.end().exits(76);
    wire.part(false);
}
