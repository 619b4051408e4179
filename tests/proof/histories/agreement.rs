//! What the server must have in common with the model after each step, besides the replies.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use rlock::rules::model::lock::{CLAIM_WINDOW, DAY, Hold, Lock, Mail, Message, RevokedUpTo};
use rlock::rules::{HoldState, Key};
use sha1_smol::Sha1;

use crate::scripts::shim::Shim;
use crate::scripts::stored;

/// Longer than any lease in a history.
const LONG: u64 = 120_000;

/// What the lock was when its keys were last compared, and when some of it changed.
#[derive(Default)]
pub(super) struct Kept {
    lock: Lock,
    state_used: u64,
    queue_used: u64,
    recorded: u64,
}

/// Compares the messages of the last call. Returns the tokens of the waiters that it sent them to.
pub(super) fn compare_mail(known: Vec<Mail>, key: &Key, now: u64) -> Vec<String> {
    let expected = known.iter().map(|mail| {
        let hash = Sha1::from(&mail.token).digest();
        let message = match &mail.message {
            Message::Head => b"head".to_vec(),
            Message::Look => b"look".to_vec(),
            Message::Nominated(nomination) => {
                let (fence, position) = (nomination.fence, nomination.position);
                let mut text = format!("{fence} {position} ").into_bytes();
                let mut bits = vec![0_u8; 4];
                for slot in &nomination.taken {
                    bits[(slot.get() as usize - 1) / 8] |= 1 << ((slot.get() - 1) % 8);
                }
                text.extend(bits);
                text
            }
        };
        (key.side(&format!("mail:{hash}")), message)
    });
    let expected: Vec<_> = expected.map(|(key, text)| (key, trimmed(text))).collect();
    let mut sent = Shim::redis(|redis| std::mem::take(&mut redis.pushed));
    sent.retain(|(key, _)| !key.ends_with(b"?history"));
    let name = |key: Vec<u8>| String::from_utf8(key).unwrap();
    let sent: Vec<_> = sent.into_iter().map(|(key, it)| (name(key), trimmed(it))).collect();
    assert_eq!(sent, expected);
    Shim::redis(|redis| {
        for (key, _) in &sent {
            if let Some(mailbox) = redis.databases[0].get(key.as_bytes()) {
                assert_eq!(mailbox.until, Some(now + 2 * CLAIM_WINDOW));
            }
        }
    });
    known.into_iter().map(|mail| mail.token).collect()
}

impl Kept {
    /// The keys are those of the lock in the model, and expire in time.
    pub(super) fn compare(&mut self, key: &Key, model: &Lock, now: u64) {
        let stored = Shim::redis(|redis| stored::lock(&redis.databases[0], key));
        let present = |lock: &Lock| {
            let mut lock = lock.clone();
            // Those without a fence remain from a state that was lost.
            lock.holds.retain(|hold| hold.fence > 0);
            lock.holds.sort_by(Hold::by_deadline);
            lock.guard.take_if(|guard| guard.until.is_some_and(|until| until < now));
            lock.tombstones.retain(|tombstone| tombstone.until >= now);
            // A mark that revokes no hold.
            let mut held = lock.holds.iter().filter(|hold| hold.status == HoldState::Held);
            if held.all(|hold| hold.fence > lock.revoked_up_to.fence) {
                lock.revoked_up_to = RevokedUpTo::default();
            }
            lock
        };
        let hash = |lock: &Lock| BuildHasherDefault::<DefaultHasher>::default().hash_one(lock);
        let (stored, known) = (present(&stored), present(model));
        if hash(&stored) != hash(&known) {
            let [stored, known] = [stored, known].map(|lock| serde_json::to_value(lock).unwrap());
            let fields = known.as_object().unwrap().iter();
            let different: Vec<_> = fields
                .filter(|(name, value)| stored[name.as_str()] != **value)
                .map(|(name, value)| format!("{name}: {} / {value}", stored[name.as_str()]))
                .collect();
            panic!("{different:#?}");
        }
        self.check_expiries(key, known, now);
    }

    /// Each key lasts for a day after the last use of what it holds, and not much longer.
    fn check_expiries(&mut self, key: &Key, lock: Lock, now: u64) {
        let before = &self.lock;
        let is_new = |token: &str, attempt| {
            let mut queue = before.queue.iter();
            !queue.any(|waiter| (waiter.token.as_str(), waiter.attempt) == (token, attempt))
        };
        let joins = lock.queue.iter().any(|waiter| is_new(&waiter.token, waiter.attempt));
        let newest = |lock: &Lock| lock.newest.as_ref().map(|newest| newest.token.clone());
        let is_used = (lock.fence, &lock.skipped) != (before.fence, &before.skipped)
            || newest(&lock) != newest(before)
            || joins;
        let guarded = lock.guard.as_ref().and_then(|guard| guard.until).unwrap_or(now).max(now);
        if is_used {
            self.state_used = now;
        }
        if joins {
            self.queue_used = now;
        }
        if lock.history != before.history {
            self.recorded = now;
        }
        let deadline = lock.holds.iter().map(|hold| hold.deadline).max().unwrap_or(0);
        let mark = lock.tombstones.iter().map(|mark| mark.until).max().unwrap_or(0);
        let used = if is_used { guarded } else { self.state_used };
        let side_keys = [
            ("holds", deadline + DAY),
            ("state", deadline.max(used + DAY)),
            ("queue", self.queue_used + DAY),
            ("history", self.recorded + DAY),
            ("tombstones", mark),
        ];
        Shim::redis(|redis| {
            let until = |name: &str| {
                let entry = redis.databases[0].get(key.side(name).as_bytes())?;
                Some(entry.until.unwrap_or_else(|| panic!("{name} never expires")))
            };
            for (name, at_least) in side_keys {
                let at_most = if name == "history" { at_least } else { now + DAY + LONG };
                if let Some(until) = until(name) {
                    assert!((at_least..=at_most).contains(&until), "{name}: {until} {at_least}");
                }
            }
        });
        self.lock = lock;
    }
}

/// Bits that are not set do not count.
fn trimmed(mut text: Vec<u8>) -> Vec<u8> {
    while text.last() == Some(&0) {
        text.pop();
    }
    text
}
