//! Waiting for descriptors, with a deadline. Signals do not end these waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::rules::instant::Instant;

/// What to wait for on a descriptor.
#[derive(Clone, Copy)]
pub(crate) enum Want {
    Read,
    Write,
}

/// What may cut a wait short; `None` if nothing does.
pub(crate) type Interrupt<'a> = Option<Interrupter<'a>>;

/// Cuts a wait short.
#[derive(Clone, Copy)]
pub(crate) struct Interrupter<'a> {
    /// Cut the wait short when one of them becomes readable.
    stops: [Option<BorrowedFd<'a>>; 2],
    aside: Option<&'a dyn Aside>,
}

/// Work that a thread attends to while it waits for something else.
pub(crate) trait Aside {
    /// Becomes readable when there is something to attend to; `None` if nothing is under way.
    fn news(&self) -> Option<BorrowedFd<'_>>;

    /// When to attend to it even without news.
    fn due(&self) -> Option<Instant>;

    /// Does what has become due. Returns whether that cuts the wait short.
    fn attend(&self) -> bool;
}

impl<'a> From<BorrowedFd<'a>> for Interrupter<'a> {
    fn from(stop: BorrowedFd<'a>) -> Self {
        Self { stops: [Some(stop), None], aside: None }
    }
}

impl<'a> Interrupter<'a> {
    /// Whichever of the two becomes readable first.
    pub(crate) fn either(one: BorrowedFd<'a>, other: Option<BorrowedFd<'a>>) -> Self {
        Self { stops: [Some(one), other], aside: None }
    }

    /// The stops of `interrupt`, with other work beside the wait.
    pub(crate) fn with(interrupt: Interrupt<'a>, aside: &'a dyn Aside) -> Self {
        let stops = interrupt.map(|interrupt| interrupt.stops).unwrap_or_default();
        Self { stops, aside: Some(aside) }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Ready,
    Interrupted,
    TimedOut,
}

/// Waits until the descriptor is ready, the interrupt comes or `until` is reached. A stop takes
/// precedence over the descriptor, and the descriptor over the work beside the wait.
pub(crate) fn wait(
    descriptor: Option<(BorrowedFd<'_>, Want)>,
    interrupt: Interrupt<'_>,
    until: Instant,
) -> io::Result<Woken> {
    let [one, other] = interrupt.map(|interrupt| interrupt.stops).unwrap_or_default();
    let aside = interrupt.and_then(|interrupt| interrupt.aside);
    let to_read = |descriptor| (descriptor, Want::Read);
    loop {
        let next = aside.and_then(Aside::due).map_or(until, |due| due.min(until));
        let news = aside.and_then(Aside::news);
        let stops = [one.map(to_read), other.map(to_read)];
        match poll([stops[0], stops[1], descriptor, news.map(to_read)], Some(next))? {
            [true, ..] | [_, true, ..] => return Ok(Woken::Interrupted),
            [_, _, true, _] => return Ok(Woken::Ready),
            _ if aside.is_some_and(Aside::attend) => return Ok(Woken::Interrupted),
            _ if Instant::now() >= until => return Ok(Woken::TimedOut),
            _ => {}
        }
    }
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
    let mut polled = polled.iter();
    Ok(wanted.map(|one| one.is_some() && polled.next().is_none_or(|one| one.any().unwrap_or(true))))
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::AsFd;

    use super::*;
    use crate::system::wakeup::Wakeup;

    #[test]
    fn a_wait_reports_what_ended_it_and_an_interrupt_takes_precedence() {
        let (answer, interrupt) = (Wakeup::new().unwrap(), Wakeup::new().unwrap());
        let wait = |time| {
            let answer = Some((answer.as_fd(), Want::Read));
            let until = Instant::now() + Duration::from_millis(time);
            super::wait(answer, Some(interrupt.as_fd().into()), until).unwrap()
        };
        assert_eq!(wait(1), Woken::TimedOut);
        answer.wake();
        assert_eq!(wait(3_600_000), Woken::Ready);
        interrupt.wake();
        assert_eq!(wait(3_600_000), Woken::Interrupted);
        answer.clear();
        assert_eq!(wait(3_600_000), Woken::Interrupted);
    }

    /// Ends a wait when it has been attended to so often.
    struct Chore {
        news: Wakeup,
        due: Cell<Option<Instant>>,
        left: Cell<u32>,
    }

    impl Aside for Chore {
        fn news(&self) -> Option<BorrowedFd<'_>> {
            Some(self.news.as_fd())
        }

        fn due(&self) -> Option<Instant> {
            self.due.get()
        }

        fn attend(&self) -> bool {
            self.due.set(None);
            self.left.set(self.left.get().saturating_sub(1));
            self.left.get() == 0
        }
    }

    #[test]
    fn background_work_runs_when_due_or_notified_and_may_end_the_wait() {
        let (answer, stop) = (Wakeup::new().unwrap(), Wakeup::new().unwrap());
        let due = Cell::new(Some(Instant::now() + Duration::from_millis(5)));
        let chore = Chore { news: Wakeup::new().unwrap(), due, left: Cell::new(3) };
        let wait = |time| {
            let interrupt = Some(Interrupter::with(Some(stop.as_fd().into()), &chore));
            let until = Instant::now() + Duration::from_millis(time);
            super::wait(Some((answer.as_fd(), Want::Read)), interrupt, until).unwrap()
        };
        chore.news.wake();
        assert_eq!(wait(3_600_000), Woken::Interrupted);
        assert_eq!(chore.left.get(), 0);
        answer.wake();
        assert_eq!(wait(3_600_000), Woken::Ready);
        stop.wake();
        assert_eq!(wait(3_600_000), Woken::Interrupted);
        let until = Instant::now() + Duration::from_millis(20);
        let idle = Chore { news: Wakeup::new().unwrap(), due: Cell::new(None), left: Cell::new(9) };
        let interrupt = Some(Interrupter::with(None, &idle));
        assert_eq!(super::wait(None, interrupt, until).unwrap(), Woken::TimedOut);
    }

    #[test]
    fn a_wait_without_descriptors_lasts_until_its_deadline() {
        let until = Instant::now() + Duration::from_millis(20);
        assert_eq!(wait(None, None, until).unwrap(), Woken::TimedOut);
        assert!(Instant::now() >= until);
    }
}
