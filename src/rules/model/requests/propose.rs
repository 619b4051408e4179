//! Asks one of several servers for a position in its queue.

use std::ops::ControlFlow::{Break, Continue};

use crate::rules::model::transaction::Transaction;
use crate::rules::{HoldState, Request, Vote};

impl Transaction<'_> {
    /// Asks for a position with the ticket on which the servers agreed; 0 to propose one.
    pub(in crate::rules::model) fn propose(
        &mut self,
        request: &Request,
        attempt: u64,
        ticket: u64,
    ) -> Vote {
        let token = request.token.as_str();
        self.reconcile();
        self.early_member_reply(token, attempt, Some(ticket), None)?;
        // A client that still asks has not started its command, so a hold that was revoked meanwhile
        // can go; once it has a ticket, so can one that too few servers granted.
        if let Some(hold) = self.unexpired_hold(token)
            && (ticket > 0 || self.hold_state(hold) == HoldState::Revoked)
        {
            self.drop_hold(token);
        }
        self.supersede(request, ticket)?;

        if self.valid_hold(token).is_some() {
            return Break(self.hold_again(request, attempt));
        }
        let (waiter, enters) = self.find_owner(request, attempt)?;
        let at = self.join(request, waiter, ticket)?;
        Continue(self.proposed(request, &at, enters || self.is_nominated(token)))
    }
}
