//! Reads the keys of a lock as the model that they stand for.

use std::collections::BTreeMap;

use rlock::rules::lock::view::variant;
use rlock::rules::model::Lock;
use rlock::rules::model::lock::{
    Guard, Hold, Newest, Origin, Revoked, RevokedUpTo, Tombstone, Waiter,
};
use rlock::rules::{HistoryEntry, HoldState, Key, Mode, Slot};

use super::redis::{Bytes, Data, Entry, Keys};

/// A score of a waiter with --next is its ticket minus this.
const NEXT_OFFSET: i64 = 1 << 52;

/// The lock that these keys hold.
pub(crate) fn lock(keys: &Keys, key: &Key) -> Lock {
    let data = |name: &str| keys.get(key.side(name).as_bytes()).map(|entry| &entry.data);
    let zset = |name: &str| match data(name) {
        Some(Data::Zset(zset)) => zset.iter().map(|(score, it)| (*score, text(it))).collect(),
        _ => Vec::new(),
    };
    let state = match data("state") {
        Some(Data::Hash(state)) => state.iter().map(|(name, it)| (text(name), text(it))).collect(),
        _ => BTreeMap::new(),
    };
    let field = |name: &str| state.get(name).cloned();
    let number = |name: &str| field(name).map_or(0, |it| it.parse().unwrap());
    let details = |token: &str| Details::of(&state, token);
    let guard = keys.get(key.as_str().as_bytes()).map(|entry| match &entry.data {
        Data::Text(value) => Guard { value: text(value), until: entry.until },
        other => panic!("a guard of another type: {other:?}"),
    });
    let newest = field("newest").map(|newest| {
        let (first, about) = newest.split_once('\n').unwrap();
        let (ticket, token) = first.split_once(' ').unwrap();
        let (ticket, token) = (ticket.parse().unwrap(), token.to_owned());
        Newest { ticket, token, about: about.to_owned() }
    });
    Lock {
        guard,
        written: field("guard"),
        mode: field("mode").and_then(|mode| mode.try_into().ok()),
        fence: number("fence"),
        generation: field("generation").unwrap_or_default(),
        holds: zset("holds").into_iter().map(|(at, it)| details(&it).hold(it, at)).collect(),
        queue: zset("queue").into_iter().map(|(at, it)| details(&it).waiter(it, at)).collect(),
        ticket: number("ticket"),
        nominated: field("nominated").map_or(Vec::new(), |nominated| {
            nominated.split_whitespace().map(str::to_owned).collect()
        }),
        newest,
        notified: field("head"),
        revoked_up_to: RevokedUpTo {
            fence: number("revoked_up_to"),
            how: field("revoked_up_to:how").and_then(|how| variant(&how)),
            by: field("revoked_up_to:by").unwrap_or_default(),
            at: number("revoked_up_to:at"),
        },
        history: match data("history") {
            Some(Data::List(entries)) => {
                entries.iter().map(|it| HistoryEntry::from_lines(&text(it)).unwrap()).collect()
            }
            _ => Vec::new(),
        },
        tombstones: zset("tombstones")
            .into_iter()
            .map(|(until, token)| Tombstone { token, until: until as u64 })
            .collect(),
        skipped: field("skipped"),
        mail: Vec::new(),
    }
}

/// The keys of a lock. A side key lasts for a long time, because the lock does not say for how long.
pub(crate) fn keys(lock: &Lock, key: &Key) -> Keys {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let newest = lock.newest.as_ref();
    let revoked = &lock.revoked_up_to;
    let has_had_waiters = lock.notified.is_some() || !lock.nominated.is_empty();
    let ticket = Some(lock.ticket).filter(|ticket| *ticket > 0 || has_had_waiters);
    let fields = [
        ("guard", text(&lock.written)),
        ("mode", text(&lock.mode.map(String::from))),
        ("fence", positive(lock.fence)),
        ("generation", lock.generation.clone()),
        // It stays when the queue has become empty.
        ("ticket", text(&ticket.map(|ticket| ticket.to_string()))),
        ("nominated", lock.nominated.iter().map(|token| format!("{token} ")).collect()),
        ("newest", text(&newest.map(|it| format!("{} {}\n{}", it.ticket, it.token, it.about)))),
        ("head", text(&lock.notified)),
        ("revoked_up_to", positive(revoked.fence)),
        ("revoked_up_to:how", text(&revoked.how.map(|how| how.to_string()))),
        ("revoked_up_to:by", revoked.by.clone()),
        ("revoked_up_to:at", text(&revoked.how.map(|_| revoked.at.to_string()))),
        ("skipped", text(&lock.skipped)),
    ];
    let fields = fields.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
    let holds = lock.holds.iter().map(|hold| (&hold.token, Details::of_hold(hold)));
    let waiters = lock.queue.iter().map(|waiter| (&waiter.token, Details::of_waiter(waiter)));
    let details = holds.chain(waiters).map(|(token, Details(lines))| {
        (format!("details:{token}").into(), lines.join("\n").into())
    });
    // A reinstated hold, which has an id for a token, has no slot.
    let slots = bits(lock.holds.iter().filter(|it| it.token.len() > 8).filter_map(|it| it.slot));
    let state = fields.into_iter().chain(details).chain([("slots".into(), slots)]);

    let holds = lock.holds.iter().map(|hold| (hold.deadline as i64, hold.token.clone()));
    let queue = lock.queue.iter().map(|waiter| {
        let ticket = waiter.ticket as i64;
        (if waiter.next { ticket - NEXT_OFFSET } else { ticket }, waiter.token.clone())
    });
    let marks = lock.tombstones.iter().map(|mark| (mark.until as i64, mark.token.clone()));
    let history = lock.history.iter().map(|entry| String::from(entry.clone()).into());
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

fn sorted(members: impl Iterator<Item = (i64, String)>) -> Data {
    let mut members: Vec<_> = members.map(|(score, member)| (score, member.into())).collect();
    members.sort();
    Data::Zset(members)
}

/// A number, or nothing if it is 0.
fn positive(number: u64) -> String {
    if number > 0 { number.to_string() } else { String::new() }
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

/// The details of a token, as in `lua/details.lua`.
struct Details(Vec<String>);

impl Details {
    const NAMES: [&'static str; 15] = [
        "mode",
        "owner",
        "ttl",
        "attempt",
        "fence",
        "acquired",
        "renewed",
        "since",
        "alive",
        "keep_until",
        "status",
        "reentrant",
        "origin",
        "slot",
        "about",
    ];

    fn of(state: &BTreeMap<String, String>, token: &str) -> Self {
        let lines = state.get(&format!("details:{token}"));
        let lines = lines.map(|lines| lines.splitn(15, '\n').map(str::to_owned).collect());
        Self(lines.unwrap_or_else(|| vec![String::new(); 15]))
    }

    fn with(values: &[(&str, String)]) -> Self {
        let value = |name| values.iter().find(|(other, _)| *other == name);
        Self(Self::NAMES.map(|name| value(name).map_or(String::new(), |it| it.1.clone())).into())
    }

    fn of_hold(hold: &Hold) -> Self {
        let some = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
        Self::with(&[
            ("mode", hold.mode.to_string()),
            ("owner", hold.owner.clone()),
            ("ttl", positive(hold.ttl)),
            ("attempt", positive(hold.attempt)),
            ("fence", hold.fence.to_string()),
            ("acquired", hold.acquired.to_string()),
            ("renewed", some(hold.renewed)),
            ("since", some(hold.since)),
            ("keep_until", positive(hold.keep_until)),
            (
                "status",
                match (hold.status, &hold.revoked) {
                    (HoldState::Cooling, _) => "cooling".into(),
                    (HoldState::Revoked, _) => "revoked".into(),
                    (_, Some(Revoked { at, by })) => format!("revoked {at} {by}"),
                    _ => String::new(),
                },
            ),
            ("slot", hold.slot.map_or(String::new(), |slot| slot.to_string())),
            ("about", hold.about.clone()),
        ])
    }

    fn of_waiter(waiter: &Waiter) -> Self {
        let origin = match waiter.origin {
            Origin::Counted => "",
            Origin::Proposed => "proposed",
            Origin::Agreed => "agreed",
        };
        Self::with(&[
            ("mode", waiter.mode.to_string()),
            ("owner", waiter.owner.clone()),
            ("ttl", waiter.ttl.to_string()),
            ("attempt", waiter.attempt.to_string()),
            ("since", waiter.since.to_string()),
            ("alive", waiter.alive.to_string()),
            ("reentrant", if waiter.reentrant { "1" } else { "" }.into()),
            ("origin", origin.into()),
            ("about", waiter.about.clone()),
        ])
    }

    fn get(&self, name: &str) -> &str {
        &self.0[Self::NAMES.iter().position(|other| *other == name).unwrap()]
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }

    fn mode(&self) -> Mode {
        self.get("mode").to_owned().try_into().unwrap_or_default()
    }

    fn hold(&self, token: String, deadline: i64) -> Hold {
        let status = self.get("status");
        let individually = status.strip_prefix("revoked ").and_then(|it| it.split_once(' '));
        let revoked = |(at, by): (&str, &str)| Revoked { at: at.parse().unwrap(), by: by.into() };
        Hold {
            token,
            owner: self.get("owner").to_owned(),
            mode: self.mode(),
            about: self.get("about").to_owned(),
            fence: self.number("fence").unwrap_or(0),
            acquired: self.number("acquired").unwrap_or(0),
            since: self.number("since"),
            renewed: self.number("renewed"),
            deadline: deadline as u64,
            keep_until: self.number("keep_until").unwrap_or(0),
            ttl: self.number("ttl").unwrap_or(0),
            slot: self.get("slot").parse().ok(),
            attempt: self.number("attempt").unwrap_or(0),
            status: match status {
                "cooling" => HoldState::Cooling,
                "revoked" => HoldState::Revoked,
                _ => HoldState::Held,
            },
            revoked: individually.map(revoked),
        }
    }

    fn waiter(&self, token: String, score: i64) -> Waiter {
        Waiter {
            token,
            owner: self.get("owner").to_owned(),
            mode: self.mode(),
            about: self.get("about").to_owned(),
            since: self.number("since").unwrap_or(0),
            alive: self.number("alive").unwrap_or(0),
            reentrant: self.get("reentrant") == "1",
            ttl: self.number("ttl").unwrap_or(0),
            attempt: self.number("attempt").unwrap_or(0),
            ticket: (if score < 0 { score + NEXT_OFFSET } else { score }) as u64,
            origin: match self.get("origin") {
                "agreed" => Origin::Agreed,
                "proposed" => Origin::Proposed,
                _ => Origin::Counted,
            },
            next: score < 0,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
