//! What servers reply.

use std::ops::ControlFlow;

use std::io::{self, Read};

use redis::{ErrorKind, Parser};

use super::prints::view;
use super::promises::{one_line, printable};
use rlock::rules::servers::promotion::Promotion;
use rlock::rules::{Answer, Failure, Key, Prefix, Release, Renewal, ServerTime, Verdict};
use rlock::store::quorum;
use rlock::store::server::cluster::masters_in;
use rlock::store::server::node::handshake::{self, is_master};
use rlock::store::server::scripts::{self, Call};
use rlock::store::server::{refusal, reply};
use rlock::store::wire::{Peer, Reader, ServerError, Value};

/// The first bytes of values that only RESP3 has. The redis crate would read them, but servers send
/// them only after HELLO 3.
const RESP3: &[u8] = b"%|~_,#!=(>";

/// Checks that the reader and the redis crate find the same replies in `bytes`, and the first one
/// as that to each script and command, and as an error.
pub fn replies(bytes: &[u8]) {
    let heard = heard(bytes, u64::MAX);
    assert_eq!(heard, self::heard(bytes, 1), "what arrives in pieces");
    if heard.is_malformed {
        // The redis crate notices a first byte that is not a type only when another one follows.
        let by_redis = heard_by_redis(&[bytes, b"\n"].concat());
        assert_eq!(by_redis.replies.get(..heard.replies.len()), Some(&heard.replies[..]));
        assert!(by_redis.is_malformed || bytes.iter().any(|byte| RESP3.contains(byte)));
    } else {
        assert_eq!(heard, heard_by_redis(bytes));
    }
    let Some(value) = heard.replies.into_iter().next() else { return };
    if let Value::ServerError(error) = &value {
        refused(error);
    }
    match reply::verdict(value.clone()) {
        Some(Verdict::Answer(Answer::Busy(seen) | Answer::Queued { view: seen, .. })) => {
            view(&seen)
        }
        Some(Verdict::Answer(Answer::Ended(why))) => printable(&why.to_string()),
        Some(Verdict::Answer(Answer::Superseded(newer))) => printable(&newer.to_string()),
        Some(Verdict::Answer(Answer::Removed(operator))) => printable(&operator.to_string()),
        _ => {}
    }
    if let Some(ControlFlow::Continue(place)) = quorum::reply::vote(value.clone()) {
        view(&place.view);
    }
    if let Some(Renewal::NotHeld(why)) = reply::renewal(value.clone()) {
        printable(&why.to_string());
    }
    if let Some(Release::NotHeld(why)) = reply::release(value.clone()) {
        printable(&why.to_string());
    }
    let before = reply::revoked(value.clone()).and_then(|(before, _)| before);
    let page = reply::page(value.clone());
    let _ = reply::left(value.clone());
    let views = [page, before];
    views.iter().flatten().for_each(view);
    let _ = is_master(&value);
    let _ = handshake::run(&value);
    if let Value::BulkString(text) = &value {
        let text = String::from_utf8_lossy(text);
        let marked = |it: Promotion| it.marked(&text, ServerTime(0));
        let _ = Promotion::from_info(&text, "").and_then(marked);
    }
    for here in ["redis://h:1", "unix:///s"] {
        let here = Peer::parse(here).expect("a URL");
        for (_, host, port) in masters_in(&value).unwrap_or_default() {
            let named = here.named(&host, port).map(|server| server.to_string());
            named.iter().for_each(|server| printable(server));
        }
    }
}

fn refused(error: &ServerError) {
    let address = Peer::parse("redis://h:1").expect("a URL");
    let key = Key::new(&Prefix::default(), &"L".parse().expect("a name"));
    let call = Call::new(scripts::ACQUIRE, &key, None, 0);
    let _ = refusal::lacks_a_command(error);
    for refusal in [refusal::of(error, &address), refusal::of_script(error, &address, &call)] {
        one_line(&Failure::from(refusal).to_string());
    }
}

/// The replies in some bytes, and whether something malformed follows.
#[derive(Debug, PartialEq)]
struct Heard {
    replies: Vec<Value>,
    is_malformed: bool,
}

/// What the reader makes of bytes that arrive in pieces of this size.
fn heard(mut bytes: &[u8], size: u64) -> Heard {
    let (mut reader, mut rest, mut replies) = (Reader::default(), usize::MAX, Vec::new());
    let is_malformed = loop {
        match reader.reply(&mut rest) {
            Ok(Some(reply)) => replies.push(reply),
            Ok(None) if matches!(reader.read_from(&mut (&mut bytes).take(size)), Ok(0)) => {
                break false;
            }
            Ok(None) => {}
            Err(_) => break true,
        }
    };
    Heard { replies, is_malformed }
}

fn heard_by_redis(mut bytes: &[u8]) -> Heard {
    /// Fails at the end, because a parser that sees the end reports it as malformed.
    struct Endless<'a, 'b>(&'a mut &'b [u8]);
    impl Read for Endless<'_, '_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                count => Ok(count),
            }
        }
    }
    let (mut parser, mut replies) = (Parser::new(), Vec::new());
    let error = loop {
        match parser.parse_value(Endless(&mut bytes)) {
            Ok(reply) => replies.push(reply),
            Err(error) => break error,
        }
    };
    Heard { replies, is_malformed: error.kind() == ErrorKind::Parse }
}
