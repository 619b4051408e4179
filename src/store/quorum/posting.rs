//! Sends requests to members without awaiting their replies, and gives busy members time to finish.

use std::ops::ControlFlow::Break;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::member::Member;
use super::member_store::MemberStore;
use super::{Granted, Quorum};
use crate::rules::quorum::QuorumOp;
use crate::rules::{Instant, Request, Token, Ttl, Verdict};
use crate::store::blocking::answered;
use crate::store::{Interrupt, NEVER, Store, attempt_number, until_decided};
use crate::system::channel::channel;

/// The longest wait at the end of the process for members to send their last requests. Their
/// replies are not awaited, so this takes no time unless the host is overloaded.
pub(super) const FAREWELL: Duration = Duration::from_millis(500);

/// The wait at the end of the process for replies that a majority has made unnecessary: a member
/// that is merely slower then keeps its connection until it has read the request.
const LAST_REPLIES: Duration = Duration::from_millis(10);

impl Quorum {
    /// Posts to the members that are busy, because what they are busy with no longer matters.
    /// Returns their numbers: some may be idle again at once.
    pub(super) fn post_if_busy(
        &self,
        act: impl FnOnce(&mut MemberStore) + Clone + Send + 'static,
    ) -> Vec<usize> {
        let busy = self.busy();
        busy.iter().for_each(|number| self.members[*number].post(act.clone()));
        busy
    }

    /// Gives a hold to members that do not have it while the lease lasts, so that the loss of one
    /// more member does not end it. Does not wait for their replies.
    pub(super) fn restore(&mut self, token: &Token, ttl: Option<Ttl>, lost: &[usize]) {
        let Some(Granted { request, held, at }) = &self.granted else { return };
        if request.token != *token || lost.is_empty() {
            return;
        }
        let at_least = request.at_least.saturating_sub(Instant::now().since(*at));
        let ttl = ttl.unwrap_or(request.ttl);
        let restore = QuorumOp::Restore(*held);
        let request = Request { ttl, heartbeat: None, at_least, ..request.clone() };
        let Ok((reply_sender, _)) = channel() else { return };
        for &number in lost {
            let request = request.clone();
            self.members[number].ask(number, &reply_sender, move |store| {
                until_decided(store.patience(), || {
                    let vote = store.vote(&request, restore, attempt_number())?;
                    Ok((vote != Break(Verdict::Again)).then_some(()))
                })
            });
        }
    }

    /// Waits until no member is busy, up to this long.
    pub(super) fn await_idle(&self, at_most: Duration, interrupt: Interrupt<'_>) {
        let (until, idle) = (Instant::now() + at_most, &self.idle);
        idle.is_awaited.store(true, Ordering::SeqCst);
        while self.members.iter().any(Member::is_busy) {
            if !matches!(answered(&idle.wakeup, interrupt, until), Ok(true)) {
                break;
            }
            idle.wakeup.clear();
        }
        idle.is_awaited.store(false, Ordering::SeqCst);
    }
}

impl Drop for Quorum {
    /// Gives members the time to send their last requests, without awaiting the replies.
    fn drop(&mut self) {
        if self.has_written {
            self.await_idle(LAST_REPLIES, NEVER);
            self.members.iter().for_each(Member::interrupt);
            self.await_idle(FAREWELL, NEVER);
        }
        // The end of the process ends the threads, which takes less time than ending each.
        std::mem::forget(std::mem::take(&mut self.members));
    }
}

/// The withdrawal of a request, for `Member::post`.
pub(super) fn withdraw(request: &Request) -> impl FnOnce(&mut MemberStore) + Clone + Send + use<> {
    let request = request.clone();
    move |store| store.withdraw_blind(&request)
}
