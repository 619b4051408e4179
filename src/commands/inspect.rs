//! `rlock inspect`: the holders and waiters of locks.

mod ctrl_c;

use std::time::Duration;

use anyhow::Context;
use ctrl_c::CtrlC;

use super::output::{self, Screen};
use super::{identity, reported};
use crate::config::{Form, Inspect};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::problem::Here;
use crate::inspect::selection::Selection;
use crate::inspect::{Inspected, json, page, table};
use crate::lock::pattern::Subject;
use crate::lock::view::State;
use crate::lock::{Key, Prefix};
use crate::report::Report;
use crate::store::{Failure, Listing, Store};
use crate::system::clock::Instant;
use crate::system::poll::ready;
use crate::text::printable;

pub(super) fn run(options: &Inspect, report: &Report) -> Result<Exit, Error> {
    let prefix = &options.server.prefix;
    let inspection = Inspection {
        store: reported::open(&options.server, report)?,
        prefix,
        subject: options.subject.as_ref(),
        selection: options.selection,
        form: options.form,
        here: Here::new(identity::host(), prefix),
        report,
    };
    match options.watch {
        None => inspection.once(),
        Some(every) => inspection.watch(every),
    }
}

/// What to show, and how.
struct Inspection<'a> {
    store: Box<dyn Store>,
    prefix: &'a Prefix,
    subject: Option<&'a Subject>,
    selection: Selection,
    form: Form,
    here: Here<'a>,
    report: &'a Report,
}

/// The locks that were found.
struct Found {
    locks: Vec<Inspected>,
    /// Whether some of the locks that were found could not be read.
    damaged: bool,
    /// Whether all servers listed their locks.
    complete: bool,
}

impl Inspection<'_> {
    fn once(mut self) -> Result<Exit, Error> {
        let found = self.find()?;
        let text = self.show(&found, Screen::of_stdout())?;
        output::text(&text)?;
        let free = found.locks.iter().all(|lock| lock.view.state == State::Free);
        Ok(Exit::Status(match self.subject {
            _ if !found.complete => exit::UNREACHABLE,
            _ if self.selection.attention => match found.locks.is_empty() && !found.damaged {
                true => exit::OK,
                false => exit::ATTENTION,
            },
            Some(Subject::One(_)) if free => exit::FREE,
            _ => exit::OK,
        }))
    }

    /// Redraws until rlock is stopped. A server that does not answer may recover.
    fn watch(mut self, every: Duration) -> Result<Exit, Error> {
        let ctrl_c = CtrlC::handle()?;
        let mut first = true;
        loop {
            let next = Instant::now() + every;
            let screen = Screen::of_stdout();
            let text = match self.find().and_then(|found| self.show(&found, screen)) {
                Ok(text) => text,
                // An error that the user must fix ends the watch.
                Err(error) if first && !error.is_transient() => return Err(error),
                Err(error) if self.form == Form::Json => {
                    self.report.warn(&error);
                    String::new()
                }
                Err(error) => printable(&format!("{}; retrying", error.problem())) + "\n",
            };
            ctrl_c.draw(&screen.redrawn(&text, first))?;
            first = false;
            ready([], Some(next)).context("cannot wait")?;
        }
    }

    fn find(&mut self) -> Result<Found, Error> {
        let found = match self.subject {
            Some(Subject::One(name)) => {
                let view = self.store.inspect(&Key::new(self.prefix, name));
                view.map(|view| Listing {
                    locks: vec![(name.clone(), Ok(view))],
                    failures: Vec::new(),
                })
            }
            several => {
                let pattern = several.and_then(Subject::pattern);
                self.store.list(self.prefix, pattern)
            }
        };
        self.readable(found?)
    }

    /// Returns the locks that could be read, and warns about the others. Fails if none could be
    /// read.
    fn readable(&self, listing: Listing) -> Result<Found, Error> {
        let complete = listing.failures.is_empty();
        let mut locks = Vec::new();
        let mut unreadable: Vec<(String, Failure)> = Vec::new();
        for (name, view) in listing.locks {
            match view {
                Ok(view) => locks.push(Inspected::new(name, view, &self.here)),
                Err(failure) => unreadable.push((format!("{name}: "), failure)),
            }
        }
        let damaged = !unreadable.is_empty();
        unreadable.extend(listing.failures.into_iter().map(|failure| (String::new(), failure)));
        if locks.is_empty() && !unreadable.is_empty() {
            return Err(unreadable.swap_remove(0).1.into());
        }
        for (prefix, failure) in unreadable {
            self.report.warn(format_args!("{prefix}{failure}"));
        }
        Ok(Found { locks: self.selection.of(locks), damaged, complete })
    }

    fn show(&mut self, found: &Found, screen: Screen) -> Result<String, Error> {
        let Found { locks, .. } = found;
        let one = matches!(self.subject, Some(Subject::One(_)));
        let held = locks.iter().filter(|lock| lock.view.state != State::Free);
        match self.form {
            Form::Human => {}
            Form::Json => {
                return output::json(&json::documents(self.prefix, held, one));
            }
            Form::Names => return Ok(held.map(|lock| format!("{}\n", lock.name)).collect()),
        }
        Ok(match &locks[..] {
            [lock] if one => {
                // JSON leaves these out, because they cost a round trip.
                let hazards = self.store.hazards();
                page::page(lock, &hazards)
            }
            locks => table::list(locks, screen.style()),
        })
    }
}
