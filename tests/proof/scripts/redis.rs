//! The commands of Redis that the scripts call, over maps in memory. The time is what a test sets.

use std::collections::BTreeMap;

use redis::Value;

pub(crate) type Bytes = Vec<u8>;
pub(crate) type Keys = BTreeMap<Bytes, Entry>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Redis {
    /// In milliseconds.
    pub(crate) now: u64,
    /// Whether its memory is full, so that a script may not begin with a write that needs memory.
    pub(crate) is_full: bool,
    /// Whether it is a replica, which refuses writes.
    pub(crate) is_replica: bool,
    /// Whether a replica is asked what the next script decides. Only a master may decide.
    pub(crate) asks_replica: bool,
    databases: [Keys; 2],
    selected: usize,
    /// The database that has the lock.
    pub(crate) home: usize,
    has_written: bool,
    /// Whether the present script has written something that replicas receive.
    pub(crate) has_replicated: bool,
    /// What was pushed to lists since a test last took it, in order.
    pub(crate) pushed: Vec<(Bytes, Bytes)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) data: Data,
    /// When it expires, in milliseconds.
    pub(crate) until: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(Vec<Bytes>),
    /// In the order of the scores, which are whole numbers in the scripts.
    Zset(Vec<(i64, Bytes)>),
}

type Reply = Result<Value, String>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const REPLICA: &str = "READONLY You can't write against a read only replica.";
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Two functions that find the data of one type: to read it, and to write it, which creates it if
/// necessary.
macro_rules! data_of {
    ($read:ident, $write:ident, $data:ident, $type:ty) => {
        fn $read(&self, key: &[u8]) -> Result<&$type, String> {
            const EMPTY: &$type = &<$type>::new();
            match self.databases[self.selected].get(key).map(|entry| &entry.data) {
                Some(Data::$data(data)) => Ok(data),
                Some(_) => Err(WRONG_TYPE.into()),
                None => Ok(EMPTY),
            }
        }

        fn $write(&mut self, key: &[u8]) -> Result<&mut $type, String> {
            let new = || Entry { data: Data::$data(Default::default()), until: None };
            match &mut self.keys().entry(key.to_vec()).or_insert_with(new).data {
                Data::$data(data) => Ok(data),
                _ => Err(WRONG_TYPE.into()),
            }
        }
    };
}

impl Redis {
    data_of!(hash, hash_mut, Hash, BTreeMap<Bytes, Bytes>);
    data_of!(list, list_mut, List, Vec<Bytes>);
    data_of!(zset, zset_mut, Zset, Vec<(i64, Bytes)>);

    fn keys(&mut self) -> &mut Keys {
        &mut self.databases[self.selected]
    }

    /// The keys of the database that has the lock.
    pub(crate) fn home(&self) -> &Keys {
        &self.databases[self.home]
    }

    pub(crate) fn set_home(&mut self, keys: Keys) {
        self.databases[self.home] = keys;
    }

    /// A script begins, which is in database 0, or a command outside of scripts.
    pub(crate) fn begin(&mut self, database: usize) {
        (self.selected, self.has_written, self.has_replicated) = (database, false, false);
        let now = self.now;
        for keys in &mut self.databases {
            keys.retain(|_, entry| entry.is_kept(now));
        }
    }

    /// Executes one command.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Reply {
        let name = str::from_utf8(words[0]).unwrap();
        let needs_memory = ["HSET", "RPUSH", "SET", "ZADD"].contains(&name);
        if self.is_full && needs_memory && !self.has_written {
            return Err(FULL.into());
        }
        let frees =
            ["DEL", "HDEL", "LREM", "LTRIM", "PEXPIREAT", "UNLINK", "ZREM", "ZREMRANGEBYRANK"];
        let writes = needs_memory || frees.contains(&name);
        if self.is_replica && writes {
            return Err(REPLICA.into());
        }
        self.has_written |= writes;
        let reply = self.execute(words);
        // A server does not pass on a removal that finds nothing.
        self.has_replicated |= needs_memory || writes && !matches!(reply, Ok(Value::Int(0)));
        if let Some(key) = words.get(1)
            && self.keys().get(*key).is_some_and(|entry| entry.data.is_empty())
        {
            self.keys().remove(*key);
        }
        reply
    }

    fn execute(&mut self, words: &[&[u8]]) -> Reply {
        let count = |count: usize| Ok(Value::Int(count as i64));
        match words {
            [b"TIME"] => {
                let micros = self.now * 1_000;
                let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
                Ok(Value::Array(vec![bulk(seconds.to_string()), bulk(micros.to_string())]))
            }
            [b"SELECT", database] => {
                let index = number(database)? as usize;
                self.databases.get(index).ok_or("ERR DB index is out of range")?;
                self.selected = index;
                Ok(Value::Okay)
            }
            [b"DEL" | b"UNLINK", keys @ ..] => {
                count(keys.iter().filter_map(|key| self.keys().remove(*key)).count())
            }
            [b"PEXPIREAT", key, until] => {
                let (until, now) = (number(until)?, self.now as i64);
                if until <= now {
                    return count(usize::from(self.keys().remove(*key).is_some()));
                }
                let entry = self.keys().get_mut(*key);
                count(usize::from(entry.map(|entry| entry.until = Some(until as u64)).is_some()))
            }
            [b"PTTL", key] => Ok(Value::Int(match self.databases[self.selected].get(*key) {
                None => -2,
                Some(Entry { until: None, .. }) => -1,
                Some(Entry { until: Some(until), .. }) => (until - self.now) as i64,
            })),
            [b"FLUSHALL"] => {
                self.databases = Default::default();
                self.pushed.clear();
                Ok(Value::Okay)
            }

            [b"GET", key] => match self.keys().get(*key).map(|entry| &entry.data) {
                Some(Data::Text(text)) => Ok(bulk(text.clone())),
                Some(_) => Err(WRONG_TYPE.into()),
                None => Ok(Value::Nil),
            },
            [b"SET", key, text, rest @ ..] => {
                let until = match rest {
                    [] => None,
                    [b"PXAT", until] => Some(number(until)? as u64),
                    _ => return Err("ERR syntax error".into()),
                };
                let entry = Entry { data: Data::Text(text.to_vec()), until };
                self.keys().insert(key.to_vec(), entry);
                Ok(Value::Okay)
            }

            [b"HGET", key, field] => {
                Ok(self.hash(key)?.get(*field).cloned().map_or(Value::Nil, bulk))
            }
            [b"HMGET", key, fields @ ..] if !fields.is_empty() => {
                let hash = self.hash(key)?;
                let value = |field: &&[u8]| hash.get(*field).cloned().map_or(Value::Nil, bulk);
                Ok(Value::Array(fields.iter().map(value).collect()))
            }
            [b"HSET", key, pairs @ ..] if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
                let hash = self.hash_mut(key)?;
                let before = hash.len();
                let (pairs, _) = pairs.as_chunks::<2>();
                hash.extend(pairs.iter().map(|[field, value]| (field.to_vec(), value.to_vec())));
                count(hash.len() - before)
            }
            [b"HDEL", key, fields @ ..] if !fields.is_empty() => {
                let hash = self.hash_mut(key)?;
                count(fields.iter().filter_map(|field| hash.remove(*field)).count())
            }
            [b"HSCAN", key, from, b"MATCH", pattern, b"COUNT", most] => {
                let hash = self.hash(key)?;
                let (from, most) = (number(from)? as usize, number(most)? as usize);
                let start = pattern.strip_suffix(b"*").ok_or("this pattern is not built")?;
                let next = if from + most < hash.len() { from + most } else { 0 };
                // It may show a field twice.
                let page = hash.iter().skip(from.saturating_sub(1)).take(most + 1);
                let found = page.filter(|(field, _)| field.starts_with(start));
                let words = found.flat_map(|(field, value)| [field.clone(), value.clone()]);
                let found = Value::Array(words.map(bulk).collect());
                Ok(Value::Array(vec![bulk(next.to_string()), found]))
            }

            [b"RPUSH", key, values @ ..] if !values.is_empty() => {
                let list = self.list_mut(key)?;
                list.extend(values.iter().map(|value| value.to_vec()));
                let length = list.len();
                self.pushed.extend(values.iter().map(|value| (key.to_vec(), value.to_vec())));
                count(length)
            }
            [b"LRANGE", key, from, to] => {
                let list = self.list(key)?;
                let range = range(from, to, list.len())?;
                Ok(Value::Array(list[range].iter().cloned().map(bulk).collect()))
            }
            [b"LTRIM", key, from, to] => {
                let list = self.list_mut(key)?;
                *list = list[range(from, to, list.len())?].to_vec();
                Ok(Value::Okay)
            }

            [b"LREM", key, b"1", value] => {
                let list = self.list_mut(key)?;
                let found = list.iter().position(|other| other == value);
                count(found.map(|index| list.remove(index)).iter().len())
            }

            [b"ZADD", key, score, member] => {
                let (score, zset) = (number(score)?, self.zset_mut(key)?);
                let before = zset.len();
                zset.retain(|(_, other)| other != member);
                let is_new = zset.len() == before;
                zset.push((score, member.to_vec()));
                zset.sort();
                count(usize::from(is_new))
            }
            [b"ZREM", key, members @ ..] if !members.is_empty() => {
                let zset = self.zset_mut(key)?;
                let before = zset.len();
                zset.retain(|(_, member)| !members.contains(&&member[..]));
                count(before - zset.len())
            }
            [b"ZREMRANGEBYRANK", key, from, to] => {
                let zset = self.zset_mut(key)?;
                count(zset.drain(range(from, to, zset.len())?).count())
            }
            [b"ZCARD", key] => count(self.zset(key)?.len()),
            [b"ZSCORE", key, member] => {
                let found = self.zset(key)?.iter().find(|(_, other)| other == member);
                Ok(found.map_or(Value::Nil, |(score, _)| bulk(score.to_string())))
            }
            [b"ZRANK", key, member] => {
                let rank = self.zset(key)?.iter().position(|(_, other)| other == member);
                Ok(rank.map_or(Value::Nil, |rank| Value::Int(rank as i64)))
            }
            [b"ZCOUNT", key, from, to] => count(between(self.zset(key)?, from, to)?.len()),
            [b"ZRANGE", key, from, to, rest @ ..] => {
                let zset = self.zset(key)?;
                listed(&zset[range(from, to, zset.len())?], rest)
            }
            [b"ZRANGEBYSCORE", key, from, to, rest @ ..] => {
                let found = between(self.zset(key)?, from, to)?;
                let (rest, found) = match rest {
                    [rest @ .., b"LIMIT", skipped, most] => {
                        let found = found.get(number(skipped)? as usize..).unwrap_or_default();
                        (rest, &found[..found.len().min(number(most)? as usize)])
                    }
                    _ => (rest, found),
                };
                listed(found, rest)
            }
            // A test that gets here needs the command, or has a word too few.
            _ => Err(format!("ERR unknown command {:?}", String::from_utf8_lossy(words[0]))),
        }
    }
}

impl Entry {
    /// An expiry includes its millisecond.
    pub(super) fn is_kept(&self, now: u64) -> bool {
        self.until.is_none_or(|until| now <= until)
    }
}

impl Data {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Zset(zset) => zset.is_empty(),
        }
    }
}

fn bulk(text: impl Into<Bytes>) -> Value {
    Value::BulkString(text.into())
}

fn number(text: &[u8]) -> Result<i64, String> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| "ERR value is not an integer or out of range".into())
}

/// The indexes from the first to the last, of which negative ones count from the end.
fn range(from: &[u8], to: &[u8], length: usize) -> Result<std::ops::Range<usize>, String> {
    let index = |index: i64| if index < 0 { index + length as i64 } else { index };
    let (from, to) = (index(number(from)?).max(0) as usize, index(number(to)?) + 1);
    let to = (to.max(0) as usize).min(length);
    Ok(from.min(to)..to)
}

/// The members with a score within two bounds. `(` excludes the bound itself.
fn between<'z>(
    zset: &'z [(i64, Bytes)],
    from: &[u8],
    to: &[u8],
) -> Result<&'z [(i64, Bytes)], String> {
    let bound = |text: &[u8], excluded: i64| match text {
        b"-inf" => Ok(i64::MIN),
        b"+inf" => Ok(i64::MAX),
        [b'(', text @ ..] => number(text).map(|number| number + excluded),
        text => number(text),
    };
    let (from, to) = (bound(from, 1)?, bound(to, -1)?);
    let from = zset.partition_point(|(score, _)| *score < from);
    let to = zset.partition_point(|(score, _)| *score <= to);
    Ok(&zset[from..to.max(from)])
}

fn listed(members: &[(i64, Bytes)], options: &[&[u8]]) -> Reply {
    let with_scores = options == [b"WITHSCORES"];
    let words = members.iter().flat_map(|(score, member)| {
        let score = with_scores.then(|| bulk(score.to_string()));
        [bulk(member.clone())].into_iter().chain(score)
    });
    Ok(Value::Array(words.collect()))
}
