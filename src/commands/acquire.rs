//! `rlock acquire`: a lock for a script that exec cannot run.

use std::ffi::OsString;
use std::os::fd::AsFd;

use anyhow::anyhow;
use nix::unistd::getppid;

use super::grant::Grant;
use super::output::{self, Output};
use super::{identity, keeper};
use crate::cli;
use crate::config::{Handover, Terms};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::object;
use crate::report::Report;
use crate::rules::{HoldKind, Token};
use crate::supervise::Variables;
use crate::system::inherited::Inherited;
use crate::system::poll::NEVER;
use crate::system::random;
use crate::text::quoted;

pub(super) fn run(
    options: cli::AcquireArgs,
    arguments: &[OsString],
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    let output = Output::of_acquire(&options);
    let handover = Handover::receive(arguments)?;
    let keeper_token = handover.as_ref().map(Handover::token).transpose()?;
    let read_once = handover.map(|it| it.read_once).unwrap_or_default();
    let cli::AcquireArgs { common, lock, while_pid, .. } = options;
    let terms = Terms::resolve(&common, lock, read_once)?;
    let watched = while_pid.map(keeper::watchable).transpose()?;
    let (pid, kind) = match while_pid {
        Some(process) => (process.get(), HoldKind::WhilePid),
        // Usually a shell, because rlock itself exits.
        None => (getppid().as_raw(), HoldKind::Acquire),
    };
    let client = identity::of_process(pid, kind, terms.lock.label.clone());
    if let (Some(process), Some(token)) = (while_pid, keeper_token) {
        return keeper::run(token, process, terms, client, inherited, report);
    }
    let needed_by = watched.as_ref().map(AsFd::as_fd);
    let token = Token::new(random::bytes());
    let mut grant = Grant::obtain(&terms, token, client, needed_by, inherited, report)?;
    let token = &grant.request.token;
    let mut keeper = None;
    if let Some(process) = watched {
        let handover = Handover::new(token, &terms.server.read_once);
        let signals = &mut grant.signals;
        match keeper::start(process, &handover, arguments, inherited, signals, report) {
            Ok(started) => keeper = Some(started),
            Err(error) => {
                grant.release_unused(report);
                return Err(error);
            }
        }
    }
    let text = match output {
        Output::Human => Ok(format!("{}\n", token.as_str())),
        Output::Json { .. } => output::line(object! {
            status: "acquired",
            name: terms.lock.name.as_str(),
            token: token.as_str(),
            fence: grant.acquired.fence,
            ttl_ms: grant.request.ttl.as_millis(),
            slot: grant.acquired.slot,
        }),
        Output::Shell => Ok(assignments(&grant.variables(&terms.lock.name))),
    };
    // Nothing is printed after a signal, or a script would read of a grant and of a failure, nor
    // after the lease, which only a keeper renews.
    let is_stopped = grant.signals.first().is_some();
    let deadline = keeper.is_none().then(|| grant.acquired.lease.deadline());
    let stop = NEVER.or(grant.signals.readable()).or_at(deadline);
    let printed = text.and_then(|text| Ok(!is_stopped && output::text_unless(stop, &text)?));
    // Release the lock if its token could not be printed, or if a signal ended the acquire.
    let unwanted = match printed {
        Ok(true) => return Ok(Exit::Status(exit::OK)),
        Ok(false) => match grant.signals.first() {
            Some(signal) => Error::Stopped(signal),
            None => Error::Internal(anyhow!("the lease expired before the token was read")),
        },
        Err(error @ Error::Internal(_)) => {
            Error::Internal(anyhow!("{error}; the lock has been released"))
        }
        Err(error) => error,
    };
    // The keeper first, or it would stop the process because the lock is lost.
    if let Some(mut keeper) = keeper {
        let _ = keeper.kill();
        let _ = keeper.wait();
    }
    grant.release_unused(report);
    Err(unwanted)
}

/// Returns assignments that are safe to `eval`.
fn assignments(variables: &Variables) -> String {
    let (mut assigned, mut exported) = (String::new(), String::from("export"));
    for (name, value) in variables {
        match value {
            Some(value) => {
                assigned += &format!("{name}={}; ", quoted(value));
                exported += &format!(" {name}");
            }
            None => assigned += &format!("unset {name}; "),
        }
    }
    format!("{assigned}{exported};\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_assignments_are_quoted() {
        let variables =
            [("A", Some("it's $(x)".to_owned())), ("B", Some("2".to_owned())), ("C", None)];
        assert_eq!(
            assignments(&variables.into()),
            r"A='it'\''s $(x)'; B=2; unset C; export A B;".to_owned() + "\n"
        );
    }
}
