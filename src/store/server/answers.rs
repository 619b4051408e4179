//! Asks several servers at once, because any of them may be frozen: the first useful answer counts.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::node::Node;
use crate::report::{Diagnostic, plain};
use crate::rules::{Delivery, Failure, UserMessage, show};
use crate::store::waiting::received;
use crate::store::wire::Limit;
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

impl<T: Send + 'static> Answers<Result<T, Failure>> {
    /// Waits for the first answer that is not a failure, and returns it with the index of its
    /// server. The servers that have answered return to `nodes`; -v shows each failure as that of
    /// a server of this `kind`. An error is that of an interrupt or the failures.
    pub(super) fn first(
        &self,
        kind: &str,
        nodes: &mut [Node],
        diagnostics: &mut Vec<Diagnostic>,
        limit: Limit<'_>,
    ) -> Result<(usize, T), Vec<Failure>> {
        let mut failures = Vec::new();
        while failures.len() < self.needed.len() {
            let failure = match received(&self.received, limit.interrupt, limit.until) {
                Err(_) => return Err(vec![Failure::Interrupted { sent: false }]),
                Ok(None) => break,
                Ok(Some((index, node, answer))) => {
                    nodes[index] = node;
                    match answer {
                        Ok(value) => return Ok((index, value)),
                        Err(failure) => failure,
                    }
                }
            };
            diagnostics.push(Diagnostic::Detail(format!("{kind}: {failure}")));
            failures.push(failure);
        }
        if failures.len() < self.needed.len() {
            let fault = UserMessage::new(format!("no answer within {}", show(limit.timeout)))
                .with_remedy("check the server and the network");
            diagnostics.push(Diagnostic::Detail(format!("{kind}: {fault}")));
            failures.push(Failure::unreachable(fault, Delivery::NotSent));
        }
        Err(failures)
    }
}
