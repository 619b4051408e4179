//! Tables that fit the terminal: columns without room are left out, and named.

use std::array::from_fn;
use std::borrow::Cow;

use super::style::Style;
use crate::text::{columns, listed};

/// The number of spaces between two columns.
const GAP: usize = 2;

/// How narrow the first column may become. It is always shown.
const NARROWEST: usize = 10;

pub(super) struct Column {
    pub(super) heading: &'static str,
    /// The smaller, the earlier it gets room.
    pub(super) rank: u8,
    /// How narrow it may become before it is left out.
    pub(super) least: usize,
    pub(super) cut: fn(&str, usize) -> Cow<'_, str>,
}

/// The cells of a line, and whether it needs attention.
pub(super) type TableRow<const N: usize> = ([String; N], bool);

/// The table, and what to tell about columns that are left out because the terminal is too narrow,
/// if any. Columns without content are left out too.
pub(super) fn grid<const N: usize>(
    all: &[Column; N],
    rows: Vec<TableRow<N>>,
    style: Style,
) -> (String, Option<String>) {
    let width = |index: usize| {
        let content = rows.iter().map(|(cells, _)| columns(&cells[index])).max().unwrap_or(0);
        if content == 0 { 0 } else { content.max(columns(all[index].heading)) }
    };
    let whole = from_fn(width);
    let widths = fit(all, whole, style.width);
    let heading = (from_fn(|index| all[index].heading.to_owned()), false);
    let line = |(cells, needs_attention): TableRow<N>| {
        let mut line = String::new();
        for ((cell, width), Column { cut, .. }) in cells.iter().zip(widths).zip(all) {
            if width > 0 {
                let cell = cut(cell, width);
                line = line + &cell + &" ".repeat(width + GAP - columns(&cell));
            }
        }
        style.line(&line, needs_attention)
    };
    let hidden = (0..N).filter(|index| whole[*index] > 0 && widths[*index] == 0);
    let hidden = listed(hidden.map(|index| all[index].heading), "and");
    let told = format!("{hidden} hidden; widen the terminal or use --json");
    let hidden = (!hidden.is_empty()).then_some(told);
    ([heading].into_iter().chain(rows).map(line).collect(), hidden)
}

/// Column widths, 0 for a column that is left out, so that a line fits.
fn fit<const N: usize>(all: &[Column; N], whole: [usize; N], limit: Option<usize>) -> [usize; N] {
    let mut room = limit.map_or(usize::MAX, |limit| limit + GAP);
    let mut order: [usize; N] = from_fn(|index| index);
    order.sort_by_key(|index| all[*index].rank);
    let mut widths = [0; N];
    for index in order {
        let least = match index {
            0 => all[0].least.min(room.saturating_sub(GAP)).max(NARROWEST),
            _ => all[index].least,
        };
        let least = least.min(whole[index]);
        if least > 0 && (index == 0 || least + GAP <= room) {
            widths[index] = least;
            room = room.saturating_sub(least + GAP);
        }
    }
    for index in order {
        let more = if widths[index] > 0 { room.min(whole[index] - widths[index]) } else { 0 };
        widths[index] += more;
        room -= more;
    }
    widths
}
