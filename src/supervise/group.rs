//! A process group that no living process leads.
//!
//! The leader of a group may not call setsid(2), and setsid(1) forks and returns at once if it
//! leads a group. A command that led its group would therefore behave differently under rlock.

use std::fs::File;
use std::io::{self, stderr, stdin, stdout};
use std::os::fd::AsFd;

use nix::libc;
use nix::unistd::{Pid, setpgid, tcgetpgrp};

use crate::error::Error;
use crate::rules::Group;
use crate::system::call::Named;
use crate::system::children::{ShortLived, leave_pid_namespace};

/// A group whose leader has ended and is reaped on drop. Until then the kernel does not reuse its
/// ID.
pub(crate) struct OwnGroup {
    leader: ShortLived,
}

impl OwnGroup {
    /// Makes a group for a command; `None` if the command stays in rlock's group.
    ///
    /// Call this well before the command starts. Just after the end of the leader, Linux still
    /// counts its load, and starts the command on another core. If that is busy, the command waits
    /// there for milliseconds.
    pub(crate) fn for_command(group: Group) -> Result<Option<Self>, Error> {
        if group == Group::Inherited || has_terminal() {
            return Ok(None);
        }
        Self::create().map(Some).map_err(no_process)
    }

    /// Makes an empty group. Its leader is also hidden from a wait for "any child", with which
    /// `descendants` looks for orphans of the command.
    fn create() -> io::Result<Self> {
        let leader = ShortLived::start()?;
        setpgid(leader.pid(), leader.pid()).named("setpgid")?;
        Ok(Self { leader })
    }

    pub(super) fn id(&self) -> Pid {
        self.leader.pid()
    }
}

/// Whether rlock has a controlling terminal. Where there is no `/dev/tty`, the standard streams
/// usually tell.
fn has_terminal() -> bool {
    match File::open("/dev/tty") {
        Ok(_) => true,
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => false,
        Err(_) => {
            let (stdin, stdout, stderr) = (stdin(), stdout(), stderr());
            let standard = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
            standard.iter().any(|stream| tcgetpgrp(stream).is_ok())
        }
    }
}

/// Why the system could not start a process.
pub(super) fn no_process(error: io::Error) -> Error {
    let unshared = "its PID namespace would have no init; use unshare --fork";
    let error = if leave_pid_namespace() { io::Error::other(unshared) } else { error };
    Error::system("cannot start a process", error)
}
