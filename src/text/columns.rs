//! The width of text on a terminal. A Chinese character or an emoji takes two columns, and a
//! combining accent takes none.

use std::borrow::Cow;
use std::iter::repeat_n;

use unicode_width::UnicodeWidthChar;

/// The width in columns. Each character counts separately, as on a terminal that does not join
/// emoji. A terminal that does needs fewer columns.
pub fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(columns_of).sum() }
}

/// Text cut to at most `width` columns, with `…` in place of the rest.
pub fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return text.into();
    }
    let Some(left) = width.checked_sub(1) else { return "".into() };
    fitting(text.chars(), left).chain(['…']).collect()
}

/// Text cut to at most `width` columns, with `…` in place of its middle. A third of what stays is
/// its beginning.
pub fn cut_middle(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return text.into();
    }
    let Some(left) = width.checked_sub(1) else { return "".into() };
    let start: String = fitting(text.chars(), left / 3).collect();
    let end: Vec<char> = fitting(text.chars().rev(), left - columns(&start)).collect();
    start.chars().chain(['…']).chain(end.into_iter().rev()).collect()
}

/// The first of these characters, as many as fit into `left` columns.
fn fitting(text: impl Iterator<Item = char>, mut left: usize) -> impl Iterator<Item = char> {
    text.take_while(move |c| {
        let rest = left.checked_sub(columns_of(*c));
        left = rest.unwrap_or(left);
        rest.is_some()
    })
}

/// Appends text to a line, and spaces up to at least `width` columns.
pub fn push_padded(line: &mut String, text: &str, width: usize) {
    line.push_str(text);
    line.extend(repeat_n(' ', width.saturating_sub(columns(text))));
}

fn columns_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_padded_by_columns() {
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
        let mut line = String::new();
        push_padded(&mut line, "日", 4);
        push_padded(&mut line, "abcde", 4);
        assert_eq!(line, "日  abcde");
    }
}
