//! Executes a program as execvpe(3) of glibc does: it searches PATH, and the shell runs a script
//! without an interpreter line. With execvpe(3) of musl, no such script runs.

use std::cell::Cell;
use std::env;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::iter::once;
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;

use nix::errno::Errno;
use nix::libc::{self, c_char};

/// Where to search if PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

const SHELL: &CStr = c"/bin/sh";

/// A program with its arguments and environment. Prepared before the fork, because the child must
/// not allocate.
pub(crate) struct Program {
    /// The files that may be the program.
    files: Vec<CString>,
    /// The shell, the name of the program, its arguments, and a null. The program is executed with
    /// all but the first. The shell is executed with all, and with a file instead of the name.
    words: Vec<Cell<*const c_char>>,
    /// Entries and a null.
    environment: Vec<*const c_char>,
    /// What the pointers refer to, unless it is static.
    _owned: [Vec<CString>; 2],
}

impl Program {
    /// The environment consists of the entries of rlock that are `kept`, and those that are `set`.
    pub(crate) fn new(
        name: &OsStr,
        arguments: &[OsString],
        kept: impl Iterator<Item = &'static CStr>,
        set: Vec<CString>,
    ) -> io::Result<Self> {
        let words = once(name).chain(arguments.iter().map(OsString::as_os_str));
        let words = words.map(|word| CString::new(word.as_bytes()));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let with_shell = once(SHELL.as_ptr()).chain(words.iter().map(|word| word.as_ptr()));
        let entries = kept.map(CStr::as_ptr).chain(set.iter().map(|entry| entry.as_ptr()));
        Ok(Self {
            files: files(name, env::var_os("PATH").as_deref())?,
            words: with_shell.chain(once(null())).map(Cell::new).collect(),
            environment: entries.chain(once(null())).collect(),
            _owned: [words, set],
        })
    }

    /// Replaces this process with the program. Returns only if that cannot be executed. Does not
    /// allocate.
    pub(crate) fn exec(&self) -> Errno {
        let mut failed = Errno::ENOENT;
        for file in &self.files {
            match self.exec_file(file, &self.words[1..]) {
                Errno::ENOEXEC => {
                    self.words[1].set(file.as_ptr());
                    self.exec_file(SHELL, &self.words);
                    return Errno::ENOEXEC;
                }
                // A later file may be the program. If there is none, a file that must not be
                // executed explains the most.
                errno @ (Errno::EACCES
                | Errno::ENOENT
                | Errno::ENOTDIR
                | Errno::ENODEV
                | Errno::ESTALE
                | Errno::ETIMEDOUT) => {
                    if failed != Errno::EACCES {
                        failed = errno;
                    }
                }
                errno => return errno,
            }
        }
        failed
    }

    fn exec_file(&self, file: &CStr, words: &[Cell<*const c_char>]) -> Errno {
        // SAFETY: `words` and the environment are arrays of NUL-terminated strings with a null at
        // the end. The strings live as long as `self`. A cell has the layout of its content.
        unsafe {
            libc::execve(file.as_ptr(), words.as_ptr().cast(), self.environment.as_ptr());
        }
        Errno::last()
    }
}

/// The files that may be the program of this name, in the order in which to try them.
pub(crate) fn files(name: &OsStr, path: Option<&OsStr>) -> io::Result<Vec<CString>> {
    let name = name.as_bytes();
    if name.is_empty() {
        return Ok(Vec::new());
    }
    if name.contains(&b'/') {
        return Ok(vec![CString::new(name)?]);
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes();
    let files = path.split(|byte| *byte == b':').map(|directory| match directory {
        // The current directory.
        [] => CString::new(name),
        _ => CString::new([directory, name].join(&b'/')),
    });
    Ok(files.collect::<Result<_, _>>()?)
}
