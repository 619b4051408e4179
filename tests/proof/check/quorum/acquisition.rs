//! One form for all requests that behave the same from now on, so that the checker finds few
//! states: times count from now, and what is only shown is blank.

use std::time::Duration;

use crate::check::shift::Shift;
use crate::check::time::now;
use rlock::rules::quorum::acquisition::{AttemptPhase, UNDECIDED};
use rlock::rules::quorum::{Acquisition, MemberAnswer, Proposal};
use rlock::rules::{Answer, Fence, Instant, View};

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
        AttemptPhase::Asking { since, majority_at, .. } => {
            change(since);
            majority_at.iter_mut().for_each(change);
        }
        AttemptPhase::Pausing { until } | AttemptPhase::Resting { until } => change(until),
        AttemptPhase::Ended => {}
    }
}

/// Past times become multiples of `tick` ago: less than a tick takes no time.
fn whole_ticks(time: &mut Instant, tick: Duration) {
    let age = now().since(*time).as_nanos();
    *time = *time + Duration::from_nanos((age % tick.as_nanos()) as u64);
    *time = (*time).max(now() - OLD);
}

pub(super) fn make_canonical(it: &mut Acquisition, tick: Duration) {
    each_time(it, |time| whole_ticks(time, tick));
    let round = it.round;
    (it.round, it.undecided) = (1, UNDECIDED);
    if let AttemptPhase::Asking { hold: Some((_, raises)), .. } = &mut it.phase {
        *raises = (*raises).min(1);
    }
    for state in &mut it.members.0 {
        state.round = u64::from(state.round == round);
        match &mut state.last_reply {
            Some(MemberAnswer::Proposed(proposal)) => {
                proposal.position = 0;
                make_view_canonical(&mut proposal.view);
            }
            Some(MemberAnswer::Answer(Answer::Busy(view) | Answer::Queued { view, .. })) => {
                view.fence = None;
                make_view_canonical(view);
            }
            _ => {}
        }
    }
}

/// The fencing tokens that a request knows.
pub(super) fn fences(it: &mut Acquisition) -> impl Iterator<Item = &mut u64> {
    let wanted = match &mut it.phase {
        AttemptPhase::Asking { hold: Some((held, _)), .. } => Some(&mut held.0.0),
        _ => None,
    };
    let replies = it.members.0.iter_mut().flat_map(|state| match &mut state.last_reply {
        Some(MemberAnswer::Proposed(proposal)) => fences_of(proposal).collect(),
        Some(MemberAnswer::Answer(Answer::Granted { fence, .. })) => vec![&mut fence.0],
        _ => Vec::new(),
    });
    wanted.into_iter().chain(replies)
}

pub(super) fn fences_of(proposal: &mut Proposal) -> impl Iterator<Item = &mut u64> {
    let nominated = proposal.nominated.iter_mut().map(|nominated| &mut nominated.fence);
    nominated.chain(&mut proposal.view.fence).map(|fence| &mut fence.0)
}

/// Keeps what a request may do with a view, but for the last fencing token.
fn make_view_canonical(view: &mut View) {
    for holder in &mut view.holders {
        let lease = holder.deadline.since(holder.renewed);
        (holder.acquired, holder.renewed) = (view.now, view.now);
        (holder.deadline, holder.fence) = (view.now + lease, Fence(0));
    }
    (view.ttl, view.unlisted_waiters) = (None, 0);
    view.generation.clear();
}
