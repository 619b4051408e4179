//! Reads which lines of a script have code.

use std::collections::BTreeSet;

/// The lines that have code, by the form in which Lua 5.1 dumps functions. The end of a function is
/// no code, unless it is reached without `return`.
pub(super) fn code_lines(bytecode: &[u8]) -> BTreeSet<usize> {
    let mut lines = BTreeSet::new();
    let mut rest = &bytecode[12..];
    function(&mut rest, &mut lines);
    lines
}

fn function(rest: &mut &[u8], lines: &mut BTreeSet<usize>) {
    text(rest);
    skip(rest, 4 + 4 + 4);
    let code = int(rest);
    skip(rest, 4 * code);
    for _ in 0..int(rest) {
        match skip(rest, 1)[0] {
            0 => {}
            1 => drop(skip(rest, 1)),
            3 => drop(skip(rest, 8)),
            _ => text(rest),
        }
    }
    for _ in 0..int(rest) {
        function(rest, lines);
    }
    let instructions: Vec<usize> = (0..int(rest)).map(|_| int(rest)).collect();
    lines.extend(&instructions[..code - 1]);
    for _ in 0..int(rest) {
        text(rest);
        skip(rest, 4 + 4);
    }
    (0..int(rest)).for_each(|_| text(rest));
}

fn skip<'r>(rest: &mut &'r [u8], count: usize) -> &'r [u8] {
    let (skipped, after) = rest.split_at(count);
    *rest = after;
    skipped
}

fn int(rest: &mut &[u8]) -> usize {
    u32::from_le_bytes(skip(rest, 4).try_into().unwrap()) as usize
}

fn text(rest: &mut &[u8]) {
    let length = u64::from_le_bytes(skip(rest, 8).try_into().unwrap());
    skip(rest, length as usize);
}
