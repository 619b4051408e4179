//! `rlock renew`: more time for a lock that was acquired.

use super::output::{self, Done};
use crate::cli;
use crate::config::{self, Config};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::Key;
use crate::report::Report;
use crate::store::Renewal;

pub(super) fn run(options: &cli::Renew, report: &Report) -> Result<Exit, Error> {
    let token = config::token(&options.hold)?;
    let ttl = config::ttl(&options.lease)?;
    let config = Config::resolve(&options.common, Some(ttl))?;
    config.warnings(report);
    let name = &options.hold.name;
    let key = Key::new(&config.prefix, name);
    let mut store = config.open(0)?;
    let renewed = store.renew(&key, &token, ttl, None);
    report.remarks(store.remarks());
    match renewed? {
        Renewal::NotHeld => Err(Error::NotHeld),
        Renewal::Renewed { fence } => {
            report.detail(format_args!("renewed, fence {fence}"));
            if options.hold.json {
                output::document(&Done::new("renewed", name).with_lease(fence, ttl))?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
