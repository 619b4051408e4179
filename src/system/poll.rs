//! Waiting for descriptors, with a deadline. Signals do not end these waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::rules::Instant;

/// What to wait for on a descriptor.
#[derive(Clone, Copy)]
pub(crate) enum Want {
    Read,
    Write,
}

/// What may cut a wait short; `None` if nothing does.
pub type Interrupt<'a> = Option<Interrupter<'a>>;

/// Cuts a wait short when one of these becomes readable.
#[derive(Clone, Copy, Default)]
pub struct Interrupter<'a> {
    stops: [Option<BorrowedFd<'a>>; 2],
}

impl<'a> From<BorrowedFd<'a>> for Interrupter<'a> {
    fn from(stop: BorrowedFd<'a>) -> Self {
        Self::either(stop, None)
    }
}

impl<'a> Interrupter<'a> {
    /// Whichever of the two becomes readable first.
    pub(crate) fn either(one: BorrowedFd<'a>, other: Option<BorrowedFd<'a>>) -> Self {
        Self { stops: [Some(one), other] }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Ready,
    Interrupted,
    TimedOut,
}

/// Waits until one of the descriptors is ready, the interrupt comes or `until` is reached. The
/// interrupt takes precedence.
pub(crate) fn wait<'a>(
    wanted: impl IntoIterator<Item = (BorrowedFd<'a>, Want)>,
    interrupt: Interrupt<'a>,
    until: Instant,
) -> io::Result<Woken> {
    let stops = interrupt.unwrap_or_default().stops.into_iter().flatten();
    let stops: Vec<_> = stops.map(|stop| (stop, Want::Read)).collect();
    let stop_count = stops.len();
    let are_ready = poll(stops.into_iter().chain(wanted), Some(until))?;
    Ok(match are_ready.iter().position(|is_ready| *is_ready) {
        Some(first) if first < stop_count => Woken::Interrupted,
        Some(_) => Woken::Ready,
        None => Woken::TimedOut,
    })
}

/// Waits until at least one descriptor is ready and returns which are; none if `until` came first.
/// A broken descriptor counts as ready, because reading or writing it returns the error.
pub(crate) fn ready<const N: usize>(
    wanted: [(BorrowedFd<'_>, Want); N],
    until: Option<Instant>,
) -> io::Result<[bool; N]> {
    let are_ready = poll(wanted, until)?;
    Ok(std::array::from_fn(|index| are_ready[index]))
}

/// Whether the descriptor is ready now. False if the system cannot tell.
pub(crate) fn is_ready(descriptor: BorrowedFd<'_>, want: Want) -> bool {
    ready([(descriptor, want)], Some(Instant::now())).is_ok_and(|[is_ready]| is_ready)
}

/// Like `ready`, for any number of descriptors.
fn poll<'a>(
    wanted: impl IntoIterator<Item = (BorrowedFd<'a>, Want)>,
    until: Option<Instant>,
) -> io::Result<Vec<bool>> {
    let polled = wanted.into_iter().map(|(descriptor, want)| {
        let flags = match want {
            Want::Read => PollFlags::POLLIN,
            Want::Write => PollFlags::POLLOUT,
        };
        PollFd::new(descriptor, flags)
    });
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    loop {
        let left = until.map(|until| until.since(Instant::now()));
        match nix::poll::poll(&mut polled, timeout(left)) {
            Ok(0) if left.is_none_or(|left| !left.is_zero()) => {}
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(polled.iter().map(|one| one.any().unwrap_or(true)).collect())
}

/// Rounds up, so that the wait does not end early. poll(2) cannot wait for a very long time: that
/// is cut here, and the loop above continues the wait.
fn timeout(left: Option<Duration>) -> PollTimeout {
    match left {
        None => PollTimeout::NONE,
        Some(left) => {
            let millis = left.as_nanos().div_ceil(1_000_000);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        }
    }
}
