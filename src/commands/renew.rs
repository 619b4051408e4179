//! `rlock renew`: more time for a lock that was acquired.

use super::output::{self, Done};
use super::reported::Reported;
use crate::cli;
use crate::config::{self, Config};
use crate::duration::show;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::Key;
use crate::report::Report;
use crate::store::Renewal;

pub(super) fn run(options: &cli::Renew, report: &Report) -> Result<Exit, Error> {
    let token = config::token(&options.hold)?;
    let ttl = config::chosen_ttl(options.ttl)?;
    let config = Config::resolve(&options.common, ttl)?;
    config.warnings(report);
    let name = &options.hold.name;
    let key = Key::new(&config.prefix, name);
    let mut store = config.open(0)?;
    let mut store = Reported::new(&mut *store, report);
    match store.ask(|store| store.renew(&key, &token, ttl, None))? {
        Renewal::NotHeld(why) => Err(Error::NotHeld(why)),
        Renewal::Renewed { fence, left } => {
            let expires = show(left);
            report.detail(format_args!("renewed, expires in {expires}, fencing token {fence}"));
            if options.hold.json {
                output::document(&Done::new("renewed", name).with_lease(fence, left))?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
