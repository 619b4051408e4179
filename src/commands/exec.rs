//! `rlock exec`: a command under a lock.

use std::time::Duration;

use super::grant::{Grant, SLOT, release};
use super::identity;
use super::parent;
use crate::cli;
use crate::config::{ReadOnce, Terms};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::Report;
use crate::rules::{
    BoundedDuration, Group, LockOutcome, LossPolicy, OnUnreachable, Outcome, Release, Token,
};
use crate::store::any_server_has_answered;
use crate::supervise::{self, Command, Completion, Guarded, OwnGroup, RenewableHold};
use crate::system::inherited::Inherited;
use crate::system::random;
use crate::system::signals;
use crate::wait::Acquired;

pub(super) fn run(
    options: cli::ExecArgs,
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    if options.die_with_parent {
        parent::die_with(inherited.parent)?;
    }
    let group = if options.foreground { Group::Inherited } else { Group::NewUnlessAtTerminal };
    let default = LossPolicy::DEFAULT;
    let loss_policy = LossPolicy {
        on_lost: options.on_lost.unwrap_or_default(),
        kill_after: options.kill_after.map_or(default.kill_after, BoundedDuration::get),
        ..default
    };
    let may_run_unlocked = options.on_unreachable == Some(OnUnreachable::RunUnlocked);
    let mut terms = Terms::resolve(&options.common, options.lock, ReadOnce::new())?;
    if may_run_unlocked {
        // One attempt tells whether a server answers.
        terms.start_limit = Duration::ZERO;
    }
    let mut words = options.command.into_iter();
    // There is at least one word.
    let program = words.next().unwrap_or_default();
    let arguments = words.collect();
    let client = identity::of_exec(&program, terms.lock.label.clone());
    // Early, as `for_command` explains. An error counts only if it lasts: see `group_unless_stopped`.
    let prepared = OwnGroup::for_command(group);
    let token = Token::new(random::bytes());
    // No process to watch: the command has yet to start.
    let needed_by = None;
    let mut grant = match Grant::obtain(&terms, token, client, needed_by, inherited, report) {
        // No server has answered at all.
        Err(error)
            if may_run_unlocked
                && matches!(&error, Error::Store(it) if it.is_unreachable())
                && !any_server_has_answered() =>
        {
            // The command must not inherit the leader of the group as a child.
            drop(prepared);
            // Nor may it inherit the slot of an enclosing lock.
            let variables = vec![(SLOT, None)];
            let command = Command { program, arguments, group: None, variables };
            return Err(run_unlocked(&command, &error, options.die_with_parent, inherited, report));
        }
        granted => granted?,
    };
    let group = group_unless_stopped(&mut grant, prepared, group)
        .inspect_err(|_| grant.release_unused(report))?;
    let variables = grant.variables(&terms.lock.name);
    let command = Command { program, arguments, group, variables };
    run_locked(&command, grant, loss_policy, inherited, report)
}

/// Becomes the command, because no server answered. Returns only if that is impossible.
fn run_unlocked(
    command: &Command,
    why: &Error,
    die_with_parent: bool,
    inherited: Inherited,
    report: &Report,
) -> Error {
    report.warn(format_args!("{}; running the command without a lock", why.problem()));
    if die_with_parent && let Err(error) = parent::leave_to_kernel(inherited.parent) {
        return error;
    }
    supervise::run_unlocked(command, inherited)
}

/// The group of the command, unless a signal keeps the command from starting. A signal may arrive
/// together with the grant: after the wait, and before there is a command to pass it to.
fn group_unless_stopped(
    grant: &mut Grant,
    prepared: Result<Option<OwnGroup>, Error>,
    group: Group,
) -> Result<Option<OwnGroup>, Error> {
    match grant.signals.pending().first() {
        Some(arrived) => Err(Error::Stopped(arrived.signal)),
        // A limit that prevented it before the wait matters only now, if it still does.
        None => prepared.or_else(|_| OwnGroup::for_command(group)),
    }
}

/// Runs the command while the lease lasts, then releases the lock.
fn run_locked(
    command: &Command,
    grant: Grant,
    loss_policy: LossPolicy,
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    let Grant { store, request, acquired, mut signals } = grant;
    let Acquired { lease, connected_in, .. } = acquired;
    let (key, token) = (request.key.clone(), request.token.clone());
    let hold = RenewableHold { key, token, lease, connected_in };
    let guarded = Guarded { command, inherited, hold, loss_policy };
    let (mut store, ran) = supervise::run(guarded, store, &mut signals, report);
    let lease = ran.as_ref().map_or(lease, |completion| completion.lease);
    let (outcome, deadline) = (outcome_of(&ran), lease.deadline());
    let released = release(&mut *store, &request, outcome, deadline, &mut signals, report);
    let Completion { exit, lock, was_terminated, late, .. } = ran?;
    let exit = exit?;
    // A signal that arrived after the command ended applies to rlock: an interrupted script must
    // not continue with its next line. A failure of the command takes precedence. A signal that ended
    // the attempts to release the lock was consumed by `Retry`.
    let late = late.or_else(|| {
        let mut pending = signals.pending().into_iter().map(|arrived| arrived.signal);
        pending.find(|&signal| signals::asks_to_end(signal))
    });
    let loss = match (lock, released) {
        (LockOutcome::Lost, _) if was_terminated => {
            "lock was lost, and the command was stopped".into()
        }
        (LockOutcome::Lost, _) => "lock was lost, and the command ended without it".into(),
        (LockOutcome::Kept, Ok(Release::NotHeld(why))) => {
            format!("lock {why}, but the command ended before the loss was detected")
        }
        (LockOutcome::Kept, _) => {
            return Ok(match (exit, late) {
                (Exit::Status(exit::OK), Some(signal)) => Exit::Signal(signal as i32),
                (exit, _) => exit,
            });
        }
    };
    report.warn(format_args!("the {loss}"));
    Ok(Exit::Status(exit::LOST))
}

/// The outcome of the command, for the history of the lock.
fn outcome_of(ran: &Result<Completion, Error>) -> Outcome {
    match ran {
        Err(_) => Outcome::NotStarted,
        Ok(Completion { lock: LockOutcome::Lost, .. }) => Outcome::Lost,
        Ok(Completion { exit: Ok(Exit::Status(status)), .. }) => Outcome::Exit(*status),
        Ok(Completion { exit: Ok(Exit::Signal(signal)), .. }) => Outcome::Signal(*signal),
        Ok(Completion { exit: Err(_), .. }) => Outcome::Unknown,
    }
}
