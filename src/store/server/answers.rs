//! Asks several servers at once, because any of them may be frozen: the first useful answer counts.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::node::Node;
use crate::report::{Diagnostic, plain};
use crate::rules::{Delivery, Failure, Instant, UserMessage, show};
use crate::store::Interrupt;
use crate::store::waiting::answered;
use crate::system::thread;
use crate::system::wakeup::Wakeup;

/// The answers of several servers to one question.
pub(super) struct Answers<T> {
    received: Receiver<Answer<T>>,
    /// Becomes readable when an answer arrives.
    pub(super) arrival: Wakeup,
    /// One for each server. Dropping them keeps threads from asking that have not begun to.
    needed: Vec<Sender<()>>,
}

/// The index of a server, the server with its connection, and its answer.
type Answer<T> = (usize, Node, T);

impl<T: Send + 'static> Answers<T> {
    /// Asks these servers, each on its own thread, unless this is dropped within `delay`. The
    /// threads end with the I/O timeout, even if nobody waits for them any longer. A server whose
    /// answer is `None` counts as silent.
    pub(super) fn of(
        nodes: Vec<(usize, Node)>,
        delay: Duration,
        question: impl Fn(&mut Node) -> Option<T> + Clone + Send + 'static,
    ) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::Unavailable(UserMessage::new(format!(
                "cannot start a thread: {}",
                plain(&error)
            )))
        };
        let (sender, received) = channel();
        let arrival = Wakeup::new().map_err(cannot)?;
        let mut needed = Vec::new();
        for (index, mut node) in nodes {
            let (sender, arrival, question) = (sender.clone(), arrival.clone(), question.clone());
            let (need, is_needed) = channel();
            let ask = move || {
                if is_needed.recv_timeout(delay) == Err(RecvTimeoutError::Timeout)
                    && let Some(answer) = question(&mut node)
                {
                    // This fails if nobody waits for the answer anymore.
                    let _ = sender.send((index, node, answer));
                    arrival.wake();
                }
            };
            thread::start("asking", ask).map_err(cannot)?;
            needed.push(need);
        }
        Ok(Self { received, arrival, needed })
    }

    /// An answer that has arrived.
    pub(super) fn next(&self) -> Option<Answer<T>> {
        self.received.try_recv().ok()
    }
}

/// The first answer that is not a failure.
pub(super) struct First<T> {
    /// The index of the server that gave it.
    pub(super) index: usize,
    pub(super) value: T,
    /// Those of the servers that failed before it came.
    pub(super) failures: Vec<Failure>,
}

impl<T: Send + 'static> Answers<Result<T, Failure>> {
    /// Waits for the first answer that is not a failure. The servers that have answered return to
    /// `nodes`. An error is that of an interrupt or the failures.
    pub(super) fn first(
        &self,
        nodes: &mut [Node],
        timeout: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<First<T>, Vec<Failure>> {
        let until = Instant::now() + timeout;
        let mut failures = Vec::new();
        loop {
            self.arrival.clear();
            while let Some((index, node, answer)) = self.next() {
                nodes[index] = node;
                match answer {
                    Ok(value) => return Ok(First { index, value, failures }),
                    Err(failure) => failures.push(failure),
                }
            }
            if failures.len() == self.needed.len() {
                return Err(failures);
            }
            match answered(&self.arrival, interrupt, until) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Err(vec![Failure::Interrupted { sent: false }]),
            }
        }
        let fault = UserMessage::new(format!("no answer within {}", show(timeout)))
            .with_remedy("check the server and the network");
        failures.push(Failure::Unreachable {
            fault,
            delivery: Delivery::NotSent,
            others_answer: false,
        });
        Err(failures)
    }
}

/// What `-v` shows of servers of this kind that failed.
pub(super) fn details(kind: &str, failures: &[Failure]) -> Vec<Diagnostic> {
    let failed = failures.iter().filter(|failure| !matches!(failure, Failure::Interrupted { .. }));
    failed.map(|failure| Diagnostic::Detail(format!("{kind}: {failure}"))).collect()
}
