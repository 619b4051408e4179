//! What rlock writes for people.

use super::printable;

/// One line that is safe to show: without control characters and without the credentials in a URL.
/// Whatever shows text takes this, so that no way to the reader bypasses the filter.
pub struct Line(String);

impl Line {
    pub fn new(text: &str) -> Self {
        Self(masked(&printable(text)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Hides the user and the password in each URL. Mask a text before it is cut, because the end of a
/// password shows where it is.
pub(crate) fn masked(text: &str) -> String {
    if !text.contains("://") {
        return text.to_owned();
    }
    text.split_inclusive(char::is_whitespace).map(masked_word).collect()
}

/// A password with a slash or an `@` makes the URL invalid, but must not be shown either. So
/// everything up to the last `@` counts as credentials.
fn masked_word(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => rest.to_owned(),
    };
    // A URL of a Unix socket has them after its path.
    let parts = rest.split_inclusive(['?', '&']).map(|part| match part.split_once('=') {
        Some((name, value)) if name.starts_with("pass") => {
            let after = value.find(['&', '\'', ' ']).map_or("", |end| &value[end..]);
            format!("{name}=***{after}")
        }
        _ => part.to_owned(),
    });
    format!("{scheme}://{}", parts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_are_hidden_wherever_they_are() {
        for (text, shown) in [
            ("redis://u:secret@h:1/2", "redis://***@h:1/2"),
            ("'rediss://:sec/re@t#x@h' is bad; use", "'rediss://***@h' is bad; use"),
            ("a://u:secret@b,c://:secret@d e://secret@f", "a://***@d e://***@f"),
            ("--x=unix:///s?user=u&pass=secret&db=1'", "--x=unix:///s?user=u&pass=***&db=1'"),
            ("unix:///s?password=secret", "unix:///s?password=***"),
            ("redis+sentinel://u:secret@a,b/svc", "redis+sentinel://***@a,b/svc"),
            ("redis://h, bob@h", "redis://h, bob@h"),
        ] {
            let line = Line::new(text);
            assert_eq!(Line::new(line.as_str()).as_str(), line.as_str());
            assert_eq!(line.as_str(), shown);
        }
    }
}
