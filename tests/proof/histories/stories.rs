//! Fixed stories, played on a server and in the model.

use std::num::NonZeroU32;
use std::time::Duration;

use super::play::Both;
use super::step::{Ask, Step, plain_ask};
use crate::scripts::shim::Shim;
use rlock::rules::{Answer, Kind, Mode, Revocation, Seen, Slot, State, Verdict};

/// Plays all of them.
pub(super) fn all() {
    a_client_that_is_turned_away_counts_once_until_the_next_hold_begins();
    freeing_the_lock_of_another_tool_ends_every_hold_that_its_key_has_voided();
    a_late_duplicate_does_not_end_the_senders_revoked_hold();
    a_request_that_arrives_after_it_was_given_up_or_released_is_rejected();
    a_release_ends_what_a_late_copy_of_its_request_queued_after_the_lease_had_expired();
    a_holder_that_a_waiter_has_seen_excludes_others_after_the_server_loses_its_data();
    a_late_duplicate_does_not_revive_a_hold_that_was_revoked_at_once();
    a_late_duplicate_does_not_revive_a_hold_of_two_seconds_that_was_revoked_at_once();
    a_waiter_whose_unclaimed_grant_is_revoked_at_once_keeps_waiting();
    a_waiter_learns_of_the_holders_whose_leases_last_longest();
    a_reinstated_holder_shows_its_number_and_does_not_free_that_of_another_one();
    a_shared_hold_that_outlasts_the_exclusive_one_around_it_shares_the_lock();
    a_released_hold_is_not_reinstated();
    a_hold_that_is_cooling_can_be_removed();
    a_renewal_under_exec_never_shortens_the_lease();
    a_duplicate_that_arrives_after_the_grant_does_not_consume_the_wake_up();
    only_a_waiter_that_becomes_the_head_is_woken();
}

const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

pub(super) fn play(story: impl FnOnce(&mut Both<'_>)) {
    story(&mut Both::new(&mut Shim::store(0)));
}

impl Both<'_> {
    /// The answer to a client, from both.
    pub(super) fn answer(&mut self, ask: &Ask, attempt: u64, seen: &[Seen]) -> Verdict {
        let request = ask.request(&self.key.clone(), &self.tokens, self.now);
        let verdict = self.ask(&request, attempt, seen);
        self.compare();
        verdict
    }

    pub(super) fn remembered(&mut self) -> Vec<Seen> {
        let view = self.model.inspect(self.now);
        let left = Duration::from_secs(20);
        let seen = |holder| Seen { holder, left, generation: view.generation.clone() };
        view.holders.into_iter().map(seen).collect()
    }
}

pub(super) fn a_client(client: u8) -> Ask {
    Ask { client, ttl: 30_000, heartbeat: Some(10_000), ..plain_ask() }
}

/// Whether a message waits for a client.
fn has_mail() -> bool {
    let is_mailbox = |key: &Vec<u8>| str::from_utf8(key).unwrap().contains("?mail:");
    Shim::redis(|redis| redis.home().keys().any(is_mailbox))
}

fn plain_ask_of(client: u8) -> Ask {
    Ask { client, ..plain_ask() }
}

pub(super) fn is_granted(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Answer(Answer::Granted { .. }))
}

pub(super) fn position(verdict: &Verdict) -> Option<u64> {
    match verdict {
        Verdict::Answer(Answer::Queued { position, .. }) => Some(*position),
        _ => None,
    }
}

#[test]
fn a_client_that_is_turned_away_counts_once_until_the_next_hold_begins() {
    play(|both| {
        let count = |both: &Both<'_>| both.model.inspect(both.now).skipped.map_or(0, |it| it.count);
        both.play(&Step::Ask(a_client(0)));
        both.play(&Step::Ask(plain_ask_of(1)));
        // Its reply was lost.
        both.play(&Step::Ask(plain_ask_of(1)));
        both.play(&Step::Ask(a_client(2)));
        both.play(&Step::GiveUp(2));
        both.play(&Step::LeaveLate(2));
        both.play(&Step::Ask(a_client(3)));
        both.play(&Step::Leave(3));
        both.play(&Step::Release(0, Some(0)));
        assert_eq!(count(both), 2);
        both.play(&Step::Ask(a_client(0)));
        assert_eq!(count(both), 0);
        // A lock that another tool holds is busy too.
        both.play(&Step::Write(None));
        both.play(&Step::Ask(plain_ask_of(4)));
        assert_eq!(count(both), 1);
    });
}

#[test]
fn freeing_the_lock_of_another_tool_ends_every_hold_that_its_key_has_voided() {
    play(|both| {
        let shared = |client| Step::Ask(Ask { mode: Mode::Shared, ..a_client(client) });
        both.play(&shared(0));
        both.play(&shared(1));
        both.play(&Step::Write(None));
        // The operator has not seen the second hold.
        both.play(&Step::Revoke(Revocation::Now, 1));
        both.play(&shared(1));
        assert!(both.model.holds.is_empty(), "{:?}", both.model);
    });
}

#[test]
fn a_late_duplicate_does_not_end_the_senders_revoked_hold() {
    play(|both| {
        let (first, second) = (a_client(0), a_client(1));
        assert!(is_granted(&both.answer(&first, 2, &[])));
        both.play(&Step::Revoke(Revocation::Graceful, 0));
        assert_eq!(both.answer(&first, 1, &[]), Verdict::Again);
        assert_eq!(position(&both.answer(&second, 1, &[])), Some(1));
        // When it asks again, it has lost its turn.
        assert_eq!(position(&both.answer(&first, 3, &[])), Some(1));
        assert!(is_granted(&both.answer(&second, 2, &[])));
    });
}

#[test]
fn a_request_that_arrives_after_it_was_given_up_or_released_is_rejected() {
    play(|both| {
        let over = |verdict| matches!(verdict, Verdict::Answer(Answer::Ended(_)));
        both.play(&Step::LeaveEarly(0));
        assert!(over(both.answer(&a_client(0), 1, &[])));
        let shared = Ask { mode: Mode::Shared, at_least: 60_000, ..a_client(1) };
        assert!(is_granted(&both.answer(&shared, 1, &[])));
        both.play(&Step::Release(1, Some(0)));
        let late = Step::AskLate(shared);
        both.play(&late);
        assert_eq!(both.model.inspect(both.now).holder_count, 1);
        both.play(&Step::Pass(59_000));
        both.play(&late);
        both.play(&Step::Pass(1_001));
        assert_eq!(both.model.inspect(both.now).state, State::Free);
    });
}

#[test]
fn a_release_ends_what_a_late_copy_of_its_request_queued_after_the_lease_had_expired() {
    play(|both| {
        assert!(is_granted(&both.answer(&a_client(0), 2, &[])));
        both.play(&Step::Pass(30_001));
        assert!(is_granted(&both.answer(&a_client(1), 1, &[])));
        assert_eq!(position(&both.answer(&a_client(0), 1, &[])), Some(1));
        assert_eq!(position(&both.answer(&a_client(2), 1, &[])), Some(2));
        both.play(&Step::Release(0, Some(0)));
        // Nobody waits for the dead entry: the next one holds the lock.
        both.play(&Step::Release(1, Some(0)));
        assert!(is_granted(&both.answer(&a_client(2), 2, &[])));
    });
}

#[test]
fn a_holder_that_a_waiter_has_seen_excludes_others_after_the_server_loses_its_data() {
    play(|both| {
        let shared = |client| Ask { mode: Mode::Shared, ..a_client(client) };
        assert!(is_granted(&both.answer(&shared(0), 1, &[])));
        assert_eq!(position(&both.answer(&a_client(1), 1, &[])), Some(1));
        let seen = both.remembered();
        both.play(&Step::Forget);
        assert!(is_granted(&both.answer(&shared(2), 1, &[])));
        assert_eq!(position(&both.answer(&a_client(1), 2, &seen)), Some(1));
        both.play(&Step::Leave(1));
        // The reinstated hold also excludes others.
        assert_eq!(position(&both.answer(&shared(3), 1, &[])), Some(1));
        // Another reminder does not extend it.
        both.play(&Step::Pass(15_000));
        let answer = both.answer(&shared(3), 2, &seen);
        assert_eq!(position(&answer), Some(1), "{answer:?}");
        both.play(&Step::Release(2, Some(0)));
        both.play(&Step::Pass(5_001));
        assert!(is_granted(&both.answer(&shared(3), 3, &seen)));
    });
}

#[test]
fn a_late_duplicate_does_not_revive_a_hold_that_was_revoked_at_once() {
    play(|both| {
        assert!(is_granted(&both.answer(&a_client(0), 2, &[])));
        both.play(&Step::Revoke(Revocation::Now, 0));
        let late = both.answer(&a_client(0), 1, &[]);
        assert!(matches!(late, Verdict::Answer(Answer::Ended(_))), "{late:?}");
        assert!(is_granted(&both.answer(&a_client(1), 1, &[])));
    });
}

/// The lease is as long as the time that a waiter has to claim its grant.
#[test]
fn a_late_duplicate_does_not_revive_a_hold_of_two_seconds_that_was_revoked_at_once() {
    play(|both| {
        let brief = Ask { ttl: 2_000, ..a_client(0) };
        assert!(is_granted(&both.answer(&brief, 2, &[])));
        assert!(is_granted(&both.answer(&brief, 1, &[])));
        both.play(&Step::Revoke(Revocation::Now, 0));
        let late = both.answer(&brief, 1, &[]);
        assert!(matches!(late, Verdict::Answer(Answer::Ended(_))), "{late:?}");
    });
}

#[test]
fn a_waiter_whose_unclaimed_grant_is_revoked_at_once_keeps_waiting() {
    play(|both| {
        assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
        for client in [1, 2] {
            assert_eq!(position(&both.answer(&a_client(client), 1, &[])), Some(client.into()));
        }
        both.play(&Step::Release(0, None));
        // A duplicate does not claim the grant.
        assert_eq!(both.answer(&a_client(1), 1, &[]), Verdict::Again);
        both.play(&Step::Revoke(Revocation::Now, 0));
        assert_eq!(position(&both.answer(&a_client(1), 2, &[])), Some(1));
        assert!(is_granted(&both.answer(&a_client(2), 2, &[])));
    });
}

#[test]
fn a_waiter_learns_of_the_holders_whose_leases_last_longest() {
    play(|both| {
        for (client, ttl) in [(0, 2_000), (1, 60_000), (2, 1_000), (3, 3_000), (4, 4_000)] {
            let shared = Ask { mode: Mode::Shared, ttl, ..a_client(client) };
            assert!(is_granted(&both.answer(&shared, 1, &[])));
        }
        let waiting = both.answer(&a_client(5), 1, &[]);
        let Verdict::Answer(Answer::Queued { view, .. }) = waiting else { panic!() };
        let listed: Vec<String> = view.holders.into_iter().map(|holder| holder.id).collect();
        let ids = [3, 4, 1].map(|client| both.tokens.present(client).id());
        assert_eq!((view.holder_count, listed), (5, ids.into()));
    });
}

#[test]
fn a_reinstated_holder_shows_its_number_and_does_not_free_that_of_another_one() {
    play(|both| {
        let slot = |client| Ask { mode: Mode::Slots(TWO), ttl: 60_000, ..a_client(client) };
        let shown = |both: &Both<'_>| -> Vec<_> {
            both.model.inspect(both.now).holders.into_iter().map(|holder| holder.slot).collect()
        };
        assert!(is_granted(&both.answer(&slot(0), 1, &[])));
        assert_eq!(position(&both.answer(&a_client(1), 1, &[])), Some(1));
        let seen = both.remembered();
        both.play(&Step::Forget);
        assert!(is_granted(&both.answer(&slot(2), 1, &[])));
        assert_eq!(position(&both.answer(&a_client(1), 2, &seen)), Some(1));
        assert_eq!(shown(both), [Slot::new(1); 2]);
        both.play(&Step::Leave(1));
        both.play(&Step::Pass(20_001));
        assert!(is_granted(&both.answer(&slot(3), 1, &[])));
        assert_eq!(shown(both), [Slot::new(1), Slot::new(2)]);
    });
}

#[test]
fn a_slot_that_a_waiter_gets_first_is_not_restored_to_another_holder() {
    play(|both| {
        let slot = |client| Ask { mode: Mode::Slots(TWO), ..a_client(client) };
        both.play(&Step::Ask(Ask { held: Some((-216, None)), ticket: Some(None), ..a_client(5) }));
        both.play(&Step::Ask(Ask { next: true, ..slot(1) }));
        both.play(&Step::GiveUp(5));
        // The waiter is admitted before the slot is restored.
        both.play(&Step::Ask(Ask { held: Some((-1252, Slot::new(1))), ..slot(0) }));
        let holders = both.model.inspect(both.now).holders;
        let numbers: Vec<_> = holders.into_iter().map(|holder| holder.slot).collect();
        assert_eq!(numbers, [Slot::new(1)]);
    });
}

#[test]
fn a_shared_hold_that_outlasts_the_exclusive_one_around_it_shares_the_lock() {
    play(|both| {
        let owned = |ask| Ask { owner: Some(0), reentrant: true, ..ask };
        both.play(&Step::Ask(owned(Ask { ttl: 1_000, ..a_client(0) })));
        both.play(&Step::Ask(owned(Ask { mode: Mode::Shared, ..a_client(1) })));
        both.play(&Step::Pass(1_001));
        both.play(&Step::Renew(1, None));
        let other = Ask { mode: Mode::Shared, ..a_client(2) };
        assert!(is_granted(&both.answer(&other, 1, &[])));
    });
}

#[test]
fn a_hold_that_is_cooling_can_be_removed() {
    play(|both| {
        both.play(&Step::Ask(Ask { at_least: 20_000, ..a_client(0) }));
        both.play(&Step::Release(0, Some(0)));
        assert_eq!(both.model.inspect(both.now).state, State::Cooling);
        both.play(&Step::Remove(0, Revocation::Graceful));
        assert_eq!(both.model.inspect(both.now).state, State::Free);
    });
}

#[test]
fn a_released_hold_is_not_reinstated() {
    play(|both| {
        assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
        assert_eq!(position(&both.answer(&a_client(1), 1, &[])), Some(1));
        let seen = both.remembered();
        both.play(&Step::Leave(1));
        both.play(&Step::Release(0, Some(0)));
        assert!(is_granted(&both.answer(&a_client(2), 1, &seen)));
        assert_eq!(both.model.inspect(both.now).holder_count, 1);
    });
}

#[test]
fn a_renewal_under_exec_never_shortens_the_lease() {
    play(|both| {
        let left = |both: &Both<'_>| both.model.inspect(both.now).ttl.unwrap().as_millis();
        assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
        both.play(&Step::Renew(0, Some(1_000)));
        assert_eq!(left(both), 30_000);
        both.play(&Step::Renew(0, Some(60_000)));
        both.play(&Step::Pass(50_000));
        both.play(&Step::Renew(0, None));
        assert_eq!(left(both), 60_000);
        both.play(&Step::Release(0, None));
        let script = Ask { kind: Kind::Acquire, ..a_client(0) };
        assert!(is_granted(&both.answer(&script, 1, &[])));
        both.play(&Step::Renew(0, Some(1_000)));
        assert_eq!(left(both), 1_000);
    });
}

#[test]
fn a_duplicate_that_arrives_after_the_grant_does_not_consume_the_wake_up() {
    play(|both| {
        assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
        assert_eq!(position(&both.answer(&a_client(1), 1, &[])), Some(1));
        both.play(&Step::Release(0, None));
        for (attempt, left) in [(1, true), (2, false)] {
            let answer = both.answer(&a_client(1), attempt, &[]);
            assert_eq!(is_granted(&answer), !left, "{answer:?}");
            assert_eq!(has_mail(), left, "{attempt}");
        }
    });
}

#[test]
fn only_a_waiter_that_becomes_the_head_is_woken() {
    play(|both| {
        assert!(is_granted(&both.answer(&a_client(0), 1, &[])));
        for client in 1..4 {
            assert_eq!(position(&both.answer(&a_client(client), 1, &[])), Some(client.into()));
        }
        let token = |both: &Both<'_>, client| both.tokens.present(client).as_str().to_owned();
        let second = token(both, 2);
        let woken = |both: &mut Both<'_>| std::mem::take(&mut both.woken);
        assert_eq!(woken(both), [""; 0]);
        both.play(&Step::Leave(1));
        assert_eq!(woken(both), std::slice::from_ref(&second));
        // The message to the new holder is the last one.
        both.play(&Step::Release(0, None));
        assert_eq!(woken(both), [token(both, 3), second]);
    });
}
