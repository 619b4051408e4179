//! The moves of the server: it executes requests and revocations, and restarts.

use super::connection::{Reply, Sent, What};
use super::monitor::{Call, Fact, facts};
use super::properties;
use super::world::World;
use crate::check::calls::Calls;
use crate::check::scope::whose;
use crate::check::time::NOW;
use rlock::rules::{Answer, Request, Revocation, Verdict};

impl World {
    /// The server executes a request.
    pub(super) fn execute(&mut self, index: usize, sent: &Sent) -> Reply {
        let request = &self.course.scope.clients[index].requests[usize::from(sent.round)];
        let before: Vec<Fact> = facts(&self.lock).collect();
        let mut calls = Calls { lock: &mut self.lock, now: NOW };
        let reply = match &sent.what {
            What::Acquire { attempt, seen, arrival } => {
                let request = Request { arrival: *arrival, ..request.clone() };
                Reply::Verdict(calls.acquire(&request, *attempt, seen))
            }
            What::Renew => Reply::Renewal(calls.renew(request)),
            What::Release => Reply::Release(calls.release(request)),
            What::Leave => {
                calls.leave(request);
                Reply::Left
            }
        };
        let is_granted = matches!(reply, Reply::Verdict(Verdict::Answer(Answer::Granted { .. })));
        self.judge(&before, Some(((index, sent.round), &sent.what, &reply)));
        self.deliver_mail();
        if is_granted || sent.what == What::Leave {
            let client = &mut self.clients[index];
            client.mail &= client.round != sent.round;
        }
        reply
    }

    pub(super) fn revoke(&mut self, revocation: Revocation) {
        let before: Vec<Fact> = facts(&self.lock).collect();
        self.monitor.all_revoked(&self.lock);
        Calls { lock: &mut self.lock, now: NOW }.revoke(revocation);
        self.judge(&before, None);
        self.deliver_mail();
    }

    /// Judges a call of the server.
    fn judge(&mut self, before: &[Fact], request: Option<((usize, u8), &What, &Reply)>) {
        let Self { course, clients, lock: after, monitor, .. } = self;
        let is_alive = request.is_none_or(|((client, round), ..)| {
            clients[client].round == round && !clients[client].has_ended()
        });
        let call = Call { scope: course.scope, request, is_alive, before, after };
        if let Err(property) = properties::judge(monitor, &call) {
            course.breaks(property);
        }
    }

    /// Puts what the last call has sent into mailboxes.
    fn deliver_mail(&mut self) {
        for mail in std::mem::take(&mut self.lock.mail) {
            let (client, round) = whose(&mail.token);
            if self.clients[client].round == round {
                self.clients[client].mail = true;
            }
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
