//! How a state file is replaced in one step: a temporary file with the new state is renamed over
//! it.
//!
//! The temporary file is a new file each time. The file system then writes its content before it
//! records the rename, so a power failure leaves the old state or the new one.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, fchown};

use nix::sys::stat::FileStat;
use nix::unistd::geteuid;

use super::copies;
use super::directory::LockPaths;
use super::names::new_draft;

/// Replaces the state file `old`, which this process has locked, by one with this state. The new
/// file gets the owner of the old one, so that root can change other users' locks. In a shared
/// directory, the group owns all files.
pub(super) fn replace(paths: &LockPaths, old: &FileStat, content: &[u8]) -> io::Result<()> {
    let LockPaths { folder, state, .. } = paths;
    let name = new_draft();
    let file = folder.new_file(&name)?;
    let write = || {
        if old.st_uid != geteuid().as_raw() && !folder.is_shared() {
            fchown(&file, Some(old.st_uid), Some(old.st_gid))?;
        }
        fill(&file, content)?;
        folder.rename(&name, state)
    };
    write().inspect_err(|_| {
        let _ = folder.remove(&name);
    })
}

/// Writes the first state to a new file. If this is interrupted, the file is empty or all zeros,
/// which counts as new.
pub(super) fn fill(file: &File, content: &[u8]) -> io::Result<()> {
    let bytes = copies::new_file(content);
    if bytes.len() as u64 > copies::LARGEST {
        // It could not be read again.
        return Err(io::Error::new(io::ErrorKind::StorageFull, "lock file would exceed 64 MiB"));
    }
    file.set_len(bytes.len() as u64)?;
    file.write_all_at(&bytes, 0)
}
