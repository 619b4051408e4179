//! Random changes of an input.

/// Numbers at which arithmetic breaks.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "255",
    "65536",
    "4294967296",
    "9007199254740993",
    "1125899906842623",
    "9223372036854775807",
    "18446744073709551615",
    "1e400",
];

/// Texts at which parsers and terminals break.
const TEXTS: [&str; 10] =
    ["\0", "\r\n", "\u{1b}[2J", "\u{9b}", "\u{202e}", "é", "%00", "://", "[", "\""];

/// A generator of pseudo-random numbers (SplitMix64), so that a seed reproduces a failure.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below `limit`, or 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = usize::try_from(mixed >> 32).unwrap_or_default();
        mixed.checked_rem(limit).unwrap_or(0)
    }

    /// A copy of `input` with one to four changes, some of them taken from `other`.
    pub(super) fn mutated(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes, other);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let start = self.below(bytes.len() + 1);
        let end = (start + self.below(16)).min(bytes.len());
        match self.below(7) {
            0 => bytes.iter_mut().skip(start).take(1).for_each(|byte| *byte ^= 1 << self.below(8)),
            1 => drop(bytes.drain(start..end)),
            2 => bytes.truncate(start),
            3 => {
                let piece = bytes[start..end].to_vec();
                bytes.splice(start..start, piece);
            }
            4 => {
                let from = self.below(other.len() + 1);
                let to = (from + self.below(64)).min(other.len());
                bytes.splice(start..end, other[from..to].iter().copied());
            }
            5 => {
                bytes.splice(start..end, TEXTS[self.below(TEXTS.len())].bytes());
            }
            _ => self.change_number(bytes, start),
        }
    }

    /// Replaces the first number from `start` on.
    fn change_number(&mut self, bytes: &mut Vec<u8>, start: usize) {
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let first = bytes[start..].iter().position(is_digit).map_or(bytes.len(), |at| start + at);
        let length = bytes[first..].iter().take_while(|byte| is_digit(byte)).count();
        bytes.splice(first..first + length, NUMBERS[self.below(NUMBERS.len())].bytes());
    }
}
