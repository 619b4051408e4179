//! Reads the details of waiters from the state file, each when it is needed.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use nix::fcntl::Flock;
use rustix::buffer::spare_capacity;
use rustix::io::{pread, retry_on_intr};

use crate::rules::model::lock::{Details, Extent};

/// The details in a file, which stays locked until this is dropped.
#[derive(Debug)]
pub(super) struct StoredDetails {
    file: Rc<Flock<File>>,
    /// The part of the file that they are in.
    part: Range<usize>,
    /// Why some could not be read.
    failure: RefCell<Option<io::Error>>,
}

impl StoredDetails {
    pub(super) fn new(file: Rc<Flock<File>>, part: Range<usize>) -> Self {
        Self { file, part, failure: RefCell::new(None) }
    }

    /// Fails if details could not be read. What was derived from the waiters is then wrong.
    pub(super) fn check(&self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Details for StoredDetails {
    fn size(&self) -> usize {
        self.part.len()
    }

    fn read(&self, extent: &Extent) -> Option<Vec<u8>> {
        let read = read_at(&self.file, self.part.start + extent.start, extent.len());
        read.map_err(|error| self.failure.replace(Some(error))).ok()
    }
}

/// Reads a part of a file. Unlike `read_exact_at`, it does not initialize the memory first.
pub(super) fn read_at(file: &File, offset: usize, length: usize) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(length);
    while part.len() < length {
        let at = (offset + part.len()) as u64;
        if retry_on_intr(|| pread(file, spare_capacity(&mut part), at))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    part.truncate(length);
    Ok(part)
}
