//! `rlock inspect`: who holds a lock, and who waits for it.

use super::identity;
use super::output::{self, Screen};
use crate::cli;
use crate::config::Config;
use crate::duration::Timeout;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::problem::{self, Here, Problem};
use crate::inspect::{json, page, table};
use crate::lock::pattern::Subject;
use crate::lock::view::{State, View};
use crate::lock::{Key, Name, Prefix};
use crate::report::Report;
use crate::store::{Failure, Listing, Store};
use crate::system::clock::Instant;
use crate::system::poll::ready;
use crate::text::printable;

pub(super) fn run(options: &cli::Inspect, report: &Report) -> Result<Exit, Error> {
    let (subject, watch) = subject_and_watch(options)?;
    let config = Config::resolve(&options.common, None)?;
    config.warnings(report);
    let look = Look {
        store: config.open(0)?,
        prefix: &config.prefix,
        subject: subject.as_ref(),
        form: match (options.json, options.names) {
            (true, _) => Form::Json,
            (_, true) => Form::Names,
            _ => Form::People,
        },
        here: Here::new(identity::host(), &config.prefix),
        report,
    };
    match watch {
        None => look.once(),
        Some(every) => look.again_and_again(every.get()),
    }
}

/// In `-W NAME` what follows is not a time but the lock.
fn subject_and_watch(options: &cli::Inspect) -> Result<(Option<Subject>, Option<Timeout>), Error> {
    let subject = options.subject.clone();
    let Some(text) = &options.watch else { return Ok((subject, None)) };
    match (text.parse::<Timeout>(), &subject) {
        (Ok(every), _) => Ok((subject, Some(every))),
        (Err(_), None) => {
            let subject = text.parse().map_err(Error::Usage)?;
            Ok((Some(subject), Some(Timeout::SECOND)))
        }
        (Err(what), Some(_)) => Err(Error::Usage(format!("--watch: {what}"))),
    }
}

/// What is looked at, and how it is shown.
struct Look<'a> {
    store: Box<dyn Store>,
    prefix: &'a Prefix,
    subject: Option<&'a Subject>,
    form: Form,
    here: Here<'a>,
    report: &'a Report,
}

/// Whom it is shown to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    People,
    Json,
    /// Whoever wants to know what to ask about: a shell that completes a name.
    Names,
}

/// What was found.
struct Found {
    locks: Vec<(Name, View, Vec<Problem>)>,
    /// Whether there was nothing that could not be looked at.
    complete: bool,
}

impl Look<'_> {
    fn once(mut self) -> Result<Exit, Error> {
        let found = self.find()?;
        let text = self.show(&found, Screen::of_stdout())?;
        output::text(&text)?;
        let held = found.locks.iter().any(|(_, view, _)| view.state != State::Free);
        Ok(Exit::Status(match self.subject {
            _ if !found.complete => exit::UNREACHABLE,
            Some(Subject::One(_)) if !held => exit::FREE,
            _ => exit::OK,
        }))
    }

    /// Until somebody stops it. A server that is away may come back.
    fn again_and_again(mut self, every: std::time::Duration) -> Result<Exit, Error> {
        let mut first = true;
        loop {
            let next = Instant::now() + every;
            let screen = Screen::of_stdout();
            let text = match self.find().and_then(|found| self.show(&found, screen)) {
                Ok(text) => text,
                // What has to be mended is not worth watching.
                Err(error) if first && !error.is_transient() => return Err(error),
                Err(error) if self.form == Form::Json => {
                    self.report.warn(&error);
                    String::new()
                }
                Err(error) => printable(&format!("{error}; trying again")) + "\n",
            };
            output::text(&screen.redrawn(&text, first))?;
            first = false;
            ready([], Some(next))
                .map(|[]| ())
                .map_err(|error| Error::system("cannot wait", &error))?;
        }
    }

    fn find(&mut self) -> Result<Found, Error> {
        let found = match self.subject {
            Some(Subject::One(name)) => {
                let view = self.store.inspect(&Key::new(self.prefix, name));
                view.map(|view| Listing {
                    locks: vec![(name.clone(), Ok(view))],
                    unseen: Vec::new(),
                })
            }
            several => {
                let pattern = several.and_then(Subject::pattern);
                self.store.list(self.prefix, pattern)
            }
        };
        self.report.diagnostics(self.store.diagnostics());
        self.readable(found?)
    }

    /// Those that can be shown; of the others it is told why not. An error if there are only such.
    fn readable(&self, listing: Listing) -> Result<Found, Error> {
        let complete = listing.unseen.is_empty();
        let mut locks = Vec::new();
        let mut unreadable: Vec<(String, Failure)> = Vec::new();
        for (name, view) in listing.locks {
            match view {
                Ok(view) => {
                    let problems = problem::of(&name, &view, &self.here);
                    locks.push((name, view, problems));
                }
                Err(failure) => unreadable.push((format!("{name}: "), failure)),
            }
        }
        unreadable.extend(listing.unseen.into_iter().map(|failure| (String::new(), failure)));
        if locks.is_empty() && !unreadable.is_empty() {
            return Err(unreadable.swap_remove(0).1.into());
        }
        for (whose, failure) in unreadable {
            self.report.warn(format_args!("{whose}{failure}"));
        }
        Ok(Found { locks, complete })
    }

    fn show(&mut self, found: &Found, screen: Screen) -> Result<String, Error> {
        let Found { locks, .. } = found;
        let one = matches!(self.subject, Some(Subject::One(_)));
        let held = locks.iter().filter(|(_, view, _)| view.state != State::Free);
        match self.form {
            Form::People => {}
            Form::Json => {
                let held = held.map(|(name, view, _)| (name, view));
                return output::json(&json::documents(self.prefix, held, one));
            }
            Form::Names => return Ok(held.map(|(name, _, _)| format!("{name}\n")).collect()),
        }
        Ok(match &locks[..] {
            [(name, view, problems)] if one => {
                // Only for those who read it: it costs a round trip.
                let hazards = self.store.hazards();
                page::page(name, view, problems, &hazards)
            }
            locks => table::list(locks, screen.style()),
        })
    }
}
