//! Whose clock the times in a lock's file are of. Containers of one host may share a directory, and
//! each may have a clock of its own; so has each boot of the host.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::store::model::{Lock, Times};
use crate::system::clock::Instant;

/// In the year 37,648, in milliseconds since the epoch.
const FAR: u64 = 1 << 50;

/// The clock of this process: it runs since boot, and nobody can set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock(String);

impl Clock {
    /// Two clocks of the same name show the same time.
    pub(super) fn of_this_process() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        // In a time namespace the clock is ahead or behind.
        let offsets = match fs::read_to_string("/proc/self/timens_offsets") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let offset = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
        let offset: Vec<&str> = offset.unwrap_or_default().split_whitespace().collect();
        Ok(Self(format!("{} {}", boot.trim_end(), offset.join("."))))
    }
}

/// What a file keeps about the times in it.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Dates {
    clocks: Vec<Epoch>,
    /// Of each hold and each place in the queue, in the order of `Lock::times`.
    stamps: Vec<Stamp>,
}

/// Where a clock starts, so that its times can be read by people and grow from boot to boot: a
/// wall clock was looked at once.
#[derive(Serialize, Deserialize)]
struct Epoch {
    clock: Clock,
    /// In milliseconds since the epoch.
    #[serde(deserialize_with = "near")]
    start: u64,
}

/// Reads a time to which any lease can be added. A larger one is damage.
fn near<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let time = u64::deserialize(deserializer)?;
    if time >= FAR { Err(D::Error::custom("a time that is too far away")) } else { Ok(time) }
}

/// When something was last granted, renewed or heard of.
#[derive(Serialize, Deserialize)]
struct Stamp {
    /// Whose times it has, as an index.
    clock: usize,
    #[serde(deserialize_with = "near")]
    at: u64,
    /// When processes with other clocks first saw it as it is, each by its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    seen: BTreeMap<usize, u64>,
}

/// The times of a lock as this process' clock shows them.
///
/// What was made under another clock counts from when this one first saw it: its holder may have
/// renewed it a moment before, and nobody can tell. That moment is kept, so it happens once for
/// each clock, and the first clock by which the time is over ends it for all.
pub(super) struct Timeline {
    clocks: Vec<Epoch>,
    own: usize,
    now: u64,
    /// As they were read, by token.
    read: HashMap<String, Read>,
    first_sight: bool,
}

struct Read {
    stamp: Stamp,
    /// How they were moved for this clock.
    by: i64,
    times: Times,
}

impl Timeline {
    /// Puts the times of a lock on this clock.
    pub(super) fn read(dates: Dates, clock: &Clock, lock: &mut Lock) -> Self {
        let Dates { mut clocks, stamps } = dates;
        let since_boot = Instant::now().millis_since_boot();
        let own = clocks.iter().position(|epoch| epoch.clock == *clock);
        let own = own.unwrap_or_else(|| {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let start = millis(wall).saturating_sub(since_boot);
            clocks.push(Epoch { clock: clock.clone(), start });
            clocks.len() - 1
        });
        let start = clocks.get(own).map_or(0, |epoch| epoch.start);
        let now = start.saturating_add(since_boot);

        let mut first_sight = false;
        let mut read: HashMap<String, Read> = HashMap::new();
        for ((token, times), mut stamp) in lock.times().zip(stamps) {
            let by = if stamp.clock == own {
                0
            } else {
                first_sight |= !stamp.seen.contains_key(&own);
                let seen = *stamp.seen.entry(own).or_insert(now);
                seen.wrapping_sub(stamp.at).cast_signed()
            };
            read.insert(token.to_owned(), Read { stamp, by, times });
        }
        if read.values().any(|read| read.by != 0) {
            lock.shift(|token| read.get(token).map_or(0, |read| read.by));
            for (token, times) in lock.times() {
                if let Some(read) = read.get_mut(token) {
                    read.times = times;
                }
            }
        }
        Self { clocks, own, now, read, first_sight }
    }

    /// In milliseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Is there something that this clock has not seen before?
    pub(super) fn has_first_sight(&self) -> bool {
        self.first_sight
    }

    /// Puts the times back as they are kept: those that were changed are of this clock now.
    pub(super) fn write(self, lock: &mut Lock) -> Dates {
        let Self { mut clocks, own, now, mut read, .. } = self;
        let mut moved = HashMap::new();
        let mut stamps = Vec::new();
        for (token, times) in lock.times() {
            stamps.push(match read.remove(token) {
                Some(Read { stamp, by, times: before }) if before == times => {
                    if by != 0 {
                        moved.insert(token.to_owned(), by.wrapping_neg());
                    }
                    stamp
                }
                _ => Stamp { clock: own, at: now, seen: BTreeMap::new() },
            });
        }
        if !moved.is_empty() {
            lock.shift(|token| moved.get(token).copied().unwrap_or(0));
        }
        // Other clocks are forgotten once nothing refers to them.
        if stamps.iter().all(|stamp| stamp.clock == own && stamp.seen.is_empty()) {
            clocks = clocks.into_iter().skip(own).take(1).collect();
            stamps.iter_mut().for_each(|stamp| stamp.clock = 0);
        }
        Dates { clocks, stamps }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
