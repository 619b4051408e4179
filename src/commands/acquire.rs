//! `rlock acquire`: a lock for a script that exec cannot run.

use std::ffi::OsString;
use std::os::fd::AsFd;

use anyhow::anyhow;

use super::grant::Grant;
use super::output::{self, Done};
use super::{identity, keeper};
use crate::config::{Acquire, Handover, Output};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::Report;
use crate::rules::Token;
use crate::supervise::Variables;
use crate::system::inherited::Inherited;
use crate::text::quoted;

pub(super) fn run(
    options: &Acquire,
    arguments: &[OsString],
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    let Acquire { terms, while_pid, keeper_token, output } = options;
    let watched = match while_pid {
        Some(process) => Some((*process, keeper::watchable(*process)?)),
        None => None,
    };
    if let (Some((process, _)), Some(token)) = (&watched, keeper_token) {
        return keeper::run(token.clone(), *process, terms, inherited, report);
    }
    let client = match while_pid {
        Some(process) => identity::of_watched(*process, terms.label.clone()),
        None => identity::of_caller(terms.label.clone()),
    };
    let needed_by = watched.as_ref().map(|(_, process)| process.as_fd());
    let mut grant = Grant::obtain(terms, Token::fresh(), client, needed_by, inherited, report)?;
    let token = &grant.request.token;
    let mut keeper = None;
    if let Some((_, process)) = watched {
        let handover = Handover::new(token, &terms.server.read_once);
        match keeper::start(process, &handover, arguments, inherited, report) {
            Ok(started) => keeper = Some(started),
            Err(error) => {
                let _ = grant.store.leave(&grant.request);
                return Err(error);
            }
        }
    }
    // Before anything is printed, or a script would read of a grant and of a failure.
    let stopped = grant.signals.pending().first().map(|arrival| Error::Stopped(arrival.signal));
    let printed = match (stopped, output) {
        (Some(stopped), _) => Err(stopped),
        (None, Output::Human) => output::text(&format!("{}\n", token.as_str())),
        (None, Output::Json) => {
            let done = Done::new("acquired", &terms.name).with_token(token);
            let done = done.with_lease(grant.acquired.fence, grant.request.ttl.get());
            output::document(&done.with_slot(grant.acquired.slot))
        }
        (None, Output::Shell) => output::text(&assignments(&grant.variables(&terms.name))),
    };
    // Release the lock if its token could not be printed, or if a signal ended the acquire.
    let unwanted = match printed {
        Ok(()) => return Ok(Exit::Status(exit::OK)),
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
    if let Err(failure) = grant.store.leave(&grant.request) {
        report.detail(format_args!("not released: {failure}"));
    }
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
