//! Words for a shell.

/// A word that a POSIX shell reads back as it is: bare where nothing in it means anything to a
/// shell, else in single quotes, which keep everything but a single quote.
pub(crate) fn quoted(word: &str) -> String {
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
    fn a_word_is_quoted_only_where_it_has_to_be() {
        assert_eq!(quoted("deploy:prod/eu-1.2"), "deploy:prod/eu-1.2");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("deploy;id>x"), "'deploy;id>x'");
        assert_eq!(quoted("it's $(x)"), r"'it'\''s $(x)'");
        // What only some shells expand, at the beginning of a word.
        assert_eq!((quoted("~a"), quoted("=ls")), ("'~a'".into(), "'=ls'".into()));
    }
}
