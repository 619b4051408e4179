//! Turns options into decisions: the command line first, then the environment, then defaults.

mod files;
mod handover;
mod server;
mod variables;

use std::time::Duration;

pub use handover::ReadOnce;
pub(crate) use handover::{Handover, KEEPER};
pub use server::ServerSettings;
pub(crate) use variables::{min_replicas, token, ttl};

use crate::cli;
use crate::error::Error;
use crate::rules::{BoundedDuration, Ttl, UserMessage};

/// What exec and acquire share, resolved: the lock, and how to ask for it.
pub struct Terms {
    pub(crate) server: ServerSettings,
    /// The options, with what the environment adds to them.
    pub(crate) lock: cli::LockArgs,
    pub(crate) ttl: Ttl,
    /// `None`: wait indefinitely; zero: do not wait.
    pub(crate) wait_limit: Option<Duration>,
    /// How long to try again if the server does not answer at the start, or cannot serve locks yet.
    /// Zero: do not try again.
    pub(crate) start_limit: Duration,
}

impl Terms {
    /// `read_once` is what a keeper has received: the contents of files that cannot be read twice.
    pub fn resolve(
        common: &cli::CommonArgs,
        lock: cli::LockArgs,
        read_once: ReadOnce,
    ) -> Result<Self, Error> {
        let lock = variables::complete_lock(lock)?;
        let wait_limit =
            if lock.nonblock { Some(Duration::ZERO) } else { lock.wait.map(BoundedDuration::get) };
        if lock.supersede && wait_limit == Some(Duration::ZERO) {
            let fault = UserMessage::new("--supersede requires waiting");
            return Err(Error::Usage(fault.with_remedy("use a --wait or RLOCK_WAIT other than 0")));
        }
        let (ttl, min_replicas) = (ttl(lock.ttl)?, min_replicas(lock.min_replicas)?);
        let server = ServerSettings::resolve(common, Some(ttl), min_replicas, read_once)?;
        // A wait without a limit would try a wrong URL forever.
        Ok(Self { server, lock, ttl, wait_limit, start_limit: wait_limit.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::rules::lease::renewal_interval;
    use crate::rules::model::lock::CLAIM_WINDOW;
    use crate::rules::waiter::heartbeat;
    use crate::rules::{LossPolicy, Timeout, show};

    #[test]
    fn the_help_of_an_option_states_its_default() {
        let mut program = cli::Cli::command();
        program.build();
        let mut stated = 0;
        for option in program.get_subcommands().flat_map(clap::Command::get_arguments) {
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            let default = match option.get_long() {
                Some("ttl") => Ttl::DEFAULT.get(),
                Some("io-timeout") => Timeout::DEFAULT.get(),
                Some("kill-after") => LossPolicy::DEFAULT.kill_after,
                _ => continue,
            };
            if let Some((_, says)) = help.split_once("[default: ") {
                assert_eq!(says, format!("{}]", show(default)), "{option}");
                stated += 1;
            }
        }
        assert!(stated > 5, "{stated}");
    }

    #[test]
    fn a_figure_on_a_page_follows_from_the_defaults() {
        let (ttl, kill_after) = (Ttl::DEFAULT.get(), LossPolicy::DEFAULT.kill_after);
        let (interval, claim) = (renewal_interval(ttl), Duration::from_millis(CLAIM_WINDOW));
        let stop = ttl - kill_after;
        let readme = include_str!("../README.md");
        let promises = include_str!("../docs/promises.md");
        let troubleshooting = include_str!("../docs/troubleshooting.md");
        for (page, before, figure, after) in [
            (readme, "(`--ttl`, ", ttl, " by default"),
            (readme, "`--kill-after`: ", kill_after, " by default"),
            (readme, "notices within ", interval, ""),
            (readme, "within another ", kill_after, ""),
            (readme, "SIGTERM comes ", stop, " after the last renewal"),
            (promises, "One dead waiter costs at most ", claim, ""),
            (promises, "cost at most ", 2 * claim, ""),
            (promises, "", 2 * claim + 3 * heartbeat(ttl), " with the default TTL"),
            (promises, "a third of its TTL, but at most ", heartbeat(10 * ttl), ""),
            (troubleshooting, "an outage of ", stop - interval - Duration::from_secs(1), ""),
            (troubleshooting, "SIGTERM comes ", stop, " after the last renewal"),
            (troubleshooting, "which may be ", interval, " before the outage"),
            (troubleshooting, "Otherwise, keep ", ttl, ""),
        ] {
            let says = format!("{before}{} s{after}", figure.as_secs());
            assert!(page.contains(&says), "no longer on its page: {says}");
        }
    }
}
