//! Replies that only a faulty server sends.

use super::*;

/// What the reader makes of bytes that arrive in pieces of this size: how many replies, and whether
/// something malformed follows.
fn heard(mut bytes: &[u8], size: u64) -> (usize, bool) {
    let (mut reader, mut rest, mut replies) = (Reader::default(), usize::MAX, 0);
    loop {
        match reader.reply(&mut rest) {
            Ok(Some(_)) => replies += 1,
            Ok(None) if matches!(reader.read_from(&mut (&mut bytes).take(size)), Ok(0)) => {
                return (replies, false);
            }
            Ok(None) => {}
            Err(error) => return (replies, error == Malformed),
        }
    }
}

#[test]
fn arrays_that_are_nested_too_deep_are_malformed() {
    for depth in [MAX_DEPTH - 1, MAX_DEPTH] {
        let bytes = [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
        assert_eq!(heard(&bytes, u64::MAX).1, depth == MAX_DEPTH);
    }
}

/// Servers send such values only after HELLO 3.
#[test]
fn values_of_resp3_are_malformed() {
    for kind in b"%|~_,#!=(>" {
        assert_eq!(heard(&[*kind], 1), (0, true));
    }
}

#[test]
fn a_length_prefix_alone_allocates_no_memory() {
    let bytes = [b"*9223372036854775807\r\n".repeat(9), b"$9223372036854775807\r\n".to_vec()];
    assert_eq!(heard(&bytes.concat(), u64::MAX), (0, false));
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
        assert_eq!(heard(&bytes, 3), (1, false));
    }
}
