//! `rlock inspect`: who holds a lock, and who waits for it.

use super::output;
use crate::cli;
use crate::config::Config;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::{json, table};
use crate::lock::{Key, Name};
use crate::pattern::Subject;
use crate::report::Report;
use crate::store::Listed;
use crate::view::{State, View};

pub(super) fn run(options: &cli::Inspect, report: &Report) -> Result<Exit, Error> {
    let config = Config::resolve(&options.common, None)?;
    config.warnings(report);
    let mut store = config.open(0)?;
    let locks = match &options.subject {
        None => readable(store.list(&config.prefix, None)?, report)?,
        Some(Subject::Matching(pattern)) => {
            readable(store.list(&config.prefix, Some(pattern))?, report)?
        }
        Some(Subject::One(name)) => {
            let view = store.inspect(&Key::new(&config.prefix, name))?;
            let free = view.state == State::Free;
            if free { Vec::new() } else { vec![(name.clone(), view)] }
        }
    };
    let status = match (&options.subject, locks.is_empty()) {
        (Some(Subject::One(_)), true) => exit::FREE,
        _ => exit::OK,
    };
    if options.json {
        output::document(&json::documents(&config.prefix, &locks))?;
    } else {
        match (&options.subject, &locks[..]) {
            (Some(Subject::One(name)), []) => output::text(&format!("{name}: free\n"))?,
            (Some(Subject::One(_)), [(name, view)]) => output::text(&table::page(name, view))?,
            _ => output::text(&table::list(&locks))?,
        }
    }
    Ok(Exit::Status(status))
}

/// Those that can be shown; of the others it is told why not. An error if there are only such.
fn readable(listed: Vec<Listed>, report: &Report) -> Result<Vec<(Name, View)>, Error> {
    let mut locks = Vec::new();
    let mut unreadable = Vec::new();
    for (name, view) in listed {
        match view {
            Ok(view) => locks.push((name, view)),
            Err(failure) => unreadable.push((name, failure)),
        }
    }
    if locks.is_empty() && !unreadable.is_empty() {
        return Err(unreadable.swap_remove(0).1.into());
    }
    for (name, failure) in unreadable {
        report.warn(format_args!("{name}: {failure}"));
    }
    Ok(locks)
}
