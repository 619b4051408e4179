//! `rlock renew`: extends the lease of a lock from acquire.

use super::retry::Retry;
use super::{open, output};
use crate::cli;
use crate::config::{self, ReadOnce, ServerSettings};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::object;
use crate::report::Report;
use crate::rules::{Failure, Instant, Renewal, millis, show};
use crate::store::NEVER;

pub(super) fn run(options: cli::RenewArgs, report: &Report) -> Result<Exit, Error> {
    let cli::RenewArgs { common, ttl, min_replicas, hold } = options;
    let token = config::token(hold.token)?;
    let min_replicas = config::min_replicas(min_replicas)?;
    let server = ServerSettings::resolve(&common, ttl, min_replicas, ReadOnce::new())?;
    let key = server.key(&hold.name);
    let mut store = open(&server, report)?;
    let mut retry = Retry::of("not renewed");
    let renewal = retry.run(&mut *store, report, |store| store.renew(&key, &token, ttl, NEVER));
    let unconfirmed = |failure: Failure| match retry.deadline {
        Some(deadline) => failure.reworded(|why| {
            let left = show(deadline.since(Instant::now()));
            format!("not renewed (the lease may expire in {left}): {why}")
        }),
        None => failure,
    };
    match renewal.map_err(unconfirmed)? {
        Renewal::NotHeld(why) => Err(Error::not_held(&why, Some("acquire the lock again"))),
        Renewal::Renewed { fence, left, .. } => {
            let expires = show(left);
            report.detail(format_args!("renewed, expires in {expires}, fencing token {fence}"));
            if hold.json {
                output::document(object! {
                    status: "renewed",
                    name: hold.name.as_str(),
                    fence: fence,
                    ttl_ms: millis(left),
                })?;
            }
            Ok(Exit::Status(exit::OK))
        }
    }
}
