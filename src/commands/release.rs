//! `rlock release`: releases a lock from acquire, or revokes all holds.

use super::output::{self, Document};
use super::retry::Retry;
use super::{open, revoke};
use crate::cli::ReleaseArgs;
use crate::config::{self, ReadOnce, ServerSettings};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::Report;
use crate::rules::request::Release;
use crate::rules::{Key, Outcome, Token};
use crate::store::Store;
use crate::supervise::keeper_process;

pub(super) fn run(options: &ReleaseArgs, report: &Report) -> Result<Exit, Error> {
    let token = if options.force { None } else { Some(config::token(options.hold.token.clone())?) };
    let server = ServerSettings::resolve(&options.common, None, 0, ReadOnce::new())?;
    let key = server.key(&options.hold.name);
    let mut store = open(&server, report)?;
    match (token, &options.id) {
        (Some(token), _) => release(&mut *store, options, &key, &token, report),
        (None, None) => revoke::run(&mut *store, options, &server.prefix, &key, report),
        (None, Some(id)) => revoke::run_for_one(&mut *store, options, &key, id, report),
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
                output::document(&Document::new("released", &options.hold.name))?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
