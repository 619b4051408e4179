//! The options that several subcommands share.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::report::Verbosity;
use crate::rules::{
    BoundedDuration, Label, Mode, Name, OnLost, OnUnreachable, Owner, Prefix, SortOrder, Timeout,
    Token, Ttl, UserMessage,
};
use crate::text::{masked, quoted};

/// Parses a number of something, within a range.
fn number<T: FromStr>(text: &str, what: &str, range: &str) -> Result<T, UserMessage> {
    let fault = || UserMessage::of_value(format_args!("not {what}"), text);
    text.parse().map_err(|_| fault().with_remedy(format!("use a number from {range}")))
}

fn slots(text: &str) -> Result<NonZeroU32, UserMessage> {
    number(text, "a number of slots", "1 to 4294967295")
}

fn exit_status(text: &str) -> Result<u8, UserMessage> {
    number(text, "an exit status", "0 to 255")
}

/// A value that users may choose: its name, its text in the help or an empty one, and what it
/// means.
type Choice<T> = (&'static str, &'static str, T);

fn choice<T: Copy + Send + Sync>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let named = choices.iter().map(|(name, help, _)| match *help {
        "" => PossibleValue::new(*name),
        help => PossibleValue::new(*name).help(help),
    });
    PossibleValuesParser::new(named).try_map(|text| {
        let chosen = choices.iter().find(|(name, ..)| *name == text).map(|(.., value)| *value);
        chosen.ok_or_else(|| UserMessage::of_value("not a choice", &text))
    })
}

pub(super) fn on_lost() -> impl TypedValueParser<Value = OnLost> {
    choice(&[("kill", "", OnLost::Kill), ("continue", "", OnLost::Continue)])
}

pub(super) fn on_unreachable() -> impl TypedValueParser<Value = OnUnreachable> {
    choice(&[("fail", "", OnUnreachable::Fail), ("run", "", OnUnreachable::RunUnlocked)])
}

pub(super) fn order() -> impl TypedValueParser<Value = SortOrder> {
    choice(&[
        ("age", "Longest held first", SortOrder::Age),
        ("name", "Alphabetical", SortOrder::Name),
        ("waiting", "Most waiters first", SortOrder::Waiting),
        ("lease", "First lease to expire first", SortOrder::Lease),
    ])
}

/// Parses the value of `--min-replicas` and of its variable.
pub fn replicas(text: &str) -> Result<u32, UserMessage> {
    number(text, "a number of replicas", "0 to 4294967295")
}

// Where the server is and how much to print: on every subcommand. (No doc comment on flattened
// structs: clap would show it instead of the subcommand's.)
#[derive(Args, Clone)]
#[group(skip)]
pub struct CommonArgs {
    /// Use this lock server; repeat for a quorum [env: RLOCK_URL]
    ///
    /// One of redis://[user:password@]host[:port][/db], rediss:// for TLS,
    /// unix:///path/to/socket[?db=N], redis+sentinel://host,host/service,
    /// redis+cluster://host,host, and local:[/DIRECTORY] for files on this host. valkey:// and
    /// valkeys:// mean the same as redis:// and rediss://.
    ///
    /// Several URLs of independent servers form a quorum. In RLOCK_URL, separate them with spaces.
    /// ps shows a password in --url to all users; use RLOCK_URL, RLOCK_PASSWORD or --password-file.
    // Plain text: a URL that does not parse may contain a password, and clap would print it.
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub(crate) url: Vec<String>,
    /// Prepend PREFIX to NAME to form the Redis key [env: RLOCK_PREFIX] [default: rlock:]
    ///
    /// An empty PREFIX makes NAME the key, for example to share a lock with another tool.
    #[arg(long, value_name = "PREFIX", help_heading = "Server", hide_short_help = true)]
    pub(crate) prefix: Option<Prefix>,
    /// Wait at most DURATION for each connection or reply [env: RLOCK_IO_TIMEOUT] [default: 2s]
    ///
    /// exec, acquire and renew wait for a quarter of the TTL if that is shorter.
    #[arg(long, value_name = "DURATION", help_heading = "Server", hide_short_help = true)]
    pub(crate) io_timeout: Option<Timeout>,
    /// Read the password from the first line of FILE [env: RLOCK_PASSWORD_FILE]
    ///
    /// Without this option, rlock reads RLOCK_PASSWORD. For an ACL user, set RLOCK_USERNAME too.
    /// rlock reads FILE again for each login, so the password can change while a lock is held or
    /// awaited. If FILE is a pipe, rlock reads it once.
    #[arg(long, value_name = "FILE", help_heading = "Server", hide_short_help = true)]
    pub password_file: Option<PathBuf>,
    /// Trust only the certificate authority in FILE [env: RLOCK_TLS_CA]
    ///
    /// By default, rlock trusts the certificate authorities of the system.
    #[arg(long, value_name = "FILE", help_heading = "Server", hide_short_help = true)]
    pub tls_ca: Option<PathBuf>,
    /// Present the client certificate in FILE to the server [env: RLOCK_TLS_CERT]
    ///
    /// Requires --tls-key.
    #[arg(long, value_name = "FILE", help_heading = "Server", hide_short_help = true)]
    pub tls_cert: Option<PathBuf>,
    /// Read the private key for --tls-cert from FILE [env: RLOCK_TLS_KEY]
    #[arg(long, value_name = "FILE", help_heading = "Server", hide_short_help = true)]
    pub tls_key: Option<PathBuf>,
    /// Print failures only
    ///
    /// Tokens, lists and other results are still printed. With exec and acquire, hide messages
    /// about waiting, about a busy lock and about being superseded, but not about a removal from the
    /// queue by an operator.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print each step with its time
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

impl CommonArgs {
    /// A command for the user to type, on a lock of the same server and prefix: with the options that
    /// say where, unless they come from the environment. It never shows a password: instead of a URL
    /// with one, it sets a placeholder, with which it touches no server.
    pub(crate) fn typed(&self, words: &str, name: &Name) -> String {
        let is_secret = self.url.iter().any(|url| masked(url) != *url);
        let program = if is_secret { "RLOCK_URL=URL rlock" } else { "rlock" };
        let urls = self.url.iter().filter(|_| !is_secret).map(|url| ("--url", url.clone()));
        let prefix = self.prefix.iter().map(|prefix| ("--prefix", prefix.as_str().to_owned()));
        let files = [
            ("--password-file", &self.password_file),
            ("--tls-ca", &self.tls_ca),
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
        ];
        let files = files.iter().filter_map(|(option, path)| Some((*option, path.as_ref()?)));
        let files = files.map(|(option, path)| (option, path.display().to_string()));
        // Each is one word, because a value may begin with a dash.
        let word = |(option, value): (_, String)| format!(" {option}={}", quoted(&value));
        let options: String = urls.chain(prefix).chain(files).map(word).collect();
        let dashes = if name.as_str().starts_with('-') { " --" } else { "" };
        format!("{program} {words}{options}{dashes} {}", quoted(name.as_str()))
    }

    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }
}

// Which lock to request, and how: on exec and acquire.
#[derive(Args)]
#[group(skip)]
pub struct LockArgs {
    /// Name of the lock, at most 200 bytes
    ///
    /// It must not contain white space, control or invisible characters, ://, or any of
    /// { } * ? [ ] \.
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Let the lease expire DURATION after its last renewal [env: RLOCK_TTL] [default: 30s]
    ///
    /// If this host dies, the lock becomes free within this time, or when --at-least ends if that
    /// is later. It does not limit how long the lock can be held: exec and --while-pid renew the
    /// lease. The minimum is 100ms, the maximum 7d.
    #[arg(short, long, value_name = "DURATION", help_heading = "Lease")]
    pub(crate) ttl: Option<Ttl>,
    /// Hold the lock alone (default)
    #[arg(short = 'x', long, group = "mode", help_heading = "Sharing")]
    pub(crate) exclusive: bool,
    /// Share the lock with other --shared holders
    #[arg(short, long, group = "mode", help_heading = "Sharing")]
    pub(crate) shared: bool,
    /// Allow up to N holders at once; all must pass the same N
    ///
    /// Each holder gets the lowest free slot number from 1 to N: in RLOCK_SLOT with exec and
    /// acquire --shell, and as slot in acquire --json.
    #[arg(long, value_name = "N", group = "mode", value_parser = slots, help_heading = "Sharing")]
    pub(crate) slots: Option<NonZeroU32>,
    /// Fail immediately if the lock is busy
    ///
    /// If the server does not answer, rlock gives up after --io-timeout.
    #[arg(short, long, conflicts_with = "wait", help_heading = "Waiting")]
    pub(crate) nonblock: bool,
    /// Wait at most DURATION for the lock [env: RLOCK_WAIT]
    ///
    /// Without --wait or --nonblock, rlock waits indefinitely. 0 means --nonblock. If the server
    /// stops answering, rlock gives up at most one --io-timeout after DURATION.
    ///
    /// With --wait, rlock also waits if, at the start, no server can be reached, or those that
    /// answer cannot serve locks yet: they are loading, out of memory, or too few for a quorum.
    /// Without --wait, or with --on-unreachable run, it does not.
    ///
    /// Once rlock is in the queue, it waits through outages in any case, until DURATION has passed.
    /// The same applies while the servers of a quorum have restarted too recently to vote.
    #[arg(
        short,
        long,
        value_name = "DURATION",
        visible_alias = "timeout",
        help_heading = "Waiting"
    )]
    pub(crate) wait: Option<BoundedDuration>,
    /// Wait ahead of all waiters that do not use --next
    ///
    /// Use this to freeze deployments when the current one ends. Waiters with --next are served in
    /// order.
    #[arg(long, help_heading = "Queue")]
    pub(crate) next: bool,
    /// Cancel older waiters that also use --supersede
    ///
    /// They exit with status 79. Holders and other waiters are not affected. Use this for
    /// deployments, where a newer one makes an older one pointless. It conflicts with --wait 0.
    #[arg(long, conflicts_with = "nonblock", help_heading = "Queue")]
    pub(crate) supersede: bool,
    /// Exit with status N if the lock is busy [default: 75]
    ///
    /// A waiter that was superseded or removed, and errors such as an unreachable server, keep their
    /// own status.
    #[arg(short = 'E', long, value_name = "N", value_parser = exit_status, help_heading = "Waiting")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Keep the lock for at least DURATION after acquiring it
    ///
    /// If the holder releases the lock sooner, no other client can acquire it until then; rlock exits
    /// without waiting for that. A command that cannot start releases it immediately. Use this for
    /// cron jobs on hosts whose clocks differ.
    #[arg(long, value_name = "DURATION", help_heading = "Lease")]
    pub(crate) at_least: Option<BoundedDuration>,
    /// Enter a lock that an enclosing exec or the same owner holds
    ///
    /// Without --reentrant, requesting a lock that an enclosing exec holds fails immediately,
    /// because waiting could deadlock.
    #[arg(long, conflicts_with = "slots", help_heading = "Sharing")]
    pub(crate) reentrant: bool,
    /// Enter locks as OWNER, for --reentrant [env: RLOCK_OWNER]
    ///
    /// Commands with the same OWNER can enter each other's locks. OWNER is not a secret.
    #[arg(long, value_name = "OWNER", hide_short_help = true, help_heading = "Sharing")]
    pub(crate) owner: Option<Owner>,
    /// Require N replicas to confirm each grant or renewal [env: RLOCK_MIN_REPLICAS]
    ///
    /// Run N + 1 replicas: a failover turns one of them into the master, and with fewer than N left,
    /// no lock is granted or renewed.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = replicas, help_heading = "Lease")]
    pub(crate) min_replicas: Option<u32>,
    /// Show TEXT to waiters and in inspect [env: RLOCK_LABEL]
    ///
    /// For example, the URL of a CI job or a ticket number. rlock keeps only the first 1,000 bytes.
    #[arg(long, value_name = "TEXT", value_parser = OsStringValueParser::new().map(Label::from), help_heading = "Queue")]
    pub(crate) label: Option<Label>,
}

impl LockArgs {
    pub(crate) fn mode(&self) -> Mode {
        match (self.slots, self.shared) {
            (Some(slots), _) => Mode::Slots(slots),
            (None, true) => Mode::Shared,
            (None, false) => Mode::Exclusive,
        }
    }
}

// Which hold is meant: on renew and release.
#[derive(Args)]
#[group(skip)]
pub struct HoldArgs {
    /// Name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Token that acquire printed [env: RLOCK_TOKEN]
    ///
    /// ps shows arguments to all users; use RLOCK_TOKEN instead.
    #[arg(value_name = "TOKEN")]
    pub(crate) token: Option<Token>,
    /// Print one JSON document, even on failure
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn a_command_to_type_names_the_server_but_no_password() {
        let typed = |line: &str| {
            let command = CommonArgs::augment_args(clap::Command::new("rlock"));
            let matches = command.get_matches_from(["rlock"].into_iter().chain(line.split(' ')));
            let name = "-n".parse().unwrap();
            CommonArgs::from_arg_matches(&matches).unwrap().typed("inspect", &name)
        };
        assert_eq!(typed("-q"), "rlock inspect -- -n");
        let words = "--url=redis://h:1/2 --url=unix:///s?db=1 --prefix=a;b: --tls-ca=/c";
        let quoted = "--url=redis://h:1/2 --url='unix:///s?db=1' --prefix='a;b:' --tls-ca=/c";
        assert_eq!(typed(words), format!("rlock inspect {quoted} -- -n"));
        for secret in ["redis://u:p@h", "unix:///s?pass=p"] {
            assert_eq!(typed(&format!("--url {secret}")), "RLOCK_URL=URL rlock inspect -- -n");
        }
    }
}
