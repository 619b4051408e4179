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

const END: &[u8] = b"\r\n";

/// What a value costs beside its content. An element of an array may be four bytes on the wire.
pub(in crate::store) const OVERHEAD: usize = size_of::<Value>();

/// Why the reader must be dropped.
#[derive(Debug, PartialEq)]
pub enum Unusable {
    /// The server sent something that is not RESP2.
    Malformed,
    /// The values would take too much memory.
    TooLarge,
}

use Unusable::{Malformed, TooLarge};

/// Assembles replies. It keeps an incomplete reply, so that reading can pause after any byte, and
/// it does not start over when more bytes arrive.
#[derive(Default)]
pub struct Reader {
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
    pub fn read_from(&mut self, source: &mut impl Read) -> io::Result<usize> {
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

    /// The next reply; `None` if it has not arrived completely. Reduces `rest` by what the values
    /// cost beside the bytes that were received.
    pub fn reply(&mut self, rest: &mut usize) -> Result<Option<Value>, Unusable> {
        while let Some(item) = self.item()? {
            *rest = rest.checked_sub(OVERHEAD).ok_or(TooLarge)?;
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

    fn item(&mut self) -> Result<Option<Item>, Unusable> {
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
    fn bulk_string(&mut self, length: usize) -> Result<Option<Value>, Unusable> {
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

fn integer(text: &str) -> Result<i64, Unusable> {
    text.trim().parse().or(Err(Malformed))
}

/// The length of a bulk string or an array; `None` if there is none, which RESP2 writes as -1.
fn length(text: &str) -> Result<Option<usize>, Unusable> {
    match integer(text)? {
        ..0 => Ok(None),
        length => usize::try_from(length).map(Some).or(Err(Malformed)),
    }
}

#[cfg(test)]
mod tests;
