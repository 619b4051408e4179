//! Why the system cannot execute a program, in words.

use std::env;
use std::ffi::{CStr, OsStr};
use std::fs::{File, Metadata, OpenOptions, metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc;

use crate::report::plain;
use crate::rules::UserMessage;
use crate::system::program::files;
use crate::text::{quoted, shown_program};

/// The longest first line of a script that Linux reads.
const LONGEST_LINE: u64 = 255;

const USE_SHELL: &str = "to run a shell command, use sh -c";

/// What only a shell can run, because it changes the shell itself.
const BUILTINS: &[&str] = &[
    ".", ":", "alias", "break", "cd", "continue", "declare", "eval", "exec", "exit", "export",
    "local", "popd", "pushd", "readonly", "return", "set", "shift", "source", "times", "trap",
    "ulimit", "umask", "unalias", "unset", "wait",
];

/// Describes the error of execve(2) for this program.
pub(super) fn why(program: &OsStr, error: &io::Error) -> UserMessage {
    let name = match shown_program(program) {
        empty if empty.is_empty() => "''".into(),
        name => name,
    };
    let fault = |what: &str| UserMessage::new(format!("{name}: {what}"));
    let found = find(program);
    match (error.kind(), found) {
        // A file with the name of one, such as that of `.`, may be a directory.
        (_, found)
            if BUILTINS.contains(&&*name) && found.as_ref().is_none_or(|(_, it)| it.is_dir()) =>
        {
            fault("is a shell builtin").with_remedy(USE_SHELL)
        }
        (io::ErrorKind::NotFound, Some((path, _))) => without_interpreter(&name, &path),
        (io::ErrorKind::NotFound, None) if name.contains(' ') => {
            fault("command not found").with_remedy(USE_SHELL)
        }
        (io::ErrorKind::NotFound, None) => {
            fault("command not found").with_remedy("correct its name or PATH")
        }
        (io::ErrorKind::PermissionDenied, Some((_, file))) if file.is_dir() => {
            fault("is a directory")
        }
        (io::ErrorKind::PermissionDenied, Some((path, file)))
            if file.is_file() && file.permissions().mode() & 0o111 == 0 =>
        {
            let path = quoted(&path.to_string_lossy());
            fault("not executable").with_remedy(format!("run chmod +x -- {path}"))
        }
        _ => fault(&plain(error)),
    }
}

/// The first file of this name.
fn find(program: &OsStr) -> Option<(PathBuf, Metadata)> {
    let path = |file: &CStr| Path::new(OsStr::from_bytes(file.to_bytes())).to_owned();
    let files = files(program, env::var_os("PATH").as_deref()).unwrap_or_default();
    let mut files = files.iter().map(|file| path(file));
    files.find_map(|path| metadata(&path).ok().map(|metadata| (path, metadata)))
}

/// A file that exists, but not the program that would run it.
fn without_interpreter(name: &str, path: &Path) -> UserMessage {
    let line = first_line(path).unwrap_or_default();
    let Some(interpreter) = line.strip_prefix(b"#!") else {
        let fault = UserMessage::new(format!("{name}: the loader of this binary was not found"));
        return fault.with_remedy("use a binary that is built for this system");
    };
    let interpreter = interpreter.trim_ascii_start();
    let end = interpreter.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let interpreter = &interpreter[..end.unwrap_or(interpreter.len())];
    let (interpreter, remedy) = match interpreter.strip_suffix(b"\r") {
        Some(interpreter) => (interpreter, "remove the carriage return from its first line"),
        None => (interpreter, "correct its first line"),
    };
    let interpreter = String::from_utf8_lossy(interpreter);
    UserMessage::new(format!("{name}: interpreter {interpreter} not found")).with_remedy(remedy)
}

/// Reads from a regular file only, because another one may block.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut text = Vec::new();
    if file.metadata()?.is_file() {
        file.take(LONGEST_LINE).read_to_end(&mut text)?;
    }
    text.truncate(text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len()));
    Ok(text)
}
