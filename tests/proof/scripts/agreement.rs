//! What the scripts must have in common with the model after a call, besides the reply.

use rlock::rules::model::lock::{CLAIM_WINDOW, Hold, Lock, Mail, Message, RevokedUpTo};
use rlock::rules::{HoldState, Key};
use sha1_smol::Sha1;

use super::shim::Shim;
use super::stored;

/// How the messages and the keys of the last call differ from those of the model.
pub(crate) fn differences(model: &Lock, key: &Key, now: u64) -> Vec<String> {
    [messages(&model.mail, key, now), keys(model, key, now)].concat()
}

fn messages(known: &[Mail], key: &Key, now: u64) -> Vec<String> {
    let expected = known.iter().map(|mail| {
        let hash = Sha1::from(&mail.token).digest();
        let message = match &mail.message {
            Message::Head => b"head".to_vec(),
            Message::Look => b"look".to_vec(),
            Message::Nominated(nomination) => {
                let (fence, position) = (nomination.fence, nomination.position);
                let bits = stored::bits(nomination.taken.iter().copied());
                [format!("{fence} {position} ").into_bytes(), bits].concat()
            }
        };
        (key.side(&format!("mail:{hash}")), message)
    });
    let expected: Vec<_> = expected.map(|(key, text)| (key, trimmed(text))).collect();
    Shim::redis(|redis| {
        let mut sent = std::mem::take(&mut redis.pushed);
        sent.retain(|(key, _)| !key.ends_with(b"?history"));
        let name = |key: Vec<u8>| String::from_utf8(key).unwrap();
        let sent: Vec<_> = sent.into_iter().map(|(key, it)| (name(key), trimmed(it))).collect();
        let until = |(name, _): &(String, _)| Some(redis.home().get(name.as_bytes())?.until);
        let is_kept = sent.iter().filter_map(until).all(|it| it == Some(now + 2 * CLAIM_WINDOW));
        match sent == expected && is_kept {
            true => Vec::new(),
            false => vec![format!("messages: {sent:?} / {expected:?}")],
        }
    })
}

fn keys(model: &Lock, key: &Key, now: u64) -> Vec<String> {
    let stored = Shim::redis(|redis| stored::lock(redis.home(), key));
    let known = Lock { mail: Vec::new(), ..model.clone() };
    let (stored, known) = (present(stored, now), present(known, now));
    if stored == known {
        return Vec::new();
    }
    let [stored, known] = [stored, known].map(|lock| serde_json::to_value(lock).unwrap());
    let fields = known.as_object().unwrap().iter();
    fields
        .filter(|(name, value)| stored[name.as_str()] != **value)
        .map(|(name, value)| format!("{name}: {} / {value}", stored[name.as_str()]))
        .collect()
}

/// What of a lock can still be noticed.
pub(crate) fn present(mut lock: Lock, now: u64) -> Lock {
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
}

/// Bits that are not set do not count.
fn trimmed(mut text: Vec<u8>) -> Vec<u8> {
    while text.last() == Some(&0) {
        text.pop();
    }
    text
}
