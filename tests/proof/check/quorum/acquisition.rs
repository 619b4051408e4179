//! One form for all requests that behave the same from now on, so that the checker finds few
//! states: times count from now, and what is only shown is blank.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::check::lock::Number;
use crate::check::shift::Shift;
use crate::check::time::now;
use rlock::rules::quorum::acquisition::{Phase, UNDECIDED};
use rlock::rules::quorum::{Acquisition, LastReply, MemberState};
use rlock::rules::{Answer, Fence, Instant, Proposal, Ticket, View};

/// After this time, a server is old enough for any lease.
pub(super) const OLD: Duration = Duration::from_secs(10);

impl Shift for Acquisition {
    fn shift(&mut self, back: Duration) {
        each_time(self, |time| time.shift(back));
    }
}

fn each_time(it: &mut Acquisition, mut change: impl FnMut(&mut Instant)) {
    change(&mut it.started);
    for run in it.members.0.iter_mut().filter_map(|state| state.run.as_mut()) {
        change(&mut run.since);
    }
    match &mut it.phase {
        Phase::Proposing { since, majority_at } | Phase::Committing { since, majority_at, .. } => {
            change(since);
            majority_at.iter_mut().for_each(change);
        }
        Phase::Pausing { until } | Phase::Resting { until } => change(until),
        Phase::Ended => {}
    }
}

/// Past times become multiples of `tick` ago: less than a tick takes no time.
pub(super) fn whole_ticks(time: &mut Instant, tick: Duration) {
    let age = now().since(*time).as_nanos();
    *time = *time + Duration::from_nanos((age % tick.as_nanos()) as u64);
    *time = (*time).max(now() - OLD);
}

pub(super) fn make_canonical(it: &mut Acquisition, tick: Duration) {
    let (pauses, rests) = match it.phase {
        Phase::Pausing { .. } => (true, false),
        Phase::Resting { .. } | Phase::Ended => (false, true),
        _ => (false, false),
    };
    each_time(it, |time| whole_ticks(time, tick));
    // It does not matter exactly when a short pause ends.
    if let (true, Phase::Pausing { until }) = (pauses, &mut it.phase) {
        *until = (*until).min(now() + Duration::from_millis(10));
    }
    if rests {
        (it.started, it.has_met) = (now(), false);
    }
    let round = it.round;
    (it.round, it.undecided) = (1, UNDECIDED);
    if let Phase::Committing { raises, .. } = &mut it.phase {
        *raises = (*raises).min(1);
    }
    let waits = it.waits;
    for state in &mut it.members.0 {
        state.round = u64::from(state.round == round);
        match &mut state.last_reply {
            LastReply::Proposed(proposal) => {
                proposal.ticket = Ticket(0);
                make_proposal_canonical(proposal, tick);
                if waits {
                    // A waiter depends only on whether the member names any holder.
                    proposal.view.holders.clear();
                    (proposal.view.mode, proposal.view.holder_count) = (None, 0);
                }
            }
            LastReply::Refused(Answer::Busy(view) | Answer::Queued { view, .. }) => {
                view.fence = None;
                make_view_canonical(view);
            }
            _ => {}
        }
    }
}

pub(super) fn each_number(it: &mut Acquisition, change: &mut dyn FnMut(Number, &mut u64)) {
    it.ticket.iter_mut().for_each(|ticket| change(Number::Ticket, &mut ticket.0));
    if let Phase::Committing { held, .. } = &mut it.phase {
        change(Number::Fence, &mut held.0.0);
    }
    for state in &mut it.members.0 {
        state.ticket.iter_mut().for_each(|ticket| change(Number::Ticket, &mut ticket.0));
        match &mut state.last_reply {
            LastReply::Proposed(Proposal { nominated, view, .. }) => {
                let given = nominated.iter_mut().map(|nominated| &mut nominated.fence);
                let fences = given.chain(&mut view.fence);
                fences.for_each(|fence| change(Number::Fence, &mut fence.0));
            }
            LastReply::Granted((fence, _)) => change(Number::Fence, &mut fence.0),
            _ => {}
        }
    }
}

/// Hashes what the request knows of a member, except its number.
pub(super) fn hash_seat(it: &Acquisition, member: usize, hasher: &mut impl Hasher) {
    let MemberState { under_way, last_reply, round, ticket, clock, run } = &it.members.0[member];
    let since = run.as_ref().map(|run| run.since);
    (under_way, last_reply, round, ticket, clock, since).hash(hasher);
}

/// Puts the members into another order. Each gets the ID of its number.
pub(super) fn reorder(it: &mut Acquisition, order: &[usize], id: impl Fn(usize) -> String) {
    it.members.0 = order.iter().map(|&member| it.members.0[member].clone()).collect();
    for (member, state) in it.members.0.iter_mut().enumerate() {
        if let Some(run) = &mut state.run {
            run.id = id(member);
        }
    }
}

/// Keeps what a request may do with a proposal.
pub(super) fn make_proposal_canonical(proposal: &mut Proposal, tick: Duration) {
    let ticks = proposal.sleep.as_nanos().div_ceil(tick.as_nanos()) as u32;
    (proposal.sleep, proposal.position) = (tick * ticks, 0);
    make_view_canonical(&mut proposal.view);
}

/// Keeps what a request may do with a view, but for the last fencing token.
pub(super) fn make_view_canonical(view: &mut View) {
    for holder in &mut view.holders {
        holder.owner.clear();
        let lease = holder.deadline.since(holder.renewed);
        (holder.acquired, holder.renewed) = (view.now, view.now);
        (holder.deadline, holder.fence) = (view.now + lease, Fence(0));
    }
    (view.ttl, view.waiter_count) = (None, 0);
    view.generation.clear();
    view.waiters.clear();
    view.history.clear();
}
