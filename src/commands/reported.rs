//! A store that reports its diagnostics. Every command reaches its store through this one, so that
//! no diagnostic is forgotten.

use std::time::Duration;

use crate::config::Server;
use crate::error::Error;
use crate::report::Report;
use crate::rules::{
    Answer, Asked, Failure, Id, Key, Listing, Outcome, Pattern, Prefix, Release, Removal, Renewal,
    Request, Revocation, Seen, Token, Ttl, View,
};
use crate::store::{Interrupt, Store};

/// Opens the store of a server. Prints warnings about the configuration now, and the diagnostics of
/// each call after it.
pub(super) fn open(server: &Server, report: &Report) -> Result<Box<dyn Store>, Error> {
    for warning in &server.warnings {
        report.note(warning);
    }
    report.detail(format_args!("using {server}"));
    let store = server.location.open(server.io_timeout, server.min_replicas);
    Ok(Box::new(Reported { store: store.map_err(Error::Config)?, report: report.clone() }))
}

struct Reported {
    store: Box<dyn Store>,
    report: Report,
}

impl Reported {
    fn ask<T>(&mut self, question: impl FnOnce(&mut dyn Store) -> T) -> T {
        let answer = question(&mut *self.store);
        self.report.diagnostics(self.store.diagnostics());
        answer
    }
}

impl Store for Reported {
    fn acquire(
        &mut self,
        request: &Request,
        seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Answer, Failure> {
        self.ask(|store| store.acquire(request, seen, interrupt))
    }

    fn sleep(
        &mut self,
        request: &Request,
        at_most: Duration,
        seen: &[Seen],
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Asked>, Failure> {
        self.ask(|store| store.sleep(request, at_most, seen, interrupt))
    }

    fn renew(
        &mut self,
        key: &Key,
        token: &Token,
        ttl: Option<Ttl>,
        interrupt: Interrupt<'_>,
    ) -> Result<Renewal, Failure> {
        self.ask(|store| store.renew(key, token, ttl, interrupt))
    }

    fn release(&mut self, key: &Key, token: &Token, outcome: Outcome) -> Result<Release, Failure> {
        self.ask(|store| store.release(key, token, outcome))
    }

    fn leave(&mut self, request: &Request) -> Result<(), Failure> {
        self.ask(|store| store.leave(request))
    }

    fn abandon(&mut self, request: &Request) {
        self.ask(|store| store.abandon(request));
    }

    fn revoke(&mut self, key: &Key, revocation: Revocation, by: &str) -> Result<View, Failure> {
        self.ask(|store| store.revoke(key, revocation, by))
    }

    fn remove(
        &mut self,
        key: &Key,
        id: &Id,
        revocation: Revocation,
        by: &str,
    ) -> Result<Removal, Failure> {
        self.ask(|store| store.remove(key, id, revocation, by))
    }

    fn inspect(&mut self, key: &Key) -> Result<View, Failure> {
        self.ask(|store| store.inspect(key))
    }

    fn list(&mut self, prefix: &Prefix, pattern: Option<&Pattern>) -> Result<Listing, Failure> {
        self.ask(|store| store.list(prefix, pattern))
    }

    fn hazards(&mut self) -> Vec<String> {
        self.ask(|store| store.hazards())
    }
}
