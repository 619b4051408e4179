//! The keys in which the scripts keep a lock of the model.

use std::collections::BTreeMap;
use std::fmt::Display;

use rlock::rules::model::Lock;
use rlock::rules::model::lock::{Ended, Guard, Hold, Mark, Origin, QueueEntry, Revoked, Tombstone};
use rlock::rules::{ClientInfo, Fence, HoldState, Key, Operator, Owner, Slot, Stored};

use super::redis::{Bytes, Data, Entry, Keys};

/// A score of a waiter with --next is its ticket minus this.
const NEXT_OFFSET: i64 = 1 << 52;

/// Where `lua/details.lua` has what only holds or only waiters have.
const FENCE: usize = 4;
const STATUS: usize = 10;
const ONLY_OF_HOLDS: [usize; 6] = [FENCE, 5, 6, 9, STATUS, 13];
const ONLY_OF_WAITERS: [usize; 3] = [8, 11, 12];

/// The keys of a lock. A side key lasts for a long time, because the lock does not say for how long.
pub(crate) fn keys(lock: &Lock, key: &Key) -> Keys {
    let newest = lock.newest.as_ref();
    let newest = newest.map(|it| format!("{} {}{}", it.arrival, it.token, it.client.to_stored()));
    let skipped = lock.skipped.as_ref().map(|it| {
        let (count, at, id) = (it.count, it.at.0, &it.id);
        format!("\nskipped {count}\nat {at}\nid {id}{}", it.client.to_stored())
    });
    let revoked = &lock.revoked_up_to;
    let has_had_waiters = lock.notified.is_some() || !lock.nominated.is_empty();
    let ticket = Some(lock.ticket).filter(|ticket| *ticket > 0 || has_had_waiters);
    let fields = [
        ("guard", shown(lock.written.as_ref())),
        ("mode", shown(lock.mode)),
        ("fence", positive(lock.fence)),
        ("generation", lock.generation.clone()),
        // It stays when the queue has become empty.
        ("ticket", shown(ticket)),
        ("nominated", lock.nominated.iter().map(|token| format!("{token} ")).collect()),
        ("newest", shown(newest)),
        ("head", shown(lock.notified.as_ref())),
        ("revoked_up_to", positive(revoked.fence)),
        ("revoked_up_to:how", shown(revoked.how)),
        ("revoked_up_to:by", revoked.by.to_stored()),
        ("revoked_up_to:at", shown(revoked.how.map(|_| revoked.at))),
        ("skipped", shown(skipped)),
    ];
    let fields = fields.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
    let holds = lock.holds.iter().map(|hold| (&hold.token, details_of_hold(hold)));
    let waiters = lock.queue.iter().map(|waiter| (&waiter.token, details_of_waiter(waiter)));
    let details =
        holds.chain(waiters).map(|(token, details)| (format!("details:{token}").into(), details));
    let slots = bits(lock.holds.iter().filter_map(|it| it.slot));
    let state = fields.into_iter().chain(details).chain([("slots".into(), slots)]);

    let holds = lock.holds.iter().map(|hold| (hold.deadline as i64, hold.token.clone()));
    let queue = lock.queue.iter().map(|waiter| {
        let ticket = waiter.ticket as i64;
        (if waiter.next { ticket - NEXT_OFFSET } else { ticket }, waiter.token.clone())
    });
    let marks = lock.tombstones.iter().map(|it| (it.until as i64, member(&it.mark)));
    let history = lock.history.iter().map(|entry| entry.clone().into());
    let side_keys = [
        ("state", Data::Hash(state.filter(|(_, value)| !value.is_empty()).collect())),
        ("holds", sorted(holds)),
        ("queue", sorted(queue)),
        ("tombstones", sorted(marks)),
        ("history", Data::List(history.collect())),
    ];
    let side_keys = side_keys.into_iter().filter(|(_, data)| !data.is_empty());
    let until = Some(u64::MAX / 4);
    let side_keys = side_keys.map(|(name, data)| (key.side(name).into(), Entry { data, until }));
    let guard = lock.guard.as_ref().map(|Guard { value, until }| {
        let data = Data::Text(value.clone().into());
        (key.as_str().into(), Entry { data, until: *until })
    });
    side_keys.chain(guard).collect()
}

/// What can still be noticed of the keys of a lock, one fact a line.
pub(crate) fn facts(keys: &Keys, key: &Key, now: u64) -> Vec<String> {
    let data = |name: &str| keys.get(key.side(name).as_bytes()).map(|entry| &entry.data);
    let state = match data("state") {
        Some(Data::Hash(state)) => state,
        _ => &BTreeMap::new(),
    };
    let field = |name: &str| state.get(name.as_bytes()).map(|value| str::from_utf8(value).unwrap());
    let details = |token: &str, unused: &[usize]| {
        let lines = field(&format!("details:{token}")).unwrap_or_default();
        let known = |line| if line == "0" { "" } else { line };
        let mut details: Vec<_> = lines.splitn(15, '\n').map(known).collect();
        details.resize(15, "");
        unused.iter().for_each(|at| details[*at] = "");
        details
    };
    let mut facts = Vec::new();
    let revoked_up_to = field("revoked_up_to").map_or(0, |fence| fence.parse().unwrap());
    let (mut are_held, mut are_revoked) = (false, false);
    for (deadline, token) in zset(keys, key, "holds") {
        let details = details(&token, &ONLY_OF_WAITERS);
        // One without a fence remains from a state that was lost.
        if let Ok(fence) = details[FENCE].parse::<u64>() {
            are_held = true;
            are_revoked |= details[STATUS].is_empty() && fence <= revoked_up_to;
            facts.push(format!("{token} holds it until {deadline}: {}", details.join("\n")));
        }
    }
    for (ticket, token) in zset(keys, key, "queue") {
        let details = details(&token, &ONLY_OF_HOLDS).join("\n");
        facts.push(format!("{token} waits at {ticket}: {details}"));
    }
    for (until, token) in zset(keys, key, "tombstones").filter(|(until, _)| *until as u64 >= now) {
        facts.push(format!("{token} is over until {until}"));
    }
    if let Some(Data::List(entries)) = data("history") {
        let entries = (0..).zip(entries);
        facts.extend(entries.map(|(at, entry)| format!("history {at}: {}", text(entry))));
    }
    for (name, value) in state {
        let value = trimmed(value);
        let matters = match &name[..] {
            // Those of a lock without holds are of a key that was deleted.
            b"slots" => are_held,
            name if name.starts_with(b"details:") => false,
            name if name.starts_with(b"revoked_up_to") => are_revoked,
            _ => value != b"0",
        };
        if matters && !value.is_empty() {
            facts.push(format!("{}: {}", text(name), text(value)));
        }
    }
    if let Some(guard) = keys.get(key.as_str().as_bytes()).filter(|it| it.is_kept(now)) {
        facts.push(format!("guard: {guard:?}"));
    }
    facts
}

pub(crate) fn tombstones(keys: &Keys, key: &Key) -> Vec<Tombstone> {
    let marks = zset(keys, key, "tombstones");
    marks.map(|(until, member)| Tombstone { mark: mark(&member), until: until as u64 }).collect()
}

/// The member of the tombstones that is this mark.
fn member(mark: &Mark) -> String {
    match mark {
        Mark::Token(token) => token.clone(),
        Mark::Ended(token, Ended::Removed(by)) => format!("{token}\nremoved\n{}", by.to_stored()),
        Mark::Ended(token, Ended::Superseded(newer)) => {
            format!("{token}\nsuperseded\n{}", newer.to_stored())
        }
        Mark::Closed(generation, fence) => format!("{generation} {fence}"),
    }
}

fn mark(member: &str) -> Mark {
    match member.splitn(3, '\n').collect::<Vec<_>>()[..] {
        [token, "removed", by] => {
            Mark::Ended(token.into(), Ended::Removed(Operator::from_stored(by)))
        }
        [token, _, newer] => {
            Mark::Ended(token.into(), Ended::Superseded(ClientInfo::from_stored(newer)))
        }
        _ => match member.split_once(' ') {
            Some((generation, fence)) => {
                Mark::Closed(generation.into(), Fence(fence.parse().unwrap()))
            }
            None => Mark::Token(member.into()),
        },
    }
}

fn zset(keys: &Keys, key: &Key, name: &str) -> impl Iterator<Item = (i64, String)> {
    let members = match keys.get(key.side(name).as_bytes()).map(|entry| &entry.data) {
        Some(Data::Zset(members)) => &members[..],
        _ => &[],
    };
    members.iter().map(|(score, member)| (*score, text(member)))
}

fn sorted(members: impl Iterator<Item = (i64, String)>) -> Data {
    let mut members: Vec<_> = members.map(|(score, member)| (score, member.into())).collect();
    members.sort();
    Data::Zset(members)
}

/// The numbers of slots as `lua/slots.lua` has them.
pub(crate) fn bits(slots: impl Iterator<Item = Slot>) -> Bytes {
    let mut bits = Bytes::new();
    for number in slots.map(|slot| slot.get() as usize - 1) {
        bits.resize(bits.len().max(number / 8 + 1), 0);
        bits[number / 8] |= 1 << (number % 8);
    }
    bits
}

/// Bits that are not set do not count.
pub(crate) fn trimmed(bits: &[u8]) -> &[u8] {
    let last = bits.iter().rposition(|byte| *byte != 0);
    &bits[..last.map_or(0, |last| last + 1)]
}

/// The details of a hold in the order of `lua/details.lua`.
fn details_of_hold(hold: &Hold) -> Bytes {
    let Hold { mode, fence, acquired, .. } = hold;
    let owner = hold.owner.as_ref().map_or("", Owner::as_str).to_owned();
    let owner = hold.closed_for.iter().fold(owner, |ids, id| format!("{ids}{id} "));
    // That of a closed lock has no client.
    let about = hold.owner.as_ref().map_or_else(String::new, |_| hold.client.to_stored());
    let [ttl, attempt, keep_until] = [hold.ttl, hold.attempt, hold.keep_until].map(positive);
    let [renewed, since] = [hold.renewed, hold.since].map(shown);
    let slot = shown(hold.slot);
    let status = match (hold.status, &hold.revoked) {
        (HoldState::Cooling, _) => "cooling".into(),
        (HoldState::Revoked, _) => "revoked".into(),
        (_, Some(Revoked { at, by })) => format!("revoked {at} {}", by.to_stored()),
        _ => String::new(),
    };
    let asked = format!("{mode}\n{owner}\n{ttl}\n{attempt}");
    let granted = format!("{fence}\n{acquired}\n{renewed}\n{since}\n\n{keep_until}\n{status}");
    format!("{asked}\n{granted}\n\n\n{slot}\n{about}").into()
}

fn details_of_waiter(waiter: &QueueEntry) -> Bytes {
    let QueueEntry { mode, ttl, attempt, since, alive, .. } = waiter;
    let owner = waiter.owner.as_ref().map_or("", Owner::as_str);
    let about = waiter.client.to_stored();
    let reentrant = if waiter.reentrant { "1" } else { "" };
    let origin = match waiter.origin {
        Origin::Counted => "",
        Origin::Proposed => "proposed",
        Origin::Agreed => "agreed",
    };
    let asked = format!("{mode}\n{owner}\n{ttl}\n{attempt}");
    format!("{asked}\n\n\n\n{since}\n{alive}\n\n\n{reentrant}\n{origin}\n\n{about}").into()
}

/// A number, or nothing if it is 0.
fn positive(number: u64) -> String {
    shown(Some(number).filter(|number| *number > 0))
}

fn shown(it: Option<impl Display>) -> String {
    it.map_or_else(String::new, |it| it.to_string())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
