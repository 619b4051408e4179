//! `rlock inspect`: the holders and waiters of locks.

mod keyboard;
mod screen;
mod servers;

use std::time::{Duration, SystemTime};

use anyhow::Context;
use keyboard::Keyboard;
use screen::Screen;

use super::{identity, names, open, output};
use crate::cli::InspectArgs;
use crate::config::{ReadOnce, ServerSettings};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::object;
use crate::inspect::problem::Here;
use crate::inspect::selection::Selection;
use crate::inspect::style::Style;
use crate::inspect::{Inspected, json, page, table};
use crate::report::Report;
use crate::rules::{
    BoundedDuration, Failure, Instant, Listing, Name, State, Subject, UserMessage, show,
};
use crate::store::{Filter, Store};
use crate::system::inherited::Inherited;
use crate::system::poll::ready;
use crate::text::cut;

pub(super) fn run(
    options: &InspectArgs,
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    if options.servers {
        return servers::run(options, report);
    }
    let one = options.subject.as_ref().and_then(Subject::name);
    if one.is_some() && options.older_than.is_some() && !options.attention {
        let fault = UserMessage::new("--older-than selects from a list, but NAME is one lock");
        return Err(Error::Usage(fault.with_remedy("to check its age, add --attention")));
    }
    let server = ServerSettings::resolve(&options.common, None, 0, ReadOnce::new())?;
    let older_than = options.older_than.map(BoundedDuration::get);
    let typed = |words: &str, name: &Name| options.common.typed(words, name);
    let inspection = Inspection {
        store: open(&server, report)?,
        server: &server,
        options,
        one,
        selection: Selection { attention: options.attention, older_than, order: options.sort },
        here: Here {
            host: identity::host(),
            typed: &typed,
            at_most: older_than.filter(|_| options.attention),
        },
        report,
    };
    match options.watch {
        None => inspection.once(),
        Some(every) => inspection.watch(every.get(), Keyboard::listen(inherited)?),
    }
}

struct Inspection<'a> {
    store: Box<dyn Store>,
    server: &'a ServerSettings,
    options: &'a InspectArgs,
    /// The lock, if the user named one.
    one: Option<&'a Name>,
    selection: Selection,
    here: Here<'a>,
    report: &'a Report,
}

/// The locks that were found.
struct Found {
    locks: Vec<Inspected>,
    /// Warnings about the servers, for a page.
    hazards: Vec<String>,
    /// Why some locks are missing, if any.
    missing: Option<Error>,
}

/// Text for people in two parts. A small screen keeps the second one.
#[derive(Clone, Default)]
struct Shown {
    body: String,
    foot: String,
}

impl Inspection<'_> {
    fn once(mut self) -> Result<Exit, Error> {
        let found = self.find()?;
        let screen = Screen::of_stdout();
        // The holder stays on the screen.
        let waiters = if screen.is_terminal() { 10 } else { usize::MAX };
        let shown = self.show(&found, Style { waiters, ..screen.style() })?;
        output::text(&(shown.body + &shown.foot))?;
        // A check that succeeds is silent.
        if self.is_for_people() && !self.selection.attention {
            match (&found.locks[..], self.one) {
                ([lock], Some(name)) if lock.view.is_unknown() => {
                    let prefix = &self.server.prefix;
                    let suggests = !self.report.is_quiet();
                    self.report.note(names::unknown(&mut *self.store, prefix, name, suggests));
                }
                _ if found.is_empty() => self.report.note(self.nothing()),
                _ => {}
            }
        }
        Ok(self.exit(&found))
    }

    fn exit(&self, found: &Found) -> Exit {
        let free = found.locks.iter().all(|lock| lock.view.state == State::Free);
        Exit::Status(match (&found.missing, self.selection.attention) {
            (Some(error), _) => return error.exit(),
            (None, true) if found.locks.is_empty() => exit::OK,
            (None, true) => exit::ATTENTION,
            (None, false) if free && self.one.is_some() => exit::FREE,
            (None, false) => exit::OK,
        })
    }

    /// Redraws until rlock is stopped. A server that does not answer may recover.
    fn watch(mut self, every: Duration, keyboard: Keyboard) -> Result<Exit, Error> {
        let mut last: Option<(Instant, Shown)> = None;
        let mut first = true;
        loop {
            let next = Instant::now() + every;
            let found = self.find();
            let screen = Screen::of_stdout();
            let shown = match found {
                Ok(found) => {
                    let shown = self.show_frame(&found, screen)?;
                    // In a log, it is not printed again.
                    last = screen.is_terminal().then(|| (Instant::now(), shown.clone()));
                    shown
                }
                // An error that the user must fix ends the watch.
                Err(error) if first && !error.is_transient() => return Err(error),
                Err(error) if self.options.json => {
                    self.report.warn(&error);
                    let failed = output::failure(self.one, &error, error.exit());
                    let document = object! { #[serde(flatten)] failed: failed, locks: [(); 0] };
                    Shown { body: output::line(document)?, foot: String::new() }
                }
                Err(error) => outdated(last.as_ref(), &error, screen),
            };
            keyboard.draw(&screen.frame(&shown.body, &shown.foot, first))?;
            first = false;
            ready([], Some(next)).context("cannot wait")?;
        }
    }

    fn find(&mut self) -> Result<Found, Error> {
        let listing = match self.one {
            Some(name) => {
                let before_hazards = self.is_for_people();
                let view = self.store.inspect_verified(&self.server.key(name), before_hazards);
                let one = |view| vec![(name.clone(), Ok(view))];
                view.map(|view| Listing { locks: one(view), failures: Vec::new() })
            }
            None => {
                let pattern = self.options.subject.as_ref().and_then(Subject::pattern).cloned();
                let (prefix, with_free) = (self.server.prefix.clone(), self.options.all);
                self.store.list(&Filter { prefix, pattern, with_free })
            }
        };
        self.report.diagnostics(self.store.diagnostics());
        let mut found = self.readable(listing?)?;
        // Other forms leave these out, because a cluster is asked once more.
        if self.one.is_some() && !found.locks.is_empty() && self.is_for_people() {
            found.hazards = self.store.hazards();
            self.report.diagnostics(self.store.diagnostics());
        }
        Ok(found)
    }

    /// Returns the locks that could be read, and warns about the others. Fails if none could be
    /// read.
    fn readable(&mut self, listing: Listing) -> Result<Found, Error> {
        let mut locks = Vec::with_capacity(listing.locks.len());
        let mut missing: Vec<Failure> = Vec::new();
        for (name, view) in listing.locks {
            match view {
                Ok(view) => locks.push(Inspected::new(name, view, &self.here)),
                Err(failure) => missing.push(failure.reworded(|what| format!("{name}: {what}"))),
            }
        }
        for lock in &mut locks {
            // A hold that ends outlives its process in what was read before.
            if lock.problems.iter().any(|problem| problem.is_of_process)
                && let Ok(view) = self.store.inspect(&self.server.key(&lock.name))
            {
                lock.refresh(view, &self.here);
            }
        }
        let is_listed = |lock: &Inspected| {
            self.one.is_some() || self.options.all || lock.view.state != State::Free
        };
        locks.retain(is_listed);
        missing.extend(listing.failures);
        if locks.is_empty() && !missing.is_empty() {
            return Err(missing.swap_remove(0).into());
        }
        missing.iter().for_each(|failure| self.report.warn(failure));
        let missing = missing.into_iter().next();
        let (missing, hazards) = (missing.map(Error::from), Vec::new());
        Ok(Found { locks: self.selection.of(locks), hazards, missing })
    }

    /// What to draw: on a terminal, the time and the server first. Without locks, it says so.
    fn show_frame(&self, found: &Found, screen: Screen) -> Result<Shown, Error> {
        let mut shown = self.show(found, screen.style())?;
        if let (Some(width), true) = (screen.style().width, self.is_for_people()) {
            let now = humantime::format_rfc3339_seconds(SystemTime::now());
            let ServerSettings { prefix, location, .. } = self.server;
            let head = format!("{now}  {location}  {}*", prefix.as_str());
            shown.body.insert_str(0, &screen.style().line(&cut(&head, width), false));
        }
        if self.is_for_people() && found.is_empty() {
            shown.foot = screen.style().line(&self.nothing(), false);
        }
        Ok(shown)
    }

    fn show(&self, found: &Found, style: Style) -> Result<Shown, Error> {
        let Found { locks, hazards, .. } = found;
        let one = self.one.is_some();
        let [body, foot] = match &locks[..] {
            _ if self.options.json => {
                let history = if one { usize::MAX } else { usize::from(self.options.all) };
                let missing = found.missing.as_ref();
                let missing =
                    missing.map(|error| output::failure(self.one, error, self.exit(found)));
                let document = object! {
                    #[serde(flatten)]
                    missing: missing,
                    locks: json::documents(&self.server.prefix, locks, history),
                };
                [output::line(document)?, String::new()]
            }
            _ if self.options.names => {
                let is_held = |lock: &&Inspected| lock.view.state != State::Free;
                let held = locks.iter().filter(|lock| self.options.all || is_held(lock));
                [held.map(|lock| format!("{}\n", lock.name)).collect(), String::new()]
            }
            [lock] if one => [page::page(lock, hazards, style), String::new()],
            _ => table::list(locks, style),
        };
        Ok(Shown { body, foot })
    }

    fn is_for_people(&self) -> bool {
        !self.options.json && !self.options.names
    }

    /// The message for an empty list: `no lock is held under prefix 'rlock:' on
    /// redis.example:6379`.
    fn nothing(&self) -> String {
        let InspectArgs { subject, all, attention, older_than, .. } = self.options;
        let what = match (subject, all, attention, older_than) {
            (None, false, false, None) => "no lock is held",
            (_, _, true, _) => "no lock needs attention",
            _ => "no such lock",
        };
        let ServerSettings { prefix, location, .. } = self.server;
        format!("{what} under prefix '{}' on {location}", prefix.as_str())
    }
}

/// The last frame and its age, while the server is away.
fn outdated(last: Option<&(Instant, Shown)>, error: &Error, screen: Screen) -> Shown {
    let problem = error.problem();
    let (mut shown, age) = last.map_or_else(Default::default, |(at, shown)| {
        (shown.clone(), format!("{} old: ", show(Instant::now().since(*at))))
    });
    shown.foot += &screen.style().line(&format!("{age}{problem}; retrying"), true);
    shown
}

impl Found {
    /// Whether there is nothing to show, nor to warn about.
    fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.missing.is_none()
    }
}
