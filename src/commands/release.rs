//! `rlock release`: the end of a lock that was acquired.

use super::evict;
use super::output::{self, Done};
use crate::cli;
use crate::config::{self, Config};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::{Key, Name, Token};
use crate::notice::Notice;
use crate::report::Report;
use crate::store::{Eviction, Release, Store};
use crate::view::Outcome;

/// Whose holds are to end.
enum Whose {
    /// That of this token.
    Own(Token),
    /// All that there are.
    Everybodys(Eviction),
}

pub(super) fn run(options: &cli::Release, report: &Report) -> Result<Exit, Error> {
    let whose = match (options.force, options.now) {
        (false, _) => Whose::Own(config::token(&options.hold)?),
        (true, false) => Whose::Everybodys(Eviction::WhenGone),
        (true, true) => Whose::Everybodys(Eviction::Now),
    };
    let config = Config::resolve(&options.common, None)?;
    config.warnings(report);
    let (name, json) = (&options.hold.name, options.hold.json);
    let key = Key::new(&config.prefix, name);
    let mut store = config.open(0)?;
    match whose {
        Whose::Own(token) => release(&mut *store, &key, name, &token, json, report),
        Whose::Everybodys(eviction) => evict::run(&mut *store, &key, name, eviction, json, report),
    }
}

fn release(
    store: &mut dyn Store,
    key: &Key,
    name: &Name,
    token: &Token,
    json: bool,
    report: &Report,
) -> Result<Exit, Error> {
    let released = store.release(key, token, Outcome::Unknown);
    report.remarks(store.remarks());
    match released? {
        Release::NotHeld => Err(Error::NotHeld),
        Release::Released | Release::Unknown => {
            Notice::give(token);
            report.detail("released");
            if json {
                output::document(&Done::new("released", name))?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
