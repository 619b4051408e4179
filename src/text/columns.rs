//! The width of text on a terminal. A Chinese character or an emoji takes two columns, and a
//! combining accent takes none.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// The width in columns. Each character counts separately, as on a terminal that does not join
/// emoji. A terminal that does needs fewer columns.
pub fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(columns_of).sum() }
}

/// Text cut to at most `width` columns, with `…` in place of the rest. No number is cut.
pub fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return text.into();
    }
    let Some(left) = width.checked_sub(1) else { return "".into() };
    beginning(text, left).chars().chain(['…']).collect()
}

/// Text cut to at most `width` columns, with `…` in place of its middle. A third of what stays is
/// its beginning. No number is cut.
pub fn cut_middle(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return text.into();
    }
    let Some(left) = width.checked_sub(1) else { return "".into() };
    let start = beginning(text, left / 3);
    let length = fitting(text.chars().rev(), left - columns(start));
    let (before, end) = text.split_at(text.len() - length);
    let is_digit = |c: char| c.is_ascii_digit();
    let end = if before.ends_with(is_digit) { end.trim_start_matches(is_digit) } else { end };
    format!("{start}…{end}").into()
}

/// The beginning of a text that fits into these columns, without the first part of a number, nor a
/// number without its unit.
fn beginning(text: &str, left: usize) -> &str {
    let (start, rest) = text.split_at(fitting(text.chars(), left));
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let word = start.len() - start.trim_end_matches(goes_on).len();
    let number = start[start.len() - word..].find(|c: char| c.is_ascii_digit());
    match number.filter(|_| rest.starts_with(goes_on)) {
        Some(at) => &start[..start.len() - word + at],
        None => start,
    }
}

/// The length of the first of these characters, as many as fit into `left` columns.
fn fitting(text: impl Iterator<Item = char>, mut left: usize) -> usize {
    let fits = text.take_while(|c| {
        let rest = left.checked_sub(columns_of(*c));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    fits.map(char::len_utf8).sum()
}

fn columns_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_by_columns() {
        assert_eq!((columns("abc"), columns("日本"), columns("e\u{301}")), (3, 4, 1));
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!((cut("日本", 1), cut("日本", 0)), ("…".into(), "".into()));
        assert_eq!(cut_middle("abcdefghij", 7), "ab…ghij");
        assert_eq!(cut_middle("日本語日本語", 8), "日…本語");
        assert_eq!((cut_middle("abc", 3), cut_middle("abc", 1)), ("abc".into(), "…".into()));
        assert_eq!(cut_middle("abc", 0), "");
    }
    #[test]
    fn no_number_is_cut_nor_loses_its_unit() {
        for (text, width, shown) in [
            ("root@vm pid 1452 (sh)", 14, "root@vm pid …"),
            ("root@vm pid 1452 (sh)", 17, "root@vm pid 1452…"),
            ("ana@ci-31", 9, "ana@ci-31"),
            ("ana@ci-31x", 9, "ana@ci-…"),
            ("not renewed for 2m13s", 20, "not renewed for …"),
            ("1.5s ago", 4, "…"),
            ("1.5s ago", 5, "1.5s…"),
            ("123", 2, "…"),
        ] {
            assert_eq!(cut(text, width), shown, "{width}");
        }
        for (text, width, shown) in [
            ("https://ci.example/job/17", 12, "htt…e/job/17"),
            ("job/12345", 6, "j…"),
            ("job12/build17/page", 14, "job…ild17/page"),
            ("2026/a-long-path", 9, "…ong-path"),
        ] {
            assert_eq!(cut_middle(text, width), shown, "{width}");
        }
    }
}
