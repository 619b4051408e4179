//! The messages about a wait: a status line at a terminal, or occasional lines in a log.

use std::mem;

use super::live::{Live, WaitStatus};
use crate::report::Report;
use crate::rules::waiter::Note;
use crate::rules::{Failure, FailureKind, Instant, Mode, Reminders, View, show};

/// The messages about one wait. Dropping this erases the status line.
pub(super) struct Messages<'a> {
    report: &'a Report,
    mode: Mode,
    started: Instant,
    until: Option<Instant>,
    /// Whether the first message about the wait has been printed.
    pub(super) begun: bool,
    /// The status line at a terminal.
    live: Option<Live>,
    /// Decides when to log a message; unused with a status line.
    reminders: Reminders,
    /// Set while the server does not answer.
    away: Option<Away>,
}

struct Away {
    since: Instant,
    problem: String,
    noted: bool,
    /// What is so again when it ends.
    again: &'static str,
}

impl Away {
    fn new(since: Instant, failure: &Failure) -> Self {
        let again = match failure.kind {
            FailureKind::Unconfirmed { .. } => "enough replicas confirm the lock",
            _ => "the server is answering",
        };
        Self { since, problem: failure.problem().to_owned(), noted: false, again }
    }
}

impl<'a> Messages<'a> {
    pub(super) fn new(
        report: &'a Report,
        mode: Mode,
        started: Instant,
        until: Option<Instant>,
    ) -> Self {
        let reminders = Reminders::new(started);
        Self { report, mode, started, until, begun: false, live: None, reminders, away: None }
    }

    pub(super) fn print(&mut self, note: Note, now: Instant) {
        match note {
            Note::Queued { view, position, sleep } => {
                self.queued(view, position, now);
                self.away = None;
                if !sleep.is_zero() {
                    let sleep = show(sleep);
                    self.report.detail(format_args!(
                        "waiting at position {position}, sleeping for up to {sleep}"
                    ));
                }
            }
            Note::Retrying(failure) => {
                self.report.detail(format_args!("{}; retrying", failure.problem()));
                self.away.get_or_insert(Away::new(now, &failure));
            }
            Note::Away(failure) => {
                let away = self.away.get_or_insert(Away::new(now, &failure));
                failure.problem().clone_into(&mut away.problem);
                if !mem::replace(&mut away.noted, true) {
                    let waiting = if self.begun { "still waiting, " } else { "" };
                    self.report.note(format_args!("{}; {waiting}retrying", failure.problem()));
                }
            }
            Note::Polling(failure, every) => {
                let (problem, every) = (failure.problem(), show(every));
                self.report.note(format_args!(
                    "cannot wait for a message: {problem}; asking at most every {every} instead"
                ));
            }
            Note::NotRunning(why) => self.report.note(why),
            Note::Back => {
                if let Some(Away { since, noted: true, again, .. }) = self.away.take() {
                    let away = show(now.since(since));
                    self.report.note(format_args!("{again} again after {away}"));
                }
            }
            Note::NotWithdrawn(failure) => {
                self.report
                    .detail(format_args!("cannot withdraw the request: {}", failure.problem()));
            }
        }
    }

    /// Reports the wait: on a status line at a terminal, else at once and then as `Reminders` says.
    fn queued(&mut self, view: View, position: u64, now: Instant) {
        let begins = !mem::replace(&mut self.begun, true);
        let reason = view.mismatch(self.mode);
        let line = |view| WaitStatus {
            subject: self.report.subject().to_owned(),
            view,
            then: now,
            position,
            until: self.until,
        };
        if let Some(live) = &self.live {
            return live.set(line(view));
        }
        if begins && self.report.is_normal() {
            self.live = Live::start(line(view.clone()));
            if self.live.is_some() {
                return self.report.erase_line(true);
            }
        }
        let holder = view.foremost().map(|holder| holder.id.clone());
        let is_due = self.reminders.is_due(Some((position, holder)), now);
        if begins {
            self.report.note(format_args!("waiting at position {position}: {view}{reason}"));
        } else if is_due {
            let waited = show(now.since(self.started));
            self.report.note(format_args!(
                "still waiting at position {position} after {waited}: {view}{reason}"
            ));
        }
    }

    /// Shows in a log that the wait goes on while the server does not answer. Otherwise, its next
    /// answer shows that, with the position and the holder.
    pub(super) fn remind(&mut self, now: Instant) {
        if self.live.is_none()
            && let Some(away) = &self.away
            && self.reminders.is_due(None, now)
        {
            let (waited, why) = (show(now.since(self.started)), &away.problem);
            self.report.note(format_args!("still waiting after {waited}: {why}; retrying"));
        }
    }
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        drop(self.live.take());
        self.report.erase_line(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verbosity;

    #[test]
    fn while_the_server_answers_only_its_answers_show_that_the_wait_goes_on() {
        let report = Report::new(None, Verbosity::Quiet);
        let [started, later] = [0, 60_000].map(Instant::at_millis);
        let mut messages = Messages::new(&report, Mode::Exclusive, started, None);
        messages.remind(later);
        assert!(messages.reminders.is_due(None, later));
    }

    #[test]
    fn a_reminder_tells_the_latest_reason() {
        let report = Report::new(None, Verbosity::Quiet);
        let now = Instant::at_millis(0);
        let mut messages = Messages::new(&report, Mode::Exclusive, now, None);
        let failed = |why: &str| Failure::unavailable(why, "");
        for note in [Note::Retrying(failed("a")), Note::Away(failed("b")), Note::Away(failed("c"))]
        {
            messages.print(note, now);
        }
        assert_eq!(messages.away.as_ref().unwrap().problem, "c");
    }
}
