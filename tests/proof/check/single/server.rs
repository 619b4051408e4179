//! The moves of the server: it executes requests and revocations, and restarts.

use super::connection::{Reply, What};
use super::monitor::Call;
use super::properties;
use super::world::World;
use crate::check::calls::Calls;
use crate::check::scope::whose;
use rlock::rules::model::Lock;
use rlock::rules::model::lock::Hold;
use rlock::rules::{Answer, Request, Revocation, Verdict};

impl World {
    /// The server executes a request.
    pub(super) fn execute(&mut self, index: usize, what: &What) -> Reply {
        let request = &self.course.scope.clients[index].request;
        let before = self.lock.holds.clone();
        let (mut copy, now) = (self.on_replica(), self.clock);
        let is_replica = self.is_replica;
        let lock = copy.as_mut().unwrap_or(&mut self.lock);
        let mut calls = Calls { lock, now, is_replica };
        let reply = match what {
            What::Acquire { attempt, seen, arrival } => {
                let (arrival, seen) = (*arrival, seen.clone());
                let request = Request { arrival, seen, ..request.clone() };
                Reply::Verdict(calls.acquire(&request, *attempt))
            }
            What::Renew => Reply::Renewal(calls.renew(request)),
            What::Release => Reply::Release(calls.release(request)),
            What::Leave => {
                calls.leave(request);
                Reply::Left
            }
        };
        if is_replica {
            return Reply::Refused;
        }
        let is_granted = matches!(reply, Reply::Verdict(Verdict::Answer(Answer::Granted { .. })));
        self.judge(&before, Some((index, what, &reply)));
        self.deliver_mail();
        if is_granted || *what == What::Leave {
            self.clients[index].mail = false;
        }
        reply
    }

    pub(super) fn revoke(&mut self, revocation: Revocation) {
        if let Some(mut copy) = self.on_replica() {
            let now = self.clock;
            return Calls { lock: &mut copy, now, is_replica: true }.revoke(revocation);
        }
        let before = self.lock.holds.clone();
        self.monitor.all_revoked(&self.lock, self.clock);
        Calls { lock: &mut self.lock, now: self.clock, is_replica: false }.revoke(revocation);
        self.judge(&before, None);
        self.deliver_mail();
    }

    /// What the replica has, if it executes the requests now.
    fn on_replica(&self) -> Option<Lock> {
        self.is_replica.then(|| self.lock.clone())
    }

    /// Judges a call of the server.
    fn judge(&mut self, before: &[Hold], request: Option<(usize, &What, &Reply)>) {
        let Self { course, clients, lock: after, clock: now, monitor, .. } = self;
        let is_alive = request.is_none_or(|(client, ..)| !clients[client].has_ended());
        let call = Call { scope: course.scope, request, is_alive, before, after, now: *now };
        if let Err(property) = properties::judge(monitor, &call) {
            course.breaks(property);
        }
    }

    /// Puts what the last call has sent into mailboxes.
    fn deliver_mail(&mut self) {
        for mail in std::mem::take(&mut self.lock.mail) {
            self.clients[whose(&mail.token)].mail = true;
        }
    }

    pub(super) fn restart(&mut self) {
        self.monitor.shaken = true;
        // What the old process had not executed is lost with it.
        for index in 0..self.clients.len() {
            self.clients[index].connection.requests.clear();
            self.break_off(index);
            self.clients[index].connection.late.clear();
        }
    }
}
