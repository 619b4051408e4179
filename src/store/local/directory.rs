//! Where the files of locks are, and their names.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::unistd::geteuid;

use super::failure;
use super::folder::Folder;
use super::names::{GUARD, LONGEST_ENCODED, STATE, decoded, encoded, hidden, hidden_as};
use crate::report::plain;
use crate::rules::{Failure, Instant, Key, NAME_ANOTHER, UserMessage};
use crate::system::rights;

#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    /// Whether only its owner may have access.
    private: bool,
    /// Whether it has served a request of this run; shared by all copies of this.
    served: Arc<AtomicBool>,
}

/// Where the files of one lock are.
#[derive(Clone)]
pub(super) struct LockPaths {
    pub(super) folder: Arc<Folder>,
    pub(super) state: String,
    pub(super) guard: String,
    directory: Directory,
}

impl LockPaths {
    pub(super) fn new(folder: Arc<Folder>, encoded: &str, directory: &Directory) -> Self {
        let (state, guard) = (hidden(encoded, STATE), format!("{encoded}{GUARD}"));
        Self { folder, state, guard, directory: directory.clone() }
    }

    /// The path of a file in the folder, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path.join(name)
    }

    /// What an error about a file in the folder means.
    pub(super) fn failure(&self, name: &str, error: &io::Error) -> Failure {
        failure::of(&self.path(name), error, self.directory.has_served())
    }
}

impl Directory {
    /// A directory that the user chose and may share with other users, or a private one, which they
    /// must not be able to read or write.
    pub(in crate::store) fn new(path: &Path, private: bool) -> Self {
        Self { path: path.to_owned(), private, served: Arc::default() }
    }

    pub(super) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    pub(super) fn note_served(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    /// What an error about the directory itself means.
    pub(super) fn failure(&self, error: &io::Error) -> Failure {
        failure::of(&self.path, error, self.has_served())
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
                Failure::misconfigured(what, NAME_ANOTHER).once_served(self.has_served())
            }
            _ => self.failure(&error),
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
            let (status, shown) = (&folder.status, self.path.display());
            if status.st_uid != geteuid().as_raw() {
                let what = format!("{shown}: lock directory belongs to uid {}", status.st_uid);
                return Err(Failure::misconfigured(what, NAME_ANOTHER));
            }
            if status.st_mode & 0o077 != 0 {
                let what = format!("{shown}: lock directory is accessible to other users");
                return Err(Failure::misconfigured(what, "run chmod 700 on it"));
            }
        }
        Ok(Some(folder))
    }

    /// Creates the directory. A chosen one must have its parent already, because a mistake in the
    /// name would otherwise make a lock that excludes nobody.
    ///
    /// A directory of root in one of another user would lock that user out. So root gives it to
    /// them, and makes no private one there.
    fn create(&self) -> Result<(), Failure> {
        let around = self.path.ancestors().skip(1).find_map(|it| fs::metadata(it).ok());
        let owner = around.filter(|around| geteuid().is_root() && around.uid() != 0);
        if let Some(owner) = owner.as_ref().filter(|_| self.private) {
            let shown = self.path.display();
            let what = format!("{shown}: would be in a directory of uid {}", owner.uid());
            return Err(Failure::misconfigured(what, NAME_ANOTHER));
        }
        let created = DirBuilder::new().recursive(self.private).mode(0o700).create(&self.path);
        let error = match created {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => error,
            Err(_) => return Ok(()),
            Ok(()) => {
                if let Some(owner) = owner {
                    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
                    let made = OpenOptions::new().read(true).custom_flags(flags).open(&self.path);
                    let _ = made.and_then(|it| fchown(it, Some(owner.uid()), Some(owner.gid())));
                }
                return Ok(());
            }
        };
        let parent = self.path.parent().filter(|it| !self.private && !it.exists());
        let why = match parent {
            Some(parent) => format!("{} does not exist", parent.display()),
            None => plain(&error),
        };
        let what = format!("cannot create {}: {why}", self.path.display());
        Err(match (self.failure(&error), parent) {
            (failure, _) if failure.is_transient() => failure.reworded(|_| what),
            (_, Some(_)) => Failure::misconfigured(what, "create it, or correct the URL"),
            _ => Failure::misconfigured(what, NAME_ANOTHER),
        })
    }

    /// Whether the next request creates a directory that the user named.
    pub(in crate::store) fn is_chosen_but_missing(&self) -> bool {
        let missing = || fs::metadata(&self.path).err().map(|error| error.kind());
        !self.private && missing() == Some(io::ErrorKind::NotFound)
    }

    /// The parent of a directory that is missing, in which this user can create it.
    pub(in crate::store) fn may_be_created(&self) -> Result<Self, Failure> {
        let parent = self.path.parent().unwrap_or(&self.path);
        let what = format!("cannot create {}", self.path.display());
        match rights::missing(parent, rustix::fs::Access::WRITE_OK) {
            _ if !parent.is_dir() => {
                let what = format!("{what}: {} does not exist", parent.display());
                Err(Failure::misconfigured(what, "create it, or correct the URL"))
            }
            Some(missing) => Err(Failure::misconfigured(what, missing)),
            None => Ok(Self::new(parent, true)),
        }
    }

    /// Fails if the user named a directory that is missing: locks may be in another one.
    pub(super) fn must_exist(&self) -> Result<(), Failure> {
        if !self.is_chosen_but_missing() {
            return Ok(());
        }
        let what = format!("{} does not exist", self.path.display());
        Err(Failure::misconfigured(what, "correct the URL, or acquire a lock to create it"))
    }

    /// A warning if users other than root and those of a group can change the locks.
    pub(crate) fn hazard(&self) -> Option<UserMessage> {
        let found = fs::metadata(&self.path).ok().filter(|it| it.is_dir() && !self.private)?;
        let (what, remedy) = match found.uid() {
            _ if found.mode() & 0o002 != 0 => {
                ("is writable by every user", "use a directory that only you or a group can write")
            }
            owner if ![0, geteuid().as_raw()].contains(&owner) => {
                ("is owned by another user", "use a directory that you or root own")
            }
            _ => return None,
        };
        Some(UserMessage::new(what).with_remedy(remedy))
    }

    /// Where the files of a lock are. Creates the directory if `may_create`; `None` if it is missing.
    pub(super) fn paths(&self, key: &Key, may_create: bool) -> Result<Option<LockPaths>, Failure> {
        let name = encoded(key.as_str());
        if name.len() > LONGEST_ENCODED {
            let what = "name and prefix are too long for a file name";
            return Err(Failure::misconfigured(what, "use a shorter name"));
        }
        let folder = self.open(may_create)?;
        Ok(folder.map(|folder| LockPaths::new(Arc::new(folder), &name, self)))
    }

    /// Removes the files of a lock that no other process can use.
    pub(in crate::store) fn forget(&self, key: &Key) -> Result<(), Failure> {
        let Some(paths) = self.paths(key, false)? else { return Ok(()) };
        for file in [&paths.state, &paths.guard] {
            match paths.folder.remove(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(paths.failure(file, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The keys of all locks that have a file, or of those that are found until this moment.
    pub(super) fn keys(&self, until: Option<Instant>) -> Result<Vec<String>, Failure> {
        let Some(folder) = self.open(false)? else { return Ok(Vec::new()) };
        let names = folder.names().map_err(|error| self.failure(&error))?;
        let names = names.take_while(|_| until.is_none_or(|until| Instant::now() < until));
        Ok(names.filter_map(|name| decoded(hidden_as(&name, STATE)?)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_file_name_which_decodes_to_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::new(root.path(), false);
        let long = "ä".repeat(100);
        for name in ["a", ".hidden", "..", "a/b", "%2E", "+", "a+", "x.lock", "ä%", &long] {
            let key = Key::new(&"rlock:".parse().unwrap(), &name.parse().unwrap());
            let bare = Key::new(&"".parse().unwrap(), &name.parse().unwrap());
            for key in [key, bare] {
                let paths = directory.paths(&key, true).unwrap().unwrap();
                assert!(paths.state.len() <= 255 && !paths.guard.starts_with('.'), "{name}");
                assert!(!paths.guard.contains('/') && paths.state.starts_with('.'), "{name}");
                paths.folder.new_file(&paths.state).unwrap();
                assert!(directory.keys(None).unwrap().contains(&key.as_str().to_owned()), "{name}");
            }
        }
        let key = Key::new(&"".parse().unwrap(), &"/".repeat(100).parse().unwrap());
        assert!(directory.paths(&key, true).is_err());
    }
}
