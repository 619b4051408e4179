//! The calls of a server. The model executes each. The first time that a call meets a lock, the
//! scripts execute it on the same lock: reply, messages and lock must be the same. So a search with
//! the scripts in place of the model finds the same states, without playing each call many times.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

use rlock::rules::model::Lock;
use rlock::rules::model::transaction::Transaction;
use rlock::rules::quorum::{QuorumOp, Vote};
use rlock::rules::{
    Failure, Fence, Operator, Outcome, Release, Renewal, Request, Revocation, Verdict,
};
use rlock::store::{NEVER, Store};

use super::scope::key;
use crate::scripts::agreement;
use crate::scripts::shim::{BATCH, Server, Shim, StoreOn};
use crate::scripts::stored;

thread_local! {
    /// Whether the scripts play too.
    static WITH_SCRIPTS: Cell<bool> = const { Cell::new(true) };
    /// The hashes of the calls that the scripts have executed, each with its lock.
    static PLAYED: RefCell<HashSet<u64>> = RefCell::default();
    /// How the last call differed.
    static DIFFERENCE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A lock, the time on its server, and whether that is a replica. A replica must refuse all calls,
/// also if it has not received the lock, so the result counts for nothing.
pub(super) struct Calls<'l> {
    pub(super) lock: &'l mut Lock,
    pub(super) now: u64,
    pub(super) is_replica: bool,
}

impl Calls<'_> {
    pub(super) fn acquire(&mut self, request: &Request, attempt: u64) -> Verdict {
        self.call(
            ("acquire", request, attempt),
            |model| model.acquire(request, attempt),
            |server| server.ask(request, attempt, NEVER),
        )
    }

    pub(super) fn vote(&mut self, request: &Request, op: QuorumOp, attempt: u64) -> Vote {
        self.call(
            ("vote", request, op, attempt),
            |model| model.vote(request, op, attempt),
            |server| server.vote(request, op, attempt),
        )
    }

    pub(super) fn renew(&mut self, Request { key, token, ttl, .. }: &Request) -> Renewal {
        self.call(
            ("renew", token, ttl),
            |model| model.renew(token, Some(*ttl)),
            |server| server.renew(key, token, Some(*ttl), NEVER),
        )
    }

    pub(super) fn release(&mut self, Request { key, token, .. }: &Request) -> Release {
        self.call(
            ("release", token),
            |model| model.release(token, Outcome::Unknown),
            |server| server.release(key, token, Outcome::Unknown),
        )
    }

    pub(super) fn leave(&mut self, request: &Request) {
        let Request { token, ttl, .. } = request;
        self.call(
            ("leave", token, ttl),
            |model| model.leave(token, *ttl, false),
            |server| server.withdraw(request, NEVER),
        );
    }

    pub(super) fn revoke(&mut self, how: Revocation) {
        let (up_to, by) = (Fence(u64::MAX), &Operator::default());
        self.call(
            ("revoke", how == Revocation::Now),
            |model| model.revoke(up_to, how, by),
            |server| Ok(server.revoke_up_to(&key(), Some(up_to), how, by)?.0),
        );
    }

    fn call<R: PartialEq + Debug>(
        &mut self,
        call: impl Hash + Debug,
        model: impl FnOnce(&mut Transaction<'_>) -> R,
        scripts: impl Fn(&mut StoreOn<Shim>) -> Result<R, Failure>,
    ) -> R {
        let (lock, now, is_replica) = (&mut *self.lock, self.now, self.is_replica);
        let is_new = || {
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            let hash = hasher.hash_one((&*lock, now, is_replica, &call));
            PLAYED.with_borrow_mut(|played| played.insert(hash))
        };
        let before = (WITH_SCRIPTS.get() && is_new()).then(|| lock.clone());
        let mut transaction = lock.at(now);
        transaction.batch = BATCH;
        let reply = model(&mut transaction);
        if let Some(before) = before {
            let key = &key();
            let told = |before: &Lock| {
                Shim.set_time(now);
                Shim::redis(|redis| {
                    redis.set_home(stored::keys(before, key));
                    redis.pushed.clear();
                    redis.is_replica = is_replica;
                });
                scripts(&mut Shim::store(0))
            };
            let mut differences = Vec::new();
            if is_replica {
                let either = [before.clone(), Lock::default()];
                let told = either.iter().filter_map(|lock| told(lock).ok());
                differences.extend(told.map(|told| format!("a replica replies {told:#?}")));
            } else {
                let told = told(&before).unwrap();
                differences = agreement::differences(lock, key, now);
                if told != reply {
                    differences.push(format!("reply: {told:#?} / {reply:#?}"));
                }
            }
            if !differences.is_empty() {
                let difference = format!("{call:#?}\n{before:#?}\n{differences:#?}");
                DIFFERENCE.with_borrow_mut(|last| _ = last.get_or_insert(difference));
            }
        }
        reply
    }
}

/// How the scripts differed from the model since this was last asked.
pub(super) fn difference() -> Option<String> {
    DIFFERENCE.take()
}

/// From now on, the scripts play too or not.
pub(super) fn play_scripts(with_scripts: bool) {
    WITH_SCRIPTS.set(with_scripts);
}
