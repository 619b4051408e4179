//! Asks several servers at once, because any of them may be frozen: the first useful answer counts.

use super::node::Node;
use crate::report::Diagnostic;
use crate::rules::{Delivery, Failure, FailureKind, SystemCall, UserMessage, show};
use crate::store::blocking::received;
use crate::store::denial;
use crate::store::wire::Limit;
use crate::system::channel::channel;
use crate::system::thread;

/// The first answer that is not a failure, with the server that gave it and its index. -v shows
/// each failure as that of a server of this `kind`. An error is that of an interrupt or the
/// failures.
///
/// Each server is asked on its own thread, which ends with the I/O timeout, even if nobody waits
/// for it any longer.
pub(super) fn first<T: Send + 'static>(
    kind: &str,
    nodes: Vec<(usize, Node)>,
    question: impl Fn(&mut Node) -> Result<T, Failure> + Clone + Send + 'static,
    diagnostics: &mut Vec<Diagnostic>,
    limit: Limit<'_>,
) -> Result<(usize, Node, T), Vec<Failure>> {
    let (sender, answers) =
        channel().map_err(|error| vec![denial::failure(SystemCall::Resource, &error)])?;
    let (mut missing, mut failures) = (0, Vec::new());
    for (index, mut node) in nodes {
        let (sender, question) = (sender.clone(), question.clone());
        let ask = move || {
            let answer = question(&mut node);
            sender.send((index, node, answer));
        };
        match thread::start("asking", ask) {
            Ok(_) => missing += 1,
            Err(error) => failures.push(denial::failure(SystemCall::Resource, &error)),
        }
    }
    while missing > 0 {
        let failure = match received(&answers, limit.interrupt, limit.until) {
            Err(_) => return Err(vec![Failure::interrupted(Delivery::NotExecuted)]),
            Ok(Some((index, node, Ok(value)))) => return Ok((index, node, value)),
            Ok(Some((_, _, Err(failure)))) => {
                missing -= 1;
                failure
            }
            Ok(None) => {
                missing = 0;
                let fault = UserMessage::new(format!("no answer within {}", show(limit.timeout)))
                    .with_remedy("check the server and the network");
                Failure::new(FailureKind::Unreachable, fault)
            }
        };
        diagnostics.push(Diagnostic::Detail(format!("{kind}: {failure}")));
        failures.push(failure);
    }
    Err(failures)
}
