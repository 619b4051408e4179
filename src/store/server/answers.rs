//! Asks several servers at once, because any of them may be frozen: the first useful answer counts.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::node::Node;
use crate::report::{Diagnostic, plain};
use crate::rules::{Delivery, Failure, Instant, UserMessage, show};
use crate::store::Interrupt;
use crate::store::waiting::received;
use crate::system::channel::{Receiver, channel};
use crate::system::thread;

/// The answers of several servers to one question.
pub(super) struct Answers<T> {
    pub(super) received: Receiver<Answer<T>>,
    /// One for each server. Dropping them keeps threads from asking that have not begun to.
    needed: Vec<mpsc::Sender<()>>,
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
        let (sender, received) = channel().map_err(cannot)?;
        let mut needed = Vec::new();
        for (index, mut node) in nodes {
            let (sender, question) = (sender.clone(), question.clone());
            let (need, is_needed) = mpsc::channel();
            let ask = move || {
                if is_needed.recv_timeout(delay) == Err(RecvTimeoutError::Timeout)
                    && let Some(answer) = question(&mut node)
                {
                    sender.send((index, node, answer));
                }
            };
            thread::start("asking", ask).map_err(cannot)?;
            needed.push(need);
        }
        Ok(Self { received, needed })
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
        while failures.len() < self.needed.len() {
            let answer = match received(&self.received, interrupt, until) {
                Ok(answer) => answer,
                Err(_) => return Err(vec![Failure::Interrupted { sent: false }]),
            };
            let Some((index, node, answer)) = answer else {
                let fault = UserMessage::new(format!("no answer within {}", show(timeout)))
                    .with_remedy("check the server and the network");
                failures.push(Failure::unreachable(fault, Delivery::NotSent));
                break;
            };
            nodes[index] = node;
            match answer {
                Ok(value) => return Ok(First { index, value, failures }),
                Err(failure) => failures.push(failure),
            }
        }
        Err(failures)
    }
}

/// What `-v` shows of servers of this kind that failed.
pub(super) fn details(kind: &str, failures: &[Failure]) -> Vec<Diagnostic> {
    let failed = failures.iter().filter(|failure| !matches!(failure, Failure::Interrupted { .. }));
    failed.map(|failure| Diagnostic::Detail(format!("{kind}: {failure}"))).collect()
}
