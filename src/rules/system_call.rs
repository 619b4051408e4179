//! What an error of the system means for a request. The same error means different things to
//! different calls.

use nix::errno::Errno;

use crate::rules::{Failure, FailureKind, UserMessage};

/// What the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemCall {
    /// A thread, a descriptor, or a wait for one.
    Resource,
    Socket,
    ConnectTcp4,
    ConnectTcp6,
    ConnectUnix,
    /// Sending or receiving on a connection.
    Exchange,
    LookUp,
    /// Reading a file that the user names.
    Read,
    /// Using a file of a lock.
    LockFile,
    Flock,
}

/// Who must act, or what must pass, before the call can succeed. If several addresses of a server
/// fail, the last of these says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blame {
    /// This user, this sandbox or the URL: it does not pass by itself.
    Client,
    /// This host has no address from which to reach that one.
    Address,
    /// The server or the network.
    Server,
    /// This host lacks something, so the server could not be asked.
    Host,
}

use Blame::{Address, Client, Host, Server};
use SystemCall::{
    ConnectTcp4, ConnectTcp6, ConnectUnix, Exchange, Flock, LockFile, LookUp, Read, Resource,
    Socket,
};

/// Errors, the calls for which they mean the same (none: all), whom to blame and what to do. The
/// first row that applies counts.
type ErrnoRow = (&'static [Errno], &'static [SystemCall], Blame, &'static str);

const DENIED: &[Errno] = &[Errno::EACCES, Errno::EPERM];
const NO_SUCH_FAMILY: &[Errno] = &[Errno::EAFNOSUPPORT, Errno::EPROTONOSUPPORT];
const NO_WAY_THERE: &[Errno] =
    &[Errno::EACCES, Errno::EPERM, Errno::EINVAL, Errno::ENETUNREACH, Errno::EHOSTUNREACH];
const NOT_SUCH_A_SOCKET: &[Errno] = &[
    Errno::ENOTDIR,
    Errno::ELOOP,
    Errno::ENAMETOOLONG,
    Errno::ENOTSOCK,
    Errno::EPROTOTYPE,
    Errno::EPROTONOSUPPORT,
];

const ROWS: &[ErrnoRow] = &[
    (&[Errno::EMFILE], &[], Host, "raise ulimit -n"),
    (&[Errno::ENFILE], &[], Host, "raise fs.file-max"),
    (&[Errno::ENOMEM, Errno::ENOBUFS], &[], Host, "free memory"),
    (&[Errno::EAGAIN], &[Resource], Host, "raise ulimit -u or pids.max, or free memory"),
    (&[Errno::EAGAIN], &[Socket], Host, CHECK_LIMITS),
    (&[Errno::EADDRNOTAVAIL], &[ConnectTcp4], Host, "widen net.ipv4.ip_local_port_range"),
    (
        &[Errno::EADDRNOTAVAIL],
        &[ConnectTcp6],
        Address,
        "give this host an IPv6 address, or widen net.ipv4.ip_local_port_range",
    ),
    (&[Errno::EIO], &[Read, LockFile], Host, "check the disk"),
    (&[Errno::EFBIG], &[LockFile], Host, "raise ulimit -f"),
    (&[Errno::ENOSPC], &[LockFile], Host, "free space on its file system"),
    (&[Errno::EDQUOT], &[LockFile], Host, "raise the quota of its owner"),
    (DENIED, &[Resource, Socket, Exchange], Client, ALLOW_CALL),
    (NO_SUCH_FAMILY, &[Socket, ConnectTcp4, ConnectTcp6], Client, ALLOW_FAMILY),
    (DENIED, &[ConnectUnix, Read], Client, ALLOW_ACCESS),
    (NOT_SUCH_A_SOCKET, &[ConnectUnix], Client, "correct the path in the URL"),
    (DENIED, &[LockFile], Client, SHARE),
    (&[Errno::EROFS, Errno::ENOTDIR], &[LockFile], Client, NAME_ANOTHER),
    (&[], &[Flock], Client, "use a file system that supports flock"),
    (&[Errno::ENOSYS], &[], Client, ALLOW_CALL),
    (&[], &[Socket], Client, ALLOW_FAMILY),
    (&[], &[Resource], Host, CHECK_LIMITS),
    (NO_WAY_THERE, &[ConnectTcp4, ConnectTcp6], Server, "check the network and the firewalls"),
    (&[], &[ConnectTcp4, ConnectTcp6, ConnectUnix], Server, "check that the server is running"),
    (&[], &[Exchange], Server, "check the server and the network"),
    (&[], &[LookUp], Server, "check the host name and the DNS server"),
];

const CHECK_LIMITS: &str = "check the limits that ulimit -a shows";
const ALLOW_CALL: &str = "allow this system call in the sandbox";
const ALLOW_FAMILY: &str = "use an address of a family that this host and its sandbox allow";
const ALLOW_ACCESS: &str = "allow access to it in the sandbox or security policy";

const SHARE: &str = "run rlock as its owner, or share the directory: chgrp -R GROUP, chmod -R \
                     g+rwX and chmod 2770 on it";

/// The remedy for a directory that cannot be written.
pub(crate) const NAME_ANOTHER: &str = "name a writable directory with local:/DIRECTORY";

impl SystemCall {
    /// What this error of the call means; `problem` is the error in words. Nothing has been sent.
    pub(crate) fn failed(self, errno: Option<Errno>, problem: String) -> (Blame, Failure) {
        let is_of = |(errors, calls, ..): &&ErrnoRow| {
            (errors.is_empty() || errno.is_some_and(|errno| errors.contains(&errno)))
                && (calls.is_empty() || calls.contains(&self))
        };
        // Otherwise, nobody knows what to do.
        let (_, _, blame, remedy) = ROWS.iter().find(is_of).unwrap_or(&(&[], &[], Client, ""));
        let fault = UserMessage::new(problem);
        let fault = if remedy.is_empty() { fault } else { fault.with_remedy(*remedy) };
        let kind = match blame {
            Client => FailureKind::Misconfigured,
            Server => FailureKind::Unreachable,
            Address | Host => FailureKind::Unavailable,
        };
        (*blame, Failure::new(kind, fault))
    }
}
