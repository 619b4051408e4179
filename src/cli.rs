//! The command line as users type it. What the words mean is decided in `config`.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::duration::{BoundedDuration, Timeout, Ttl};
use crate::exit;
use crate::lock::pattern::Subject;
use crate::lock::{Label, Name, Owner, Prefix, ProcessId, Token};
use crate::policy::{OnLost, OnUnreachable};

/// Everything on the command line.
#[derive(Parser)]
#[command(
    name = "rlock",
    version,
    about = "A distributed lock for shell scripts, on Redis or Valkey",
    after_help = "Say where the server is with --url or RLOCK_URL, for example\n  \
                  RLOCK_URL=redis://127.0.0.1/ rlock exec backup -- ./backup.sh\nor, \
                  for one host without a server, RLOCK_URL=local:",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

// Only the subcommand that is used is built: that is most of the parsing time.
#[derive(Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(
        override_usage = "rlock exec [OPTIONS] <NAME> [--] <COMMAND>...",
        after_help = "The command gets RLOCK_NAME, RLOCK_TOKEN and RLOCK_FENCE, a number that grows \
                      with each\ngrant: a resource that remembers it can refuse a late holder.\n\n\
                      D is a time: 250ms, 90s, 1m30s, 2h; a bare number is seconds.\n\n\
                      On several hosts, by cron:  rlock exec -q -n --at-least 1m nightly -- job.sh\n\
                      In CI:  rlock exec -w 30m --label \"$JOB_URL\" deploy -- make deploy\n\n\
                      Exit status: the command's own; 75 if the lock is busy (see -E), 76 if \
                      it was lost,\n69 without a server, 78 wrong configuration, 64 usage, 127 and \
                      126 as a shell has them."
    )]
    Exec(Exec),
    /// Acquire a lock and print the token that renews and releases it
    #[command(after_help = "In a script, held until it ends, however it ends:\n  \
                      t=$(rlock acquire --while-pid $$ NAME) || exit\n\n\
                      D is a time: 250ms, 90s, 1m30s, 2h; a bare number is seconds.\n\n\
                      Exit status: 0; 75 busy (see -E), 69 no server, 78 wrong configuration, 64 usage.")]
    Acquire(Acquire),
    /// Make a lock that is held last longer
    #[command(
        after_help = "Exit status: 0; 77 that token does not hold the lock, 69 no server, 78 wrong \
                      configuration, 64 usage."
    )]
    Renew(Renew),
    /// Release a lock that is held
    #[command(
        after_help = "Exit status: 0; 77 that token does not hold the lock, 75 another tool holds it \
                      (--force), 69 no\nserver, 78 wrong configuration, 64 usage."
    )]
    Release(Release),
    /// Show who holds a lock and who waits for it
    #[command(
        after_help = "Exit status: 0; 1 NAME is free, 69 no server or not all of them, 78 wrong \
                      configuration, 64 usage."
    )]
    Inspect(Inspect),
}

// Where the server is and how much to say: on every subcommand. (No doc comment on what is
// flattened: clap would show it instead of the subcommand's own.)
#[derive(Args)]
pub(crate) struct Common {
    /// The lock server: redis://host:port/db, rediss:// for TLS, unix:///path?db=N,
    /// redis+sentinel://host,host/service, redis+cluster://host,host; several --url: a quorum of
    /// them; local: for files [env: RLOCK_URL, where spaces separate several]
    // A plain text: a URL that does not parse may have a password in it, and clap would show it.
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub(crate) url: Vec<String>,
    /// Put before NAME to make the Redis key [env: RLOCK_PREFIX] [default: rlock:]
    #[arg(long, value_name = "P", help_heading = "Server")]
    pub(crate) prefix: Option<Prefix>,
    /// Longest wait for a connection or for one reply [env: RLOCK_IO_TIMEOUT] [default: 2s]
    #[arg(long, value_name = "D", help_heading = "Server")]
    pub(crate) io_timeout: Option<Timeout>,
    /// Read the password from the first line of FILE [or env: RLOCK_USERNAME, RLOCK_PASSWORD]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) password_file: Option<PathBuf>,
    /// Trust this certificate authority instead of the system's [env: RLOCK_TLS_CA]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Our certificate, for a server that asks for one [env: RLOCK_TLS_CERT]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate [env: RLOCK_TLS_KEY]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Say nothing about waiting or being busy, only what went wrong
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say what happens, with times
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

// How to ask for a lock: on exec and acquire.
#[derive(Args)]
pub(crate) struct Terms {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// Hold the lock alone; the default
    #[arg(short = 'x', long, group = "mode")]
    pub(crate) exclusive: bool,
    /// Share the lock with others who do
    #[arg(short, long, group = "mode")]
    pub(crate) shared: bool,
    /// Hold the lock with at most N holders at once, all of whom say the same N
    #[arg(long, value_name = "N", group = "mode")]
    pub(crate) slots: Option<NonZeroU32>,
    /// Fail at once if the lock is busy
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Wait at most D; without -n and -w, for ever [env: RLOCK_WAIT]
    #[arg(short, long, value_name = "D", visible_alias = "timeout")]
    pub(crate) wait: Option<BoundedDuration>,
    /// Exit status when the lock is busy
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::BUSY)]
    pub(crate) conflict_exit_code: u8,
    /// Keep others out for at least D from the start, even if it is released sooner; rlock itself
    /// does not wait. For cron on hosts whose clocks differ
    #[arg(long, value_name = "D")]
    pub(crate) at_least: Option<BoundedDuration>,
    /// Enter again a lock that an enclosing exec, or the same --owner, holds
    #[arg(long, conflicts_with = "slots")]
    pub(crate) reentrant: bool,
    /// Whose hold it is, for --reentrant [env: RLOCK_OWNER]
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<Owner>,
    /// The lock counts only once that many replicas of the server have it [env:
    /// RLOCK_MIN_REPLICAS]
    #[arg(long, value_name = "N")]
    pub(crate) min_replicas: Option<u32>,
    /// Shown to those who wait and by inspect: a job's URL, a ticket [env: RLOCK_LABEL]
    #[arg(long, value_name = "TEXT", value_parser = OsStringValueParser::new().map(Label::from))]
    pub(crate) label: Option<Label>,
}

#[derive(Args)]
pub(crate) struct LeaseArgs {
    /// Lease: how soon the lock frees itself if this host dies, not how long the work may take. exec
    /// and --while-pid renew it; at least 100ms [env: RLOCK_TTL] [default: 30s]
    #[arg(short, long, value_name = "D")]
    pub(crate) ttl: Option<Ttl>,
}

// Which hold is meant: on renew and release.
#[derive(Args)]
pub(crate) struct HoldArgs {
    /// The lock
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Token from acquire; ps shows it, so prefer RLOCK_TOKEN [env: RLOCK_TOKEN]
    #[arg(value_name = "TOKEN")]
    pub(crate) token: Option<Token>,
    /// Print one JSON document, on failure too
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Time between SIGTERM and SIGKILL when the lock is lost, at most a third of the TTL [default:
    /// 5s]
    #[arg(short, long, value_name = "D")]
    pub(crate) kill_after: Option<BoundedDuration>,
    /// What to do with the command when the lock is lost
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    pub(crate) on_lost: OnLost,
    /// When no server answers before the command starts: fail, or run it without a lock
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub(crate) on_unreachable: OnUnreachable,
    /// Keep the command in rlock's own process group, as timeout --foreground does
    #[arg(long)]
    pub(crate) foreground: bool,
    /// The lock
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// The lock
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Print one JSON document, on failure too
    #[arg(long, conflicts_with = "shell")]
    pub(crate) json: bool,
    /// Print assignments for a shell: s=$(rlock acquire --shell NAME) || exit; eval "$s"
    #[arg(long)]
    pub(crate) shell: bool,
    /// Leave a keeper behind that renews while this process lives, releases when it ends, and stops
    /// it if the lock is lost; $$ in a script
    #[arg(long, value_name = "PID")]
    pub(crate) while_pid: Option<ProcessId>,
}

#[derive(Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Lease length from now; default: as last set [env: RLOCK_TTL]
    #[arg(short, long, value_name = "D")]
    pub(crate) ttl: Option<Ttl>,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
}

#[derive(Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    /// Take the lock away from all who have it, stop their commands, and wait until they have let go
    #[arg(long, conflicts_with = "token")]
    pub(crate) force: bool,
    /// With --force: free it at once; only if the holders and all they started are known to be dead
    #[arg(long, requires = "force")]
    pub(crate) now: bool,
}

#[derive(Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The lock, or a pattern such as 'deploy:*'; without it, all locks that are held
    #[arg(value_name = "NAME")]
    pub(crate) subject: Option<Subject>,
    /// Print one JSON document, on failure too
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the names only, one a line
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    pub(crate) names: bool,
    /// Show it again every second, or every D
    #[arg(
        short = 'W',
        long,
        value_name = "D",
        num_args = 0..=1,
        default_missing_value = "1s"
    )]
    // A text, since what follows may be NAME as well.
    pub(crate) watch: Option<String>,
}

/// Clap's many-line message as one line: what is wrong, the nearest right spelling, where to look.
pub(crate) fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "what is to be done? exec, acquire, renew, release or inspect; see rlock --help"
            .into();
    }
    let text = error.render().to_string();
    let line = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = line(text.split("\n\n").next().unwrap_or_default());
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    // A value that is far too long is shown in part.
    let what: String = what.chars().take(400).collect();
    let tip = text.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: rlock "));
    let subcommand = usage.and_then(|usage| usage.split(' ').next());
    let subcommand = subcommand.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    let help = match subcommand {
        Some(subcommand) => format!("see rlock {subcommand} --help"),
        None => "see rlock --help".to_owned(),
    };
    format!("{what}; {}", tip.unwrap_or(&help))
}
