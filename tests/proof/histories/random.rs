//! Random histories.

use super::step::{Ask, CLIENTS, Step, plain_ask};
use crate::support::random::Random;
use rlock::rules::model::lock::DAY;
use rlock::rules::{HoldKind, Mode, Outcome, Revocation, Slot};

/// The history with this seed.
pub(super) fn history(seed: u64) -> Vec<Step> {
    use Flavor::*;
    let mut dice = Dice { random: Random(seed), flavor: Flavor::Mixed };
    dice.flavor = dice.one_of(&[Mixed, Mixed, Owned, Quorum, Plain, Slots, Crowd]);
    let mut steps = Vec::new();
    // Enough to fill the history of the lock.
    for _ in 0..dice.sometimes(10, |dice| 10 + dice.below(20)).unwrap_or(0) {
        let client = dice.client();
        steps.push(Step::Ask(Ask { client, ..plain_ask() }));
        steps.push(Step::Release(client, dice.outcome()));
    }
    for _ in 0..dice.below(60) {
        let step = dice.step();
        let is_full = step.needs_no_memory() && dice.percent(10);
        steps.push(if is_full { Step::InFullMemory(Box::new(step)) } else { step });
    }
    steps
}

/// A history in which other tools damage the keys, and memory is full at times.
pub(super) fn damaged(seed: u64) -> Vec<Step> {
    let mut dice = Dice { random: Random(seed), flavor: Flavor::Mixed };
    let mut steps = Vec::new();
    for step in history(seed) {
        match dice.below(10) {
            0 => {
                let key = dice.one_of(&["holds", "queue", "history", "tombstones", "mail"]);
                steps.push(Step::Occupy(key));
            }
            1 | 2 if step.is_call() => steps.push(Step::InFullMemory(Box::new(step.clone()))),
            _ => {}
        }
        steps.push(step);
    }
    steps
}

struct Dice {
    random: Random,
    flavor: Flavor,
}

/// What most requests of a history have in common.
#[derive(Clone, Copy, PartialEq)]
enum Flavor {
    Mixed,
    /// One owner, which enters its lock again.
    Owned,
    /// To one of several servers.
    Quorum,
    /// To the only server, and nothing special.
    Plain,
    /// Slots, so that there are many holders.
    Slots,
    /// More clients than fit into the history of the lock, and many of them share it.
    Crowd,
}

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn client(&mut self) -> u8 {
        self.below(if self.flavor == Flavor::Crowd { CLIENTS.into() } else { 6 }) as u8
    }

    fn sometimes<T>(&mut self, percent: u64, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(percent).then(|| value(self))
    }

    /// How many milliseconds something is ahead of the clock.
    fn ahead(&mut self) -> i64 {
        match self.below(50) {
            // More than a day ahead is not believed.
            0 => self.one_of(&[DAY, DAY + 1, 2 * DAY]) as i64,
            // Often the same.
            1..15 => self.one_of(&[-1_000, 0, 1_000]),
            _ => self.below(6_000) as i64 - 3_000,
        }
    }

    fn held(&mut self) -> (i64, Option<Slot>) {
        (self.ahead(), self.sometimes(70, |dice| Slot::new(1 + dice.below(3) as u32).unwrap()))
    }

    fn ttl(&mut self) -> u64 {
        // Some outlast the tombstone of what has ended.
        let longest = self.one_of(&[6_000, 6_000, 6_000, 6_000, 6_000, 150_000]);
        100 + self.below(longest)
    }

    fn at_least(&mut self) -> u64 {
        let longest = self.one_of(&[2, 8_000, 8_000]);
        1 + self.below(longest)
    }

    fn revocation(&mut self) -> Revocation {
        self.one_of(&[Revocation::Graceful, Revocation::Now])
    }

    fn outcome(&mut self) -> Outcome {
        let failed = Outcome::Exit(self.below(256) as u8);
        let rare = [Outcome::Lost, Outcome::NotStarted, Outcome::Unknown];
        self.one_of(&[&rare[..], &[Outcome::Exit(0), failed, failed]].concat())
    }

    fn mode(&mut self) -> Mode {
        let slots = |slots: u32| Mode::Slots(slots.try_into().unwrap());
        let (x, s, two, five) = (Mode::Exclusive, Mode::Shared, slots(2), slots(5));
        match self.flavor {
            Flavor::Slots => self.one_of(&[five, five, five, two, s]),
            Flavor::Crowd => self.one_of(&[s, s, s, s, s, x]),
            _ => self.one_of(&[x, x, x, s, s, s, two, two, five]),
        }
    }

    fn ask(&mut self) -> Ask {
        let heartbeat = self.sometimes(80, |dice| 100 + dice.below(3_900));
        let ask = Ask {
            client: self.client(),
            mode: self.mode(),
            ttl: self.ttl(),
            at_least: self.sometimes(25, Self::at_least).unwrap_or(0),
            heartbeat,
            owner: self.sometimes(30, |dice| dice.below(2) as u8),
            enclosing: self.sometimes(50, Self::client).into_iter().collect(),
            reentrant: self.percent(30),
            next: self.percent(20),
            supersedes: heartbeat.is_some() && self.percent(40),
            arrival: self.sometimes(50, Self::ahead),
            held: self.sometimes(20, Self::held),
            ticket: self.sometimes(40, |dice| dice.sometimes(50, Self::ahead)),
            reminds: self.sometimes(30, |dice| dice.below(20_000)),
            overtaken: self.sometimes(25, |dice| 1 + dice.below(2)).unwrap_or(0),
            kind: self.one_of(&[HoldKind::Exec, HoldKind::Acquire]),
        };
        match self.flavor {
            Flavor::Mixed => ask,
            Flavor::Owned => {
                let (held, ticket) = (None, None);
                Ask { owner: Some(0), reentrant: true, supersedes: false, held, ticket, ..ask }
            }
            Flavor::Quorum => {
                let held = self.sometimes(40, Self::held);
                Ask { ticket: ask.ticket.or(Some(None)), held, supersedes: false, ..ask }
            }
            Flavor::Plain => {
                let Ask { client, mode, ttl, heartbeat, reminds, kind, .. } = ask;
                Ask { client, mode, ttl, heartbeat, reminds, kind, ..plain_ask() }
            }
            Flavor::Slots | Flavor::Crowd => {
                Ask { supersedes: false, held: None, ticket: None, ..ask }
            }
        }
    }

    fn step(&mut self) -> Step {
        match self.below(44) {
            0..13 => Step::Ask(self.ask()),
            13..16 => Step::Renew(self.client(), self.sometimes(50, Self::ttl)),
            16 => Step::Late(Box::new(Step::Renew(self.client(), self.sometimes(50, Self::ttl)))),
            17 => Step::Late(Box::new(Step::Ask(self.ask()))),
            18 => Step::Late(Box::new(Step::Release(self.client(), self.outcome()))),
            19 => Step::Late(Box::new(Step::Leave(self.client(), self.percent(50)))),
            20 => Step::LeaveEarly(self.client()),
            21..26 => Step::Release(self.client(), self.outcome()),
            26..28 => Step::Leave(self.client(), self.percent(50)),
            28 => Step::Revoke(self.revocation(), self.below(3) as u8),
            29 => Step::Remove(self.client(), self.revocation()),
            30 => Step::Late(Box::new(Step::Remove(self.client(), self.revocation()))),
            31..34 => Step::PassTo(self.below(3) as u8, self.percent(50)),
            34..37 => {
                let longest = self.one_of(&[50, 50, 3_000, 3_000, 20_000, 20_000, 100_000]);
                Step::Pass(self.below(longest))
            }
            37 => Step::Write(self.sometimes(50, |dice| 1 + dice.below(5_000))),
            38 => Step::Delete,
            39 => {
                let back = self.one_of(&[0, 0, 60_000, DAY - 1_000, 2 * DAY]);
                Step::Forget(back)
            }
            40 => Step::Late(Box::new(Step::Revoke(self.revocation(), 0))),
            41 => Step::Lag,
            42 => Step::GoBack,
            _ => Step::Lose(self.one_of(&["holds", "queue", "state", "history", "tombstones"])),
        }
    }
}
