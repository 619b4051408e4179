//! Plays one acquisition in each test, reply by reply.

mod play;
mod table;

use std::time::Duration;

use self::play::*;
use super::*;
use crate::rules::model::lock::DAY;
use crate::rules::{Failure, Fence, ServerTime, UserMessage};

#[test]
fn a_free_lock_takes_two_rounds_and_does_not_await_a_silent_server() {
    let mut play = Play::begin(false, [0; 3]);
    assert_eq!(play.asked(), [0, 1, 2].map(|member| (member, QuorumOp::Propose(None))));
    play.reply(0, nominated(11));
    play.reply(1, nominated(12));
    let commit = QuorumOp::Commit(None, (Fence(12), None));
    assert_eq!(play.asked(), [(2, QuorumOp::Propose(None)), (0, commit), (1, commit)]);
    play.replies([0, 1], || granted(12));
    assert_eq!(play.step, AttemptStep::End(AttemptEnd::Granted((Fence(12), None))));
}

#[test]
fn a_request_that_holds_the_lock_keeps_its_hold_and_its_fence() {
    let mut play = Play::begin(true, [0, 99_000, 0]);
    play.replies([0, 1], || granted(12));
    assert_eq!(play.step, AttemptStep::End(AttemptEnd::Granted((Fence(12), None))));
    // The commit that gave the hold has not reached the second member yet.
    let mut play = Play::begin(true, [0; 3]);
    play.reply(0, granted(12));
    play.reply(1, proposal(14, None, free()));
    play.reply(2, failed());
    let commit = QuorumOp::Commit(None, (Fence(12), None));
    assert_eq!(play.asked(), [0, 1, 2].map(|member| (member, commit)));
}

#[test]
fn a_hold_with_a_larger_fence_makes_the_next_one_larger() {
    let mut play = Play::begin(false, [0; 3]);
    play.replies([0, 1], || nominated(10));
    play.reply(0, granted(10));
    play.reply(1, granted(20));
    play.replies([2, 2], failed);
    let leaps =
        |(_, op): &(usize, QuorumOp)| matches!(op, QuorumOp::Commit(None, (Fence(20..276), None)));
    assert!(play.asked().iter().all(leaps), "{:?}", play.outgoing);
}

#[test]
fn each_leap_past_a_larger_fence_is_twice_as_long_as_the_one_before() {
    let mut play = Play::begin(false, [0; 3]);
    play.replies([0, 1, 2], || nominated(10));
    let (mut largest, mut leaps) = (10, Vec::new());
    for _ in 0..3 {
        let asked = play.asked().into_iter().find_map(|(_, op)| match op {
            QuorumOp::Commit(None, (fence, None)) => Some(fence.0),
            _ => None,
        });
        assert!(asked.is_some(), "no member is asked for a hold");
        let asked = asked.unwrap_or_default();
        leaps.push(asked - largest);
        largest = asked + 1_000;
        play.reply(0, granted(asked));
        play.replies([1, 2], || granted(largest));
    }
    assert!((leaps[1] * 2..=leaps[1] * 2 + 1).contains(&leaps[2]), "{leaps:?}");
    assert!(leaps[1] < 256, "{leaps:?}");
}

#[test]
fn a_hold_with_a_smaller_fence_is_given_up_and_asked_for_again() {
    let mut play = Play::begin(false, [0; 3]);
    play.replies([0, 1, 2], || nominated(10));
    play.reply(0, granted(10));
    play.reply(1, granted(8));
    play.reply(2, failed());
    let restated = QuorumOp::Propose(Some(Ticket(10)));
    assert_eq!(play.asked(), [0, 1, 2].map(|member| (member, restated)));
}

#[test]
fn a_fence_that_too_many_refuse_ends_the_request_at_once() {
    let behind = || MemberAnswer::AheadOfClock(Duration::from_millis(DAY), ServerTime(0));
    let mut play = Play::begin(false, [0; 3]);
    play.replies([0, 1, 2], || nominated(10));
    play.reply(0, granted(10));
    play.reply(1, behind());
    assert!(play.waits(), "the third may have a vote: {:?}", play.step);
    play.reply(2, failed());
    assert_eq!(play.step, AttemptStep::End(AttemptEnd::TooFew(1)));
    // Two that do not refuse are a majority.
    let mut play = Play::begin(false, [0; 3]);
    play.replies([0, 1, 2], || nominated(10));
    play.reply(0, behind());
    play.reply(1, granted(10));
    play.reply(2, proposal(10, None, free()));
    let restated = QuorumOp::Propose(Some(Ticket(10)));
    assert_eq!(play.asked(), [0, 1, 2].map(|member| (member, restated)));
}

#[test]
fn a_member_that_has_not_answered_may_show_which_clock_is_wrong() {
    let mut play = Play::begin(false, [0; 5]);
    let far = 2 * DAY * 1_000;
    play.reply(0, proposal(far, Some(far), View { now: ServerTime(2 * DAY), ..free() }));
    play.reply(1, failed());
    play.replies([2, 3], || nominated(10));
    play.reply(0, granted(far));
    play.reply(1, failed());
    play.replies([2, 3], || MemberAnswer::AheadOfClock(Duration::from_millis(DAY), ServerTime(0)));
    assert!(play.waits(), "{:?}", play.step);
}

#[test]
fn a_waiter_restates_the_largest_ticket_of_a_majority() {
    let mut play = Play::begin(true, [0; 3]);
    play.reply(0, proposal(10, None, held_by("a")));
    play.reply(1, proposal(12, None, held_by("a")));
    let restated = QuorumOp::Propose(Some(Ticket(12)));
    assert_eq!(play.asked(), [(2, QuorumOp::Propose(None)), (0, restated), (1, restated)]);
    play.reply(2, proposal(15, None, held_by("a")));
    assert_eq!(play.asked(), [(0, restated), (1, restated), (2, restated)]);
    play.replies([0, 1], || proposal(12, None, held_by("a")));
    assert!(play.is_queued(), "{:?}", play.step);
}

#[test]
fn a_waiter_is_told_the_best_position_that_a_majority_confirms() {
    let mut play = Play::begin(true, [0; 3]);
    let at = |position| MemberAnswer::Proposed(Proposal { position, ..place(12, held_by("a")) });
    for (member, position) in [(0, 3), (1, 1), (2, 2), (0, 3), (1, 1), (2, 2)] {
        if play.waits() {
            play.reply(member, at(position));
        }
    }
    let AttemptStep::End(AttemptEnd::Queued { position, .. }) = play.step else {
        panic!("{:?}", play.step)
    };
    assert_eq!(position, 2);
}

#[test]
fn a_member_that_answers_while_the_waiter_sleeps_learns_the_ticket_at_once() {
    let mut play = Play::begin(true, [0; 3]);
    play.replies([0, 1, 0, 1], || proposal(12, None, held_by("a")));
    assert!(play.is_queued(), "{:?}", play.step);
    let (outgoing, _) = play.acquisition.rest(play.now + IO_TIMEOUT, play.now);
    play.outgoing.extend(outgoing);
    play.reply(2, proposal(15, Some(15), free()));
    let restated = QuorumOp::Propose(Some(Ticket(12)));
    assert_eq!(play.asked(), [(2, restated)]);
}

#[test]
fn messages_from_enough_members_are_enough_to_settle() {
    let mut play = Play::begin(true, [0; 3]);
    play.replies([0, 1, 2, 0, 1], || proposal(12, None, held_by("a")));
    let (outgoing, _) = play.acquisition.rest(play.now + IO_TIMEOUT, play.now);
    play.outgoing = outgoing;
    play.reply(0, MemberAnswer::Heard(Some(nomination(30, 1, &[]))));
    assert!(play.waits(), "one call is not enough");
    play.reply(1, MemberAnswer::Heard(Some(nomination(31, 1, &[]))));
    assert_eq!(play.step, AttemptStep::End(AttemptEnd::Woken));
    (play.outgoing, play.step) = play.acquisition.begin(play.now);
    let commit = QuorumOp::Commit(Some(Ticket(12)), (Fence(31), None));
    assert_eq!(play.asked(), [(0, commit), (1, commit)]);
}

#[test]
fn a_young_server_that_calls_a_request_does_not_end_it_if_enough_others_may_vote() {
    let mut play = Play::begin(false, [99_000, 0, 0]);
    for member in [0, 1, 2, 0, 1, 2] {
        play.reply(member, proposal(12, (member < 2).then_some(12), free()));
    }
    assert!(play.waits(), "another request may give up: {:?}", play.step);
    play.pass(20);
    play.replies([0, 1, 2], || nominated(12));
    assert!(play.asked().contains(&(1, QuorumOp::Commit(Some(Ticket(12)), (Fence(12), None)))));
}

#[test]
fn a_request_awaits_every_member_that_it_needs() {
    let mut play = Play::begin(false, [99_000, 0, 0]);
    for _ in 0..2 {
        play.replies([0, 1], || nominated(12));
        play.pass(20);
    }
    assert_eq!(play.step, AttemptStep::Wait(Instant::at_millis(100_000) + IO_TIMEOUT));
    play.reply(2, nominated(12));
    assert!(play.asked().contains(&(2, QuorumOp::Commit(Some(Ticket(12)), (Fence(12), None)))));
}

#[test]
fn a_silent_minority_is_awaited_only_as_long_again_as_the_majority_took() {
    let mut play = Play::begin(true, [0; 3]);
    play.pass(40);
    play.reply(0, proposal(10, None, free()));
    play.reply(1, nominated(10));
    assert_eq!(play.step, AttemptStep::Wait(play.now + Duration::from_millis(40)));
    play.pass(40);
    let restated = QuorumOp::Propose(Some(Ticket(10)));
    assert_eq!(play.asked()[1..], [(0, restated), (1, restated)]);
}

#[test]
fn requests_that_are_nominated_together_ask_for_different_slots_that_a_majority_has_free() {
    let asked = |proposals: [(u64, &[u32]); 3]| {
        let mut play = Play::begin_in(slots(3), true, [0; 3]);
        for (member, (position, taken)) in proposals.into_iter().enumerate() {
            let nominated = Some(nomination(12, position, taken));
            play.reply(member, MemberAnswer::Proposed(Proposal { nominated, ..place(12, free()) }));
        }
        let commits = play.asked().into_iter().filter_map(|(_, op)| match op {
            QuorumOp::Commit(_, (_, slot)) => slot.map(Slot::get),
            _ => None,
        });
        commits.max()
    };
    assert_eq!(asked([(1, &[]), (1, &[]), (1, &[])]), Some(1));
    assert_eq!(asked([(2, &[]), (2, &[]), (2, &[])]), Some(2));
    // The first two decide, if they can.
    assert_eq!(asked([(1, &[1]), (1, &[2]), (1, &[])]), Some(3));
    assert_eq!(asked([(2, &[1]), (2, &[2]), (2, &[])]), Some(2));
    // One of two that are nominated together has its hold already on the first.
    assert_eq!(asked([(1, &[1]), (2, &[]), (2, &[])]), Some(2));
    assert_eq!(asked([(1, &[1, 2]), (1, &[2, 3]), (1, &[2, 3])]), Some(1));
    assert_eq!(asked([(1, &[1, 2]), (1, &[2, 3]), (1, &[1, 3])]), None);
    assert_eq!(asked([(3, &[1]), (3, &[1]), (3, &[1])]), None);
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn told(messages: Vec<(usize, UserMessage)>) -> Vec<String> {
    messages.into_iter().map(|(number, message)| format!("{number} {message}")).collect()
}

#[test]
fn a_warning_names_the_clock_that_is_wrong_and_by_how_much() {
    let days_ahead = |days: u64, more: u64| {
        let number = (days * DAY + more) * 1_000;
        proposal(number, Some(number), View { now: ServerTime(days * DAY), ..free() })
    };
    let of = |replies: [MemberAnswer; 3], has_failed| {
        let mut play = Play::begin(true, [0; 3]);
        for (member, reply) in replies.into_iter().enumerate() {
            play.reply(member, reply);
        }
        told(play.acquisition.wrong_clocks(NAMES.into_iter(), has_failed))
    };
    let ahead = ["2 clock of c is 2d ahead of other servers; correct the clock"];
    assert_eq!(of([nominated(10), nominated(10), days_ahead(2, 0)], false), ahead);
    // A day is not too much.
    assert!(of([nominated(10), nominated(10), days_ahead(1, 0)], false).is_empty());
    assert!(of([nominated(10), failed(), days_ahead(2, 0)], false).is_empty());
    assert_eq!(of([nominated(10), failed(), days_ahead(2, 0)], true), ahead);
    let behind = || MemberAnswer::AheadOfClock(Duration::from_millis(2 * DAY), ServerTime(0));
    let told = ["1 clock of b is 2d behind a fencing token; correct the clock"];
    assert_eq!(of([nominated(10), behind(), nominated(10)], false), told);
    assert_eq!(of([nominated(10), behind(), days_ahead(2, 0)], false), ahead);
}

#[test]
fn a_warning_names_the_servers_that_are_too_young() {
    let mut play = Play::begin(true, [99_000, 92_000, 99_000]);
    for member in [0, 1, 2, 0, 1, 2] {
        play.reply(member, proposal(12, (member < 2).then_some(12), free()));
    }
    let young = told(play.acquisition.too_young(NAMES.into_iter(), play.now));
    let told = "0 a started 1s ago and may have forgotten a lease of 8s; try again in 7s";
    assert_eq!(young, [told]);
}

/// For example a holder of the enclosing command, which the request may join.
#[test]
fn a_member_that_has_not_answered_again_does_not_keep_a_request_out() {
    let mut play = Play::begin(false, [99_000; 3]);
    for member in [0, 1, 2, 0, 1] {
        play.reply(member, proposal(12, Some(12), held_by("a")));
    }
    play.pass(2_000);
    assert!(matches!(play.step, AttemptStep::End(AttemptEnd::TooFew(0))), "{:?}", play.step);
}

#[test]
fn a_request_with_n_joins_only_holders_of_its_mode_that_leave_a_slot() {
    for (asked, held, is_busy) in [
        (slots(2), slots(2), false),
        (slots(1), slots(1), true),
        (slots(2), slots(3), true),
        (slots(2), Mode::Shared, true),
        (Mode::Shared, Mode::Shared, false),
        (Mode::Exclusive, Mode::Shared, true),
    ] {
        let mut view = View { mode: Some(held), ..held_by("a") };
        view.holders[0].mode = held;
        let mut play = Play::begin_in(asked, false, [0; 3]);
        for member in [0, 1, 2, 0, 1] {
            if !matches!(play.step, AttemptStep::End(_)) {
                play.reply(member, proposal(12, None, view.clone()));
            }
        }
        let has_ended = matches!(play.step, AttemptStep::End(AttemptEnd::Refused(_)));
        assert_eq!(has_ended, is_busy, "{asked:?} beside {held:?}: {:?}", play.step);
    }
}

#[test]
fn a_request_may_be_known_once_a_server_may_have_received_it() {
    let unsent = || MemberAnswer::Failed(Failure::interrupted(Delivery::NotExecuted));
    let mut play = Play::begin(true, [0; 3]);
    assert!(play.acquisition.may_be_known());
    play.replies([0, 1], unsent);
    assert!(play.acquisition.may_be_known());
    play.reply(2, unsent());
    assert!(!play.acquisition.may_be_known());
    let mut play = Play::begin(true, [0; 3]);
    play.replies([0, 1], unsent);
    play.reply(2, nominated(12));
    assert!(play.acquisition.may_be_known());
}
