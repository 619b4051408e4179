//! Reads the keys of a lock as the model that they stand for.

use std::collections::BTreeMap;

use rlock::rules::lock::view::variant;
use rlock::rules::model::Lock;
use rlock::rules::model::lock::{
    Guard, Hold, Newest, Origin, Revoked, RevokedUpTo, Tombstone, Waiter,
};
use rlock::rules::{HistoryEntry, HoldState, Key, Mode};

use super::redis::{Data, Keys};

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
