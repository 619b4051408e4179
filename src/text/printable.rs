//! Text from outside (a server, a lock file, the environment, the command line) as it may be shown.

/// Text in which nothing can move a cursor, break a line or make it read as another: whatever
/// could becomes a space.
pub(crate) fn printable(text: &str) -> String {
    // Nearly always so, and there may be thousands.
    if text.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
        return text.to_owned();
    }
    text.replace(is_unsafe, " ")
}

/// Characters that must not reach a terminal: control characters (U+009B begins an escape sequence
/// by itself), other ends of lines, and what is invisible or reorders its surroundings, except
/// joiners and variation selectors, which emoji and some scripts need.
pub(crate) fn is_unsafe(c: char) -> bool {
    match c {
        ..='\u{9f}' => c.is_control(),
        '\u{2028}' | '\u{2029}' => true,
        _ => is_invisible(c) && !is_part_of_writing(c),
    }
}

fn is_part_of_writing(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

/// Characters that nobody sees, as Unicode has them (`Default_Ignorable_Code_Point`, which includes
/// all that change the direction of writing), and marks of annotations. With one of these in it, a
/// name reads as another.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deceives_a_terminal_or_a_reader_becomes_a_space() {
        for bad in "\0\n\r\t\x07\x1b\x7f\u{85}\u{9b}\u{9d}\u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\
                    \u{2028}\u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}\u{e0041}"
            .chars()
        {
            assert_eq!(printable(&format!("a{bad}b")), "a b", "{bad:?}");
        }
    }

    #[test]
    fn what_people_write_stays_as_it_is() {
        for good in ["job/17 ~!\"", "Zoë 日本 नमस्ते", "👩\u{200d}🚀 ❤\u{fe0f}", "می\u{200c}روم", ""]
        {
            assert_eq!(printable(good), good);
        }
    }
}
