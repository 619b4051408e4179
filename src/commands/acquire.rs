//! `rlock acquire`: a lock for a script that cannot be wrapped.

use std::env;

use anyhow::anyhow;

use super::grant::Grant;
use super::output::{self, Done};
use super::reported::Reported;
use super::{identity, keep};
use crate::cli;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::Report;
use crate::system::inherited::Inherited;
use crate::text::quoted;

pub(super) fn run(
    options: &cli::Acquire,
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    let name = &options.name;
    let watched = match options.while_pid {
        Some(process) => Some((process, keep::watchable(process)?)),
        None => None,
    };
    if let (Some((process, _)), Ok(token)) = (&watched, env::var(keep::VARIABLE)) {
        let token = token.parse().map_err(Error::Usage)?;
        return keep::run(token, *process, options, inherited, report);
    }
    let about = |label| match options.while_pid {
        Some(process) => identity::of_watched(process, label),
        None => identity::of_caller(label),
    };
    let mut grant = Grant::obtain(name, &options.common, &options.terms, about, inherited, report)?;
    let token = &grant.request.token;
    let mut keeper = None;
    if let Some((_, process)) = watched {
        match keep::start(process, token, grant.read_once.iter().cloned()) {
            Ok(started) => keeper = Some(started),
            Err(error) => {
                let _ = Reported::new(&mut *grant.store, report)
                    .ask(|store| store.leave(&grant.request));
                return Err(error);
            }
        }
    }
    let told = if options.json {
        let done = Done::new("acquired", name).with_token(token);
        output::document(&done.with_lease(grant.won.fence, grant.request.ttl.get()))
    } else if options.shell {
        output::text(&assignments(&grant.variables(name)))
    } else {
        output::text(&format!("{}\n", token.as_str()))
    };
    // A lock that nobody has the token of would only be in the way; the same if a signal says that
    // nobody wants it any more.
    let unwanted = match (grant.signals.pending().first(), told) {
        (Some(arrival), _) => Error::Stopped(arrival.signal),
        (None, Err(Error::Internal(error))) => {
            Error::Internal(anyhow!("{error:#}; the lock has been released"))
        }
        (None, Err(error)) => error,
        (None, Ok(())) => return Ok(Exit::Status(exit::OK)),
    };
    // First, since it would stop the process for the loss of its lock.
    if let Some(mut keeper) = keeper {
        let _ = keeper.kill();
        let _ = keeper.wait();
    }
    let left = Reported::new(&mut *grant.store, report).ask(|store| store.leave(&grant.request));
    if let Err(failure) = left {
        report.detail(format_args!("not released: {failure}"));
    }
    Err(unwanted)
}

/// Safe to `eval`.
fn assignments(variables: &[(&'static str, String)]) -> String {
    let assigned =
        |(name, value): &(&'static str, String)| (*name, format!("{name}={}; ", quoted(value)));
    let (names, assigned): (Vec<_>, Vec<_>) = variables.iter().map(assigned).unzip();
    format!("{}export {};\n", assigned.concat(), names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_evaluates_is_quoted() {
        let variables = [("A", "it's $(x)".to_owned()), ("B", "2".to_owned())];
        assert_eq!(
            assignments(&variables),
            r"A='it'\''s $(x)'; B=2; export A B;".to_owned() + "\n"
        );
    }
}
