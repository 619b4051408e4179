//! `rlock release`: the end of a lock that was acquired.

use super::output::{self, Done};
use crate::cli;
use crate::config::{self, Config};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::Key;
use crate::report::Report;
use crate::store::{self, Release};

pub(super) fn run(options: &cli::Release, report: &Report) -> Result<Exit, Error> {
    let token = config::token(&options.hold)?;
    let config = Config::resolve(&options.common, None)?;
    config.warnings(report);
    let name = &options.hold.name;
    let key = Key::new(&config.prefix, name);
    let mut store = store::open(&config.address, config.io_timeout);
    match store.release(&key, &token)? {
        Release::NotHeld => Err(Error::NotHeld),
        Release::Released | Release::Unknown => {
            report.detail("released");
            if options.hold.json {
                output::document(&Done::new("released", name))?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
