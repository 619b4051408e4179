//! Asks one of several servers for a hold, or to restore one that it has lost.

use std::ops::ControlFlow::{Break, Continue};

use crate::rules::model::transaction::Transaction;
use crate::rules::{Ending, Fence, Held, Request, Verdict, Vote};

impl Transaction<'_> {
    /// Asks for this hold, if the server nominates the caller. Without a ticket, it restores the
    /// hold, which needs no turn.
    pub(in crate::rules::model) fn commit(
        &mut self,
        request: &Request,
        attempt: u64,
        ticket: Option<u64>,
        (Fence(wanted), slot): Held,
    ) -> Vote {
        let token = request.token.as_str();
        self.reconcile();
        self.early_member_reply(token, attempt, ticket, Some(wanted))?;
        // A hold that was revoked here meanwhile, or that ended before its lease expired, is not
        // granted again.
        if self.valid_hold(token).is_none() {
            let recorded = self.recorded(token);
            let ended = recorded.is_some_and(|entry| entry.ending != Ending::Expired);
            if self.unexpired_hold(token).is_some() || ended {
                return Break(self.busy());
            }
        }
        let hold = self.unexpired_hold(token);
        if hold.is_some_and(|hold| slot.is_some() && hold.slot != slot) {
            self.drop_hold(token);
        }
        self.supersede(request, ticket.unwrap_or(0))?;
        if ticket.is_none() {
            self.admit(token);
        }
        if self.cleanup_pending {
            return Break(Verdict::Again);
        }

        if let Some(own) = self.valid_hold(token).map(|hold| hold.fence) {
            if own != wanted {
                let fence = self.next_fence(Some(wanted));
                self.lock.fence = fence;
                self.hold_mut(token).into_iter().for_each(|hold| hold.fence = fence);
            }
            return Break(self.hold_again(request, attempt));
        }
        if self.is_taken(slot) {
            return Break(self.busy());
        }
        let (waiter, enters) = self.find_owner(request, attempt)?;
        match ticket {
            None if enters || self.admissible(request.mode, &[]) => {}
            None => return Break(self.busy()),
            Some(ticket) => {
                let at = self.join(request, waiter.clone(), ticket)?;
                if !enters && !self.is_nominated(token) {
                    return Continue(self.proposed(request, &at, false));
                }
                // `admit` may have granted the slot to a waiter.
                if self.is_taken(slot) {
                    return Break(self.busy());
                }
            }
        }
        Break(self.take(request, waiter, Some(wanted), slot))
    }
}
