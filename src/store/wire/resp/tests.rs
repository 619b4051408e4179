//! Replies that arrive in any pieces, and replies that only a faulty server sends.

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
    let (mut reader, mut rest) = (Reader::default(), usize::MAX);
    let mut replies = Vec::new();
    let malformed = loop {
        match reader.reply(&mut rest) {
            Ok(Some(reply)) => replies.push(reply),
            Ok(None) if matches!(reader.read_from(&mut pieces), Ok(0)) => break false,
            Ok(None) => {}
            Err(Malformed) => break true,
            Err(TooLarge) => panic!("{rest} bytes are left"),
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
fn a_length_prefix_alone_allocates_no_memory() {
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
