//! One fencing token for a grant that several servers made.
//!
//! Redlock has no fencing token: its random value tells holds apart but does not order them. Here a
//! majority agrees on the largest token that any of them gave. The next grant needs a majority too,
//! so it meets at least one server that has this token, which then gives a larger one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Quorum;
use super::decision::describe;
use super::jitter::jitter;
use super::members::{Delivery, MemberStore, skip_if_busy};
use crate::lock::Fence;
use crate::report::Fault;
use crate::store::waiting::pause;
use crate::store::{Answer, Failure, Interrupt, Request, Store};
use crate::system::back_off::BackOff;
use crate::system::clock::Instant;

/// The pause between two rounds if too few members answered.
const BETWEEN_ROUNDS: BackOff = BackOff::new(Duration::from_millis(10), Duration::from_millis(200));

/// How far the first round may leap past a larger token, and how far any round may.
const FIRST_LEAP: f64 = 256.0;
const LARGEST_LEAP: f64 = 4096.0;

/// Some JSON readers cannot represent larger numbers exactly, and no clock reaches this number of
/// microseconds before the year 2255.
const TOO_LARGE: Fence = Fence(1 << 53);

impl Quorum {
    /// Gives the hold the same fencing token on a majority: the largest that a member gave it.
    ///
    /// A member that has meanwhile given a larger one to another hold answers with an even larger
    /// one. Several clients may then be outbidding each other, so each leaps ahead by a
    /// random number. If a member does not answer, a leap would not help.
    pub(super) fn agree_on_fence(
        &mut self,
        request: &Request,
        mut fences: BTreeMap<usize, Fence>,
        interrupt: Interrupt<'_>,
    ) -> Result<Fence, Failure> {
        let (majority, until) = (self.majority(), Instant::now() + self.io_timeout);
        let (mut leap, mut back_off) = (FIRST_LEAP, BETWEEN_ROUNDS);
        let mut fence = fences.values().max().copied().unwrap_or(Fence(0));
        loop {
            let have = fences.values().filter(|theirs| **theirs == fence).count();
            if have >= majority {
                return Ok(fence);
            }
            if Instant::now() >= until {
                break;
            }
            let request = Request { fence: Some(fence), heartbeat: None, ..request.clone() };
            let has = move |answer: &Answer| *answer == Answer::Granted { fence };
            let votes = self.ask(
                // Also ask the members whose first answer came too late to count.
                |number, member| match fences.get(&number) {
                    Some(theirs) if *theirs == fence => Delivery::Skip,
                    _ => skip_if_busy(number, member),
                },
                move |store, withdrawal| acquire(store, &request, withdrawal),
                |votes| have + votes.count(has) >= majority,
                |answer| format!("settling the fencing token: {}", describe(answer)),
                interrupt,
            )?;
            for (number, vote) in votes.votes.iter().enumerate().filter(|(n, _)| votes.asked[*n]) {
                match vote {
                    Some(Ok(Answer::Granted { fence })) => fences.insert(number, *fence),
                    _ => fences.remove(&number),
                };
            }
            match fences.values().max() {
                Some(larger) if *larger > fence => {
                    fence = Fence(larger.0 + (leap * jitter()) as u64);
                    leap = (leap * 2.0).min(LARGEST_LEAP);
                }
                _ if fences.values().filter(|theirs| **theirs == fence).count() >= majority => {}
                _ => pause(back_off.pause().mul_f64(jitter()), interrupt)?,
            }
        }
        let what = format!("{majority} servers did not agree on a fencing token in time");
        Err(Failure::Unavailable(Fault::new(what).with_remedy("try again")))
    }
}

/// Asks one member for the lock. A fencing token that neither a clock nor counting can have reached
/// shows damaged data, so the grant is undone and rejected.
pub(super) fn acquire(
    store: &mut MemberStore,
    request: &Request,
    withdrawal: Interrupt<'_>,
) -> Result<Answer, Failure> {
    match store.acquire(request, &[], withdrawal)? {
        Answer::Granted { fence } if fence >= TOO_LARGE => {
            store.leave(request)?;
            let server = store.endpoint();
            let fault = Fault::new(format!("fencing token {fence} on {server} exceeds 2^53"));
            let remedy = "when the lock is free, delete its keys there";
            Err(Failure::misconfigured(fault.with_remedy(remedy)))
        }
        answer => Ok(answer),
    }
}
