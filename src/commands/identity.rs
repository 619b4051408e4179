//! What other clients see of this one.

use std::borrow::Cow;
use std::env;
use std::ffi::OsStr;
use std::path::Path;

use nix::unistd::getuid;

use crate::rules::{ClientInfo, HoldKind, Label};
use crate::text::{at_most, printable, shown_program};

/// Describes an exec: this process, and the program that it runs.
pub(super) fn of_exec(program: &OsStr, label: Option<Label>) -> ClientInfo {
    let program = shown_program(program);
    let name = Path::new(&*program).file_name().unwrap_or((*program).as_ref());
    of(std::process::id(), name.to_string_lossy(), HoldKind::Exec, label)
}

/// Describes another process that needs the lock.
pub(super) fn of_process(pid: i32, kind: HoldKind, label: Option<Label>) -> ClientInfo {
    // A process can give itself any name, UTF-8 or not.
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(name.trim_ascii_end());
    of(pid.unsigned_abs(), name, kind, label)
}

fn of(pid: u32, command: Cow<'_, str>, kind: HoldKind, label: Option<Label>) -> ClientInfo {
    ClientInfo { host: host(), user: user(), pid, command: command.into_owned(), kind, label }
}

/// The user who runs this command.
pub(super) fn of_operator() -> String {
    printable(&format!("{}@{}", at_most(255, &user()), host()))
}

pub(super) fn host() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "unknown".into(), |host| host.to_string_lossy().into_owned())
}

/// Read from the environment, because the user database may be on a directory server.
fn user() -> String {
    ["LOGNAME", "USER"]
        .into_iter()
        .find_map(|name| env::var_os(name).filter(|user| !user.is_empty()))
        .map(|user| user.to_string_lossy().into_owned())
        .unwrap_or_else(
            || if getuid().is_root() { "root".into() } else { format!("uid{}", getuid()) },
        )
}
