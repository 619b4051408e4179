//! Extends the caller's lease to expire one TTL from now.

use std::time::Duration;

use crate::rules::model::transaction::Transaction;
use crate::rules::{Fence, HoldKind, Renewal, Token, Ttl};

impl Transaction<'_> {
    /// Extends a lease to `ttl` from now; `None` keeps its TTL.
    pub fn renew(&mut self, token: &Token, ttl: Option<Ttl>) -> Renewal {
        let token = token.as_str();
        self.reconcile();
        let held = self.valid_hold(token).map(|hold| {
            // exec and a keeper rely on the lease that they have. Only a script that called acquire
            // may shorten its lease.
            let at_least = if hold.client.kind == HoldKind::Acquire { 0 } else { hold.deadline };
            (Fence(hold.fence), hold.slot, ttl.map_or(hold.ttl, Ttl::as_millis), at_least)
        });
        let renewal = match held {
            Some((fence, slot, ttl, at_least)) => {
                let left = Duration::from_millis(self.extend(token, ttl, at_least));
                Renewal::Renewed { fence, slot, left }
            }
            None => Renewal::NotHeld(self.why_not_held(token)),
        };
        self.admit(token);
        renewal
    }
}
