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
    pub(super) fn execute(&mut self, sent: &Sent) -> Reply {
        let terms = &self.course.scope.clients[sent.client];
        let request = &terms.requests[usize::from(sent.round)];
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
        self.judge(&before, Some(sent), Some(&reply));
        self.deliver_mail();
        if is_granted || sent.what == What::Leave {
            let client = &mut self.clients[sent.client];
            client.mail &= client.round != sent.round;
        }
        reply
    }

    pub(super) fn revoke(&mut self, revocation: Revocation) {
        let before: Vec<Fact> = facts(&self.lock).collect();
        self.monitor.all_revoked(&self.lock);
        Calls { lock: &mut self.lock, now: NOW }.revoke(revocation);
        self.judge(&before, None, None);
        self.deliver_mail();
    }

    /// Judges a call of the server.
    fn judge(&mut self, before: &[Fact], sent: Option<&Sent>, reply: Option<&Reply>) {
        let Self { course, clients, lock: after, monitor, .. } = self;
        let caller = sent.map(|sent| (sent.client, sent.round));
        let is_alive = caller.is_none_or(|(client, round)| {
            clients[client].round == round && !clients[client].has_ended()
        });
        let call = Call { scope: course.scope, caller, is_alive, before, after };
        if let Err(property) = properties::judge(monitor, &call, sent, reply) {
            course.breaks(property);
        }
    }

    /// Puts what the last call has sent into mailboxes.
    fn deliver_mail(&mut self) {
        for mail in std::mem::take(&mut self.lock.mail) {
            let (client, round, _) = whose(&mail.token);
            if self.clients[client].round == round {
                self.clients[client].mail = true;
            }
        }
    }

    pub(super) fn restart(&mut self) {
        self.monitor.shaken = true;
        // What the old process had not executed is lost with it.
        self.late.clear();
        for index in 0..self.clients.len() {
            self.clients[index].connection.requests.clear();
            self.break_off(index);
        }
    }
}
