//! Reads replies in RESP2, the protocol of Redis, from bytes that arrive in any pieces.
//!
//! The parser of the redis crate is slow at its first reply: it asks the processor which
//! instructions it has, and on a virtual machine the hypervisor answers. It still reads error
//! replies, because only the crate can build its errors.

use std::io::{self, Read};
use std::ops::Range;
use std::str;

use redis::{Value, parse_redis_value};

/// The least room for new bytes that the reader makes when it has none left.
const ROOM: usize = 8 * 1024;

/// How deep arrays may be nested; the redis crate has the same limit. The replies to rlock's
/// commands need far less.
const MAX_DEPTH: usize = 100;

/// For how many elements an array gets memory before they arrive. Only a hostile server announces
/// far more elements than it sends.
const MAX_RESERVED: usize = 64;

/// The end of a line.
const END: &[u8] = b"\r\n";

/// The server sent something that is not RESP2. The reader must be dropped.
#[derive(Debug)]
pub(super) struct Malformed;

/// Assembles replies. It keeps an incomplete reply, so that reading can pause after any byte, and it
/// does not start over when more bytes arrive.
#[derive(Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// The part of `bytes` that has been received but is not in any value yet.
    unread: Range<usize>,
    /// How much of `unread` contains no end of a line, if a line comes next.
    searched: usize,
    /// The length of the bulk string that comes next.
    bulk: Option<usize>,
    /// The incomplete arrays, each of which is an element of the previous one.
    arrays: Vec<Array>,
}

struct Array {
    elements: Vec<Value>,
    missing: usize,
}

/// What a reply consists of.
enum Item {
    Value(Value),
    /// The beginning of an array with this many elements.
    Array(usize),
}

impl Reader {
    /// Reads from `source` once, and returns how many bytes it got. 0 means that the source has
    /// ended.
    pub(super) fn read_from(&mut self, source: &mut impl Read) -> io::Result<usize> {
        if self.unread.end == self.bytes.len() {
            // Double the unread bytes, so that moving them takes linear time in total.
            self.bytes.drain(..self.unread.start);
            self.unread = 0..self.bytes.len();
            self.bytes.resize(self.unread.end + self.unread.end.max(ROOM), 0);
        }
        let count = source.read(&mut self.bytes[self.unread.end..])?;
        self.unread.end += count;
        Ok(count)
    }

    /// The next reply; `None` if it has not arrived completely.
    pub(super) fn reply(&mut self) -> Result<Option<Value>, Malformed> {
        while let Some(item) = self.item()? {
            let mut value = match item {
                Item::Value(value) => value,
                Item::Array(0) => Value::Array(Vec::new()),
                Item::Array(length) => {
                    let elements = Vec::with_capacity(length.min(MAX_RESERVED));
                    self.arrays.push(Array { elements, missing: length });
                    continue;
                }
            };
            // The value may complete its array, and that the array around it.
            loop {
                let Some(mut array) = self.arrays.pop() else { return Ok(Some(value)) };
                array.elements.push(value);
                array.missing -= 1;
                if array.missing > 0 {
                    self.arrays.push(array);
                    break;
                }
                value = Value::Array(array.elements);
            }
        }
        Ok(None)
    }

    fn item(&mut self) -> Result<Option<Item>, Malformed> {
        if let Some(length) = self.bulk {
            return Ok(self.bulk_string(length)?.map(Item::Value));
        }
        let Some(&kind) = self.bytes[self.unread.clone()].first() else { return Ok(None) };
        // Do not wait for the rest: a server that is not Redis may never end its line.
        if !b"+-:$*".contains(&kind) || self.arrays.len() >= MAX_DEPTH {
            return Err(Malformed);
        }
        let Some(line) = self.line() else { return Ok(None) };
        if kind == b'-' {
            return parse_redis_value(line)
                .map(|error| Some(Item::Value(error)))
                .or(Err(Malformed));
        }
        let text = str::from_utf8(&line[1..line.len() - END.len()]).or(Err(Malformed))?;
        let value = match kind {
            b'+' if text == "OK" => Value::Okay,
            b'+' => Value::SimpleString(text.to_owned()),
            b':' => Value::Int(integer(text)?),
            _ => match length(text)? {
                None => Value::Nil,
                Some(length) if kind == b'*' => return Ok(Some(Item::Array(length))),
                Some(length) => {
                    self.bulk = Some(length);
                    return Ok(self.bulk_string(length)?.map(Item::Value));
                }
            },
        };
        Ok(Some(Item::Value(value)))
    }

    /// The next line with its end, unless it is incomplete.
    fn line(&mut self) -> Option<&[u8]> {
        let unread = &self.bytes[self.unread.clone()];
        let found = unread[self.searched..].windows(END.len()).position(|bytes| bytes == END);
        let Some(found) = found else {
            // The last byte may belong to the end.
            self.searched = unread.len().saturating_sub(1);
            return None;
        };
        let line = &unread[..self.searched + found + END.len()];
        self.unread.start += line.len();
        self.searched = 0;
        Some(line)
    }

    /// The content of a bulk string, unless it is incomplete.
    fn bulk_string(&mut self, length: usize) -> Result<Option<Value>, Malformed> {
        let unread = &self.bytes[self.unread.clone()];
        let Some((content, rest)) = unread.split_at_checked(length) else { return Ok(None) };
        if !rest.starts_with(END) {
            return if END.starts_with(rest) { Ok(None) } else { Err(Malformed) };
        }
        let value = Value::BulkString(content.to_vec());
        self.unread.start += length + END.len();
        self.bulk = None;
        Ok(Some(value))
    }
}

fn integer(text: &str) -> Result<i64, Malformed> {
    text.trim().parse().or(Err(Malformed))
}

/// The length of a bulk string or an array; `None` if there is none, which RESP2 writes as -1.
fn length(text: &str) -> Result<Option<usize>, Malformed> {
    match integer(text)? {
        ..0 => Ok(None),
        length => usize::try_from(length).map(Some).or(Err(Malformed)),
    }
}

/// The first reply in `bytes`, if they contain a complete one.
#[cfg(any(test, fuzzing))]
pub(in crate::store) fn first_reply(mut bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader::default();
    while reader.read_from(&mut bytes).is_ok_and(|count| count > 0) {}
    reader.reply().ok()?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::{ErrorKind, Parser};

    use super::*;

    /// The first bytes of values that only RESP3 has.
    const RESP3: &[u8] = b"%|~_,#!=(>";

    /// Bytes that arrive in pieces of these sizes, with a pause before each.
    struct Pieces<'a> {
        bytes: &'a [u8],
        sizes: Box<dyn Iterator<Item = usize> + 'a>,
        paused: bool,
    }

    impl<'a> Pieces<'a> {
        fn new(bytes: &'a [u8], sizes: &'a [usize]) -> Self {
            Self { bytes, sizes: Box::new(sizes.iter().copied().cycle()), paused: false }
        }
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.paused = !self.paused;
            if self.paused {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let size = self.sizes.next().unwrap().min(buffer.len()).min(self.bytes.len());
            let (now, later) = self.bytes.split_at(size);
            buffer[..size].copy_from_slice(now);
            self.bytes = later;
            Ok(size)
        }
    }

    /// The replies in `bytes`, and whether something malformed follows.
    #[derive(Debug, PartialEq)]
    struct Heard {
        replies: Vec<Value>,
        malformed: bool,
    }

    /// What the reader makes of the bytes, and the bytes that it does not accept.
    fn heard(mut pieces: Pieces<'_>) -> (Heard, Vec<u8>) {
        let mut reader = Reader::default();
        let mut replies = Vec::new();
        let malformed = loop {
            match reader.reply() {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) if matches!(reader.read_from(&mut pieces), Ok(0)) => break false,
                Ok(None) => {}
                Err(Malformed) => break true,
            }
        };
        (Heard { replies, malformed }, reader.bytes[reader.unread].to_vec())
    }

    /// What the redis crate makes of the bytes.
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
        let mut parser = Parser::new();
        let mut replies = Vec::new();
        let error = loop {
            match parser.parse_value(Endless(&mut bytes)) {
                Ok(reply) => replies.push(reply),
                Err(error) => break error,
            }
        };
        Heard { replies, malformed: error.kind() == ErrorKind::Parse }
    }

    fn agree(bytes: &[u8], sizes: &[usize]) {
        let (heard, rest) = heard(Pieces::new(bytes, sizes));
        // The redis crate notices a first byte that is not a type only when another one follows.
        let by_redis = match heard.malformed {
            true => heard_by_redis(&[bytes, b"\n"].concat()),
            false => heard_by_redis(bytes),
        };
        match rest.first() {
            // The redis crate accepts it, which may even be an element of an array.
            Some(kind) if heard.malformed && RESP3.contains(kind) => {
                let before = heard.replies.len();
                assert_eq!(by_redis.replies.get(..before), Some(&heard.replies[..]));
            }
            _ => assert_eq!(heard, by_redis, "{}", bytes.escape_ascii()),
        }
    }

    fn resp() -> impl Strategy<Value = Vec<u8>> {
        let line = |kind: &'static str| {
            prop_oneof!["OK", "[A-Z]{0,4} [ -~]{0,9}", "[\r\né]{0,3}", "[0-9 +-]{0,4}"]
                .prop_map(move |text| format!("{kind}{text}\r\n").into_bytes())
        };
        let leaf = prop_oneof![
            line("+"),
            line("-"),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(|content| {
                [format!("${}\r\n", content.len()).as_bytes(), &content, b"\r\n"].concat()
            }),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
        ];
        leaf.prop_recursive(4, 32, 6, |element| {
            prop::collection::vec(element, 0..6).prop_map(|elements| {
                let head = format!("*{}\r\n", elements.len()).into_bytes();
                [head, elements.concat()].concat()
            })
        })
    }

    proptest! {
        #[test]
        fn the_reader_and_the_redis_crate_agree_on_resp2(
            replies in prop::collection::vec(resp(), 1..4),
            sizes in prop::collection::vec(1_usize..20, 1..5),
        ) {
            let bytes = replies.concat();
            agree(&bytes, &sizes);
        }

        #[test]
        fn the_reader_and_the_redis_crate_agree_on_damaged_resp2(
            replies in prop::collection::vec(resp(), 1..4),
            sizes in prop::collection::vec(1_usize..20, 1..5),
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), 0_usize..3, "[-+:$*0-9 \r\nx%_\0]{0,3}"),
                1..4,
            ),
        ) {
            let mut bytes = replies.concat();
            for (at, removed, added) in changes {
                let start = at.index(bytes.len() + 1);
                let end = (start + removed).min(bytes.len());
                bytes.splice(start..end, added.into_bytes());
            }
            agree(&bytes, &sizes);
        }

        #[test]
        fn the_reader_and_the_redis_crate_agree_on_any_bytes(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(&b"+-:$*0123456789\r\n"[..])],
                0..40,
            ),
        ) {
            agree(&bytes, &[7]);
        }
    }

    /// A wait that is cut short in the middle of a reply does not lose the part read so far.
    #[test]
    fn a_reply_may_be_read_in_pieces() {
        let bytes = b"*3\r\n$7\r\ngranted\r\n*1\r\n:7\r\n-ERR no\r\n+OK\r\n";
        let (heard, rest) = heard(Pieces::new(bytes, &[1]));
        let [Value::Array(array), Value::Okay] = &heard.replies[..] else { panic!("{heard:?}") };
        assert_eq!(array[0], Value::BulkString(b"granted".to_vec()));
        assert_eq!(array[1], Value::Array(vec![Value::Int(7)]));
        assert!(matches!(&array[2], Value::ServerError(error) if error.details() == Some("no")));
        assert_eq!((heard.malformed, &rest[..]), (false, &b""[..]));
    }

    #[test]
    fn arrays_are_nested_as_deep_as_in_the_redis_crate() {
        for depth in [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1] {
            let bytes = [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
            agree(&bytes, &[usize::MAX]);
            let (heard, _) = heard(Pieces::new(&bytes, &[usize::MAX]));
            assert_eq!(heard.malformed, depth >= MAX_DEPTH);
        }
    }

    /// The redis crate would read such values, but servers send them only after HELLO 3.
    #[test]
    fn values_of_resp3_are_malformed() {
        for kind in RESP3 {
            assert!(heard(Pieces::new(&[*kind], &[1])).0.malformed);
        }
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let bytes = [b"*9223372036854775807\r\n".repeat(9), b"$9223372036854775807\r\n".to_vec()];
        let bytes = bytes.concat();
        let (heard, _) = heard(Pieces::new(&bytes, &[usize::MAX]));
        assert_eq!(heard, Heard { replies: Vec::new(), malformed: false });
    }

    /// Looking at a byte again after each piece would take minutes.
    #[test]
    fn a_large_reply_in_small_pieces_takes_linear_time() {
        let large = 1 << 20;
        let bulk = [format!("${large}\r\n").as_bytes(), &vec![b'x'; large], b"\r\n"].concat();
        let line = [b"+", &vec![b'x'; large][..], b"\r\n"].concat();
        let padded = [b"$", &vec![b' '; large][..], b"1\r\nx\r\n"].concat();
        let list = [format!("*{large}\r\n").into_bytes(), b":1\r\n".repeat(large)].concat();
        for bytes in [bulk, line, padded, list] {
            let (heard, rest) = heard(Pieces::new(&bytes, &[3]));
            assert_eq!((heard.replies.len(), heard.malformed, rest.len()), (1, false, 0));
        }
    }
}
