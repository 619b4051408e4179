//! The names of the files of locks.

use sha1_smol::Sha1;

/// The suffix of a lock's guard, the file that users see and may delete.
pub(super) const GUARD: &str = ".lock";

/// The suffix of a lock's state, which is hidden.
pub(super) const STATE: &str = ".state";

/// The suffix of a waiter's mailbox, which is hidden.
pub(super) const MAIL: &str = ".mail";

/// The suffix of a new file that does not have its final name yet, which is hidden.
pub(super) const DRAFT: &str = ".draft";

/// The name of the mailbox of the waiter with this token. It does not reveal the token, because
/// other users may list the directory.
pub(super) fn mail(token: &str) -> String {
    let [hash @ .., _, _, _, _] = Sha1::from(token).digest().bytes();
    hidden(&uuid::Builder::from_sha1_bytes(hash).into_uuid().to_string(), MAIL)
}

pub(super) fn is_mail(name: &str) -> bool {
    hidden_as(name, MAIL).is_some_and(is_unique)
}

/// The name of a new draft.
pub(super) fn new_draft() -> String {
    hidden(&uuid::Uuid::new_v4().to_string(), DRAFT)
}

pub(super) fn is_draft(name: &str) -> bool {
    hidden_as(name, DRAFT).is_some_and(is_unique)
}

/// Whether a part of a name is a UUID as rlock writes it.
fn is_unique(part: &str) -> bool {
    part.len() == uuid::fmt::Hyphenated::LENGTH && uuid::Uuid::try_parse(part).is_ok()
}

pub(super) fn hidden(name: &str, suffix: &str) -> String {
    format!(".{name}{suffix}")
}

pub(super) fn hidden_as<'a>(name: &'a str, suffix: &str) -> Option<&'a str> {
    name.strip_prefix('.')?.strip_suffix(suffix)
}

/// The longest encoded key: file systems allow names of 255 bytes.
pub(super) const LONGEST_ENCODED: usize = 255 - ".".len() - STATE.len();

/// Encodes a key as a file name: all ASCII characters but letters, digits and `-_:.@` become `%XX`,
/// and so does a leading dot.
pub(super) fn encoded(key: &str) -> String {
    let mut name = String::new();
    for c in key.chars() {
        match c {
            '.' if name.is_empty() => name.push_str("%2E"),
            _ if !c.is_ascii() || c.is_ascii_alphanumeric() || "-_:.@".contains(c) => name.push(c),
            _ => name.push_str(&format!("%{:02X}", u32::from(c))),
        }
    }
    name
}

/// Decodes a file name; `None` if `encoded` cannot have written it.
pub(super) fn decoded(name: &str) -> Option<String> {
    let mut pieces = name.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(piece.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok().filter(|key| encoded(key) == name)
}
