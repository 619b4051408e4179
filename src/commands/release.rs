//! `rlock release`: releases a lock from acquire, or revokes all holds.

use super::output::{self, Done};
use super::retry::Retry;
use super::{reported, revoke};
use crate::config::{Output, Release, Target};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::Report;
use crate::rules::request;
use crate::rules::{Outcome, Token};
use crate::store::Store;
use crate::supervise::notice;

pub(super) fn run(options: &Release, report: &Report) -> Result<Exit, Error> {
    let mut store = reported::open(&options.server, report)?;
    match &options.target {
        Target::Hold(token) => release(&mut *store, options, token, report),
        Target::AllHolds(force) => revoke::run(&mut *store, options, force, report),
        Target::Client(id, force) => revoke::run_for_one(&mut *store, options, id, force, report),
    }
}

fn release(
    store: &mut dyn Store,
    options: &Release,
    token: &Token,
    report: &Report,
) -> Result<Exit, Error> {
    let retry = Retry { pending: "not released", ends: None, signals: None };
    match retry.run(report, || store.release(&options.key, token, Outcome::Unknown))? {
        request::Release::NotHeld(why) => Err(Error::NotReleased(why)),
        request::Release::Released | request::Release::Unknown => {
            notice::give(token);
            report.detail("released");
            if options.output == Output::Json {
                output::document(&Done::new("released", &options.name))?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
