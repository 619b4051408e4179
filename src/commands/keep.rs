//! `acquire --while-pid`: a keeper in the background, for as long as a process lives.
//!
//! The keeper is this program once more, with the same arguments, and the token in its environment:
//! a request can be repeated, so it asks for the hold again and has it. A process of its own rather
//! than a fork, which would take along connections and half of the threads.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};
use rustix::process::{PidfdFlags, pidfd_open};

use super::grant::Grant;
use super::reported::Reported;
use super::{identity, releasing};
use crate::cli;
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::lock::view::Outcome;
use crate::lock::{ProcessId, Token};
use crate::policy::{LossPolicy, OnLost};
use crate::report::Report;
use crate::supervise::notice::Notice;
use crate::supervise::watched::{Watched, has_ended};
use crate::supervise::{Hold, LockOutcome, watch};
use crate::system::clock::Instant;
use crate::system::disposition;
use crate::system::inherited::Inherited;

/// Has the token of the hold to be kept, in the keeper and nowhere else.
pub(super) const VARIABLE: &str = "RLOCK_KEEPER_TOKEN";

/// What a keeper says when it has taken over.
const READY: &[u8] = b"ready";

/// A process that can be watched, and stopped.
pub(super) fn watchable(process: ProcessId) -> Result<OwnedFd, Error> {
    let number = process.get();
    let refused = |what: &str| Error::Usage(format!("--while-pid {number}: {what}"));
    // Of all processes, its end is the end of all others; in a container nobody can stop it.
    if number == 1 {
        return Err(refused(
            "process 1 cannot be stopped; use rlock exec, or an init (docker --init)",
        ));
    }
    if number.unsigned_abs() == std::process::id() {
        return Err(refused("that is rlock itself; in a script, $$ is the script"));
    }
    let pid = rustix::process::Pid::from_raw(number).ok_or_else(|| refused("no such process"))?;
    let opened = pidfd_open(pid, PidfdFlags::empty());
    let opened = opened.map_err(|error| match error {
        rustix::io::Errno::SRCH | rustix::io::Errno::INVAL => refused("no such process"),
        error => Error::system("cannot watch a process", &error.into()),
    })?;
    match kill(Pid::from_raw(number), None) {
        _ if has_ended(opened.as_fd()) => Err(refused("that process has ended")),
        Err(Errno::EPERM) => Err(refused("that process is somebody else's")),
        _ => Ok(opened),
    }
}

/// Starts a keeper for the hold, and waits until it has taken over. It has none of our descriptors:
/// whoever reads our output is not to wait for it.
pub(super) fn start(
    process: OwnedFd,
    token: &Token,
    read_once: impl Iterator<Item = (&'static str, OsString)>,
) -> Result<Child, Error> {
    let failed = |error| Error::system("cannot start the keeper", &error);
    let mut keeper = Command::new("/proc/self/exe");
    keeper.arg0("rlock").args(std::env::args_os().skip(1)).env(VARIABLE, token.as_str());
    keeper.envs(read_once);
    keeper.stdin(Stdio::from(process)).stdout(Stdio::piped()).stderr(Stdio::null());
    // SAFETY: between fork and exec it makes system calls only, on its own descriptors.
    unsafe { keeper.pre_exec(close_others_at_exec) };
    let mut keeper = keeper.spawn().map_err(failed)?;
    let mut said = Vec::new();
    if let Some(mut output) = keeper.stdout.take() {
        let _ = output.read_to_end(&mut said);
    }
    if said == READY {
        return Ok(keeper);
    }
    let _ = keeper.kill();
    let _ = keeper.wait();
    Err(Error::Internal(anyhow::anyhow!(
        "the keeper has not taken over; the lock has been released"
    )))
}

/// Whatever else the caller has open, a pipe or a lock, is not the keeper's to hold open.
fn close_others_at_exec() -> std::io::Result<()> {
    let (first, last, flags) = (3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: it takes numbers only.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if closed == 0 {
        return Ok(());
    }
    // Linux before 5.11.
    for descriptor in 3..1024 {
        // SAFETY: it takes numbers only; one that is not open is an error and nothing more.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// The keeper's life: takes over the hold, and keeps it until the process on its stdin has ended.
pub(super) fn run(
    token: Token,
    process: ProcessId,
    options: &cli::Acquire,
    inherited: Inherited,
    report: &Report,
) -> Result<Exit, Error> {
    // It ends with the process, and not with the session, the terminal or the script's own signals.
    // It cannot be a group's leader, since it was started by another program.
    let _ = setsid();
    let _ = nix::sys::prctl::set_name(c"rlock-keeper");
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
        disposition::ignore(signal)
            .map_err(|error| Error::system("cannot ignore signals", &error.into()))?;
    }
    let about = |label| identity::of_watched(process, label);
    let (name, common, terms) = (&options.name, &options.common, &options.terms);
    let grant = Grant::resume(token, name, common, terms, about, inherited, report)?;
    let Grant { store, request, won, signals, .. } = grant;
    // Handlers would undo the ignoring.
    drop(signals);
    let watched = stdin().as_fd().try_clone_to_owned();
    let watched = watched.map_err(|error| Error::system("cannot watch the process", &error))?;
    let notice = Notice::await_for(&request.token)
        .map_err(|error| Error::system("cannot hear of a release", &error))?;
    let watched = Watched::new(Pid::from_raw(process.get()), watched);
    tell_ready().map_err(|error| Error::system("cannot tell that it has begun", &error))?;
    let hold = Hold { key: request.key.clone(), token: request.token.clone(), lease: won.lease };
    let loss_policy =
        LossPolicy { on_lost: OnLost::Kill, kill_after: LossPolicy::DEFAULT_KILL_AFTER };
    let (store, lock) = watch::run(watched, notice, hold, store, loss_policy, report);
    let outcome = match lock {
        Ok(LockOutcome::Lost) => Outcome::Lost,
        _ => Outcome::Unknown,
    };
    if let Some(mut store) = store {
        let (key, token) = (&request.key, &request.token);
        let ends = Some(Instant::now() + request.ttl.get());
        let hold = releasing::Releasing { key, token, outcome, ends, signals: None };
        // Nobody is left to be told; the lease ends in any case.
        let _ = releasing::release(&mut Reported::new(&mut *store, report), hold);
    }
    Ok(Exit::Status(match lock? {
        LockOutcome::Kept => exit::OK,
        LockOutcome::Lost => exit::LOST,
    }))
}

/// Says so, and lets go of the pipe and of the directory.
fn tell_ready() -> std::io::Result<()> {
    stdout().write_all(READY)?;
    stdout().flush()?;
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(null)?;
    std::env::set_current_dir("/")
}
