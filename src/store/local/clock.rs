//! Converts the times in a lock's file between clocks. Each boot of a host has its own clock. So may
//! each container that shares the directory, if its boot ID is hidden.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;

use rustix::time::ClockId;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::rules::model::Lock;
use crate::rules::model::lock::{DAY, TOO_FAR};
use crate::rules::{Instant, millis};
use crate::system::clock::time_of;

/// The clock of a boot, which cannot be set.
#[derive(Clone)]
pub(super) struct Clock {
    boot: String,
    /// How far the time namespace of this process is ahead of that clock, in milliseconds.
    ahead: i64,
}

impl Clock {
    pub(super) fn of_this_process() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let offsets = match fs::read_to_string("/proc/self/timens_offsets") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let offset = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
        let offset = offset.unwrap_or_default().split_whitespace();
        let [seconds, nanos] = [0, 1].map(|part| offset.clone().nth(part)?.parse::<i64>().ok());
        let millis = |seconds: i64| seconds.saturating_mul(1_000);
        let ahead = millis(seconds.unwrap_or(0)).saturating_add(nanos.unwrap_or(0) / 1_000_000);
        Ok(Self { boot: boot.trim_end().to_owned(), ahead })
    }

    /// How long ago the boot was, in milliseconds.
    fn since_boot(&self) -> u64 {
        millis(Instant::now().since_boot()).saturating_add_signed(self.ahead.saturating_neg())
    }
}

/// What a file stores about the times in it.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Dates {
    clocks: Vec<Epoch>,
    /// One for each hold, and then one for each waiter, in the same order.
    stamps: Vec<Stamp>,
}

/// When a hold was last granted or renewed, or a waiter last asked.
#[derive(Serialize, Deserialize)]
struct Stamp {
    /// The index of the clock that measured its times.
    clock: usize,
    #[serde(deserialize_with = "plausible")]
    at: u64,
    /// When processes with other clocks first saw it in this form, by their own clocks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    seen: BTreeMap<usize, u64>,
}

/// When a clock started, from one reading of the wall clock, which makes the times in the file
/// readable. Nothing else depends on it, because it may be wrong.
#[derive(Serialize, Deserialize)]
struct Epoch {
    boot: String,
    /// In milliseconds since the epoch.
    #[serde(deserialize_with = "plausible")]
    start: u64,
}

/// Reads a time, and rejects one that is so large that adding a lease to it might overflow.
fn plausible<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let time = u64::deserialize(deserializer)?;
    if time >= TOO_FAR { Err(D::Error::custom("a time too far in the future")) } else { Ok(time) }
}

/// The times of a lock by the clock of this process.
///
/// Each clock counts a hold that was granted under another one from when it first saw it, because its
/// holder may have renewed it just before. That moment is stored, so it is counted only once. The
/// first clock by which a hold expires ends it for all. The same applies to how long a waiter is
/// presumed alive.
pub(super) struct Timeline {
    clocks: Vec<Epoch>,
    own: usize,
    /// The time by this clock, in milliseconds since the epoch.
    pub(super) now: u64,
    /// The times of the holds and waiters as they were read, by token.
    read: HashMap<String, Read>,
    /// Whether this clock sees a hold or a waiter for the first time.
    pub(super) first_sight: bool,
}

struct Read {
    stamp: Stamp,
    /// How far they were shifted to this clock, in milliseconds.
    by: i64,
    times: [u64; 3],
}

impl Timeline {
    /// Converts the times of a lock to this clock; `None` if one of them is invalid.
    pub(super) fn read(dates: Dates, clock: &Clock, lock: &mut Lock) -> Option<Self> {
        let Dates { mut clocks, stamps } = dates;
        let since_boot = clock.since_boot();
        let latest = stamps.iter().map(|stamp| stamp.at).max().max(Some(lock.latest()));
        // A clock that is far behind the others counts as a new one: fencing tokens must grow.
        let is_behind = |start: u64| Some(start.saturating_add(since_boot + DAY / 2)) < latest;
        let is_own = |epoch: &Epoch| epoch.boot == clock.boot && !is_behind(epoch.start);
        let own = clocks.iter().position(is_own);
        let own = own.unwrap_or_else(|| {
            let wall = millis(time_of(ClockId::Realtime));
            let start = latest.max(Some(wall)).unwrap_or(0).saturating_sub(since_boot);
            clocks.push(Epoch { boot: clock.boot.clone(), start });
            clocks.len() - 1
        });
        let start = clocks.get(own).map_or(0, |epoch| epoch.start);
        let now = start.saturating_add(since_boot);

        let mut first_sight = false;
        let mut by = |stamp: &mut Stamp| {
            if stamp.clock == own {
                return 0;
            }
            first_sight |= !stamp.seen.contains_key(&own);
            let seen = *stamp.seen.entry(own).or_insert(now);
            seen.wrapping_sub(stamp.at).cast_signed()
        };
        let mut read: HashMap<String, Read> = HashMap::new();
        for ((token, times), mut stamp) in lock.times().zip(stamps) {
            let by = by(&mut stamp);
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
        lock.is_plausible().then_some(Self { clocks, own, now, read, first_sight })
    }

    /// Converts the times back to the clocks that they were stored by. Times that have changed are
    /// stored by this clock from now on. Also returns the tokens of holds and waiters that are
    /// gone.
    pub(super) fn write(self, lock: &mut Lock) -> (Dates, Vec<String>) {
        let Self { mut clocks, own, now, mut read, .. } = self;
        let fresh = || Stamp { clock: own, at: now, seen: BTreeMap::new() };
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
                _ => fresh(),
            });
        }
        if !moved.is_empty() {
            lock.shift(|token| moved.get(token).copied().unwrap_or(0));
        }
        // Drop the other clocks once no time refers to them.
        let is_own = |stamp: &Stamp| stamp.clock == own && stamp.seen.is_empty();
        if stamps.iter().all(is_own) {
            clocks = clocks.into_iter().skip(own).take(1).collect();
            stamps.iter_mut().for_each(|stamp| stamp.clock = 0);
        }
        (Dates { clocks, stamps }, read.into_keys().collect())
    }
}
