//! Where the files of locks are, and what they are called.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::geteuid;

use super::error::Error;
use super::folder::Folder;
use crate::lock::Key;

/// What the name of a lock's guard ends with: the file that people see, and may delete.
const GUARD: &str = ".lock";

/// The same of its state, which is hidden.
const STATE: &str = ".state";

/// The same of a waiter's mailbox, which is hidden.
const MAIL: &str = ".mail";

/// The same of a file that is not yet what it is to be, which is hidden.
const DRAFT: &str = ".draft";

/// What the name of a directory ends with that is only there because names have an end.
const MORE: char = '+';

/// As much of a name as is put into one name of the file system, which takes 255 bytes.
const PIECE: usize = 200;

/// A directory of locks.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// It is the default one, which is to be its user's alone.
    private: bool,
}

/// Where the files of one lock are.
pub(super) struct Place {
    pub(super) folder: Arc<Folder>,
    pub(super) state: String,
    pub(super) guard: String,
    /// The path of the folder, for people to read.
    shown: PathBuf,
}

impl Place {
    fn new(folder: Arc<Folder>, rest: &str, shown: PathBuf) -> Self {
        Self { folder, state: hidden(rest, STATE), guard: format!("{rest}{GUARD}"), shown }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.shown.join(name)
    }
}

/// What there is in a directory beside guards and what is not rlock's.
pub(super) enum Entry {
    State(Place),
    Mail,
    Draft,
}

impl Directory {
    /// One that the user has chosen, who may share it with others.
    pub(crate) fn chosen(path: PathBuf) -> Self {
        Self { path, private: false }
    }

    /// One that nobody else may read or write.
    pub(crate) fn private(path: PathBuf) -> Self {
        Self { path, private: true }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it; `None` if it is missing and not to be made; an error if others could have planted
    /// something in it.
    pub(super) fn open(&self, may_create: bool) -> Result<Option<Folder>, Error> {
        let fail = |error: io::Error| Error::of(&self.path, &error);
        let folder = match Folder::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !may_create {
                    return Ok(None);
                }
                let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
                created.and_then(|()| Folder::open(&self.path)).map_err(fail)?
            }
            opened => opened.map_err(fail)?,
        };
        if self.private {
            let status = folder.status().map_err(fail)?;
            if status.st_uid != geteuid().as_raw() || status.st_mode & 0o077 != 0 {
                return Err(Error::Unusable(format!(
                    "{}: lock directory is accessible to other users; run chmod 700 on it",
                    self.path.display()
                )));
            }
        }
        Ok(Some(folder))
    }

    /// Where the files of a lock are; `None` if that is missing and not to be made.
    pub(super) fn place(&self, key: &Key, may_create: bool) -> Result<Option<Place>, Error> {
        let Some(mut folder) = self.open(may_create)? else { return Ok(None) };
        let mut shown = self.path.clone();
        let name = encoded(key.as_str());
        let mut rest = name.as_str();
        while rest.len() > PIECE {
            let (piece, more) = rest.split_at(PIECE);
            let name = format!("{piece}{MORE}");
            shown.push(&name);
            let fail = |error: io::Error| Error::of(&shown, &error);
            folder = match folder.within(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if !may_create {
                        return Ok(None);
                    }
                    let created = folder.make_within(&name);
                    created.and_then(|()| folder.within(&name)).map_err(fail)?
                }
                opened => opened.map_err(fail)?,
            };
            rest = more;
        }
        Ok(Some(Place::new(Arc::new(folder), rest, shown)))
    }

    /// The keys of all locks that have a file.
    pub(super) fn keys(&self) -> Result<Vec<String>, Error> {
        let mut keys = Vec::new();
        let found = self.walk(&mut |_, before, name| {
            let rest = hidden_as(name, STATE);
            keys.extend(rest.and_then(|rest| decoded(&format!("{before}{rest}"))));
        });
        found.map(|()| keys)
    }

    /// Everything in it that is rlock's alone, with the folder that it is in and its name there.
    pub(super) fn each(&self, act: &mut impl FnMut(&Folder, &str, Entry)) -> Result<(), Error> {
        self.walk(&mut |folder, _, name| {
            let entry = if let Some(rest) = hidden_as(name, STATE) {
                Entry::State(Place::new(folder.clone(), rest, self.path.clone()))
            } else if hidden_as(name, MAIL).is_some() {
                Entry::Mail
            } else if hidden_as(name, DRAFT).is_some() {
                Entry::Draft
            } else {
                return;
            };
            act(folder, name, entry);
        })
    }

    /// What cannot be looked into hides nothing else.
    fn walk(&self, act: &mut impl FnMut(&Arc<Folder>, &str, &str)) -> Result<(), Error> {
        let Some(folder) = self.open(false)? else { return Ok(()) };
        walk(&Arc::new(folder), &mut String::new(), act)
            .map_err(|error| Error::of(&self.path, &error))
    }
}

fn walk(
    folder: &Arc<Folder>,
    before: &mut String,
    act: &mut impl FnMut(&Arc<Folder>, &str, &str),
) -> io::Result<()> {
    for name in folder.names()? {
        let within = name.strip_suffix(MORE).map(|piece| (piece, folder.within(&name)));
        if let Some((piece, Ok(within))) = within {
            let length = before.len();
            before.push_str(piece);
            let _ = walk(&Arc::new(within), before, act);
            before.truncate(length);
        } else {
            act(folder, before, &name);
        }
    }
    Ok(())
}

/// The name of a new mailbox.
pub(super) fn new_mail() -> String {
    hidden(&uuid::Uuid::new_v4().to_string(), MAIL)
}

/// Could it be the name of a mailbox, and of nothing outside of its directory?
pub(super) fn is_mail(name: &str) -> bool {
    hidden_as(name, MAIL).is_some() && !name.contains('/')
}

/// The name of a new draft.
pub(super) fn new_draft() -> String {
    hidden(&uuid::Uuid::new_v4().to_string(), DRAFT)
}

fn hidden(name: &str, suffix: &str) -> String {
    format!(".{name}{suffix}")
}

fn hidden_as<'a>(name: &'a str, suffix: &str) -> Option<&'a str> {
    name.strip_prefix('.')?.strip_suffix(suffix)
}

/// With everything but letters, digits and a few signs as `%XX`; never a hidden file.
fn encoded(key: &str) -> String {
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

fn decoded(name: &str) -> Option<String> {
    let mut pieces = name.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(piece.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_file_of_its_own_and_comes_back_from_its_name() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::chosen(root.path().to_owned());
        let long = "ä".repeat(100);
        for name in ["a", ".hidden", "..", "a/b", "%2E", "+", "a+", "x.lock", &long] {
            let key = Key::new(&"rlock:".parse().unwrap(), &name.parse().unwrap());
            let bare = Key::new(&"".parse().unwrap(), &name.parse().unwrap());
            for key in [key, bare] {
                let place = directory.place(&key, true).unwrap().unwrap();
                assert!(place.state.len() <= 255 && !place.guard.starts_with('.'), "{name}");
                assert!(!place.guard.contains('/') && place.state.starts_with('.'), "{name}");
                place.folder.new_file(&place.state).unwrap();
                assert!(directory.keys().unwrap().contains(&key.as_str().to_owned()), "{name}");
            }
        }
    }
}
