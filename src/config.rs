//! Turns options into decisions: the command line first, then the environment, then defaults. Each
//! subcommand gets one type with everything resolved, and nothing is checked again after that.

mod files;
mod handover;
mod server;
mod variables;

use std::ffi::OsString;
use std::time::Duration;

pub(crate) use handover::{Handover, KEEPER, ReadOnce};
pub(crate) use server::Server;
use variables::{given, setting, setting_by};

use crate::cli;
use crate::error::Error;
use crate::inspect::selection::Selection;
use crate::report::Verbosity;
use crate::rules::{
    BoundedDuration, Group, Id, Key, Label, LossPolicy, Mode, Name, OnUnreachable, Owner,
    ProcessId, Revocation, Subject, Timeout, Token, Ttl, UserMessage, WaitLimit,
};

/// What exec and acquire share: the lock, and how to ask for it.
pub(crate) struct Terms {
    pub(crate) name: Name,
    pub(crate) server: Server,
    pub(crate) mode: Mode,
    pub(crate) ttl: Ttl,
    /// How long to keep the lock after the grant, even if it is released sooner.
    pub(crate) at_least: Duration,
    pub(crate) owner: Option<Owner>,
    pub(crate) reentrant: bool,
    pub(crate) next: bool,
    pub(crate) supersede: bool,
    pub(crate) wait_limit: WaitLimit,
    pub(crate) label: Option<Label>,
}

/// `rlock exec`, resolved.
pub(crate) struct Exec {
    pub(crate) terms: Terms,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) group: Group,
    pub(crate) loss_policy: LossPolicy,
    pub(crate) on_unreachable: OnUnreachable,
}

/// `rlock acquire`, resolved.
pub(crate) struct Acquire {
    pub(crate) terms: Terms,
    pub(crate) while_pid: Option<ProcessId>,
    /// In a keeper: the token of the hold that it takes over.
    pub(crate) keeper_token: Option<Token>,
    pub(crate) output: Output,
}

/// `rlock renew`, resolved.
pub(crate) struct Renew {
    pub(crate) name: Name,
    pub(crate) key: Key,
    pub(crate) token: Token,
    /// `None` keeps the length that the lease has.
    pub(crate) ttl: Option<Ttl>,
    pub(crate) server: Server,
    pub(crate) output: Output,
}

/// `rlock release`, resolved.
pub(crate) struct Release {
    pub(crate) name: Name,
    pub(crate) key: Key,
    pub(crate) target: Target,
    pub(crate) server: Server,
    pub(crate) output: Output,
}

/// Which holds a release ends.
pub(crate) enum Target {
    /// The hold of this token.
    Hold(Token),
    /// All holds of the lock.
    AllHolds(Force),
    /// The hold or the waiting request of one client.
    Client(Id, Force),
}

/// The options of `release --force`.
pub(crate) struct Force {
    pub(crate) revocation: Revocation,
    /// For those who lose the lock or their position, and for the history.
    pub(crate) reason: Option<Label>,
}

/// `rlock inspect`, resolved.
pub(crate) struct Inspect {
    /// `None` means all locks that are held.
    pub(crate) subject: Option<Subject>,
    pub(crate) selection: Selection,
    pub(crate) form: Form,
    /// How often to redraw; `None` shows the locks once.
    pub(crate) watch: Option<Duration>,
    pub(crate) server: Server,
}

/// What reads the result of a command on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Human,
    Json,
    /// A shell, which evaluates it.
    Shell,
}

/// How `inspect` shows locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A page for one lock, a table for several.
    Human,
    Json,
    /// One name per line, for shell completion.
    Names,
}

impl Terms {
    fn resolve(
        name: &Name,
        common: &cli::Common,
        terms: &cli::Terms,
        read_once: ReadOnce,
    ) -> Result<Self, Error> {
        let wait = if terms.nonblock { None } else { setting(terms.wait, "RLOCK_WAIT")? };
        let wait_limit = match wait.map(BoundedDuration::get) {
            _ if terms.nonblock => WaitLimit::None,
            Some(Duration::ZERO) => WaitLimit::None,
            Some(duration) => WaitLimit::For(duration),
            None => WaitLimit::Forever,
        };
        if terms.supersede && wait_limit == WaitLimit::None {
            let fault = UserMessage::new("--supersede requires waiting");
            return Err(Error::Usage(fault.with_remedy("use a --wait or RLOCK_WAIT other than 0")));
        }
        let mode = match (terms.slots, terms.shared) {
            (Some(slots), _) => Mode::Slots(slots),
            (None, true) => Mode::Shared,
            (None, false) => Mode::Exclusive,
        };
        let ttl = chosen_ttl(terms.lease.ttl)?.unwrap_or(Ttl::DEFAULT);
        let owner = setting(terms.owner.clone(), "RLOCK_OWNER")?;
        let min_replicas =
            setting_by(terms.min_replicas, "RLOCK_MIN_REPLICAS", cli::replicas)?.unwrap_or(0);
        Ok(Self {
            name: name.clone(),
            server: Server::resolve(common, Some(ttl), min_replicas, read_once)?,
            mode,
            ttl,
            at_least: terms.at_least.map_or(Duration::ZERO, BoundedDuration::get),
            owner,
            reentrant: terms.reentrant,
            next: terms.next,
            supersede: terms.supersede,
            wait_limit,
            label: terms.label.clone().or_else(|| given("RLOCK_LABEL").map(Label::from)),
        })
    }
}

impl Exec {
    pub(crate) fn resolve(options: cli::Exec) -> Result<Self, Error> {
        let mut words = options.command.into_iter();
        let program = words.next().ok_or_else(|| {
            Error::Usage(UserMessage::new("missing COMMAND after NAME").with_remedy("add it"))
        })?;
        let kill_after = options.kill_after.map(BoundedDuration::get);
        let read_once = ReadOnce::new();
        Ok(Self {
            terms: Terms::resolve(&options.name, &options.common, &options.terms, read_once)?,
            program,
            arguments: words.collect(),
            group: if options.foreground { Group::Inherited } else { Group::NewUnlessAtTerminal },
            loss_policy: LossPolicy {
                on_lost: options.on_lost.unwrap_or_default(),
                kill_after: kill_after.unwrap_or(LossPolicy::DEFAULT.kill_after),
            },
            on_unreachable: options.on_unreachable.unwrap_or_default(),
        })
    }
}

impl Acquire {
    /// `handover` is what a keeper has received.
    pub(crate) fn resolve(
        options: cli::Acquire,
        handover: Option<Handover>,
    ) -> Result<Self, Error> {
        let keeper_token = handover.as_ref().map(Handover::token).transpose()?;
        let read_once = handover.map(|it| it.read_once).unwrap_or_default();
        let mut terms = Terms::resolve(&options.name, &options.common, &options.terms, read_once)?;
        if keeper_token.is_some() {
            // The lock is held already.
            terms.wait_limit = WaitLimit::None;
        }
        let (while_pid, output) = (options.while_pid, Output::of_acquire(&options));
        Ok(Self { terms, while_pid, keeper_token, output })
    }
}

impl Renew {
    pub(crate) fn resolve(options: cli::Renew) -> Result<Self, Error> {
        let token = token(options.hold.token)?;
        let ttl = chosen_ttl(options.ttl)?;
        let server = Server::resolve(&options.common, ttl, 0, ReadOnce::new())?;
        let (name, output) = (options.hold.name, Output::of(options.hold.json));
        Ok(Self { key: server.key(&name), name, token, ttl, server, output })
    }
}

impl Release {
    pub(crate) fn resolve(options: cli::Release) -> Result<Self, Error> {
        let revocation = if options.now { Revocation::Now } else { Revocation::Graceful };
        let force = Force { revocation, reason: options.reason };
        let target = match (options.force, options.id) {
            (false, _) => Target::Hold(token(options.hold.token)?),
            (true, None) => Target::AllHolds(force),
            (true, Some(id)) => Target::Client(id, force),
        };
        let server = Server::resolve(&options.common, None, 0, ReadOnce::new())?;
        let (name, output) = (options.hold.name, Output::of(options.hold.json));
        Ok(Self { key: server.key(&name), name, target, server, output })
    }
}

impl Inspect {
    pub(crate) fn resolve(options: cli::Inspect) -> Result<Self, Error> {
        let form = match (options.json, options.names) {
            (true, _) => Form::Json,
            (_, true) => Form::Names,
            _ => Form::Human,
        };
        let names_one = options.subject.as_ref().is_some_and(|subject| subject.name().is_some());
        if names_one && options.older_than.is_some() && !options.attention {
            let fault = UserMessage::new("--older-than selects from a list, but NAME is one lock");
            let remedy = "to check its age, add --attention";
            return Err(Error::Usage(fault.with_remedy(remedy)));
        }
        let selection = Selection {
            attention: options.attention,
            older_than: options.older_than.map(BoundedDuration::get),
            order: options.sort,
        };
        let (subject, watch) = (options.subject, options.watch.map(Timeout::get));
        let server = Server::resolve(&options.common, None, 0, ReadOnce::new())?;
        Ok(Self { subject, selection, form, watch, server })
    }
}

impl Output {
    /// For a command with `--json` as its only choice.
    pub(crate) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Human }
    }

    /// For a command line that could not be parsed: what its words ask for, as far as they are
    /// options of the subcommand.
    pub(crate) fn of_words(arguments: &[OsString]) -> Self {
        let [_, subcommand, words @ ..] = arguments else { return Self::Human };
        let has =
            |option: &str| words.iter().take_while(|word| *word != "--").any(|word| word == option);
        match subcommand.to_str() {
            Some("acquire" | "renew" | "release" | "inspect") if has("--json") => Self::Json,
            Some("acquire") if has("--shell") => Self::Shell,
            _ => Self::Human,
        }
    }

    pub(crate) fn of_acquire(options: &cli::Acquire) -> Self {
        if options.shell { Self::Shell } else { Self::of(options.json) }
    }
}

/// Returns the lease length that the user chose, if any.
fn chosen_ttl(given: Option<Ttl>) -> Result<Option<Ttl>, Error> {
    setting(given, "RLOCK_TTL")
}

fn token(given: Option<Token>) -> Result<Token, Error> {
    setting(given, "RLOCK_TOKEN")?.ok_or_else(|| {
        let fault = UserMessage::new("no token");
        Error::Usage(fault.with_remedy("set RLOCK_TOKEN to the token that acquire printed"))
    })
}

/// Resolved before all else, because errors in the configuration are reported too.
pub(crate) fn verbosity(common: &cli::Common) -> Verbosity {
    match (common.quiet, common.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_of_an_option_states_its_default() {
        let mut program = cli::Cli::command();
        program.build();
        let options = program.get_subcommands().flat_map(clap::Command::get_arguments);
        let stated: Vec<(&str, Duration)> = options
            .filter_map(|option| {
                let help = option.get_help()?.to_string();
                let (_, default) = help.split_once("[default: ")?;
                let default = humantime::parse_duration(default.strip_suffix(']')?).ok()?;
                Some((option.get_long()?, default))
            })
            .collect();
        assert!(stated.len() > 5, "{stated:?}");
        for (option, default) in stated {
            let is = match option {
                "ttl" => Ttl::DEFAULT.get(),
                "io-timeout" => Timeout::DEFAULT.get(),
                "kill-after" => LossPolicy::DEFAULT.kill_after,
                other => panic!("--{other} has no known default"),
            };
            assert_eq!(default, is, "--{option}");
        }
    }
}
