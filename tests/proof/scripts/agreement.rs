//! What the scripts must have in common with the model after a call, besides the reply.

use rlock::rules::Key;
use rlock::rules::model::lock::{CLAIM_WINDOW, Lock, Mail, Message};
use sha1_smol::Sha1;

use super::redis::Bytes;
use super::shim::Shim;
use super::stored;

/// How the messages and the keys of the last call differ from those of the model.
pub(crate) fn differences(model: &Lock, key: &Key, now: u64) -> Vec<String> {
    let mut known = stored::facts(&stored::keys(model, key), key, now);
    known.extend(messages(model.mail.iter().map(|mail| message(key, mail))));
    let found = Shim::redis(|redis| {
        let mut found = stored::facts(redis.home(), key, now);
        let mut sent = std::mem::take(&mut redis.pushed);
        let history = key.side("history").into_bytes();
        sent.retain(|(pushed_to, _)| *pushed_to != history);
        let mut until =
            sent.iter().filter_map(|(mailbox, _)| Some(redis.home().get(mailbox)?.until));
        if !until.all(|until| until == Some(now + 2 * CLAIM_WINDOW)) {
            found.push("a mailbox lasts for another time".into());
        }
        found.extend(messages(sent.into_iter()));
        found
    });
    let by_scripts = found.iter().filter(|fact| !known.contains(fact));
    let by_model = known.iter().filter(|fact| !found.contains(fact));
    let by_scripts = by_scripts.map(|fact| format!("scripts: {fact}"));
    by_scripts.chain(by_model.map(|fact| format!("model: {fact}"))).collect()
}

fn messages(sent: impl Iterator<Item = (Bytes, Bytes)>) -> impl Iterator<Item = String> {
    (0..).zip(sent).map(|(at, (mailbox, text))| {
        let (mailbox, text) = (mailbox.escape_ascii(), stored::trimmed(&text).escape_ascii());
        format!("message {at} to {mailbox}: {text}")
    })
}

/// The mailbox and the text of a message.
fn message(key: &Key, Mail { token, message }: &Mail) -> (Bytes, Bytes) {
    let mailbox = key.side(&format!("mail:{}", Sha1::from(token).digest()));
    let text = match message {
        Message::Head => b"head".to_vec(),
        Message::Look => b"look".to_vec(),
        Message::Nominated(nomination) => {
            let (fence, position) = (nomination.fence, nomination.position);
            let bits = stored::bits(nomination.taken.iter().copied());
            [format!("{fence} {position} ").into_bytes(), bits].concat()
        }
    };
    (mailbox.into(), text)
}
