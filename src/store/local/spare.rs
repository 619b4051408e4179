//! Replaces a state in one step.
//!
//! Each lock has a spare file beside its state. The new state is written to the spare, and then the
//! two files exchange their names. Freeing a replaced file would take longer than the rest of a
//! change.
//!
//! Only a process that has locked the state may write the spare. It locks the spare too, because a
//! process that opened the file while it was the state may still have it locked.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::fchown;

use nix::fcntl::Flock;
use nix::sys::stat::FileStat;
use nix::unistd::geteuid;

use super::directory::Place;
use super::folder::Folder;
use super::locking;
use super::names::new_draft;

/// Replaces the state `old`, which this process has locked.
pub(super) fn replace(place: &Place, old: &FileStat, text: &[u8]) -> io::Result<()> {
    let Place { folder, state, spare, .. } = place;
    if let Some((file, length)) = usable(place, old) {
        overwrite(&file, length, text)?;
        return exchange(folder, spare, state);
    }
    let draft = Draft::new(folder, old)?;
    overwrite(&draft.file, 0, text)?;
    exchange(folder, &draft.name, state)?;
    // The old state, which now has the name of the draft, becomes the spare.
    let _ = folder.rename(&draft.name, spare);
    Ok(())
}

/// The locked spare and its length; `None` if it is missing or in use. It will become the state, so
/// `None` too if its owner or mode is not that of a state.
fn usable(place: &Place, old: &FileStat) -> Option<(Flock<File>, usize)> {
    let Place { folder, spare, .. } = place;
    let (file, status) = locking::lock_idle(folder, spare).ok()??;
    let has_owner = folder.is_shared() || status.st_uid == old.st_uid;
    let length = usize::try_from(status.st_size).ok()?;
    (has_owner && folder.has_access_of_new(&status)).then_some((file, length))
}

/// Writes over the old content, which may be longer. The file keeps its blocks, so this often works
/// even on a full disk.
fn overwrite(mut file: &File, length: usize, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    if text.len() < length { file.set_len(text.len() as u64) } else { Ok(()) }
}

/// Exchanges two names. If the file system cannot, replaces the second file with the first.
fn exchange(folder: &Folder, new: &str, old: &str) -> io::Result<()> {
    folder.exchange(new, old).or_else(|_| folder.rename(new, old))
}

/// A new file. Dropping this removes its name.
struct Draft<'a> {
    folder: &'a Folder,
    name: String,
    file: File,
}

impl<'a> Draft<'a> {
    /// Creates the file with the owner of the one that it will replace, so that root can change other
    /// users' locks. In a shared directory, the group owns all files.
    fn new(folder: &'a Folder, replaced: &FileStat) -> io::Result<Self> {
        let name = new_draft();
        let file = folder.new_file(&name)?;
        let draft = Self { folder, name, file };
        if replaced.st_uid != geteuid().as_raw() && !folder.is_shared() {
            fchown(&draft.file, Some(replaced.st_uid), Some(replaced.st_gid))?;
        }
        Ok(draft)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.name);
    }
}
