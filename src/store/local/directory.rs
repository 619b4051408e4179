//! Where the files of locks are, and what they are called.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::error::Error;
use crate::lock::Key;

/// What a file's name ends with.
const SUFFIX: &str = ".lock";

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

    /// Makes it, if it is missing and `may_create`, and says if it is there; an error if others
    /// could have planted something in it.
    pub(super) fn exists(&self, may_create: bool) -> Result<bool, Error> {
        if may_create {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
            created.map_err(|error| Error::of(&self.path, &error))?;
        }
        let found = match fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::of(&self.path, &error)),
        };
        let others = found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0;
        if self.private && others {
            return Err(Error::Unusable(format!(
                "{}: others have rights to this directory of locks; chmod 700 it, or name another \
                 with local:/DIRECTORY",
                self.path.display()
            )));
        }
        Ok(true)
    }

    /// The file of a lock.
    pub(super) fn file(&self, key: &Key) -> PathBuf {
        let mut path = self.path.clone();
        let name = encoded(key.as_str());
        let mut rest = name.as_str();
        while rest.len() > PIECE {
            let (piece, more) = rest.split_at(PIECE);
            path.push(format!("{piece}{MORE}"));
            rest = more;
        }
        path.push(format!("{rest}{SUFFIX}"));
        path
    }

    /// The keys of all locks that have a file.
    pub(super) fn keys(&self) -> Result<Vec<String>, Error> {
        let mut keys = Vec::new();
        if self.exists(false)? {
            let found = self.each_file(&mut |name, _| {
                keys.extend(name.strip_suffix(SUFFIX).and_then(decoded));
            });
            found.map_err(|error| Error::of(&self.path, &error))?;
        }
        Ok(keys)
    }

    /// Everything in it, by its whole name. What cannot be looked into hides nothing else.
    pub(super) fn each_file(&self, act: &mut impl FnMut(&str, &Path)) -> io::Result<()> {
        each_file(&self.path, &mut String::new(), act)
    }
}

/// Is this the name of a lock's file?
pub(super) fn is_of_lock(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

fn each_file(
    directory: &Path,
    before: &mut String,
    act: &mut impl FnMut(&str, &Path),
) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let length = before.len();
        match name.strip_suffix(MORE) {
            Some(piece) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                before.push_str(piece);
                let _ = each_file(&entry.path(), before, act);
            }
            _ => {
                before.push_str(name);
                act(before, &entry.path());
            }
        }
        before.truncate(length);
    }
    Ok(())
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
        let directory = Directory::chosen("/locks".into());
        let long = "ä".repeat(100);
        for name in ["a", ".hidden", "..", "a/b", "%2E", "+", "a+", "x.lock", &long] {
            let key = Key::new(&"rlock:".parse().unwrap(), &name.parse().unwrap());
            let bare = Key::new(&"".parse().unwrap(), &name.parse().unwrap());
            for key in [key, bare] {
                let file = directory.file(&key);
                let pieces: Vec<_> = file.components().skip(2).collect();
                assert!(pieces.iter().all(|piece| piece.as_os_str().len() <= 255));
                assert!(
                    pieces
                        .iter()
                        .all(|piece| !piece.as_os_str().as_encoded_bytes().starts_with(b"."))
                );
                assert_eq!(decoded(&encoded(key.as_str())).as_deref(), Some(key.as_str()));
            }
        }
    }
}
