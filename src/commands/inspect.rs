//! `rlock inspect`: who holds a lock, and who waits for it.

use super::output;
use crate::cli;
use crate::config::Config;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::{json, table};
use crate::lock::{Key, Name, Prefix};
use crate::pattern::Subject;
use crate::report::Report;
use crate::store::{Failure, Listing, Store};
use crate::view::{State, View};

pub(super) fn run(options: &cli::Inspect, report: &Report) -> Result<Exit, Error> {
    let config = Config::resolve(&options.common, None)?;
    config.warnings(report);
    let mut store = config.open(0)?;
    let found = look(&mut *store, &config.prefix, options.subject.as_ref());
    report.remarks(store.remarks());
    let (locks, complete) = readable(found?, report)?;
    let status = match (&options.subject, locks.is_empty()) {
        _ if !complete => exit::UNREACHABLE,
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

/// The locks that were asked about, those that are free aside.
fn look(
    store: &mut dyn Store,
    prefix: &Prefix,
    subject: Option<&Subject>,
) -> Result<Listing, Failure> {
    match subject {
        None => store.list(prefix, None),
        Some(Subject::Matching(pattern)) => store.list(prefix, Some(pattern)),
        Some(Subject::One(name)) => {
            let view = store.inspect(&Key::new(prefix, name))?;
            let mut listing = Listing::default();
            if view.state != State::Free {
                listing.locks.push((name.clone(), Ok(view)));
            }
            Ok(listing)
        }
    }
}

/// Those that can be shown; of the others it is told why not. An error if there are only such. Also
/// says if there was nothing that could not be looked at.
fn readable(listing: Listing, report: &Report) -> Result<(Vec<(Name, View)>, bool), Error> {
    let complete = listing.unseen.is_empty();
    let mut locks = Vec::new();
    let mut unreadable = Vec::new();
    for (name, view) in listing.locks {
        match view {
            Ok(view) => locks.push((name, view)),
            Err(failure) => unreadable.push((format!("{name}: "), failure)),
        }
    }
    unreadable.extend(listing.unseen.into_iter().map(|failure| (String::new(), failure)));
    if locks.is_empty() && !unreadable.is_empty() {
        return Err(unreadable.swap_remove(0).1.into());
    }
    for (whose, failure) in unreadable {
        report.warn(format_args!("{whose}{failure}"));
    }
    Ok((locks, complete))
}
