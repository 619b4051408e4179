//! The arguments of `rlock inspect`.

use clap::Args;

use super::options::{order, replicas};
use super::{CommonArgs, DURATION, after_options};
use crate::rules::{BoundedDuration, SortOrder, Subject, Timeout, Ttl};

#[derive(Args)]
#[group(skip)]
#[command(
    after_help = DURATION,
    after_long_help = after_options!("\
Examples:
  # Show the holder, the queue and the history of a lock
  rlock inspect deploy:prod

  # List all locks that match, and refresh the list every second
  rlock inspect -W 'deploy:*'

  # Print the names of all locks with waiters
  rlock inspect --json | jq -r '.locks[] | select(.waiters != []) | .name'

  # List locks that have been held for more than an hour, the oldest first
  rlock inspect --older-than 1h --sort age

  # Exit with status 1 if a lock needs attention, for a monitoring check
  rlock inspect --attention

  # Check the servers themselves
  rlock inspect --servers")
)]
pub struct InspectArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Name of a lock, or a pattern such as 'deploy:*'
    ///
    /// Without NAME, inspect lists all locks that are not free. A list exits with 0, even if it is empty.
    #[arg(value_name = "NAME")]
    pub(crate) subject: Option<Subject>,
    /// Also list locks that are free and still remembered
    ///
    /// For a day after its last use, this shows when and where a lock was last held, for how long
    /// and with which outcome, and how many clients have found it busy since that hold began. With
    /// --json, each lock in a list has only the latest entry of its history. For more, pass NAME.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// List only locks that need attention; exit 1 if there are any
    ///
    /// Use this as a monitoring check. A lock needs attention if its holder may be dead or
    /// suspended, if it was revoked but not released in time, if it is closed, or if another tool holds
    /// it without an expiry.
    /// If no lock needs attention, inspect prints nothing and exits with status 0. If it cannot see
    /// or read all locks, it says why and exits with status 69 or 78, whatever it found.
    #[arg(long)]
    pub(crate) attention: bool,
    /// List only locks that have been held for longer than DURATION
    ///
    /// A lock of another tool has no known age, so it is left out. With --attention, locks that have
    /// been held for longer than DURATION are listed in addition to those that need attention for
    /// another reason. To check only the lock NAME, add --attention.
    #[arg(long, value_name = "DURATION")]
    pub(crate) older_than: Option<BoundedDuration>,
    /// Sort the list by ORDER
    ///
    /// By default, locks that need attention come first, and locks that are cooling or free come
    /// last. Locks that compare equal are sorted by name.
    #[arg(long, value_name = "ORDER", value_parser = order())]
    pub(crate) sort: Option<SortOrder>,
    /// Print one JSON document, even on failure
    ///
    /// With --watch, print one document per refresh, each on one line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the names, one per line
    #[arg(long, conflicts_with_all = ["json", "watch"], hide_short_help = true)]
    pub(crate) names: bool,
    /// Refresh every DURATION, by default every second
    ///
    /// At a terminal, q or Ctrl-C ends it.
    #[arg(
        short = 'W',
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        default_missing_value = "1s"
    )]
    pub(crate) watch: Option<Timeout>,
    /// Check servers for risks to locks; exit 1 if any are found
    ///
    /// On each server, inspect acquires a lock with a random name, queues a second client, renews
    /// and releases the lock, and deletes its keys. It then reads the settings that this user may
    /// read. It lists what it finds, the worst first, each with a remedy and the assumption in
    /// docs/promises.md that does not hold. With --quiet, it prints only these findings. Status 0
    /// means that it found nothing, and 69 that no server answers. Missing permissions are findings,
    /// too, except for CONFIG GET: the settings that then stay unknown are listed below the servers.
    /// A user who may use only some locks names one of them: the check then uses only keys that this
    /// permission covers, and leaves that lock alone.
    #[arg(
        long,
        conflicts_with_all = ["all", "attention", "older_than", "sort", "names", "watch"]
    )]
    pub(crate) servers: bool,
    /// With --servers: the --ttl of your jobs [env: RLOCK_TTL] [default: 30s]
    #[arg(short, long, value_name = "DURATION", requires = "servers", hide_short_help = true)]
    pub(crate) ttl: Option<Ttl>,
    /// With --servers: the --min-replicas of your jobs [env: RLOCK_MIN_REPLICAS] [default: 0]
    #[arg(
        long, value_name = "N", requires = "servers", hide_short_help = true,
        value_parser = replicas
    )]
    pub(crate) min_replicas: Option<u32>,
}
