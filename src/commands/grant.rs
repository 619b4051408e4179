//! What exec and acquire have in common: from the options to a lock that is granted.

use std::ffi::OsString;

use crate::cli;
use crate::config::{Config, Terms, WaitLimit};
use crate::error::Error;
use crate::lock::{ClientInfo, Held, Key, Label, Name, Owner, Token};
use crate::report::Report;
use crate::store::{Request, Store};
use crate::system::inherited::Inherited;
use crate::system::signals::Signals;
use crate::wait::{self, Acquired};

/// A lock that was granted, and what it takes to keep it and to give it back.
pub(super) struct Grant {
    pub(super) store: Box<dyn Store>,
    pub(super) request: Request,
    pub(super) won: Acquired,
    pub(super) signals: Signals,
    /// What a keeper cannot read again, for its environment.
    pub(super) read_once: Vec<(&'static str, OsString)>,
}

impl Grant {
    /// Asks for the lock on the terms given, and waits for it.
    pub(super) fn obtain(
        name: &Name,
        common: &cli::Common,
        terms: &cli::Terms,
        about: impl FnOnce(Option<Label>) -> ClientInfo,
        inherited: Inherited,
        report: &Report,
    ) -> Result<Self, Error> {
        let terms = Terms::resolve(terms)?;
        Self::obtain_as(Token::fresh(), name, common, terms, about, inherited, report)
    }

    /// Takes over a hold that was granted already: asks for it again, by its token.
    pub(super) fn resume(
        token: Token,
        name: &Name,
        common: &cli::Common,
        terms: &cli::Terms,
        about: impl FnOnce(Option<Label>) -> ClientInfo,
        inherited: Inherited,
        report: &Report,
    ) -> Result<Self, Error> {
        let terms = Terms { wait_limit: WaitLimit::None, ..Terms::resolve(terms)? };
        Self::obtain_as(token, name, common, terms, about, inherited, report)
    }

    fn obtain_as(
        token: Token,
        name: &Name,
        common: &cli::Common,
        terms: Terms,
        about: impl FnOnce(Option<Label>) -> ClientInfo,
        inherited: Inherited,
        report: &Report,
    ) -> Result<Self, Error> {
        let config = Config::resolve(common, Some(terms.ttl))?;
        config.warnings(report);
        let key = Key::new(&config.prefix, name);
        let enclosing = Held::inherited().of_key(&key);
        let request = Request {
            key,
            token,
            mode: terms.mode,
            ttl: terms.ttl,
            at_least: terms.at_least,
            owner: terms.owner,
            fresh_owner: Owner::fresh(),
            enclosing,
            reentrant: terms.reentrant,
            heartbeat: match terms.wait_limit {
                WaitLimit::None => None,
                WaitLimit::For(_) | WaitLimit::Forever => Some(wait::heartbeat(terms.ttl.get())),
            },
            client: about(terms.label).to_lines(),
            fence: None,
        };
        let mut signals = Signals::listen(inherited)
            .map_err(|error| Error::system("cannot listen to signals", &error))?;
        let mut store = config.open(terms.min_replicas)?;
        let won = wait::acquire(
            &mut *store,
            &request,
            terms.wait_limit,
            terms.conflict_exit_code,
            &mut signals,
            report,
        )?;
        let request = Request { token: won.token.clone(), ..request };
        Ok(Self { store, request, won, signals, read_once: config.read_once })
    }

    /// What the command or the script is told about the lock. `RLOCK_HELD` has all the locks it is
    /// inside of, the innermost last.
    pub(super) fn variables(&self, name: &Name) -> Vec<(&'static str, String)> {
        let token = self.request.token.as_str();
        let held = Held::inherited().and(&self.request.key, &self.request.token);
        vec![
            ("RLOCK_NAME", name.to_string()),
            ("RLOCK_TOKEN", token.to_owned()),
            ("RLOCK_FENCE", self.won.fence.to_string()),
            (Held::VARIABLE, held),
        ]
    }
}
