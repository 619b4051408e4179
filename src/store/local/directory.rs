//! Where the files of locks are, and their names.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::geteuid;

use super::failure::{self, NAME_ANOTHER};
use super::folder::Folder;
use super::names::{
    self, GUARD, PIECE, STATE, decoded, encoded, hidden, hidden_as, is_draft, is_mail, piece,
};
use crate::report::plain;
use crate::rules::{Failure, Key, UserMessage};

/// The deepest folder is in this many others. A key has at most 400 bytes, and each may need three
/// in a file name. The last piece is that of a file.
const MOST_FOLDERS: usize = (3 * 400_usize).div_ceil(PIECE) - 1;

/// A directory of locks.
#[derive(Clone, Debug)]
pub struct Directory {
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

/// The kinds of files that users do not see.
pub(super) enum Kind {
    State(Place),
    Mail,
    TempFile,
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
    pub(super) fn open(&self, may_create: bool) -> Result<Option<Folder>, Failure> {
        let fail = |error: io::Error| match error.kind() {
            // It cannot be shared.
            io::ErrorKind::PermissionDenied if self.private => {
                let what = format!("{}: {}", self.path.display(), plain(&error));
                Failure::misconfigured(what, NAME_ANOTHER)
            }
            _ => failure::of(&self.path, &error),
        };
        let folder = match Folder::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !may_create {
                    return Ok(None);
                }
                self.create()?;
                Folder::open(&self.path).map_err(fail)?
            }
            opened => opened.map_err(fail)?,
        };
        if self.private {
            let status = &folder.status;
            if status.st_uid != geteuid().as_raw() || status.st_mode & 0o077 != 0 {
                let shown = self.path.display();
                let what = format!("{shown}: lock directory is accessible to other users");
                return Err(Failure::misconfigured(what, "run chmod 700 on it"));
            }
        }
        Ok(Some(folder))
    }

    /// Creates the directory. A chosen one must have its parent already, because a mistake in the
    /// name would otherwise make a lock that excludes nobody.
    fn create(&self) -> Result<(), Failure> {
        let created = DirBuilder::new().recursive(self.private).mode(0o700).create(&self.path);
        let error = match created {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => error,
            _ => return Ok(()),
        };
        let parent = self.path.parent().filter(|it| !self.private && !it.exists());
        let why = match parent {
            Some(parent) => format!("{} does not exist", parent.display()),
            None => plain(&error),
        };
        let what = format!("cannot create {}: {why}", self.path.display());
        Err(match (failure::of(&self.path, &error), parent) {
            (Failure::Unavailable(_), _) => Failure::Unavailable(UserMessage::new(what)),
            (_, Some(_)) => Failure::misconfigured(what, "create it, or correct the URL"),
            _ => Failure::misconfigured(what, NAME_ANOTHER),
        })
    }

    /// Whether the next request creates a directory that the user named.
    pub(super) fn is_chosen_but_missing(&self) -> bool {
        let missing = || fs::metadata(&self.path).err().map(|error| error.kind());
        !self.private && missing() == Some(io::ErrorKind::NotFound)
    }

    /// A warning if users other than root and those of a group can change the locks.
    pub(crate) fn hazard(&self) -> Option<String> {
        let found = fs::metadata(&self.path).ok().filter(|it| it.is_dir() && !self.private)?;
        let what = match found.uid() {
            _ if found.mode() & 0o002 != 0 => {
                "writable by every user; use a directory that only you or a group can write"
            }
            owner if ![0, geteuid().as_raw()].contains(&owner) => {
                "owned by another user; use a directory that you or root own"
            }
            _ => return None,
        };
        Some(format!("local:{}: {what}", self.path.display()))
    }

    /// Where the files of a lock are. Creates the folder if `may_create`; `None` if it is missing.
    pub(super) fn place(&self, key: &Key, may_create: bool) -> Result<Option<Place>, Failure> {
        let Some(mut folder) = self.open(may_create)? else { return Ok(None) };
        let mut shown = self.path.clone();
        let name = encoded(key.as_str());
        let mut rest = name.as_str();
        while rest.len() > PIECE {
            let (piece, more) = rest.split_at(PIECE);
            let name = names::folder(piece);
            shown.push(&name);
            let fail = |error: io::Error| failure::of(&shown, &error);
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
    pub(super) fn keys(&self) -> Result<Vec<String>, Failure> {
        let keys = self.files()?.filter_map(|file| decoded(&file.encoded_key()?));
        Ok(keys.collect())
    }

    /// All entries of the directory, and those of its folders for long names. Folders that cannot
    /// be read count as empty.
    pub(super) fn files(&self) -> Result<Files, Failure> {
        let mut files = Files { path: self.path.clone(), open: Vec::new() };
        if let Some(folder) = self.open(false)? {
            let opened = files.enter(folder, String::new());
            opened.map_err(|error| failure::of(&self.path, &error))?;
        }
        Ok(files)
    }
}

/// Goes through the entries of a directory.
pub(super) struct Files {
    path: PathBuf,
    /// The folders that are being read, each in the one before.
    open: Vec<Level>,
}

struct Level {
    folder: Arc<Folder>,
    /// The part of an encoded key that the folder stands for.
    before: String,
    names: Box<dyn Iterator<Item = String>>,
}

impl Files {
    fn enter(&mut self, folder: Folder, before: String) -> io::Result<()> {
        let names = Box::new(folder.names()?);
        self.open.push(Level { folder: Arc::new(folder), before, names });
        Ok(())
    }
}

impl Iterator for Files {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let depth = self.open.len();
            let Level { folder, before, names } = self.open.last_mut()?;
            let Some(name) = names.next() else {
                self.open.pop();
                continue;
            };
            let (folder, before) = (folder.clone(), before.clone());
            if let Some(piece) = piece(&name).filter(|_| depth <= MOST_FOLDERS)
                && let Ok(within) = folder.within(&name)
            {
                let _ = self.enter(within, [&before, piece].concat());
            }
            return Some(Found { folder, before, name, path: self.path.clone() });
        }
    }
}

/// An entry of the directory, which need not be a file of rlock.
pub(super) struct Found {
    pub(super) folder: Arc<Folder>,
    /// The part of an encoded key that the folder stands for.
    before: String,
    pub(super) name: String,
    /// The path of the directory.
    path: PathBuf,
}

impl Found {
    /// The kind of the file, by its whole name; `None` if it is not a hidden file of rlock.
    pub(super) fn kind(&self) -> Option<Kind> {
        if is_mail(&self.name) {
            return Some(Kind::Mail);
        }
        if is_draft(&self.name) {
            return Some(Kind::TempFile);
        }
        decoded(&self.encoded_key()?)?;
        let rest = hidden_as(&self.name, STATE)?;
        Some(Kind::State(Place::new(self.folder.clone(), rest, self.path.clone())))
    }

    /// The encoded key of the lock whose state this is, if it is a state.
    fn encoded_key(&self) -> Option<String> {
        Some([&self.before, hidden_as(&self.name, STATE)?].concat())
    }
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
