//! Where the files of locks are, and their names.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::geteuid;

use super::error::Error;
use super::folder::Folder;
use super::names::{DRAFT, GUARD, MAIL, STATE, decoded, encoded, hidden, hidden_as};
use crate::lock::Key;
use crate::report::Fault;

/// The suffix of a directory whose name is the beginning of a long lock name.
const MORE: char = '+';

/// How many bytes of a lock's name go into one file name. File systems allow 255.
const PIECE: usize = 200;

/// A directory of locks.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Whether only its owner may have access.
    private: bool,
}

/// Where the files of one lock are.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) folder: Arc<Folder>,
    pub(super) state: String,
    pub(super) guard: String,
    /// The path of the folder, for messages.
    shown: PathBuf,
}

impl Place {
    fn new(folder: Arc<Folder>, rest: &str, shown: PathBuf) -> Self {
        Self { folder, state: hidden(rest, STATE), guard: format!("{rest}{GUARD}"), shown }
    }

    /// The path of a file in the folder, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.shown.join(name)
    }
}

/// A file of rlock that users do not see.
pub(super) enum Entry {
    State(Place),
    Mail,
    Draft,
}

impl Directory {
    /// A directory that the user chose and may share with other users.
    pub(in crate::store) fn chosen(path: PathBuf) -> Self {
        Self { path, private: false }
    }

    /// A directory that other users must not be able to read or write.
    pub(in crate::store) fn private(path: PathBuf) -> Self {
        Self { path, private: true }
    }

    /// The path as the user gave it, or the default one.
    pub(in crate::store) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the directory, or creates it if `may_create`; `None` if it is missing. An error also
    /// means that a private directory is accessible to other users, who may have planted files in
    /// it.
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
            let status = folder.status();
            if status.st_uid != geteuid().as_raw() || status.st_mode & 0o077 != 0 {
                let what = "lock directory is accessible to other users";
                let fault = Fault::new(format!("{}: {what}", self.path.display()));
                return Err(Error::Unusable(fault.with_remedy("run chmod 700 on it")));
            }
        }
        Ok(Some(folder))
    }

    /// Where the files of a lock are. Creates the folder if `may_create`; `None` if it is missing.
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

    /// Calls `act` with each hidden file of rlock: the folder that it is in, its name, and its
    /// kind.
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

    /// Calls `act` for each file: its folder, the part of the lock's name that the folder stands
    /// for, and the file name. Folders that cannot be read are skipped.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_file_name_which_decodes_to_it() {
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
