//! Waiting for descriptors until a moment.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::system::clock::Instant;

/// What to wait for on a descriptor.
#[derive(Clone, Copy)]
pub(crate) enum Want {
    Read,
    Write,
}

/// Waits until one of `wanted` is ready (or broken, which reading or writing it will tell) and says
/// which are; none are when `until` has come. Signals do not end the wait.
pub(crate) fn ready<const N: usize>(
    wanted: [(BorrowedFd<'_>, Want); N],
    until: Option<Instant>,
) -> io::Result<[bool; N]> {
    let mut descriptors = wanted.map(|(descriptor, want)| {
        let flags = match want {
            Want::Read => PollFlags::POLLIN,
            Want::Write => PollFlags::POLLOUT,
        };
        PollFd::new(descriptor, flags)
    });
    loop {
        let left = until.map(|until| until.since(Instant::now()));
        match nix::poll::poll(&mut descriptors, timeout(left)) {
            Ok(0) if left.is_none_or(|left| !left.is_zero()) => {}
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(descriptors.map(|descriptor| descriptor.any().unwrap_or(true)))
}

/// Rounded up, so that the wait is not over before its moment; cut to what poll(2) can count, which
/// the loop above makes up for.
fn timeout(left: Option<Duration>) -> PollTimeout {
    match left {
        None => PollTimeout::NONE,
        Some(left) => {
            let millis = left.as_nanos().div_ceil(1_000_000);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        }
    }
}
