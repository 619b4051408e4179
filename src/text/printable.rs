//! Makes text from outside safe to print: from a server, a lock file, the environment, the command
//! line.

/// Replaces each character that could move the cursor, break a line or disguise the text with a
/// space.
pub fn printable(text: &str) -> String {
    // The usual case is fast, because there may be thousands of texts.
    if text.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
        return text.to_owned();
    }
    text.replace(is_unsafe, " ")
}

/// Whether a character must not reach a terminal. These are control characters (U+009B alone begins
/// an escape sequence), other line separators, and characters that are invisible or reorder text.
/// Joiners and variation selectors are allowed, because emoji and some scripts need them.
pub fn is_unsafe(c: char) -> bool {
    match c {
        ..='\u{9f}' => c.is_control(),
        '\u{2028}' | '\u{2029}' => true,
        _ => is_invisible(c) && !is_needed_by_scripts(c),
    }
}

fn is_needed_by_scripts(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

/// Whether a character is invisible, so that a name that contains it looks like another name. These
/// are Unicode's `Default_Ignorable_Code_Point`, which includes all that change the text direction,
/// and annotation marks.
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
    fn an_unsafe_character_becomes_a_space() {
        for bad in "\0\n\r\t\x07\x1b\x7f\u{85}\u{9b}\u{9d}\u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\
                    \u{2028}\u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}\u{e0041}"
            .chars()
        {
            assert_eq!(printable(&format!("a{bad}b")), "a b", "{bad:?}");
        }
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        for good in ["job/17 ~!\"", "Zoë 日本 नमस्ते", "👩\u{200d}🚀 ❤\u{fe0f}", "می\u{200c}روم", ""]
        {
            assert_eq!(printable(good), good);
        }
    }
}
