//! Replies to one acquisition, and what it asks for next.

use std::time::Duration;

use super::super::*;
use crate::rules::servers::Began;
use crate::rules::{
    Failure, Fence, Holder, Key, Name, Owner, Prefix, ServerTime, State, Token, Ttl,
};

pub(super) const IO_TIMEOUT: Duration = Duration::from_secs(2);

/// An acquisition on three servers, and the outgoing that no server has answered.
pub(super) struct Play {
    pub(super) acquisition: Acquisition,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) step: AttemptStep,
    pub(super) now: Instant,
    /// When the servers were started.
    since: Vec<u64>,
}

impl Play {
    pub(super) fn begin<const N: usize>(waits: bool, since: [u64; N]) -> Self {
        Self::begin_in(Mode::Exclusive, waits, since)
    }

    pub(super) fn begin_in(mode: Mode, waits: bool, since: impl Into<Vec<u64>>) -> Self {
        let since = since.into();
        // A letter is a valid name, whatever the test.
        let name: Name = "L".parse().expect("it is a valid name");
        let key = Key::new(&Prefix::default(), &name);
        let request = Request {
            mode,
            heartbeat: waits.then_some(Duration::from_secs(2)),
            ..Request::plain(key, Token::new([0; 16]), Owner::new([0; 16]), Ttl::from_millis(8_000))
        };
        let now = Instant::at_millis(100_000);
        let mut acquisition = Acquisition::new(&request, since.len(), IO_TIMEOUT, now);
        let (outgoing, step) = acquisition.begin(now);
        Self { acquisition, outgoing, step, now, since }
    }

    /// The parts that the members are asked for.
    pub(super) fn asked(&self) -> Vec<(usize, QuorumOp)> {
        let op = |sent: &Outgoing| match sent.what {
            MemberRequest::Ask(op) => Some((sent.member, op)),
            MemberRequest::Listen(_) => None,
        };
        self.outgoing.iter().filter_map(op).collect()
    }

    pub(super) fn reply(&mut self, member: usize, reply: MemberAnswer) {
        let index = self.outgoing.iter().position(|sent| sent.member == member);
        assert!(index.is_some(), "member {member} was not asked");
        let sent = self.outgoing.remove(index.unwrap_or_default());
        let since = Instant::at_millis(self.since[member]);
        let run = Run { id: member.to_string(), since, began: Began::Started };
        let last_reply = self.acquisition.replied(member, sent.round, reply, Some(run), self.now);
        self.outgoing.extend(last_reply.0);
        self.step = last_reply.1;
    }

    /// Each member replies the same.
    pub(super) fn replies<const N: usize>(
        &mut self,
        members: [usize; N],
        reply: impl Fn() -> MemberAnswer,
    ) {
        for member in members {
            self.reply(member, reply());
        }
    }

    /// Each member that is asked for a position answers, twice.
    pub(super) fn all_reply(&mut self, reply: impl Fn(usize) -> MemberAnswer) {
        for member in (0..self.since.len()).chain(0..self.since.len()) {
            let is_asked = self.outgoing.iter().any(|sent| sent.member == member);
            if is_asked && self.waits() && !self.commits() {
                self.reply(member, reply(member));
            }
        }
    }

    pub(super) fn commits(&self) -> bool {
        self.asked().iter().any(|(_, op)| matches!(op, QuorumOp::Commit(..)))
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self.step, AttemptStep::Wait(_))
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.step, AttemptStep::End(AttemptEnd::Queued { .. }))
    }

    pub(super) fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        let (outgoing, step) = self.acquisition.progress(self.now);
        self.outgoing.extend(outgoing);
        self.step = step;
    }
}

pub(super) fn free() -> View {
    View { unlisted_waiters: 1, ..View::default() }
}

pub(super) fn held_by(id: &str) -> View {
    let holder =
        Holder { id: id.into(), fence: Fence(5), deadline: ServerTime(8_000), ..Holder::default() };
    let (state, mode) = (State::Held, Some(Mode::Exclusive));
    View { state, mode, holders: vec![holder], ..free() }
}

/// The position of a request in a queue, behind nobody.
pub(super) fn place(ticket: u64, view: View) -> Proposal {
    let (sleep, ticket) = (Duration::from_secs(1), Ticket(ticket));
    Proposal { view, position: 1, sleep, ticket, nominated: None, kept_out: false }
}

pub(super) fn proposal(ticket: u64, nominated: Option<u64>, view: View) -> MemberAnswer {
    let nominated = nominated.map(|fence| nomination(fence, 1, &[]));
    MemberAnswer::Proposed(Proposal { nominated, ..place(ticket, view) })
}

pub(super) fn slots(number: u32) -> Mode {
    Mode::Slots(Slot::new(number).unwrap_or(Slot::MIN))
}

pub(super) fn nomination(fence: u64, position: u64, taken: &[u32]) -> Nomination {
    let taken = taken.iter().copied().filter_map(Slot::new).collect();
    Nomination { fence: Fence(fence), position, taken }
}

pub(super) fn nominated(ticket: u64) -> MemberAnswer {
    proposal(ticket, Some(ticket), free())
}

pub(super) fn granted(fence: u64) -> MemberAnswer {
    MemberAnswer::Answer(Answer::Granted { fence: Fence(fence), slot: None })
}

pub(super) fn failed() -> MemberAnswer {
    MemberAnswer::Failed(Failure::interrupted(Delivery::Pending))
}
