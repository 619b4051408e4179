//! Extends the caller's lease to expire one TTL from now.

use std::time::Duration;

use crate::rules::model::transaction::Transaction;
use crate::rules::{Fence, Renewal};

impl Transaction<'_> {
    /// `ttl` is in milliseconds; `None` keeps the previous one.
    pub(in crate::rules::model) fn renew(&mut self, token: &str, ttl: Option<u64>) -> Renewal {
        self.reconcile();
        let held = self.valid_hold(token).map(|hold| {
            // exec and a keeper rely on the lease that they have. Only a script that called acquire
            // may shorten its lease.
            let kind = hold.about.split('\n').nth(4);
            let at_least = if kind == Some("acquire") { 0 } else { hold.deadline };
            (Fence(hold.fence), hold.mode, ttl.unwrap_or(hold.ttl), at_least)
        });
        let renewal = match held {
            Some((fence, mode, ttl, at_least)) => {
                let left = Duration::from_millis(self.extend(token, ttl, at_least));
                Renewal::Renewed { fence, left, mode }
            }
            None => Renewal::NotHeld(self.why_not_held(token)),
        };
        self.admit(token);
        renewal
    }
}
