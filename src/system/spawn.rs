//! What the new process of a command does before it becomes the program, and how rlock learns which
//! of these steps failed.

use std::io::{PipeReader, PipeWriter, Read};

use nix::errno::Errno;
use nix::libc::c_int;
use nix::unistd::write;

use super::command::NotStarted;
use crate::system::call::failed;

/// A step, in the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpawnStage {
    JoinGroup,
    DieWithRlock,
    RestoreSignals,
    BeInTime,
    Exec,
}

impl SpawnStage {
    const ALL: [Self; 5] =
        [Self::JoinGroup, Self::DieWithRlock, Self::RestoreSignals, Self::BeInTime, Self::Exec];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailedStep {
    pub(super) step: SpawnStage,
    pub(super) errno: Errno,
}

impl FailedStep {
    /// Tells rlock. Does not allocate.
    pub(super) fn send(self, pipe: &PipeWriter) {
        let number = (self.step as c_int) << BITS_OF_ERRNO | self.errno as c_int;
        // This fails only if rlock has ended.
        let _ = write(pipe, &number.to_ne_bytes());
    }

    /// Waits for a failed step. Returns `None` once the process runs its program, or has ended:
    /// both close the pipe.
    pub(super) fn receive(mut pipe: PipeReader) -> Option<Self> {
        let mut number = [0; size_of::<c_int>()];
        pipe.read_exact(&mut number).ok()?;
        let number = c_int::from_ne_bytes(number);
        let step = *SpawnStage::ALL.get(usize::try_from(number >> BITS_OF_ERRNO).ok()?)?;
        let errno = Errno::from_raw(number & ((1 << BITS_OF_ERRNO) - 1));
        Some(Self { step, errno })
    }
}

impl From<FailedStep> for NotStarted {
    fn from(FailedStep { step, errno }: FailedStep) -> Self {
        match step {
            SpawnStage::JoinGroup => Self::System(failed("setpgid", errno)),
            SpawnStage::DieWithRlock => Self::System(failed("prctl", errno)),
            SpawnStage::RestoreSignals => Self::System(failed("rt_sigaction", errno)),
            SpawnStage::BeInTime => Self::TooLate,
            SpawnStage::Exec => Self::Exec(errno.into()),
        }
    }
}

/// The kernel's errors are below 4096.
const BITS_OF_ERRNO: u32 = 12;
