//! Waiting for descriptors, with a deadline. Signals do not end these waits.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::libc::{O_NOCTTY, O_NONBLOCK, PIPE_BUF};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::rules::Instant;
use crate::rules::renewals::LastRenewal;

/// What to wait for on a descriptor.
#[derive(Clone, Copy)]
pub(crate) enum Want {
    Read,
    Write,
}

/// What may cut a wait short: that one of these becomes readable, or a moment.
#[derive(Clone, Copy)]
pub struct Interrupt<'a> {
    stops: [Option<BorrowedFd<'a>>; 2],
    pub(crate) at: Option<Instant>,
    /// The last renewal before the command is asked to end. It interrupts nothing, but `Limit` leaves
    /// time for it. Only a renewal sets it.
    pub(crate) last_renewal: Option<LastRenewal>,
}

/// What cuts nothing short.
pub const NEVER: Interrupt<'static> = Interrupt { stops: [None; 2], at: None, last_renewal: None };

impl<'a> Interrupt<'a> {
    /// The same, or that this descriptor becomes readable. There are two at most: the signals, and the
    /// process that needs the lock or a wakeup.
    pub(crate) fn or(self, stop: impl Into<Option<BorrowedFd<'a>>>) -> Self {
        let stops = match self.stops {
            [None, other] => [stop.into(), other],
            [one, other] => [one, other.or(stop.into())],
        };
        Self { stops, ..self }
    }

    /// The same, or this moment if it comes first.
    pub(crate) fn or_at(self, moment: impl Into<Option<Instant>>) -> Self {
        Self { at: moment.into().into_iter().chain(self.at).min(), ..self }
    }

    /// Whether the moment has come.
    pub(crate) fn is_over(self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }

    /// The same, for what must end in time for this attempt, if any.
    pub(crate) fn leaving_time_for(self, last_renewal: impl Into<Option<LastRenewal>>) -> Self {
        Self { last_renewal: last_renewal.into(), ..self }
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
    until: impl Into<Option<Instant>>,
) -> io::Result<Woken> {
    let Interrupt { stops, at, .. } = interrupt;
    let stops: Vec<_> = stops.into_iter().flatten().map(|stop| (stop, Want::Read)).collect();
    let stop_count = stops.len();
    let until = until.into().into_iter().chain(at).min();
    let are_ready = poll(stops.into_iter().chain(wanted), until)?;
    Ok(match are_ready.iter().position(|is_ready| *is_ready) {
        _ if interrupt.is_over() => Woken::Interrupted,
        Some(first) if first < stop_count => Woken::Interrupted,
        Some(_) => Woken::Ready,
        None => Woken::TimedOut,
    })
}

/// Writes all of it; returns false if the interrupt comes first. A pipe or a terminal that is not
/// read would otherwise block forever.
pub(crate) fn write(to: BorrowedFd<'_>, mut bytes: &[u8], stop: Interrupt<'_>) -> io::Result<bool> {
    while !bytes.is_empty() {
        if wait(Some((to, Want::Write)), stop, None)? == Woken::Interrupted {
            return Ok(false);
        }
        match write_ready(to, &bytes[..bytes.len().min(PIPE_BUF)]) {
            // A terminal may be ready for one byte, and not for the next.
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {
                ready([], Some(Instant::now() + Duration::from_millis(1)))?;
            }
            written => bytes = &bytes[written?..],
        }
    }
    Ok(true)
}

/// Writes to a descriptor that is ready, without blocking. A pipe takes at least a page then. A
/// terminal may take less, and another open descriptor of it does not block.
pub(crate) fn write_ready(to: BorrowedFd<'_>, bytes: &[u8]) -> nix::Result<usize> {
    let mut again = OpenOptions::new();
    again.write(true).custom_flags(O_NONBLOCK | O_NOCTTY);
    let again = to.is_terminal().then(|| again.open(format!("/proc/self/fd/{}", to.as_raw_fd())));
    let again = again.and_then(Result::ok);
    nix::unistd::write(again.as_ref().map_or(to, |again| again.as_fd()), bytes)
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
    Ok(polled.iter().map(|one| !one.revents().is_empty()).collect())
}
