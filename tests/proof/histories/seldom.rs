//! Stories of what random histories seldom play: exact times, equal numbers, and what other tools
//! have written.

use std::time::Duration;

use rlock::rules::{
    Answer, Ending, Fence, Mode, Operator, Reason, Renewal, Revocation, State, Verdict,
};
use rlock::store::Store;

use super::play::{Both, START};
use super::step::{Ask, SideKey, Step};
use super::stories::{a_client, is_granted, play, position};
use crate::scripts::shim::{Server, Shim};

/// Plays all of them.
pub(super) fn all() {
    the_limit_of_a_call_counts_the_older_waiters_that_keep_another_one_out();
    waiters_of_one_mode_do_not_keep_each_other_out();
    a_waiter_is_alive_until_the_last_millisecond();
    another_tools_lock_is_free_after_its_last_millisecond();
    a_call_that_leaves_one_expired_hold_decides_nothing();
    a_revocation_that_is_continued_leaves_out_no_hold();
    a_hold_that_is_cooling_is_not_recorded_twice();
    a_hold_cools_until_its_minimum_time_is_up();
    a_waiter_keeps_the_lock_for_its_minimum_time();
    of_two_requests_with_the_same_ticket_the_larger_token_is_the_newer_one();
    a_lock_that_was_reinstated_gets_a_new_generation();
    a_reinstated_hold_counts();
    a_hold_from_the_future_is_not_restored();
    a_ticket_of_several_servers_does_not_concern_a_request_to_one();
    a_released_hold_stays_released_though_its_mark_is_lost();
    a_mark_lasts_until_its_last_millisecond();
    a_hold_without_details_is_forgotten();
    marks_make_room_for_a_new_one();
    a_page_has_each_waiter_once();
    an_expired_hold_of_many_is_in_the_history();
}

fn shared(client: u8) -> Ask {
    Ask { mode: Mode::Shared, ..a_client(client) }
}

/// Four holds that expire at once, which is one more than a call drops, and a fifth that does not.
fn four_that_expire(both: &mut Both<'_>) {
    (0..4).for_each(|client| both.play(&Step::Ask(Ask { ttl: 1_000, ..shared(client) })));
    both.play(&Step::Ask(shared(4)));
    both.play(&Step::Pass(2_000));
}

fn proposing(client: u8, ticket: Option<i64>) -> Ask {
    Ask { ticket: Some(ticket), ..a_client(client) }
}

fn kept_out(both: &mut Both<'_>, ask: Ask) -> bool {
    match both.answer(&Ask { heartbeat: None, ..ask }, 1, &[]) {
        Verdict::Proposed(proposal) => proposal.kept_out,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_limit_of_a_call_counts_the_older_waiters_that_keep_another_one_out() {
    play(|both| {
        (0..3).for_each(|client| both.play(&Step::Ask(proposing(client, None))));
        both.play(&Step::Ask(proposing(3, Some(2_000))));
        assert!(!kept_out(both, proposing(4, None)));
    });
}

#[test]
fn waiters_of_one_mode_do_not_keep_each_other_out() {
    play(|both| {
        let ask = |client, ticket| Ask { mode: Mode::Shared, ..proposing(client, ticket) };
        for client in 0..3 {
            both.play(&Step::Ask(ask(client, Some(client.into()))));
        }
        assert!(!kept_out(both, ask(3, None)));
        assert!(kept_out(both, proposing(4, None)));
    });
}

#[test]
fn a_waiter_is_alive_until_the_last_millisecond() {
    play(|both| {
        both.play(&Step::Ask(proposing(0, Some(0))));
        both.play(&Step::Ask(proposing(1, Some(1))));
        both.play(&Step::Pass(22_000));
        assert!(kept_out(both, proposing(2, None)));
    });
}

#[test]
fn another_tools_lock_is_free_after_its_last_millisecond() {
    play(|both| {
        both.play(&Step::Write(Some(1_000)));
        both.play(&Step::Pass(1_000));
        assert_eq!(position(&both.answer(&a_client(0), 1, &[])), Some(1));
        both.play(&Step::Pass(1));
        assert!(is_granted(&both.answer(&a_client(0), 2, &[])));
    });
}

#[test]
fn a_call_that_leaves_one_expired_hold_decides_nothing() {
    play(|both| {
        four_that_expire(both);
        assert_eq!(both.answer(&shared(5), 1, &[]), Verdict::Again);
        assert!(is_granted(&both.answer(&shared(5), 2, &[])));
    });
    // The holder of the one that is left learns the same as the others.
    play(|both| {
        four_that_expire(both);
        both.play(&Step::Renew(3, None));
    });
}

#[test]
fn a_revocation_that_is_continued_leaves_out_no_hold() {
    play(|both| {
        four_that_expire(both);
        both.play(&Step::Revoke(Revocation::Now, 0));
        assert!(both.model.holds.is_empty(), "{:?}", both.model);
    });
}

#[test]
fn a_hold_that_is_cooling_is_not_recorded_twice() {
    play(|both| {
        both.play(&Step::Ask(Ask { at_least: 20_000, ..a_client(0) }));
        both.play(&Step::Release(0, Some(0)));
        both.play(&Step::Revoke(Revocation::Now, 0));
        assert_eq!(both.model.history.len(), 1);
    });
}

#[test]
fn a_hold_cools_until_its_minimum_time_is_up() {
    for (more, state) in [(0, State::Cooling), (1, State::Free)] {
        play(|both| {
            both.play(&Step::Ask(Ask { at_least: 20_000, ..shared(0) }));
            both.play(&Step::Pass(19_999 + more));
            both.play(&Step::Release(0, Some(0)));
            assert_eq!(both.model.inspect(both.now).state, state);
        });
        // Another hold is beside it.
        play(|both| {
            both.play(&Step::Ask(shared(1)));
            both.play(&Step::Ask(Ask { at_least: 20_000, ..shared(0) }));
            both.play(&Step::Pass(19_999 + more));
            both.play(&Step::Release(0, Some(0)));
            assert_eq!(both.model.inspect(both.now).holder_count, 2 - more);
        });
    }
}

#[test]
fn a_waiter_keeps_the_lock_for_its_minimum_time() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        both.play(&Step::Ask(Ask { at_least: 1, ..a_client(1) }));
        both.play(&Step::Release(0, Some(0)));
        both.play(&Step::Ask(a_client(1)));
        assert_eq!(both.model.holds[0].keep_until, both.now + 1);
    });
}

#[test]
fn of_two_requests_with_the_same_ticket_the_larger_token_is_the_newer_one() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        let ask = |client| Ask { supersedes: true, arrival: Some(0), ..a_client(client) };
        both.play(&Step::Ask(ask(1)));
        assert_eq!(position(&both.answer(&ask(2), 1, &[])), Some(1));
        let older = both.answer(&ask(1), 2, &[]);
        assert!(matches!(older, Verdict::Answer(Answer::Superseded { .. })), "{older:?}");
    });
}

#[test]
fn a_lock_that_was_reinstated_gets_a_new_generation() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        let seen = both.remembered();
        both.play(&Step::Forget);
        both.answer(&Ask { heartbeat: None, ..a_client(1) }, 1, &seen);
        both.play(&Step::Pass(20_001));
        both.play(&Step::Renew(3, None));
        both.play(&Step::Ask(a_client(2)));
        assert_ne!(both.model.generation, "");
    });
}

#[test]
fn a_reinstated_hold_counts() {
    for ttl in [1_000, 30_000] {
        play(|both| {
            both.play(&Step::Ask(a_client(0)));
            let seen = both.remembered();
            both.play(&Step::Forget);
            both.play(&Step::Ask(Ask { ttl, ..shared(2) }));
            both.play(&Step::Ask(Ask { heartbeat: Some(100), ..a_client(3) }));
            // Nobody is left in the queue.
            both.play(&Step::Pass(2_201));
            both.answer(&a_client(1), 1, &seen);
            assert_eq!(both.model.queue.len(), 1);
        });
    }
}

#[test]
fn a_hold_from_the_future_is_not_restored() {
    play(|both| {
        let future = Some((2 * 24 * 3_600 * 1_000, None));
        let answer = both.answer(&Ask { held: future, ..a_client(0) }, 1, &[]);
        assert!(matches!(answer, Verdict::FenceAhead { .. }), "{answer:?}");
    });
}

#[test]
fn a_ticket_of_several_servers_does_not_concern_a_request_to_one() {
    play(|both| {
        both.server.topology.0.send(&["HSET", &both.key.side("state"), "ticket", "5e15"]);
        let request = a_client(0).request(&both.key, &both.tokens, both.now);
        let granted = Answer::Granted { fence: Fence(START * 1_000), slot: None };
        assert_eq!(both.server.ask(&request, 1, &[], None).unwrap(), Verdict::Answer(granted));
        both.server.topology.0.send(&["FLUSHALL"]);
    });
}

#[test]
fn a_released_hold_stays_released_though_its_mark_is_lost() {
    play(|both| {
        both.play(&Step::Ask(Ask { at_least: 20_000, ..a_client(0) }));
        both.play(&Step::Release(0, Some(0)));
        both.play(&Step::Lose(SideKey::Tombstones));
        both.play(&Step::AskLate(a_client(0)));
        assert_eq!(both.model.inspect(both.now).state, State::Cooling);
    });
}

#[test]
fn a_mark_lasts_until_its_last_millisecond() {
    play(|both| {
        both.play(&Step::LeaveEarly(0));
        // Another mark, so that the key lasts longer.
        both.play(&Step::Pass(1_000));
        both.play(&Step::LeaveEarly(1));
        both.play(&Step::Pass(59_000));
        let answer = both.answer(&a_client(0), 1, &[]);
        assert!(matches!(answer, Verdict::Answer(Answer::Ended(_))), "{answer:?}");
        both.play(&Step::Pass(1));
        assert!(is_granted(&both.answer(&a_client(0), 2, &[])));
    });
}

#[test]
fn a_hold_without_details_is_forgotten() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        let token = both.tokens.present(0);
        let details = format!("details:{}", token.as_str());
        both.server.topology.0.send(&["HDEL", &both.key.side("state"), &details]);
        let reply = both.server.renew(&both.key, &token, None, None).unwrap();
        let forgotten =
            Reason::new(Some(Ending::Forgotten), Some(Duration::ZERO), Operator::default());
        assert_eq!(reply, Renewal::NotHeld(forgotten));
        both.server.topology.0.send(&["FLUSHALL"]);
    });
}

#[test]
fn marks_make_room_for_a_new_one() {
    play(|both| {
        let key = both.key.side("tombstones");
        for number in 0..1_000 {
            let until = (START + 100_000 + number).to_string();
            both.server.topology.0.send(&["ZADD", &key, &until, &format!("mark-{number:04}")]);
        }
        let request = a_client(0).request(&both.key, &both.tokens, both.now);
        both.server.leave(&request).unwrap();
        let words = [b"ZRANGE", key.as_bytes(), b"1", b"-1"];
        let marks = Shim::redis(|redis| redis.call(&words)).unwrap();
        let redis::Value::Array(marks) = marks else { panic!("{marks:?}") };
        let second = redis::Value::BulkString(b"mark-0001".into());
        assert_eq!((marks.len(), &marks[0]), (999, &second));
        both.server.topology.0.send(&["FLUSHALL"]);
    });
}

#[test]
fn a_page_has_each_waiter_once() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        both.play(&Step::Ask(a_client(1)));
        let [state, queue] = ["state", "queue"].map(|name| both.key.side(name));
        let first = format!("details:{}", both.tokens.present(1).as_str());
        let details =
            Shim::redis(|redis| redis.call(&[b"HGET", state.as_bytes(), first.as_bytes()]));
        let Ok(redis::Value::BulkString(details)) = details else { panic!("{details:?}") };
        let details = String::from_utf8(details).unwrap();
        for number in 0..150 {
            let (token, ticket) = (format!("waiter-{number:03}"), (START * 1_001).to_string());
            both.server.topology.0.send(&["ZADD", &queue, &ticket, &token]);
            both.server.topology.0.send(&["HSET", &state, &format!("details:{token}"), &details]);
        }
        assert_eq!(both.server.inspect(&both.key).unwrap().waiters.len(), 151);
        both.server.topology.0.send(&["FLUSHALL"]);
    });
}

#[test]
fn an_expired_hold_of_many_is_in_the_history() {
    play(|both| {
        both.play(&Step::Ask(Ask { ttl: 1_000, ..shared(0) }));
        (1..18).for_each(|client| both.play(&Step::Ask(shared(client))));
        both.play(&Step::Pass(1_001));
        let told = both.server.inspect(&both.key).unwrap();
        assert_eq!((told.history.len(), &told), (1, &both.model.inspect(both.now)));
    });
}
