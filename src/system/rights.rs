//! Which permission this user lacks for a file.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::text::quoted;

/// The first permission that this user lacks on the way to a file, or for this access to it, as an
/// imperative; `None` if none is missing.
pub(crate) fn missing(path: &Path, access: Access) -> Option<String> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_denied =
        |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS) == Err(Errno::ACCESS);
    let mut folders: Vec<_> = path.ancestors().skip(1).collect();
    folders.reverse();
    let closed = folders.into_iter().find(|folder| is_denied(folder, Access::EXEC_OK));
    let (lacking, what) = match closed {
        Some(folder) => (folder, "search (x)"),
        None if !is_denied(&path, access) => return None,
        None if access == Access::WRITE_OK => (&*path, "write (w)"),
        None => (&*path, "read (r)"),
    };
    Some(format!("grant this user {what} permission on {}", quoted(&lacking.to_string_lossy())))
}
