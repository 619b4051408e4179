//! `acquire --while-pid`: a keeper in the background, for as long as a process lives.
//!
//! The keeper runs this program again, with the same arguments, and receives the token from its
//! parent. Requests can be repeated, so it asks for the hold again and gets it. It is a new
//! process rather than a fork, because a fork would copy the connections and only one of the
//! threads.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use nix::sys::prctl;
use nix::sys::signal::SigSet;
use nix::unistd::{Pid, setsid};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open, test_kill_process};

use super::grant::Grant;
use super::retry::Retry;
use crate::config::{Handover, KEEPER, Terms};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::report::Report;
use crate::rules::{
    ClientInfo, Instant, Lateness, LockOutcome, LossPolicy, OnReleased, Outcome, ProcessId,
    Request, Token, UserMessage,
};
use crate::supervise::keeper_process::listen;
use crate::supervise::watched::{self, Watched, field, has_ended, refusal};
use crate::supervise::{RenewableHold, Upkeep};
use crate::system::call::{Named, failed};
use crate::system::inherited::Inherited;
use crate::system::poll::{NEVER, Want, Woken, wait};
use crate::system::signals::Signals;
use crate::wait::Acquired;

/// What a keeper writes once it has the hold.
const READY: &[u8] = b"ready";

/// How long its parent waits for that, whatever the TTL. A keeper tries to reach the server for half
/// as long, so that its last attempt ends before.
const START_AT_MOST: Duration = Duration::from_secs(10);

/// Returns a pidfd of the process if rlock can watch it and stop it.
pub(super) fn watchable(process: ProcessId) -> Result<OwnedFd, Error> {
    let number = process.get();
    let refused = |what: &str, remedy: &str| {
        let fault = UserMessage::new(format!("--while-pid {number}: {what}"));
        Error::Usage(fault.with_remedy(remedy))
    };
    // If it ends, all other processes end too, and no process in its container can stop it.
    if number == 1 {
        return Err(refused(
            "process 1 cannot be stopped",
            "run the script under an init, such as that of docker run --init",
        ));
    }
    if number.unsigned_abs() == std::process::id() {
        let remedy = format!("run {} first, and use $me", ProcessId::OF_THIS_SHELL);
        return Err(refused("this is rlock itself", &remedy));
    }
    let is_other = |process: &String| *process != number.to_string();
    let missing = || match field(Pid::from_raw(number), "status", "Tgid:").filter(is_other) {
        Some(process) => refused(&format!("a thread of process {process}"), "use that process"),
        None => refused("no such process", "use the ID of a running process"),
    };
    let pid = rustix::process::Pid::from_raw(number).ok_or_else(missing)?;
    let opened = pidfd_open(pid, PidfdFlags::empty());
    let opened = opened.map_err(|error| match error {
        // The last two are for threads, on old and on new kernels.
        Errno::SRCH | Errno::INVAL | Errno::NOENT => missing(),
        error => Error::system("cannot watch a process", failed("pidfd_open", error)),
    })?;
    match test_kill_process(pid) {
        _ if has_ended(opened.as_fd()) => Err(missing()),
        Err(Errno::PERM) => {
            Err(refused("the process belongs to another user", "use a process that you own"))
        }
        _ => match refusal(opened.as_fd()) {
            Some(errno) => {
                let error = failed("pidfd_send_signal", errno);
                Err(Error::system("cannot stop a process", error))
            }
            None => Ok(opened),
        },
    }
}

/// Starts a keeper for the hold, and waits until it has the hold. If it fails, so does this, with
/// the keeper's message and status. The keeper inherits no descriptors, so the reader of this
/// process's output does not wait for it.
pub(super) fn start(
    process: OwnedFd,
    handover: &Handover,
    arguments: &[OsString],
    inherited: Inherited,
    signals: &mut Signals,
    report: &Report,
) -> Result<Child, Error> {
    let mut keeper = Command::new("/proc/self/exe");
    keeper.arg0(KEEPER).args(arguments.iter().skip(1));
    let (mut socket, its_end) = UnixStream::pair()
        .named("socketpair")
        .map_err(|error| Error::system("cannot start the keeper", error))?;
    keeper
        .stdin(Stdio::from(process))
        .stdout(Stdio::from(OwnedFd::from(its_end)))
        .stderr(Stdio::piped());
    inherited.pass_on(&mut keeper);
    let started = keeper.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("the keeper needs /proc; mount it"),
        _ => anyhow!(error).context("cannot start the keeper"),
    });
    // It has the keeper's end of the socket.
    drop(keeper);
    let mut keeper = started?;
    let begun = Instant::now();
    let until = begun + START_AT_MOST;
    let stop = NEVER.or(signals.readable()).or_at(until);
    let _ = handover.send(&socket, stop);
    let woken = wait(Some((socket.as_fd(), Want::Read)), stop, None);
    let mut written = Vec::new();
    let _ = socket.set_nonblocking(true).and_then(|()| socket.read_to_end(&mut written));
    if written == READY {
        return Ok(keeper);
    }
    let failed = match woken {
        Ok(Woken::Interrupted) => Some(signals.first().map_or_else(
            || {
                let not_running =
                    Lateness::since(begun).asleep_until(until).explains(Instant::now());
                let silent = || "no answer; check the server".to_owned();
                let told = not_running.map_or_else(silent, |it| it.to_string());
                Error::Keeper { status: Some(exit::UNREACHABLE.into()), told }
            },
            Error::Stopped,
        )),
        Ok(_) => None,
        Err(error) => Some(Error::system("cannot wait for the keeper", error)),
    };
    if let Some(error) = failed {
        let _ = keeper.kill();
        return Err(error);
    }
    // It is about to end, with --json after a document for its own stdout; its stderr says why.
    let mut told = String::new();
    if let Some(mut errors) = keeper.stderr.take() {
        let _ = errors.read_to_string(&mut told);
    }
    let status = keeper.wait().ok().and_then(|status| status.code());
    let last = told.lines().next_back().unwrap_or_default();
    let told = last.strip_prefix("rlock: ").and_then(|line| line.strip_prefix(report.subject()));
    Err(Error::Keeper { status, told: told.unwrap_or(last).to_owned() })
}

/// Runs the keeper: it takes over the hold, and renews it until the process on its stdin has ended.
pub(super) fn run(
    token: Token,
    process: ProcessId,
    mut terms: Terms,
    client: ClientInfo,
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    // It ends with the process, not with the session, the terminal, or the script's own signals:
    // without it, the script would run on unguarded. A fault in the keeper still ends it.
    // setsid(2) works because a process that was just started does not lead a group.
    let _ = setsid();
    SigSet::all().thread_block().map_err(std::io::Error::from).context("cannot block signals")?;
    // The lock is held already, and for at least this much longer.
    terms.wait_limit = Some(Duration::ZERO);
    terms.start_limit = terms.ttl.get().min(START_AT_MOST) / 2;
    // If the process ends meanwhile, that is noticed below.
    let needed_by = None;
    let grant = Grant::obtain(&terms, token, client, needed_by, inherited, report)?;
    let Grant { store, request, acquired, signals } = grant;
    // For those who look at processes.
    let _ = prctl::set_name(c"rlock-keeper");
    // By this, a release finds it.
    let _address = listen(&request.token);
    let watched = stdin().as_fd().try_clone_to_owned().context("cannot watch the process")?;
    let watched = Watched::new(Pid::from_raw(process.get()), watched);
    let Request { key, token, .. } = &request;
    let Acquired { lease, connected_in, .. } = acquired;
    let hold = RenewableHold { key: key.clone(), token: token.clone(), lease, connected_in };
    let loss_policy = LossPolicy { on_released: OnReleased::Over, ..LossPolicy::DEFAULT };
    let upkeep = Upkeep::prepare(hold, loss_policy, report)?;
    tell_ready().context("cannot report that the keeper is ready")?;
    let (store, lock) = watched::run(watched, store, signals, upkeep, report);
    let outcome = match lock {
        Ok(LockOutcome::Lost) => Outcome::Lost,
        _ => Outcome::Unknown,
    };
    if let Some(mut store) = store {
        let deadline = Some(Instant::now() + request.ttl.get());
        let mut retry = Retry { pending: "not released", deadline, signals: None };
        // An error could no longer be reported, and the lease expires in any case.
        let _ = retry.run(&mut *store, report, |store| store.release(key, token, outcome));
    }
    Ok(Exit::Status(match lock? {
        LockOutcome::Kept => exit::OK,
        LockOutcome::Lost => exit::LOST,
    }))
}

/// Reports to the parent, closes the pipes and leaves the directory. What may fail comes first,
/// because from the report on the script relies on the keeper.
fn tell_ready() -> std::io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null").named("/dev/null")?;
    std::env::set_current_dir("/")?;
    stdout().write_all(READY)?;
    stdout().flush()?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
