//! Extends the caller's lease to expire one TTL from now.

use std::time::Duration;

use crate::rules::model::transaction::Transaction;
use crate::rules::{Fence, HoldKind, Renewal, Token, Ttl};

impl Transaction<'_> {
    /// Extends a lease to `ttl` from now; `None` keeps its TTL.
    pub fn renew(&mut self, token: &Token, ttl: Option<Ttl>) -> Renewal {
        let token = token.as_str();
        self.reconcile();
        let renewal = match self.valid_hold(token).cloned() {
            Some(hold) => {
                // exec and a keeper rely on the lease that they have. Only a script that called acquire
                // may shorten its lease.
                let is_script = hold.client.kind == HoldKind::Acquire;
                let not_before = if is_script { 0 } else { hold.deadline };
                let ttl = ttl.map_or(hold.ttl, Ttl::as_millis);
                let left = Duration::from_millis(self.extend(token, ttl, not_before));
                let before = Duration::from_millis(hold.deadline.saturating_sub(self.now));
                Renewal::Renewed { fence: Fence(hold.fence), slot: hold.slot, left, before }
            }
            None => Renewal::NotHeld(self.why_not_held(token)),
        };
        self.admit(token);
        renewal
    }
}
