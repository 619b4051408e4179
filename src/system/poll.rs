//! Waiting for descriptors, with a deadline. Signals do not end these waits.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

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

/// Waits until the descriptor is ready, the interrupt comes or `until` is reached. The interrupt
/// takes precedence.
pub(crate) fn wait(
    descriptor: Option<(BorrowedFd<'_>, Want)>,
    interrupt: Interrupt<'_>,
    until: Instant,
) -> io::Result<Woken> {
    let stops = interrupt.unwrap_or_default().stops;
    let [one, other] = stops.map(|stop| stop.map(|stop| (stop, Want::Read)));
    Ok(match poll([descriptor, one, other], Some(until))? {
        [is_ready, false, false] if is_ready => Woken::Ready,
        [_, false, false] => Woken::TimedOut,
        _ => Woken::Interrupted,
    })
}

/// Waits until at least one descriptor is ready and returns which are; none if `until` came first.
/// A broken descriptor counts as ready, because reading or writing it returns the error.
pub(crate) fn ready<const N: usize>(
    wanted: [(BorrowedFd<'_>, Want); N],
    until: Option<Instant>,
) -> io::Result<[bool; N]> {
    poll(wanted.map(Some), until)
}

/// Whether the descriptor is ready now. False if the system cannot tell.
pub(crate) fn is_ready(descriptor: BorrowedFd<'_>, want: Want) -> bool {
    ready([(descriptor, want)], Some(Instant::now())).is_ok_and(|[is_ready]| is_ready)
}

/// Like `ready`. An absent descriptor never becomes ready.
fn poll<const N: usize>(
    wanted: [Option<(BorrowedFd<'_>, Want)>; N],
    until: Option<Instant>,
) -> io::Result<[bool; N]> {
    let polled = wanted.iter().flatten().map(|&(descriptor, want)| {
        let flags = match want {
            Want::Read => PollFlags::IN,
            Want::Write => PollFlags::OUT,
        };
        PollFd::from_borrowed_fd(descriptor, flags)
    });
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    loop {
        let left = until.map(|until| until.since(Instant::now()));
        // A time that is too large for the kernel counts as forever.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(0) if left.is_none_or(|left| !left.is_zero()) => {}
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut polled = polled.iter();
    Ok(wanted.map(|one| one.is_some() && polled.next().is_none_or(|one| !one.revents().is_empty())))
}
