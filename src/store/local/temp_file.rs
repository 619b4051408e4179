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
use super::directory::Place;
use super::folder::Folder;
use super::names::new_draft;

/// Replaces the state file `old`, which this process has locked, by one with this state.
pub(super) fn replace(place: &Place, old: &FileStat, content: &[u8]) -> io::Result<()> {
    let temp_file = TempFile::new(&place.folder, old)?;
    fill(&temp_file.file, content)?;
    temp_file.rename(&place.state)
}

/// Writes the first state to a new file. If this is interrupted, the file is empty or all zeros,
/// which counts as new.
pub(super) fn fill(file: &File, content: &[u8]) -> io::Result<()> {
    copies::check_size(content)?;
    let bytes = copies::new_file(content);
    file.set_len(bytes.len() as u64)?;
    file.write_all_at(&bytes, 0)
}

/// A file that is being written. It is removed when dropped, unless it has been renamed.
struct TempFile<'a> {
    folder: &'a Folder,
    name: Option<String>,
    file: File,
}

impl<'a> TempFile<'a> {
    /// Makes the file with the owner of the one that it will replace, so that root can change other
    /// users' locks. In a shared directory, the group owns all files.
    fn new(folder: &'a Folder, replaced: &FileStat) -> io::Result<Self> {
        let name = new_draft();
        let file = folder.new_file(&name)?;
        let temp_file = Self { folder, name: Some(name), file };
        if replaced.st_uid != geteuid().as_raw() && !folder.is_shared() {
            fchown(&temp_file.file, Some(replaced.st_uid), Some(replaced.st_gid))?;
        }
        Ok(temp_file)
    }

    fn rename(mut self, name: &str) -> io::Result<()> {
        let Some(own) = &self.name else { return Ok(()) };
        self.folder.rename(own, name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = self.folder.remove(name);
        }
    }
}
