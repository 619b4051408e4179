//! Every exit status of rlock, and how the process ends with it.

use crate::system::disposition;

// The meanings are below. sysexits.h has 64, 69, 70, 75 and 78; shells have the last two.
pub(crate) const OK: u8 = 0;
pub(crate) const FREE: u8 = 1;
pub(crate) const ATTENTION: u8 = 1;
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNREACHABLE: u8 = 69;
pub(crate) const INTERNAL: u8 = 70;
pub(crate) const BUSY: u8 = 75;
pub(crate) const LOST: u8 = 76;
pub(crate) const NOT_HELD: u8 = 77;
pub(crate) const CONFIG: u8 = 78;
pub(crate) const REMOVED: u8 = 79;
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// The subcommands that something applies to.
type Subcommands = &'static [&'static str];

pub const ALL: Subcommands = &["exec", "acquire", "renew", "release", "inspect"];

/// What each status means to which subcommands, with options in backticks. The man pages show all of
/// it; `--help` and the README show each row up to the first colon or semicolon.
const MEANINGS: &[(&str, Subcommands, &str)] = &[
    (
        "the command's",
        &["exec"],
        "the command ran to its end under the lock; if a signal terminated the command, \
         `rlock` terminates by the same signal, which a shell shows as 128+n",
    ),
    ("0", &["acquire", "renew", "release", "inspect"], "success"),
    ("0", &["inspect"], "NAME is not free, or `--attention` or `--servers` found nothing"),
    ("1", &["inspect"], "NAME is free, or `--attention` or `--servers` found something"),
    ("64", ALL, "usage error"),
    (
        "69",
        ALL,
        "no usable server, or this host lacks descriptors or memory: the server is unreachable, does \
         not answer, is loading or out of memory, or too few are usable for a quorum; the host may \
         also lack threads or ports",
    ),
    (
        "69",
        &["inspect"],
        "incomplete result: some locks cannot be shown; with `--servers`, only if no server answers, \
         because missing permissions, a wrong password or a replica are findings",
    ),
    ("70", ALL, "a bug in `rlock`, or the system denied a process or a system call"),
    (
        "75",
        &["exec", "acquire"],
        "busy after the wait, or held by an enclosing command; `-E N` makes it N",
    ),
    ("75", &["release"], "held by another tool (`--force` without `--now`)"),
    ("76", &["exec"], "the lock was lost while the command ran; overrides the command's status"),
    ("76", &["acquire"], "lost while the keeper started"),
    ("77", &["renew", "release"], "the token does not hold the lock"),
    ("77", &["release"], "`--id` names no client, or several"),
    (
        "78",
        ALL,
        "configuration error: no URL, bad URL, wrong password, missing permissions, a socket or a \
         file that this user may not open, TLS failure, a replica instead of a master (`inspect` \
         accepts one that has its master), one node instead of a cluster, the same server twice, a missing directory, a \
         lock that cannot be read, a fencing token ahead of the clock",
    ),
    (
        "79",
        &["exec", "acquire"],
        "a newer waiter superseded this one, or an operator removed it; it has left the queue",
    ),
    ("126", &["exec"], "the command is not executable; the lock has been released"),
    ("127", &["exec"], "the command was not found; the lock has been released"),
    (
        "128+n",
        &["exec", "acquire"],
        "`rlock` received signal n while it waited; it left the queue and terminated by that signal, \
         which a shell shows as 128+n",
    ),
];

/// The statuses of a subcommand, or of all, with their meanings. Among those of all, a meaning to a
/// single subcommand names it, unless that is `exec`: its meanings are about the command.
pub fn statuses(of: Option<&str>, is_brief: bool) -> Vec<(&'static str, Vec<String>)> {
    let mut statuses: Vec<(&str, Vec<String>)> = Vec::new();
    for &(status, subcommands, text) in MEANINGS {
        let end = text.find([':', ';']).filter(|_| is_brief).unwrap_or(text.len());
        let meaning = match (of, subcommands) {
            (Some(of), _) if !subcommands.contains(&of) => continue,
            (None, &[only]) if only != "exec" => format!("`{only}`: {}", &text[..end]),
            _ => text[..end].to_owned(),
        };
        match statuses.last_mut() {
            Some((last, meanings)) if *last == status => meanings.push(meaning),
            _ => statuses.push((status, vec![meaning])),
        }
    }
    statuses
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Status(u8),
    /// By the signal with this number, because the command ended by it or because rlock received
    /// it. If that is impossible, with status 128 plus that number. It is a number because nix has no
    /// names for real-time signals.
    Signal(i32),
}

impl Exit {
    /// Ends the process by its signal, or returns the status to exit with. For a signal, it returns
    /// only if the kernel protects the process from that signal, as it does process 1.
    pub fn die_or_status(self) -> i32 {
        match self {
            Self::Status(_) => {}
            Self::Signal(signal) => disposition::die_by(signal),
        }
        self.shown()
    }

    /// The status as a shell shows it.
    pub(crate) fn shown(self) -> i32 {
        match self {
            Self::Status(status) => status.into(),
            Self::Signal(signal) => 128 + signal,
        }
    }
}
