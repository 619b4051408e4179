//! `rlock release`: releases a lock from acquire, or revokes all holds.

use super::retry::Retry;
use super::{open, output, revoke};
use crate::cli::ReleaseArgs;
use crate::config::{self, ReadOnce, ServerSettings};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::object;
use crate::report::Report;
use crate::rules::request::Release;
use crate::rules::{Key, Outcome, Token};
use crate::store::Store;
use crate::supervise::keeper_process;
use crate::system::inherited::Inherited;

pub(super) fn run(
    options: &ReleaseArgs,
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    let token = (!options.force).then(|| config::token(options.hold.token.clone()));
    let token = token.transpose()?;
    let server = ServerSettings::resolve(&options.common, None, 0, ReadOnce::new())?;
    let key = server.key(&options.hold.name);
    let mut store = open(&server, report)?;
    match token {
        Some(token) => release(&mut *store, options, &key, &token, report),
        None => revoke::run(&mut *store, options, &server.prefix, &key, inherited, report),
    }
}

fn release(
    store: &mut dyn Store,
    options: &ReleaseArgs,
    key: &Key,
    token: &Token,
    report: &Report,
) -> Result<Exit, Error> {
    let mut retry = Retry::of("not released");
    match retry.run(store, report, |store| store.release(key, token, Outcome::Unknown))? {
        Release::NotHeld(why) => {
            let unlocked = "check the work since then, which ran unlocked";
            Err(Error::not_held(&why, (!why.is_released()).then_some(unlocked)))
        }
        Release::Released | Release::Unknown => {
            keeper_process::wake(token);
            report.detail("released");
            if options.hold.json {
                output::document(object! { status: "released", name: options.hold.name.as_str() })?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
