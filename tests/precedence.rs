//! Precedence: --next goes ahead of the queue, and of the waiters with --supersede only the newest
//! remains.

use crate::support::*;

also_on_local! {
    next_goes_ahead_of_the_queue_and_behind_others_with_next,
    a_newcomer_with_next_joins_readers_ahead_of_a_waiting_writer,
    a_newer_request_with_supersede_cancels_older_ones_with_it_but_no_others,
    a_stopped_waiter_does_not_run_after_a_newer_one,
}

#[test]
fn next_goes_ahead_of_the_queue_and_behind_others_with_next() {
    let server = Server::start();
    let file = server.directory().join("order");
    let queue = |options: &[&str], word: &str| {
        waiter(&server, options, "L", &format!("{word} >> {}", file.display()))
    };
    let first = holder(&server, &[], "L");
    let waiters =
        [queue(&[], "3"), queue(&["--next"], "1"), queue(&["--next"], "2"), queue(&[], "4")];
    let shown = server.inspect("L");
    let next = shown["waiters"].as_array().unwrap().iter().map(|one| one["next"] == true);
    assert_eq!(next.collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!(server.run("inspect L").out().matches(", --next").count(), 2);
    first.finish();
    for waiter in waiters {
        waiter.finish().exits(0);
    }
    let order = std::fs::read_to_string(&file).unwrap();
    assert_eq!(order, "ENTERED 1\nENTERED 2\nENTERED 3\nENTERED 4\n");
}

#[test]
fn a_newcomer_with_next_joins_readers_ahead_of_a_waiting_writer() {
    let (server, reader) = held(&["--shared"]);
    let writer = waiter(&server, &[], "L", "writer");
    server.run("exec -n --shared L true").exits(75);
    server.run("exec -n --shared --next L true").exits(0);
    reader.finish();
    writer.finish().prints("ENTERED writer");
}

#[test]
fn a_newer_request_with_supersede_cancels_older_ones_with_it_but_no_others() {
    let (server, first) = held(&["--supersede"]);
    let other = waiter(&server, &[], "L", "other");
    let older = waiter(&server, &["--supersede"], "L", "older");
    let options = ["acquire", "--json", "-q", "-E", "9", "--supersede", "L"];
    let quiet = Running::start(&mut server.rlock(options));
    // It learns this immediately, not at its next heartbeat, which is up to 10 s later.
    let mut longer = LongerWait::of("6s");
    let older = older.end().exits(79);
    older.says("rlock: L: superseded by ");
    let newer = waiter(&server, &["--supersede", "--label", "https://ci/813"], "L", "newer");
    // It is not busy.
    let quiet = quiet.end().exits(79);
    longer.is_not_over();
    assert_eq!(quiet.err(), "");
    let document = quiet.json();
    assert_eq!(document["status"], "superseded");
    assert_eq!(document["superseded_by"]["label"], "https://ci/813");
    assert_eq!(document["superseded_by"]["command"], "sh");
    assert_eq!(server.waiting("L"), 2);
    first.finish().exits(0);
    other.finish().prints("ENTERED other");
    newer.finish().prints("ENTERED newer");
}

#[test]
fn a_stopped_waiter_does_not_run_after_a_newer_one() {
    let (server, first) = held(&[]);
    // It loses its position after two heartbeats of 100 ms and 2 s.
    let older = waiter(&server, &["--supersede", "--ttl", "300ms"], "L", "older");
    older.signal("STOP");
    until("it loses its position", || server.waiting("L") == 0);
    first.finish();
    server.run("exec --supersede L true").exits(0);
    older.ends_by("CONT").exits(79).prints("").says("superseded by ");
}
