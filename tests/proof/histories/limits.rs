//! Stories of many holds, waiters or entries, and of what other tools have written.

use std::time::Duration;

use redis::FromRedisValue;
use rlock::rules::{
    Ending, Mode, Operator, Outcome, Reason, Record, Release, Renewal, Revocation, State, Token,
};
use rlock::store::{NEVER, Store};

use super::play::{Both, START};
use super::step::{Ask, Step};
use super::stories::{a_client, play};
use crate::scripts::shim::Shim;

/// Plays all of them.
pub(super) fn all() {
    a_hold_without_details_or_with_nothing_else_is_forgotten();
    tombstones_make_room_for_a_new_one();
    a_page_has_each_waiter_once();
    what_another_tool_puts_in_place_of_a_key_does_not_hide_the_reply();
    entries_that_another_tool_adds_to_the_history_make_room_for_others();
    a_full_history_keeps_the_latest_hold_and_those_that_did_not_end_well();
    an_id_of_two_clients_names_neither();
    a_search_for_an_id_that_the_server_answers_in_parts_finds_one_hold_once();
}

/// What a command replies.
fn reply<T: FromRedisValue>(words: &[&str]) -> T {
    let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
    T::from_redis_value(Shim::redis(|redis| redis.call(&words)).unwrap()).unwrap()
}

#[test]
fn a_hold_without_details_or_with_nothing_else_is_forgotten() {
    for since in [Some(Duration::ZERO), None] {
        play(|both| {
            both.play(&Step::Ask(a_client(0)));
            let token = both.tokens.present(0);
            let details = format!("details:{}", token.as_str());
            match since {
                Some(_) => both.send(&["HDEL", &both.key.side("state"), &details]),
                None => both.send(&["DEL", &both.key.side("holds")]),
            }
            let reply = both.server.renew(&both.key, &token, None, NEVER).unwrap();
            let forgotten = Reason::new(Some(Ending::Forgotten), since, Operator::default());
            assert_eq!(reply, Renewal::NotHeld(forgotten));
        });
    }
}

#[test]
fn tombstones_make_room_for_a_new_one() {
    play(|both| {
        let key = both.key.side("tombstones");
        for number in 0..1_000 {
            let until = (START + 100_000 + number).to_string();
            both.send(&["ZADD", &key, &until, &format!("mark-{number:04}")]);
        }
        both.server.release(&both.key, &both.tokens.present(0), Outcome::Lost).unwrap();
        let marks: Vec<String> = reply(&["ZRANGE", &key, "1", "-1"]);
        assert_eq!((marks.len(), &marks[0][..]), (999, "mark-0001"));
        // Those of another tool that last too long make room too.
        for number in 1..1_000 {
            both.send(&["ZADD", &key, "9000000000000000", &format!("mark-{number:04}")]);
        }
        both.server.release(&both.key, &both.tokens.present(1), Outcome::Lost).unwrap();
        let marks: Vec<String> = reply(&["ZRANGE", &key, "0", "-1"]);
        assert!(marks.iter().all(|mark| !mark.starts_with("mark")), "{marks:?}");
    });
}

#[test]
fn a_page_has_each_waiter_once() {
    play(|both| {
        both.play(&Step::Ask(a_client(0)));
        both.play(&Step::Ask(a_client(1)));
        let [state, queue] = ["state", "queue"].map(|name| both.key.side(name));
        let first = format!("details:{}", both.tokens.present(1).as_str());
        let details: String = reply(&["HGET", &state, &first]);
        for number in 0..150 {
            let (token, ticket) = (format!("waiter-{number:03}"), (START * 1_001).to_string());
            both.send(&["ZADD", &queue, &ticket, &token]);
            both.send(&["HSET", &state, &format!("details:{token}"), &details]);
        }
        assert_eq!(both.server.inspect(&both.key).unwrap().waiters.len(), 151);
    });
}

#[test]
fn what_another_tool_puts_in_place_of_a_key_does_not_hide_the_reply() {
    play(|both| {
        let token = both.tokens.present(1);
        [1, 0].iter().for_each(|client| both.play(&Step::Ask(a_client(*client))));
        // The mailbox is that of the waiter.
        let occupied = ["history", "tombstones", "mail"];
        occupied.iter().for_each(|name| both.play(&Step::Occupy(name)));
        let reply = both.server.release(&both.key, &token, Outcome::Exit(0));
        assert_eq!(reply.unwrap(), Release::Released);
        both.send(&["DEL", &both.key.side("tombstones")]);
        let reply = both.server.renew(&both.key, &token, None, NEVER);
        let expired = Reason::new(Some(Ending::Expired), None, Operator::default());
        assert_eq!(reply.unwrap(), Renewal::NotHeld(expired));
    });
}

#[test]
fn entries_that_another_tool_adds_to_the_history_make_room_for_others() {
    play(|both| {
        let history = both.key.side("history");
        both.play(&Step::Ask(a_client(0)));
        (0..40).for_each(|_| both.send(&["RPUSH", &history, "theirs"]));
        both.server.release(&both.key, &both.tokens.present(0), Outcome::Exit(0)).unwrap();
        let kept: Vec<String> = reply(&["LRANGE", &history, "0", "-1"]);
        assert_eq!((kept.len(), &kept[0][..]), (16, "theirs"));
    });
}

#[test]
fn a_full_history_keeps_the_latest_hold_and_those_that_did_not_end_well() {
    play(|both| {
        let hold = |both: &mut Both<'_>, exit| {
            both.play(&Step::Ask(a_client(0)));
            both.play(&Step::Release(0, Outcome::Exit(exit)));
        };
        both.play(&Step::Ask(a_client(0)));
        both.play(&Step::Revoke(Revocation::Now, 0));
        (0..40).for_each(|number| hold(both, u8::from(number % 5 == 3)));
        let items = |both: &Both<'_>, name: &str| -> Vec<String> {
            let items = both.model.history.iter().map(|entry| Record::of(entry).get(name).into());
            items.collect()
        };
        assert_eq!((both.model.history.len(), &items(both, "ended")[0][..]), (16, "revoked"));
        let outcomes = items(both, "outcome");
        let failed = outcomes.iter().filter(|outcome| *outcome == "exit 1");
        assert_eq!((failed.count(), &outcomes[15][..]), (8, "exit 0"));
        (0..16).for_each(|_| hold(both, 1));
        hold(both, 0);
        assert_eq!(items(both, "outcome")[15], "exit 0");
        // Several holds expire at once.
        for client in 0..5 {
            both.play(&Step::Ask(Ask { mode: Mode::Shared, ..a_client(client) }));
        }
        both.play(&Step::Pass(30_001));
        hold(both, 0);
        assert_eq!(items(both, "ended").iter().filter(|ending| *ending == "expired").count(), 5);
    });
}

#[test]
fn an_id_of_two_clients_names_neither() {
    play(|both| {
        let token = both.tokens.present(0);
        let twin: Token = format!("{}-0000-4000-8000-000000000001", token.id()).parse().unwrap();
        for token in [token, twin] {
            let request = a_client(0).request(&both.key, token, &both.tokens, both.now);
            both.ask(&request, None, 1);
        }
        both.play(&Step::Remove(0, Revocation::Now));
        assert_eq!((both.model.holds.len(), both.model.queue.len()), (1, 1));
    });
}

#[test]
fn a_search_for_an_id_that_the_server_answers_in_parts_finds_one_hold_once() {
    play(|both| {
        (0..3).for_each(|client| {
            both.play(&Step::Ask(Ask { mode: Mode::Shared, ..a_client(client) }))
        });
        // Many sort before the details of the holds: the second hold is in two parts.
        let state = both.key.side("state");
        for (prefix, numbers) in [("details:-", 0..499), ("details:z", 499..550)] {
            for number in numbers {
                both.send(&["HSET", &state, &format!("{prefix}{number:03}"), ""]);
            }
        }
        (0..3).for_each(|client| both.play(&Step::Remove(client, Revocation::Graceful)));
        assert_eq!(both.model.inspect(both.now).state, State::Revoked);
    });
}
