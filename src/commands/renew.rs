//! `rlock renew`: extends the lease of a lock from acquire.

use super::output::{self, Done};
use super::reported;
use super::retry::Retry;
use crate::config::{Output, Renew};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::Report;
use crate::rules::{Renewal, show};

pub(super) fn run(options: &Renew, report: &Report) -> Result<Exit, Error> {
    let Renew { name, key, token, ttl, server, output } = options;
    let mut store = reported::open(server, report)?;
    let retry = Retry { pending: "not renewed", ends: None, signals: None };
    match retry.run(report, || store.renew(key, token, *ttl, None))? {
        Renewal::NotHeld(why) => Err(Error::NotHeld(why)),
        Renewal::Renewed { fence, left, .. } => {
            let expires = show(left);
            report.detail(format_args!("renewed, expires in {expires}, fencing token {fence}"));
            if *output == Output::Json {
                output::document(&Done::new("renewed", name).with_lease(fence, left))?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
