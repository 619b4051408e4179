//! Servers that are asked beside another one that is silent: a frozen server then costs its head
//! start and not a timeout.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::node::Node;
use crate::report::{Diagnostic, plain};
use crate::rules::failure::Failure;
use crate::rules::fault::Fault;
use crate::rules::instant::Instant;
use crate::store::Interrupt;
use crate::system::poll::{Aside, Interrupter, Woken, wait};
use crate::system::thread;
use crate::system::wakeup::Wakeup;

/// How long a server may be silent before the next one is asked too, unless the timeout is so short
/// that the last one would be left out.
const HEAD_START: Duration = Duration::from_millis(50);

/// A question to a server that changes nothing there, so any number of servers can be asked at
/// once. An error means that the answer is of no use, so another server is asked.
pub(super) type Question<T> =
    Arc<dyn Fn(&mut Node, Interrupt<'_>) -> Result<T, Failure> + Send + Sync>;

/// The first useful answer to a question.
pub(super) struct Answer<T> {
    /// The index of the server that gave it.
    pub(super) index: usize,
    pub(super) value: T,
    /// Those of the servers that failed before it came.
    pub(super) failures: Vec<Failure>,
}

/// Asks the first server, and the others beside it if it fails or is silent. All of them together
/// take `io_timeout` at most. An error is that of an interrupt or the failures, that of the first
/// server before all others.
pub(super) fn first_answer<T: Send + 'static>(
    nodes: &mut [Node],
    question: &Question<T>,
    io_timeout: Duration,
    interrupt: Interrupt<'_>,
) -> Result<Answer<T>, Vec<Failure>> {
    let Some((first, others)) = nodes.split_first_mut() else { return Err(Vec::new()) };
    let others = (1..).zip(&*others).collect();
    let standbys = Standbys::new(others, question, io_timeout);
    let failure = match question(first, standbys.beside(interrupt)) {
        Ok(value) => return Ok(Answer { index: 0, value, failures: Vec::new() }),
        Err(failure) => failure,
    };
    match standbys.relief(&failure, interrupt) {
        Relief::Answered { index, node, value, mut failures } => {
            nodes[index] = *node;
            if !matches!(failure, Failure::Interrupted { .. }) {
                failures.insert(0, failure);
            }
            Ok(Answer { index, value, failures })
        }
        Relief::Interrupted => Err(vec![Failure::Interrupted { sent: false }]),
        Relief::None(mut failures) => {
            failures.insert(0, failure);
            Err(failures)
        }
    }
}

/// What `-v` shows of servers of this kind that failed.
pub(super) fn details(kind: &str, failures: &[Failure]) -> Vec<Diagnostic> {
    let failed = failures.iter().filter(|failure| !matches!(failure, Failure::Interrupted { .. }));
    failed.map(|failure| Diagnostic::Detail(format!("{kind}: {failure}"))).collect()
}

/// The servers to ask beside another one.
pub(super) struct Standbys<'a, T> {
    nodes: Vec<(usize, &'a Node)>,
    question: &'a Question<T>,
    until: Instant,
    turns: RefCell<Turns>,
    results: RefCell<Results<T>>,
    /// There is one only once a server has been asked: usually, none is.
    replies: OnceCell<Replies<T>>,
}

/// What has become of those that were asked.
struct Results<T> {
    answered: Option<(usize, Box<Node>, T)>,
    failures: Vec<Failure>,
}

/// How the threads that ask hand over what they got.
struct Replies<T> {
    sender: Sender<Reply<T>>,
    receiver: Receiver<Reply<T>>,
    arrived: Wakeup,
}

/// The server's connection comes with its answer.
type Reply<T> = (usize, Box<Node>, Result<T, Failure>);

/// What the others did about a server that failed or is silent.
pub(super) enum Relief<T> {
    /// The connection on which this server answered replaces the one that it had.
    Answered {
        index: usize,
        node: Box<Node>,
        value: T,
        failures: Vec<Failure>,
    },
    Interrupted,
    /// None of them answered. These are the failures of those that did not stay silent.
    None(Vec<Failure>),
}

impl<'a, T: Send + 'static> Standbys<'a, T> {
    /// `nodes` are asked in this order, each with its index. All answers must come within
    /// `io_timeout` from now.
    pub(super) fn new(
        nodes: Vec<(usize, &'a Node)>,
        question: &'a Question<T>,
        io_timeout: Duration,
    ) -> Self {
        let now = Instant::now();
        Self {
            turns: RefCell::new(Turns::new(nodes.len(), io_timeout, now)),
            nodes,
            question,
            until: now + io_timeout,
            results: RefCell::new(Results { answered: None, failures: Vec::new() }),
            replies: OnceCell::new(),
        }
    }

    /// The interrupt for the request that these servers stand by for. Their answer is one more
    /// reason to end it.
    pub(super) fn beside<'b>(&'b self, interrupt: Interrupt<'b>) -> Interrupt<'b> {
        match self.nodes.is_empty() {
            true => interrupt,
            false => Some(Interrupter::with(interrupt, self)),
        }
    }

    /// Whether any of them has been asked.
    pub(super) fn were_asked(&self) -> bool {
        self.replies.get().is_some()
    }

    /// What to do about the failure of the request. Unless it was interrupted, the rest of the time
    /// belongs to these servers.
    pub(super) fn relief(self, failure: &Failure, interrupt: Interrupt<'_>) -> Relief<T> {
        let is_interrupted = matches!(failure, Failure::Interrupted { .. });
        if !is_interrupted {
            self.turns.borrow_mut().one_failed(Instant::now());
            while !self.attend() && !self.turns.borrow().are_over() {
                let interrupt = self.beside(interrupt);
                match wait(None, interrupt, self.until) {
                    Ok(Woken::Interrupted) if self.results.borrow().answered.is_none() => {
                        return Relief::Interrupted;
                    }
                    Ok(Woken::Interrupted | Woken::Ready) => {}
                    Ok(Woken::TimedOut) | Err(_) => break,
                }
            }
        }
        let Results { answered, failures } = self.results.into_inner();
        match answered {
            Some((index, node, value)) => Relief::Answered { index, node, value, failures },
            None if is_interrupted => Relief::Interrupted,
            None => Relief::None(failures),
        }
    }

    /// Asks one more server on its own thread. The thread ends with the server's timeout, even if
    /// nobody waits for it any longer.
    fn ask(&self, turn: usize) -> Result<(), Failure> {
        let cannot = |error: io::Error| {
            Failure::Unavailable(Fault::new(format!("cannot start a thread: {}", plain(&error))))
        };
        let (index, node) = self.nodes[turn];
        let mut node = node.sibling(node.endpoint().clone())?;
        let (question, io_timeout) = (Arc::clone(self.question), node.io_timeout());
        let replies = match self.replies.get() {
            Some(replies) => replies,
            None => {
                let (sender, receiver) = channel();
                let arrived = Wakeup::new().map_err(cannot)?;
                self.replies.get_or_init(|| Replies { sender, receiver, arrived })
            }
        };
        let (sender, arrived) = (replies.sender.clone(), replies.arrived.clone());
        node.set_io_timeout(self.until.since(Instant::now()));
        let ask = move || {
            let answer = question(&mut node, None);
            node.set_io_timeout(io_timeout);
            // This fails if nobody waits for the answer anymore.
            let _ = sender.send((index, Box::new(node), answer));
            arrived.wake();
        };
        thread::start("standby", ask).map(|_| ()).map_err(cannot)
    }
}

impl<T: Send + 'static> Aside for Standbys<'_, T> {
    fn news(&self) -> Option<BorrowedFd<'_>> {
        self.replies.get().map(|replies| replies.arrived.as_fd())
    }

    fn due(&self) -> Option<Instant> {
        self.turns.borrow().due()
    }

    /// Cuts the wait short once a server has given a useful answer.
    fn attend(&self) -> bool {
        let mut turns = self.turns.borrow_mut();
        let mut results = self.results.borrow_mut();
        if let Some(replies) = self.replies.get() {
            replies.arrived.clear();
            while let Ok((index, node, answer)) = replies.receiver.try_recv() {
                match answer {
                    Ok(value) if results.answered.is_none() => {
                        results.answered = Some((index, node, value));
                    }
                    Ok(_) => {}
                    Err(failure) => {
                        turns.one_failed(Instant::now());
                        results.failures.push(failure);
                    }
                }
            }
        }
        while results.answered.is_none()
            && let Some(turn) = turns.next(Instant::now())
        {
            if let Err(failure) = self.ask(turn) {
                turns.one_failed(Instant::now());
                results.failures.push(failure);
            }
        }
        results.answered.is_some()
    }
}

/// Whose turn it is. The request that the servers stand by for has had the first turn.
struct Turns {
    /// Those that are to come, in order.
    to_come: Range<usize>,
    head_start: Duration,
    /// When the next turn begins.
    due: Instant,
    /// How many have neither answered nor failed.
    silent: usize,
}

impl Turns {
    fn new(count: usize, io_timeout: Duration, now: Instant) -> Self {
        let share = io_timeout / u32::try_from(count + 1).unwrap_or(u32::MAX);
        let head_start = HEAD_START.min(share);
        Self { to_come: 0..count, head_start, due: now + head_start, silent: 1 }
    }

    fn due(&self) -> Option<Instant> {
        (!self.to_come.is_empty()).then_some(self.due)
    }

    /// The one that must be asked now.
    fn next(&mut self, now: Instant) -> Option<usize> {
        if now < self.due {
            return None;
        }
        let next = self.to_come.next()?;
        self.silent += 1;
        self.due = now + self.head_start;
        Some(next)
    }

    /// The next turn begins at once.
    fn one_failed(&mut self, now: Instant) {
        self.silent = self.silent.saturating_sub(1);
        self.due = now;
    }

    /// Whether all have had their turn and failed.
    fn are_over(&self) -> bool {
        self.silent == 0 && self.to_come.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    #[test]
    fn the_next_turn_begins_after_the_head_start_or_a_failure() {
        let start = Instant::now();
        let mut turns = Turns::new(3, TIMEOUT, start);
        assert_eq!((turns.due(), turns.next(start)), (Some(start + HEAD_START), None));
        let late = start + 3 * HEAD_START;
        assert_eq!((turns.next(late), turns.next(late)), (Some(0), None));
        turns.one_failed(late);
        assert_eq!((turns.next(late), turns.next(late)), (Some(1), None));
        assert_eq!(turns.next(late + HEAD_START), Some(2));
        assert_eq!((turns.due(), turns.next(late + 9 * HEAD_START)), (None, None));
    }

    #[test]
    fn the_turns_are_over_when_all_have_failed() {
        let start = Instant::now();
        let mut turns = Turns::new(1, TIMEOUT, start);
        turns.one_failed(start);
        assert!(!turns.are_over());
        assert_eq!(turns.next(start), Some(0));
        assert!(!turns.are_over());
        turns.one_failed(start);
        assert!(turns.are_over());
    }

    #[test]
    fn every_server_is_asked_even_within_a_short_timeout() {
        let start = Instant::now();
        let timeout = Duration::from_millis(25);
        let mut turns = Turns::new(4, timeout, start);
        let mut now = start;
        while let Some(due) = turns.due() {
            now = due;
            turns.next(now);
        }
        assert!(now < start + timeout);
    }
}
