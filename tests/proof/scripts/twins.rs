//! The commands in this process against those of a real server: both get the same calls, on the
//! same clock, and every reply and every key with its expiry must be the same.

use std::fs::File;
use std::os::unix::fs::FileExt;

use redis::{Cmd, ConnectionLike, FromRedisValue, Value, cmd};
use rlock::rules::Failure;
use rlock::store::server::scripts::Call;
use rlock::store::server::{RedisStore, Reply};

use super::redis::{Bytes, Data, Entry, Keys};
use super::shim::{Played, Server, Shim, StoreOn, in_small_batches, words_of};
use crate::support;

/// Reads all keys of a server: name, type, content, and how long it is kept.
const ALL_KEYS: &str = "
local all = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local kind, data = redis.call('TYPE', key).ok, nil
  if kind == 'string' then data = { redis.call('GET', key) }
  elseif kind == 'hash' then data = redis.call('HGETALL', key)
  elseif kind == 'list' then data = redis.call('LRANGE', key, 0, -1)
  else data = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  all[i] = { key, kind, data, redis.call('PTTL', key) }
end
return all";

pub(crate) struct Twins {
    connection: redis::Connection,
    clock: File,
    _server: support::Server,
    _directory: tempfile::TempDir,
}

impl Twins {
    pub(crate) fn store() -> StoreOn<Self> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clock");
        std::fs::write(&path, 0_u64.to_le_bytes()).unwrap();
        let clock = File::options().write(true).open(&path).unwrap();
        let server = support::Server::on_clock(&path);
        let client = redis::Client::open(server.url().replace("unix:", "redis+unix:")).unwrap();
        let connection = client.get_connection().unwrap();
        Shim::redis(|redis| redis.home = 0);
        let twins = Self { connection, clock, _server: server, _directory: directory };
        RedisStore::new(Played(twins), 0, 0)
    }

    fn compare_keys(&mut self) {
        let command = cmd("EVAL").arg(ALL_KEYS).arg(0).to_owned();
        let all = self.connection.req_command(&command).unwrap();
        let all = Vec::<(Bytes, String, Vec<Bytes>, i64)>::from_redis_value(all).unwrap();
        let real: Keys = Shim::redis(|redis| {
            let entry = |(key, kind, data, left): (Bytes, String, Vec<Bytes>, i64)| {
                let until = (left >= 0).then(|| redis.now + left as u64);
                (key, Entry { data: data_of(&kind, data), until })
            };
            all.into_iter().map(entry).collect()
        });
        let ours = Shim::redis(|redis| {
            redis.begin(0);
            redis.home().clone()
        });
        assert_eq!(ours, real);
    }
}

fn data_of(kind: &str, data: Vec<Bytes>) -> Data {
    let (pairs, _) = data.as_chunks::<2>();
    let score = |text: &Bytes| str::from_utf8(text).unwrap().parse().unwrap();
    match kind {
        "string" => Data::Text(data.concat()),
        "hash" => Data::Hash(pairs.iter().cloned().map(|[field, it]| (field, it)).collect()),
        "list" => Data::List(data),
        _ => Data::Zset(pairs.iter().map(|[member, at]| (score(at), member.clone())).collect()),
    }
}

impl Server for Twins {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        let ours = Shim.run(call);
        let read_only = false;
        let whole = call.as_source(read_only);
        let [eval, source, words @ ..] = &words_of(&whole)[..] else { unreachable!() };
        let source = in_small_batches(str::from_utf8(source).unwrap());
        let mut changed = Cmd::new();
        changed.arg(eval).arg(source).arg(words);
        let real = self.connection.req_command(&changed).and_then(Value::extract_error);
        match (&ours, &real) {
            (Ok(ours), Ok(real)) => assert_eq!(&ours.value, real),
            (Err(ours), Err(real)) => {
                let (ours, real) = (ours.to_string(), real.to_string());
                let code = ["WRONGTYPE", "OOM"].iter().find(|code| ours.contains(*code));
                assert!(real.contains(code.unwrap()), "{ours}: {real}");
            }
            (ours, real) => panic!("{:?}: {real:?}", ours.as_ref().map(|ours| &ours.value)),
        }
        self.compare_keys();
        ours
    }

    fn set_time(&mut self, now: u64) {
        Shim.set_time(now);
        self.clock.write_all_at(&(now * 1_000).to_le_bytes(), 0).unwrap();
    }

    fn fill(&mut self, is_full: bool) {
        Shim.fill(is_full);
        let most = if is_full { 1 } else { 0 };
        let set = cmd("CONFIG").arg("SET").arg("maxmemory").arg(most).to_owned();
        self.connection.req_command(&set).unwrap();
    }

    fn send(&mut self, words: &[&str]) {
        Shim.send(words);
        self.connection.req_command(cmd(words[0]).arg(&words[1..])).unwrap();
        self.compare_keys();
    }
}
