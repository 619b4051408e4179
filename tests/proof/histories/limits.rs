//! Stories of many holds, waiters or entries, and of what other tools have written.

use std::num::NonZeroU32;
use std::time::Duration;

use redis::Value;
use rlock::rules::{
    Answer, Ending, Fence, HistoryEntry, Mode, Outcome, Revocation, ServerTime, Slot, State,
    Verdict,
};
use rlock::store::Store;

use super::play::{Both, START};
use super::step::{Ask, Step};
use super::stories::{a_client, is_granted, play};
use crate::scripts::shim::{Server, Shim};

/// Plays all of them.
pub(super) fn all() {
    many_dead_waiters_are_dropped_by_several_calls();
    a_slot_is_freed_though_its_client_leaves_before_the_expired_hold_is_dropped();
    a_reminder_with_a_whole_token_reinstates_nothing();
    a_fence_that_is_no_number_or_far_ahead_is_not_continued();
    entries_that_another_tool_adds_to_the_history_make_room_for_others();
    a_full_history_keeps_the_latest_hold_and_those_that_did_not_end_well();
    the_fence_grows_after_many_quick_grants_and_a_loss_of_data();
    a_search_for_an_id_that_the_server_answers_in_parts_finds_one_hold_once();
}

#[test]
fn many_dead_waiters_are_dropped_by_several_calls() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        for client in 1..6 {
            both.play(&Step::Ask(Ask { heartbeat: Some(100), ..a_client(client) }));
        }
        both.play(&Step::Ask(a_client(6)));
        both.play(&Step::Pass(2_201));
        both.woken.clear();
        both.play(&Step::Remove(0, Revocation::Graceful));
        // The next one, which is dead too, is to continue.
        assert_eq!(both.woken, [both.tokens.present(4).as_str()]);
        both.play(&Step::Renew(0, None));
        let queued: Vec<_> = both.model.queue.iter().map(|waiter| waiter.token.as_str()).collect();
        assert_eq!(queued, [both.tokens.present(6).as_str()]);
    });
}

#[test]
fn a_slot_is_freed_though_its_client_leaves_before_the_expired_hold_is_dropped() {
    play(|both| {
        let slot =
            |client: u8| Ask { mode: Mode::Slots(NonZeroU32::new(5).unwrap()), ..a_client(client) };
        (0..4).for_each(|client| both.play(&Step::Ask(Ask { ttl: 1_000, ..slot(client) })));
        both.play(&Step::Ask(slot(4)));
        both.play(&Step::Pass(2_000));
        // One call drops three holds. The fourth is that of the client that leaves.
        both.play(&Step::Leave(3));
        (5..9).for_each(|client| both.play(&Step::Ask(slot(client))));
        let mut slots: Vec<_> =
            both.model.inspect(both.now).holders.into_iter().map(|holder| holder.slot).collect();
        slots.sort();
        assert_eq!(slots, [1, 2, 3, 4, 5].map(Slot::new));
    });
}

#[test]
fn a_reminder_with_a_whole_token_reinstates_nothing() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        both.play(&Step::Ask(a_client(1)));
        let mut seen = both.remembered();
        both.play(&Step::Forget);
        seen[0].holder.id = both.tokens.present(0).as_str().to_owned();
        assert!(is_granted(&both.answer(&a_client(1), 2, &seen)));
    });
}

#[test]
fn a_fence_that_is_no_number_or_far_ahead_is_not_continued() {
    play(|both| {
        let state = both.key.side("state");
        for (damage, next) in [("x", START * 1_000), ("-7", START * 1_000), ("0", START * 1_000)] {
            both.server.topology.0.send(&["FLUSHALL"]);
            both.server.topology.0.send(&["HSET", &state, "fence", damage]);
            let request = a_client(0).request(&both.key, &both.tokens, both.now);
            let answer = both.server.ask(&request, 1, &[], None).unwrap();
            let granted = Answer::Granted { fence: Fence(next), slot: None };
            assert_eq!(answer, Verdict::Answer(granted), "{damage}");
        }
        for (damage, millis) in [("1e300", (1 << 53) / 1_000 - START), ("5e15", 1_000_000_000_000)]
        {
            both.server.topology.0.send(&["FLUSHALL"]);
            both.server.topology.0.send(&["HSET", &state, "fence", damage]);
            let request = a_client(1).request(&both.key, &both.tokens, both.now);
            let answer = both.server.ask(&request, 1, &[], None).unwrap();
            let ahead = Duration::from_millis(millis);
            let now = ServerTime(both.now);
            assert_eq!(answer, Verdict::FenceAhead { ahead, now }, "{damage}");
        }
        both.server.topology.0.send(&["FLUSHALL"]);
    });
}

#[test]
fn entries_that_another_tool_adds_to_the_history_make_room_for_others() {
    play(|both| {
        let history = both.key.side("history");
        both.play(&Step::Ask(a_client(0)));
        for _ in 0..40 {
            both.server.topology.0.send(&["RPUSH", &history, "theirs"]);
        }
        let token = both.tokens.present(0);
        both.server.release(&both.key, &token, Outcome::Exit(0)).unwrap();
        let kept = Shim::redis(|redis| redis.call(&[b"LRANGE", history.as_bytes(), b"0", b"-1"]));
        let Ok(Value::Array(kept)) = kept else { panic!("{kept:?}") };
        assert_eq!((kept.len(), &kept[0]), (16, &Value::BulkString(b"theirs".into())));
        both.server.topology.0.send(&["FLUSHALL"]);
    });
}

#[test]
fn a_full_history_keeps_the_latest_hold_and_those_that_did_not_end_well() {
    play(|both| {
        let hold = |both: &mut Both<'_>, exit| {
            both.play(&Step::Ask(a_client(0)));
            both.play(&Step::Release(0, Some(exit)));
        };
        both.play(&Step::Ask(a_client(0)));
        both.play(&Step::Revoke(Revocation::Now, 0));
        for number in 0..40 {
            hold(both, u8::from(number % 5 == 3));
        }
        let (last, older) = both.model.history.split_last().unwrap();
        assert_eq!((older.len(), older[0].ending), (15, Ending::Revoked));
        let failed = |past: &&HistoryEntry| past.outcome == Outcome::Exit(1);
        assert_eq!((older.iter().filter(failed).count(), last.outcome), (8, Outcome::Exit(0)));
        for _ in 0..16 {
            hold(both, 1);
        }
        hold(both, 0);
        assert_eq!(both.model.history[15].outcome, Outcome::Exit(0));
        // Several holds expire at once.
        for client in 0..5 {
            both.play(&Step::Ask(Ask { mode: Mode::Shared, ..a_client(client) }));
        }
        both.play(&Step::Pass(30_001));
        hold(both, 0);
        assert_eq!(both.model.history.iter().filter(|it| it.ending == Ending::Expired).count(), 5);
    });
}

#[test]
fn the_fence_grows_after_many_quick_grants_and_a_loss_of_data() {
    play(|both| {
        let mut last = 0;
        for _ in 0..300 {
            assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
            last = both.model.fence;
            both.play(&Step::Release(0, None));
        }
        both.play(&Step::Forget);
        both.play(&Step::Pass(1));
        assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
        assert!(both.model.fence > last);
    });
}

#[test]
fn a_search_for_an_id_that_the_server_answers_in_parts_finds_one_hold_once() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        // They sort before the details of the hold, so that it ends one part and begins the next.
        let state = both.key.side("state");
        for number in 0..550 {
            let field = format!("details:A{number:03}");
            both.server.topology.0.send(&["HSET", &state, &field, ""]);
        }
        for field in (499..550).map(|number| format!("details:A{number:03}")) {
            both.server.topology.0.send(&["HDEL", &state, &field]);
            both.server.topology.0.send(&["HSET", &state, &format!("details:z{field}"), ""]);
        }
        both.play(&Step::Remove(0, Revocation::Graceful));
        assert_eq!(both.model.inspect(both.now).state, State::Revoked);
    });
}
