//! `rlock release`: the end of a lock that was acquired.

use super::output::{self, Done};
use super::reported::Reported;
use super::{evict, releasing};
use crate::cli;
use crate::config::{self, Config};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::view::Outcome;
use crate::lock::{Key, Name, Token};
use crate::report::Report;
use crate::store::{Release, Revocation};
use crate::supervise::notice::Notice;

/// Whose holds are to end.
enum Whose {
    /// That of this token.
    Own(Token),
    /// All that there are.
    Everybodys(Revocation),
}

pub(super) fn run(options: &cli::Release, report: &Report) -> Result<Exit, Error> {
    let whose = match (options.force, options.now) {
        (false, _) => Whose::Own(config::token(&options.hold)?),
        (true, false) => Whose::Everybodys(Revocation::WhenGone),
        (true, true) => Whose::Everybodys(Revocation::Now),
    };
    let config = Config::resolve(&options.common, None)?;
    config.warnings(report);
    let (name, json) = (&options.hold.name, options.hold.json);
    let key = Key::new(&config.prefix, name);
    let mut store = config.open(0)?;
    let mut store = Reported::new(&mut *store, report);
    match whose {
        Whose::Own(token) => release(&mut store, &key, name, &token, json),
        Whose::Everybodys(revocation) => evict::run(&mut store, &key, name, revocation, json),
    }
}

fn release(
    store: &mut Reported<'_>,
    key: &Key,
    name: &Name,
    token: &Token,
    json: bool,
) -> Result<Exit, Error> {
    let outcome = Outcome::Unknown;
    let hold = releasing::Releasing { key, token, outcome, ends: None, signals: None };
    match releasing::release(store, hold)? {
        Release::NotHeld(why) => Err(Error::NotHeld(why)),
        Release::Released | Release::Unknown => {
            Notice::give(token);
            store.report().detail("released");
            if json {
                output::document(&Done::new("released", name))?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
