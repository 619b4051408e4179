//! The command line as users type it, and the text of `--help`. `config` decides what the options
//! mean.
//!
//! The first paragraph of a help text is all that `-h` shows: a line of at most 60 characters that
//! begins with a verb. `--help` and the man page show the rest too.

mod advice;
mod inspect;
mod options;

pub use inspect::InspectArgs;
pub use options::{CommonArgs, HoldArgs, LockArgs, replicas};

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, CommandFactory, FromArgMatches, Parser};

use crate::exit;
use crate::rules::{
    BoundedDuration, Id, Label, OnLost, OnUnreachable, ProcessId, Ttl, UserMessage, is_duration,
};

/// What `--help` prints after the options of a subcommand: how to write a DURATION, examples, and
/// then the exit statuses. The man page has the same.
macro_rules! after_options {
    ($text:literal) => {
        concat!(
            "DURATION is a number with a unit: 250ms, 90s, 1m30s, 2h. Without a unit, it is in \
             seconds.\n\n",
            $text,
            "\n\nExit status:"
        )
    };
}

use after_options;

/// Why a command line names nothing to run.
pub enum Unparsed {
    /// It asks for help or the version, which is this text.
    Help(String),
    /// It is wrong.
    Misuse(UserMessage),
}

/// Parses the command line. `rlock help exec` means `rlock exec --help`.
pub fn parse(arguments: &[OsString]) -> Result<Cli, Unparsed> {
    let mut words = arguments.to_vec();
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.insert(words.len().min(2), "--help".into());
    }
    if words.get(1).is_some_and(|word| word == "inspect") {
        complete_watch(&mut words);
    }
    // Freeing it takes a tenth of the parsing time.
    let mut program = ManuallyDrop::new(Cli::command());
    // Without the program's own name, in which clap would look for its file name.
    let parsed = program.try_get_matches_from_mut(words.get(1..).unwrap_or_default());
    let parsed = parsed.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| match advice::fault(&error, arguments) {
        Some(fault) => Unparsed::Misuse(fault),
        None => Unparsed::Help(with_statuses(error.to_string(), &words)),
    })
}

/// Ends the text of `--help` with the exit statuses. Only this run formats them.
fn with_statuses(mut text: String, words: &[OsString]) -> String {
    if text.trim_end().ends_with("\nExit status:") {
        let statuses = exit::statuses(words.get(1).and_then(|word| word.to_str()), true);
        let width = statuses.iter().map(|(status, _)| status.len()).max().unwrap_or_default();
        for (status, meanings) in statuses {
            let meanings = meanings.join(&format!(";\n{:indent$}", "", indent = width + 4));
            text += &format!("  {status:width$}  {}\n", meanings.replace('`', ""));
        }
    }
    text
}

/// Adds the duration that `-W` and `--watch` imply if the next word is NAME: clap would take that
/// word for the duration.
fn complete_watch(words: &mut [OsString]) {
    for at in 2..words.len() {
        let is_watch = match words[at].as_bytes() {
            b"--" => return,
            b"--watch" => true,
            [b'-', letters @ .., b'W'] => letters.iter().all(u8::is_ascii_lowercase),
            _ => false,
        };
        let next = words.get(at + 1).and_then(|word| word.to_str());
        if is_watch && !next.is_some_and(is_duration) {
            words[at].push("=1s");
        }
    }
}

/// A distributed lock for shell scripts, on Redis or Valkey
///
/// rlock runs a command while holding a lock, so the command runs on only one host at a time. Locks
/// live on a Redis or Valkey server, on several independent servers, or in files on one host.
///
/// Every lock has a lease: if the holder dies, the lock soon becomes free. rlock renews the lease
/// while the command runs, and stops the command if the lock is lost.
#[derive(Parser)]
#[command(
    name = "rlock",
    bin_name = "rlock",
    no_binary_name = true,
    version,
    after_help = "Set the server with --url or RLOCK_URL:\n  \
                  RLOCK_URL=redis://127.0.0.1/ rlock exec backup -- ./backup.sh\n\
                  For one host without a server, set RLOCK_URL=local:",
    after_long_help = "\
Examples:
  # Try rlock on this host, without a server
  RLOCK_URL=local: rlock exec demo -- echo hello

  # Run a job on one of several hosts at a time
  export RLOCK_URL=redis://redis.example/
  rlock exec -n backup -- backup.sh

  # List all locks that are not free
  rlock inspect",
    disable_help_subcommand = true,
    max_term_width = 80
)]
pub struct Cli {
    #[command(subcommand)]
    pub subcommand: Subcommand,
}

// Only the subcommand that is used is built, which is most of the parsing time. So what only its help
// shows is on its struct. Without groups of clap, which every struct would get, that is faster too.
#[derive(clap::Subcommand)]
#[command(defer = true)]
pub enum Subcommand {
    /// Run a command while holding a lock
    ///
    /// Waits for the lock, runs COMMAND and releases the lock when COMMAND exits. Meanwhile, rlock
    /// renews the lease. If it loses the lock, it stops COMMAND and everything that COMMAND
    /// started: with SIGTERM, then with SIGKILL.
    ///
    /// COMMAND runs as it would without rlock: with the same standard streams, terminal and
    /// signals. rlock exits with the status of COMMAND.
    ///
    /// The environment of COMMAND also contains RLOCK_NAME, RLOCK_TOKEN, RLOCK_FENCE and
    /// RLOCK_HELD. With --slots, it also contains RLOCK_SLOT. RLOCK_FENCE is the
    /// fencing token, a number that grows with each grant. A resource that remembers the largest
    /// one can reject a holder that has lost the lock.
    ///
    /// While it waits, rlock shows its position and the holder. At a terminal, it updates one line.
    /// In a log, it writes a line after a change, at most once a minute, and at least every 5
    /// minutes.
    ///
    /// Options can precede or follow NAME. They end at -- or at the first word of COMMAND.
    Exec(ExecArgs),
    /// Acquire a lock and print the token to renew or release it
    ///
    /// Acquires a lock for a script that rlock exec cannot wrap. With --while-pid, a keeper process
    /// holds the lock while the script runs. Without --while-pid, nothing renews the lease: the
    /// script must renew or release the lock before the lease expires.
    Acquire(AcquireArgs),
    /// Renew the lease of a held lock
    ///
    /// Renews the lease of a hold from rlock acquire. rlock exec and --while-pid renew their leases
    /// themselves; rlock renew never shortens such a lease.
    Renew(RenewArgs),
    /// Release a held lock
    ///
    /// Releases the hold that TOKEN identifies. With --force, revokes all holds instead, prints the
    /// revoked holders, and waits until the holds have ended. For each, it tells whether the holder
    /// released the lock or its lease expired. --id limits this to one hold or waiter.
    Release(ReleaseArgs),
    /// Show the holders and waiters of locks, or check the servers
    ///
    /// Shows one lock with its holders, its waiters and its history, or lists all locks that are not
    /// free, or those that match a pattern. Locks that need attention come first. SKIPPED counts the
    /// clients that found the lock busy since its last hold began. A lock "released by" a client is
    /// kept for --at-least (cooling). A lock is closed to all clients for a while if its server lost
    /// data.
    ///
    /// The PID of a holder is that of rlock exec, which passes signals on to its command; with
    /// --while-pid, that of the watched process; after a plain acquire, that of the process that ran
    /// it, which may have ended.
    ///
    /// To list locks, inspect looks at every key of the server; for one lock, only at its own keys.
    Inspect(InspectArgs),
}

const DURATION: &str = "DURATION is a number with a unit, such as 250ms, 90s or 1m30s";

const AFTER_EXEC: &str = "\
DURATION is a number with a unit, such as 250ms, 90s or 1m30s
Example: rlock exec -n backup -- backup.sh";

#[derive(Args)]
#[group(skip)]
#[command(
    override_usage = "rlock exec [OPTIONS] <NAME> [--] <COMMAND>...",
    after_help = AFTER_EXEC,
    after_long_help = after_options!("\
Examples:
  # Run a cron job on only one of several hosts
  rlock exec -q -n --at-least 1m nightly -- job.sh

  # Wait up to 30 minutes, and show the URL of the CI job to others
  rlock exec -w 30m --label \"$JOB_URL\" deploy:prod -- make deploy

  # Share the lock with other readers, but not with a writer
  rlock exec --shared dataset -- report.sh

  # Run at most three commands at once
  rlock exec --slots 3 render -- render.sh")
)]
pub struct ExecArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub lock: LockArgs,
    /// Allow DURATION between SIGTERM and SIGKILL on a loss [default: 5s]
    ///
    /// A value above a third of --ttl counts as a third of --ttl.
    #[arg(short, long, value_name = "DURATION", help_heading = "Lease")]
    pub(crate) kill_after: Option<BoundedDuration>,
    /// Kill the command or let it continue if the lock is lost [default: kill]
    #[arg(long, value_name = "ACTION", hide_short_help = true, value_parser = options::on_lost(), help_heading = "Lease")]
    pub(crate) on_lost: Option<OnLost>,
    /// Fail or run unlocked if no server is reachable at the start [default: fail]
    #[arg(long, value_name = "ACTION", hide_short_help = true, value_parser = options::on_unreachable())]
    pub(crate) on_unreachable: Option<OnUnreachable>,
    /// Keep the command in the process group of rlock
    ///
    /// At a terminal, the command always stays there. Elsewhere it has its own group, so that a
    /// signal to rlock reaches the children of the command too.
    #[arg(long, hide_short_help = true)]
    pub(crate) foreground: bool,
    /// Behave as on SIGTERM when the parent process of rlock ends
    ///
    /// A waiter leaves the queue; a command receives SIGTERM. Use this for a CI job that may be
    /// canceled. For a connection that may drop, run ssh HOST exec rlock exec ..., or ssh -tt:
    /// otherwise, the parent is a shell that stays.
    #[arg(long, hide_short_help = true)]
    pub(crate) die_with_parent: bool,
    /// Command to run, with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

#[derive(Args)]
#[group(skip)]
#[command(
    after_help = DURATION,
    after_long_help = after_options!("\
Examples:
  # In a script, hold a lock until the script ends, even if it is killed
  t=$(rlock acquire --while-pid $$ import) || exit

  # Set the variables that renew and release need
  lock=$(rlock acquire --shell --ttl 10m import) || exit
  eval \"$lock\"")
)]
pub struct AcquireArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub lock: LockArgs,
    /// Print one JSON document, even on failure
    #[arg(long, conflicts_with = "shell")]
    pub(crate) json: bool,
    /// Print shell assignments for eval instead of the token
    ///
    /// For example: s=$(rlock acquire --shell NAME) || exit; eval "$s"
    #[arg(long)]
    pub(crate) shell: bool,
    /// Hold the lock while process PID lives
    ///
    /// A background process, the keeper, renews the lease while PID lives and releases the lock
    /// when PID exits. If the keeper loses the lock, it stops PID and its descendants. In a script,
    /// use $$ as PID. In a subshell or a background job, $$ is still the main shell: instead, run
    /// me=$(exec sh -c 'echo $PPID') there, and use $me. If PID exits while rlock waits for the lock,
    /// rlock leaves the queue and exits with status 64.
    #[arg(long, value_name = "PID")]
    pub(crate) while_pid: Option<ProcessId>,
}

#[derive(Args)]
#[group(skip)]
#[command(
    after_help = DURATION,
    after_long_help = after_options!("\
Examples:
  # Hold the lock for ten more minutes
  RLOCK_TOKEN=$t rlock renew --ttl 10m import || exit

  # Do the next step only if the lock is still held
  RLOCK_TOKEN=$t rlock renew import && next-step")
)]
pub struct RenewArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Let the lease expire DURATION from now
    ///
    /// Without --ttl, the lease keeps its length, whatever RLOCK_TTL says.
    #[arg(short, long, value_name = "DURATION")]
    pub ttl: Option<Ttl>,
    /// Require N replicas to confirm the renewal [env: RLOCK_MIN_REPLICAS]
    ///
    /// If they do not, rlock exits with status 69, and says when the lease may expire. Pass the N of
    /// acquire.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = replicas)]
    pub(crate) min_replicas: Option<u32>,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
}

#[derive(Args)]
#[group(skip)]
#[command(
    after_help = DURATION,
    after_long_help = after_options!("\
Examples:
  # Release a lock that acquire granted
  RLOCK_TOKEN=$t rlock release import

  # Revoke a lock and wait until its holder has released it
  rlock release --force deploy:prod

  # Free the hold of a dead holder immediately, with the ID that inspect shows
  rlock release --force --now --id 5f0c21aa deploy:prod

  # Revoke one of several holds, and say why
  rlock release --force --id 5f0c21aa --reason 'wrong input' render")
)]
pub struct ReleaseArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    /// Revoke all holds, stop their commands and await release
    #[arg(long, conflicts_with = "token")]
    pub(crate) force: bool,
    /// Free the lock immediately; requires --force
    ///
    /// This is safe only if the holder and everything that it started are dead.
    #[arg(long, requires = "force")]
    pub(crate) now: bool,
    /// Revoke only the hold or remove the waiter with this ID
    ///
    /// ID is the 8 characters that inspect shows for a holder or a waiter. A removed waiter exits
    /// with status 79. Requires --force.
    #[arg(long, value_name = "ID", requires = "force")]
    pub(crate) id: Option<Id>,
    /// Show TEXT to affected clients and in the history
    ///
    /// The history contains only holds, not waiters. Requires --force.
    #[arg(long, value_name = "TEXT", requires = "force", value_parser = OsStringValueParser::new().map(Label::from))]
    pub(crate) reason: Option<Label>,
}
