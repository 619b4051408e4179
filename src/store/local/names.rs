//! The names of the files of locks.

/// The suffix of a lock's guard, the file that users see and may delete.
pub(super) const GUARD: &str = ".lock";

/// The suffix of a lock's state, which is hidden.
pub(super) const STATE: &str = ".state";

/// The suffix of a waiter's mailbox, which is hidden.
pub(super) const MAIL: &str = ".mail";

/// The suffix of a new file that does not have its final name yet, which is hidden.
pub(super) const DRAFT: &str = ".draft";

/// The name of a new mailbox.
pub(super) fn new_mail() -> String {
    hidden(&uuid::Uuid::new_v4().to_string(), MAIL)
}

/// Whether a name is that of a mailbox, and cannot lead out of the directory.
pub(super) fn is_mail(name: &str) -> bool {
    hidden_as(name, MAIL).is_some() && !name.contains('/')
}

/// The name of a new draft.
pub(super) fn new_draft() -> String {
    hidden(&uuid::Uuid::new_v4().to_string(), DRAFT)
}

pub(super) fn hidden(name: &str, suffix: &str) -> String {
    format!(".{name}{suffix}")
}

pub(super) fn hidden_as<'a>(name: &'a str, suffix: &str) -> Option<&'a str> {
    name.strip_prefix('.')?.strip_suffix(suffix)
}

/// Encodes a key as a file name: all but letters, digits and `-_:.@` become `%XX`, and so does a
/// leading dot.
pub(super) fn encoded(key: &str) -> String {
    let mut name = String::new();
    for byte in key.bytes() {
        match byte {
            b'.' if name.is_empty() => name.push_str("%2E"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b':' | b'.' | b'@' => {
                name.push(byte.into());
            }
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

pub(super) fn decoded(name: &str) -> Option<String> {
    let mut pieces = name.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(piece.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
