//! Quoting for a shell.

/// A word that a POSIX shell reads back unchanged. It is bare if no character in it is special to a
/// shell, else in single quotes, which protect everything but a single quote.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_if_necessary() {
        assert_eq!(quoted("deploy:prod/eu-1.2"), "deploy:prod/eu-1.2");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("deploy;id>x"), "'deploy;id>x'");
        assert_eq!(quoted("it's $(x)"), r"'it'\''s $(x)'");
        // Only some shells expand these, and only at the beginning of a word.
        assert_eq!((quoted("~a"), quoted("=ls")), ("'~a'".into(), "'=ls'".into()));
    }
}
