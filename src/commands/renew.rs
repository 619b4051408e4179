//! `rlock renew`: extends the lease of a lock from acquire.

use super::open;
use super::output::{self, Document};
use super::retry::Retry;
use crate::cli;
use crate::config::{self, ReadOnce, ServerSettings};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::Report;
use crate::rules::{Renewal, millis, show};

pub(super) fn run(options: cli::RenewArgs, report: &Report) -> Result<Exit, Error> {
    let cli::RenewArgs { common, ttl, hold } = options;
    let token = config::token(hold.token, "")?;
    let server = ServerSettings::resolve(&common, ttl, 0, ReadOnce::new())?;
    let key = server.key(&hold.name);
    let mut store = open(&server, report)?;
    let retry = Retry { pending: "not renewed", ends: None, signals: None };
    match retry.run(&mut *store, report, |store| store.renew(&key, &token, ttl, None))? {
        Renewal::NotHeld(why) => Err(Error::NotHeld(why)),
        Renewal::Renewed { fence, left, .. } => {
            let expires = show(left);
            report.detail(format_args!("renewed, expires in {expires}, fencing token {fence}"));
            if hold.json {
                let (fence, ttl_ms) = (Some(fence), Some(millis(left)));
                let renewed = Document::new("renewed", &hold.name);
                output::document(&Document { fence, ttl_ms, ..renewed })?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
