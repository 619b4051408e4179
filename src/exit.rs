//! Every exit status of rlock, and how the process ends with it.

/// Success; for `inspect NAME`, the lock is held, revoked or cooling; for
/// `inspect --attention`, no lock needs attention.
pub(crate) const OK: u8 = 0;
/// `inspect NAME`: the lock is free.
pub(crate) const FREE: u8 = 1;
/// `inspect --attention`: a lock needs attention.
pub(crate) const ATTENTION: u8 = 1;
/// The command line is wrong (EX_USAGE).
pub(crate) const USAGE: u8 = 64;
/// No usable server (EX_UNAVAILABLE).
pub(crate) const UNREACHABLE: u8 = 69;
/// A bug, or the system refused rlock a resource (EX_SOFTWARE).
pub(crate) const INTERNAL: u8 = 70;
/// Another holder has the lock, and the wait is over (EX_TEMPFAIL).
pub(crate) const BUSY: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The token does not hold the lock.
pub(crate) const NOT_HELD: u8 = 77;
/// The configuration of rlock or of the server is wrong (EX_CONFIG).
pub(crate) const CONFIG: u8 = 78;
/// The command is not executable; shells use the same status.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found; shells use the same status.
pub(crate) const NOT_FOUND: u8 = 127;

/// The subcommands that an entry applies to.
pub type Subcommands = &'static [&'static str];

/// All subcommands.
pub const ALL: Subcommands = &["exec", "acquire", "renew", "release", "inspect"];

/// What an exit status means to some subcommands.
pub type Meaning = (Subcommands, &'static str);

/// The exit statuses as the man pages list them. A test compares the table in the README with this
/// one.
pub const TABLE: &[(&str, &[Meaning])] = &[
    (
        "the command's",
        &[(
            &["exec"],
            "the command ran to its end under the lock; if a signal terminated the command, rlock \
             terminates by the same signal, which a shell shows as 128+n",
        )],
    ),
    (
        "0",
        &[
            (&["acquire", "renew", "release"], "success"),
            (
                &["inspect"],
                "success; with NAME, the lock is held, revoked or cooling; with --attention, no lock needs attention",
            ),
        ],
    ),
    (
        "1",
        &[(&["inspect"], "with NAME, the lock is free; with --attention, a lock needs attention")],
    ),
    (
        "64",
        &[
            (ALL, "usage error"),
            (&["acquire"], "with --while-pid, the process does not exist or ended during the wait"),
        ],
    ),
    (
        "69",
        &[(
            ALL,
            "no usable server: unreachable, not answering, loading, out of memory, or too few \
             servers for a quorum",
        )],
    ),
    ("70", &[(ALL, "internal error: a bug in rlock, or the system denied a resource")]),
    (
        "75",
        &[
            (
                &["exec", "acquire"],
                "another client has the lock and the wait is over, or the waiter was superseded or \
                 removed (-E sets another status)",
            ),
            (&["release"], "with --force but not --now, another tool holds the lock"),
        ],
    ),
    (
        "76",
        &[
            (&["exec"], "the lock was lost while the command ran; overrides the command's status"),
            (&["acquire"], "with --while-pid, the lock was lost while the keeper started"),
        ],
    ),
    (
        "77",
        &[
            (&["renew", "release"], "the token does not hold the lock"),
            (&["release"], "with --id, no client, or more than one, has that ID"),
        ],
    ),
    (
        "78",
        &[(
            ALL,
            "configuration error: no URL, bad URL, wrong password, missing permissions, TLS \
             failure, a replica instead of a master, the same server twice, a damaged lock file, a \
             fencing token ahead of the clock",
        )],
    ),
    ("126", &[(&["exec"], "the command is not executable; the lock has been released")]),
    ("127", &[(&["exec"], "the command was not found; the lock has been released")]),
    (
        "128+n",
        &[(
            &["exec", "acquire"],
            "rlock received signal n while it was waiting; it left the queue and terminated by that \
             signal, which a shell shows as 128+n",
        )],
    ),
];

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Status(u8),
    /// By the signal with this number, because the command ended by it or because rlock received
    /// it. If that is impossible, with status 128+n. It is a number because nix has no names for
    /// real-time signals.
    Signal(i32),
}

impl Exit {
    /// Ends the process by its signal, or returns the status to exit with. For a signal, it returns
    /// only if the kernel protects the process from that signal, as it does process 1.
    pub fn leave(self) -> i32 {
        match self {
            Self::Status(_) => {}
            Self::Signal(signal) => die_by(signal),
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

fn die_by(signal: i32) {
    // A core dump of rlock would be mistaken for one of the command.
    let _ = nix::sys::prctl::set_dumpable(false);
    // SAFETY: the default action runs no code of this program, sigemptyset initializes the set before
    // it is used, and every pointer is null or points to the set.
    unsafe {
        nix::libc::signal(signal, nix::libc::SIG_DFL);
        nix::libc::raise(signal);
        let mut set = std::mem::MaybeUninit::uninit();
        nix::libc::sigemptyset(set.as_mut_ptr());
        nix::libc::sigaddset(set.as_mut_ptr(), signal);
        nix::libc::pthread_sigmask(nix::libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
