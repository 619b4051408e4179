//! Times the steps of a client. After one that the server did not answer, no other is tried.

use std::time::Duration;

use crate::rules::servers::Server;
use crate::rules::{Failure, FailureKind, Instant, ServerTime};
use crate::store::NEVER;
use crate::store::server::Node;
use crate::store::wire::Cmd;

/// Times a step that tells the server's time.
pub(super) fn compare_clock(
    server: &mut Server,
    name: &'static str,
    ask: impl FnOnce() -> Result<ServerTime, Failure>,
) {
    let (mut before, mut now) = (Instant::now(), None);
    step(server, name, || {
        before = Instant::now();
        now = Some(ask()?);
        Ok(())
    });
    if let Some(ServerTime(now)) = now {
        let middle = (before.since_boot() + Instant::now().since_boot()) / 2;
        server.clock = Some(Duration::from_millis(now).saturating_sub(middle));
    }
}

/// Times one step, unless the server has not answered an earlier one.
pub(super) fn step(
    server: &mut Server,
    name: &'static str,
    act: impl FnOnce() -> Result<(), Failure>,
) {
    if server.failure.is_some() {
        return;
    }
    let started = Instant::now();
    match act() {
        Ok(()) => server.steps.push((name, Ok(Instant::now().since(started)))),
        Err(failure) => failed(server, name, &failure),
    }
}

/// Times a step that sends these commands.
pub(super) fn send(server: &mut Server, name: &'static str, node: &mut Node, commands: &[Cmd]) {
    let mut asked = commands.iter().map(|command| node.ask(command.clone(), NEVER));
    step(server, name, || Ok(asked.try_for_each(|reply| reply.map(drop))?));
}

/// Without a connection, every other step would fail as the first one has.
pub(super) fn unless_asked(server: &mut Server, node: &Node) {
    if !node.has_connected && server.failure.is_none() {
        let steps = std::mem::take(&mut server.steps);
        server.failure = steps.into_iter().find_map(|(_, step)| step.err());
    }
}

/// Records why a step failed.
pub(super) fn failed(server: &mut Server, name: &'static str, failure: &Failure) {
    let why = failure.fault.clone();
    server.is_denied = failure.kind == FailureKind::Misconfigured;
    if !failure.is_unreachable() {
        server.steps.push((name, Err(why)));
    } else if server.answers() {
        server.failure = Some(why.reworded(|why| format!("cannot {name}: {why}")));
    } else {
        server.failure = Some(why);
    }
}
