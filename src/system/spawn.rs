//! A program in a new process, started as the caller of rlock would have started it.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc::c_int;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid, getppid, setpgid, write};

use super::call::{Named, failed};
use super::children::fork;
use super::inherited::Inherited;
use super::program::Program;
use super::signals;
use crate::rules::Instant;

/// Why a program was not started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// It cannot be executed.
    Exec(io::Error),
    /// The system could not start a process.
    System(io::Error),
    /// It was later than the caller allowed.
    TooLate,
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Starts the program with everything that rlock inherited, in this process group or rlock's, but
/// only before `start_before`. Call this on the main thread, because the program dies with the
/// thread that started it. Call it with all signals blocked: otherwise a signal could act on the
/// new process before it has the state in which the program starts.
///
/// This does not use `std::process::Command`, because [`fork`] is faster, and every step before the
/// exec is visible here.
pub(crate) fn spawn(
    program: &Program,
    group: Option<Pid>,
    inherited: Inherited,
    start_before: Instant,
) -> Result<Pid, NotStarted> {
    let parent = getpid();
    let (failures, report) = io::pipe().named("pipe2")?;
    let runs = AtomicBool::new(false);
    let in_child = || {
        runs.store(true, Ordering::Relaxed);
        let failed = match prepare(parent, group, inherited, start_before) {
            Ok(()) => FailedStep { step: SpawnStep::Exec, errno: program.exec() },
            Err(failed) => failed,
        };
        runs.store(false, Ordering::Relaxed);
        failed.send(&report);
        127
    };
    // SAFETY: all signals are blocked. The child makes system calls and stores two values: no
    // allocation, no lock.
    let pid = unsafe { fork(&in_child) }.named("clone")?;
    // Otherwise the pipe would stay open.
    drop(report);
    // A child that shares rlock's memory becomes its program, or fails, before rlock continues. To
    // wait for the kernel to close the pipe would then take as long as the whole start.
    if runs.load(Ordering::Relaxed) {
        return Ok(pid);
    }
    match FailedStep::receive(failures) {
        None => Ok(pid),
        Some(failed) => {
            while waitpid(pid, None) == Err(Errno::EINTR) {}
            Err(failed.into())
        }
    }
}

/// Runs in the new process before it becomes the program.
fn prepare(
    parent: Pid,
    group: Option<Pid>,
    inherited: Inherited,
    start_before: Instant,
) -> Result<(), FailedStep> {
    let failed = |step| move |errno| FailedStep { step, errno };
    if let Some(group) = group {
        setpgid(Pid::from_raw(0), group).map_err(failed(SpawnStep::JoinGroup))?;
    }
    // If rlock dies, it no longer renews the lease, so its command must die too. rlock may have
    // died before this call, which the check of the parent detects.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed(SpawnStep::DieWithRlock))?;
    if getppid() != parent {
        return Err(failed(SpawnStep::DieWithRlock)(Errno::ESRCH));
    }
    // A signal to the whole group has also reached rlock, which passes it on. A stop would stop
    // rlock too, which waits for the exec.
    signals::discard_arrived();
    inherited.restore().map_err(failed(SpawnStep::RestoreSignals))?;
    // The child may have been stopped on the way here, and rlock with it.
    if Instant::now() < start_before {
        Ok(())
    } else {
        Err(failed(SpawnStep::BeInTime)(Errno::ETIMEDOUT))
    }
}

/// What the new process does before it becomes the program, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpawnStep {
    JoinGroup,
    DieWithRlock,
    RestoreSignals,
    BeInTime,
    Exec,
}

impl SpawnStep {
    const ALL: [Self; 5] =
        [Self::JoinGroup, Self::DieWithRlock, Self::RestoreSignals, Self::BeInTime, Self::Exec];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailedStep {
    step: SpawnStep,
    errno: Errno,
}

impl FailedStep {
    /// Tells rlock. Does not allocate.
    fn send(self, pipe: &PipeWriter) {
        let number = (self.step as c_int) << BITS_OF_ERRNO | self.errno as c_int;
        // This fails only if rlock has ended.
        let _ = write(pipe, &number.to_ne_bytes());
    }

    /// Waits for a failed step. Returns `None` once the process runs its program, or has ended:
    /// both close the pipe.
    fn receive(mut pipe: PipeReader) -> Option<Self> {
        let mut number = [0; size_of::<c_int>()];
        pipe.read_exact(&mut number).ok()?;
        let number = c_int::from_ne_bytes(number);
        let step = *SpawnStep::ALL.get(usize::try_from(number >> BITS_OF_ERRNO).ok()?)?;
        let errno = Errno::from_raw(number & ((1 << BITS_OF_ERRNO) - 1));
        Some(Self { step, errno })
    }
}

impl From<FailedStep> for NotStarted {
    fn from(FailedStep { step, errno }: FailedStep) -> Self {
        match step {
            SpawnStep::JoinGroup => Self::System(failed("setpgid", errno)),
            SpawnStep::DieWithRlock => Self::System(failed("prctl", errno)),
            SpawnStep::RestoreSignals => Self::System(failed("rt_sigaction", errno)),
            SpawnStep::BeInTime => Self::TooLate,
            SpawnStep::Exec => Self::Exec(errno.into()),
        }
    }
}

/// The kernel's errors are below 4096.
const BITS_OF_ERRNO: u32 = 12;
