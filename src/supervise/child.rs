//! The command: started as if rlock were not there, and its process group.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::errno::Errno;
use nix::libc::{self, c_char, c_int};
use nix::sched::{CloneFlags, clone};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getppid, setpgid};

use super::group::OwnGroup;
use crate::exit::Exit;
use crate::policy::Group;
use crate::system::clock::Instant;
use crate::system::inherited::Inherited;
use crate::system::thread::without_signals;

/// What to run, where, and what to tell it about its lock.
pub(crate) struct Command {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) group: Group,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Command {
    fn words(&self) -> io::Result<Strings> {
        let words = [&self.program].into_iter().chain(&self.arguments);
        Strings::new(words.map(|word| word.as_bytes()))
    }
}

/// Why a command was not started.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// It cannot be executed.
    Exec(io::Error),
    /// There was no process to execute it in.
    System(io::Error),
    /// The lease was about to end.
    TooLate,
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<Errno> for NotStarted {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// A command that has been started. Its number stays its own until it is reaped.
pub(super) struct Child {
    pid: Pid,
    /// The group it was started in, unless that is ours.
    group: Option<OwnGroup>,
}

impl Child {
    /// Starts the command with everything it would have had without us; not after `stop_at`, however
    /// long it takes to get there. To be called on the main thread: the command dies with the thread
    /// that started it.
    ///
    /// Not std's, for two reasons: only a child that shares our memory until it execs (as
    /// vfork(2)'s does) is spared the copying of page tables, a tenth of the time that a short
    /// command takes; and only here can everything up to the exec be seen to be in order.
    pub(super) fn start(
        command: &Command,
        inherited: Inherited,
        stop_at: Instant,
    ) -> Result<Self, NotStarted> {
        // Blocked meanwhile, a signal to a new process cannot run a handler of ours there, in our
        // memory, and be taken for one to us.
        without_signals(|| Self::start_unsignalled(command, inherited, stop_at))?
    }

    /// To be called with all signals blocked.
    fn start_unsignalled(
        command: &Command,
        inherited: Inherited,
        stop_at: Instant,
    ) -> Result<Self, NotStarted> {
        let words = command.words()?;
        let environment = Strings::of_environment(&command.variables)?;
        let group = match command.group {
            Group::Own => Some(OwnGroup::create()?),
            Group::Ours => None,
        };
        let (parent, joins) = (getpid(), group.as_ref().map(OwnGroup::id));
        let failed = AtomicI32::new(0);
        let prepared = AtomicBool::new(false);
        let in_child = || {
            let error = prepare(parent, joins, inherited, stop_at).map_or_else(
                |error| error,
                |()| {
                    prepared.store(true, Ordering::Relaxed);
                    exec(&words, &environment)
                },
            );
            failed.store(error as c_int, Ordering::Relaxed);
            127
        };
        // For what libc's exec needs, and a copy of the arguments for a script without an
        // interpreter. So large that it is mapped rather than zeroed: only touched pages cost.
        let mut stack = vec![0; 256 * 1024 + size_of_val(&*words.pointers)];
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        // SAFETY: the child has a stack of its own and we sleep until it execs or exits
        // (CLONE_VFORK), so what it reads stays as it is. It makes system calls and stores one
        // number: no allocation, no lock.
        let started = unsafe { clone(Box::new(in_child), &mut stack, flags, Some(libc::SIGCHLD)) };
        let child = Self { pid: started?, group };
        match failed.load(Ordering::Relaxed) {
            0 => Ok(child),
            error => {
                child.reap()?;
                let error = io::Error::from_raw_os_error(error);
                Err(match prepared.load(Ordering::Relaxed) {
                    true => NotStarted::Exec(error),
                    false if error.kind() == io::ErrorKind::TimedOut => NotStarted::TooLate,
                    false => NotStarted::System(error),
                })
            }
        }
    }

    /// Sends a signal to the command, wherever it has gone, and to all of the group that was made
    /// for it. An error means that nobody is left there.
    pub(super) fn signal(&self, signal: Signal) {
        let own = self.group.as_ref().map(OwnGroup::id);
        if let Some(group) = own {
            let _ = killpg(group, signal);
        }
        if own.is_none() || self.present_group() != own {
            let _ = kill(self.pid, signal);
        }
    }

    /// Does `signal` reach this process too?
    pub(super) fn includes(&self, process: Pid, its_group: Pid) -> bool {
        let in_group = self.group.as_ref().is_some_and(|group| group.id() == its_group);
        in_group || process == self.pid
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// The group that the command is in now: an interactive shell makes one for itself.
    pub(super) fn present_group(&self) -> Option<Pid> {
        getpgid(Some(self.pid)).ok()
    }

    /// The groups in whose hands the terminal may be while the command has it.
    pub(super) fn groups(&self) -> [Option<Pid>; 2] {
        [self.group.as_ref().map(OwnGroup::id), self.present_group()]
    }

    /// Is it in our group now, so that the terminal's signals to us reach it as well?
    pub(super) fn shares_our_group(&self) -> bool {
        self.present_group() == Some(getpgrp())
    }

    pub(super) fn group(&self) -> Group {
        if self.group.is_some() { Group::Own } else { Group::Ours }
    }

    /// The signal that has stopped the command since the last call, if one has.
    pub(super) fn has_stopped(&self) -> Option<Signal> {
        match waitid(Id::Pid(self.pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    /// Has the command ended? Leaves it unreaped, so that its number cannot become another's.
    pub(super) fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => false,
            // An error too: EINVAL is an end by a real-time signal, which nix has no name for.
            _ => true,
        }
    }

    /// Waits for the end and says how rlock should end to be like it.
    pub(super) fn reap(self) -> io::Result<Exit> {
        let mut status = 0;
        loop {
            // SAFETY: the pointer is valid for the one integer that is written.
            let reaped = unsafe { libc::waitpid(self.pid.as_raw(), &raw mut status, 0) };
            match Errno::result(reaped) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let status = ExitStatus::from_raw(status);
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Status(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => return Err(io::Error::other("the command neither exited nor died")),
        })
    }
}

/// Loads the command's program in place of rlock, with everything rlock was given.
pub(super) fn replace(command: &Command, inherited: Inherited) -> NotStarted {
    let ready = command.words().and_then(|words| {
        let environment = Strings::of_environment(&command.variables)?;
        inherited.restore()?;
        Ok((words, environment))
    });
    match ready {
        Ok((words, environment)) => NotStarted::Exec(exec(&words, &environment).into()),
        Err(error) => NotStarted::System(error),
    }
}

/// Returns only if the program cannot be executed. Makes no allocation.
fn exec(words: &Strings, environment: &Strings) -> Errno {
    // SAFETY: both are arrays of NUL-terminated strings with a null at the end, of which the first
    // has at least one string, and both outlive the call.
    unsafe {
        libc::execvpe(words.pointers[0], words.as_ptr(), environment.as_ptr());
    }
    Errno::last()
}

/// What happens in the new process before the command's program is loaded.
fn prepare(
    parent: Pid,
    group: Option<Pid>,
    inherited: Inherited,
    stop_at: Instant,
) -> Result<(), Errno> {
    if let Some(group) = group {
        setpgid(Pid::from_raw(0), group)?;
    }
    // A dead rlock renews nothing, so its command must not outlive it; and rlock may have died
    // before this took effect.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        return Err(Errno::ESRCH);
    }
    inherited.restore()?;
    // It may have been stopped on the way, and rlock with it.
    if Instant::now() < stop_at { Ok(()) } else { Err(Errno::ETIMEDOUT) }
}

/// An array of strings as exec(3) wants it.
struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    fn new<'a>(strings: impl Iterator<Item = &'a [u8]>) -> io::Result<Self> {
        Ok(Self::owning(strings.map(CString::new).collect::<Result<_, _>>()?))
    }

    /// Our own environment, with these variables instead of what they were.
    fn of_environment(variables: &[(&'static str, String)]) -> io::Result<Self> {
        let kept = std::env::vars_os()
            .filter(|(name, _)| variables.iter().all(|(replaced, _)| name != replaced))
            .map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
        let new = variables.iter().map(|(name, value)| format!("{name}={value}").into_bytes());
        Ok(Self::owning(kept.chain(new).map(CString::new).collect::<Result<_, _>>()?))
    }

    fn owning(owned: Vec<CString>) -> Self {
        let null = std::iter::once(std::ptr::null());
        let pointers = owned.iter().map(|string| string.as_ptr()).chain(null).collect();
        Self { pointers, _owned: owned }
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}
