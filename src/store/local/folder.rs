//! An open directory. Files are opened relative to it and never through a link, which another user
//! may have planted.

use std::fs::{File, Permissions, set_permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, UtimensatFlags, fstat, fstatat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, geteuid, mkfifoat, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};

use super::names::new_draft;

/// The flags for files: do not follow a link, and do not block on a pipe.
const SAFELY: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_CLOEXEC);

/// An open directory.
pub(super) struct Folder {
    descriptor: OwnedFd,
    /// The status of the directory itself.
    pub(super) status: FileStat,
}

impl Folder {
    /// Opens a directory. It may be a link, because the user named it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let descriptor = nix::fcntl::open(path, flags, Mode::empty())?;
        let status = fstat(&descriptor)?;
        Ok(Self { descriptor, status })
    }

    /// Whether a group shares the directory: the group may write it, and owns all files in it.
    pub(super) fn is_shared(&self) -> bool {
        let shared = Mode::S_ISGID | Mode::S_IWGRP;
        Mode::from_bits_truncate(self.status.st_mode).contains(shared)
    }

    /// Whether new files go from root to the owner of the directory, who could not open them.
    fn has_heir(&self) -> bool {
        geteuid().is_root() && self.status.st_uid != 0 && !self.is_shared()
    }

    /// Gives something new to the owner of the directory, if necessary. A container may refuse that.
    fn hand_over(&self, new: impl AsFd) {
        if self.has_heir() {
            let (user, group) = (self.status.st_uid, self.status.st_gid);
            let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
            let _ = fchownat(new, "", user, group, AtFlags::AT_EMPTY_PATH);
        }
    }

    /// Who may use the files in the directory.
    fn mode(&self) -> Mode {
        let own = Mode::S_IRUSR | Mode::S_IWUSR;
        if self.is_shared() { own | Mode::S_IRGRP | Mode::S_IWGRP } else { own }
    }

    /// The status of a file, not following a link; `None` if it is missing.
    pub(super) fn status_of(&self, name: &str) -> io::Result<Option<FileStat>> {
        match fstatat(&self.descriptor, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The present status of a file that was opened by this name; `None` if another file has the
    /// name now.
    pub(super) fn current(&self, name: &str, file: &FileStat) -> io::Result<Option<FileStat>> {
        let there = self.status_of(name)?;
        Ok(there.filter(|there| (there.st_dev, there.st_ino) == (file.st_dev, file.st_ino)))
    }

    /// Opens a regular file with a single link. Anything else is an error.
    pub(super) fn file(&self, name: &str, access: OFlag) -> io::Result<(File, FileStat)> {
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = match openat(&self.descriptor, name, access | SAFELY, mode) {
            // A link, a directory, a socket.
            Err(Errno::ELOOP | Errno::EISDIR | Errno::ENXIO) => return Err(not_a_file()),
            opened => opened?,
        };
        let status = fstat(&file)?;
        if !is_file(&status) {
            return Err(not_a_file());
        }
        Ok((file.into(), status))
    }

    /// Creates a file that only its owner may read and write, or the group that shares the
    /// directory, whatever the umask.
    pub(super) fn new_file(&self, name: &str) -> io::Result<File> {
        if !self.is_shared() && !self.has_heir() {
            return self.make_file(name);
        }
        // It gets its name last, so that no process finds it before others can open it.
        let temp_file = new_draft();
        let file = self.make_file(&temp_file)?;
        let flags = RenameFlags::NOREPLACE;
        let renamed = renameat_with(&self.descriptor, &temp_file, &self.descriptor, name, flags);
        renamed.inspect_err(|_| {
            let _ = self.remove(&temp_file);
        })?;
        Ok(file)
    }

    fn make_file(&self, name: &str) -> io::Result<File> {
        let (file, _) = self.file(name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?;
        file.set_permissions(Permissions::from_mode(self.mode().bits()))?;
        self.hand_over(&file);
        Ok(file)
    }

    /// Creates a named pipe that the same users may read and write as other files.
    pub(super) fn make_pipe(&self, name: &str) -> io::Result<()> {
        let mode = self.mode();
        mkfifoat(&self.descriptor, name, mode)?;
        self.set_mode(name, mode)
    }

    /// Sets the owner and the mode of a pipe that this process has just made, whatever the umask.
    /// Another user of the directory may have put something else in its place, so this checks and
    /// changes an open descriptor. That is one without access to the content, because the umask may
    /// forbid access.
    fn set_mode(&self, name: &str, mode: Mode) -> io::Result<()> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let descriptor = openat(&self.descriptor, name, flags, Mode::empty())?;
        let status = fstat(&descriptor)?;
        let is_pipe = kind(&status) == SFlag::S_IFIFO;
        if is_pipe && status.st_nlink == 1 && status.st_uid == geteuid().as_raw() {
            self.hand_over(&descriptor);
        }
        if is_pipe && Mode::from_bits_truncate(status.st_mode) == mode {
            return Ok(());
        }
        if !is_pipe || status.st_uid != geteuid().as_raw() {
            let what = "another user has replaced it; keep that user out of the directory";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // fchmod(2) refuses such a descriptor.
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        set_permissions(path, Permissions::from_mode(mode.bits()))
    }

    /// Opens a named pipe. Anything else is an error.
    pub(super) fn pipe(&self, name: &str, access: OFlag) -> io::Result<File> {
        let pipe = openat(&self.descriptor, name, access | SAFELY, Mode::empty())?;
        match kind(&fstat(&pipe)?) {
            SFlag::S_IFIFO => Ok(pipe.into()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a named pipe")),
        }
    }

    /// Gives a file the present time, if permitted, so that no cleaner of old files removes it.
    pub(super) fn touch(&self, name: &str) {
        let (now, flag) = (&TimeSpec::UTIME_NOW, UtimensatFlags::NoFollowSymlink);
        let _ = utimensat(&self.descriptor, name, now, now, flag);
    }

    /// Renames a file within the directory, replacing what has the new name.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.descriptor, from, &self.descriptor, to)?)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// The names that are UTF-8, as all names of rlock are.
    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = String> + use<>> {
        let access = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = Dir::openat(&self.descriptor, ".", access, Mode::empty())?;
        let names = directory.into_iter().flatten();
        Ok(names.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned())))
    }
}

/// Whether it is a regular file with a single link.
pub(super) fn is_file(status: &FileStat) -> bool {
    kind(status) == SFlag::S_IFREG && status.st_nlink <= 1
}

/// The error for a file that is not regular or has several links.
pub(super) fn not_a_file() -> io::Error {
    let what = "not a regular file with a single link; remove it";
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_user_puts_in_place_of_a_new_pipe_keeps_its_mode() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let mode = |name| folder.status_of(name).unwrap().unwrap().st_mode & 0o777;
        let set = |name| folder.set_mode(name, Mode::S_IRWXU);
        drop(folder.new_file("theirs").unwrap());
        std::os::unix::fs::symlink("theirs", root.path().join("link")).unwrap();
        for name in ["theirs", "link"] {
            set(name).unwrap_err();
            assert_eq!(mode("theirs"), 0o600, "{name}");
        }
        folder.make_pipe("pipe").unwrap();
        set("pipe").unwrap();
        assert_eq!(mode("pipe"), 0o700);
    }
}
