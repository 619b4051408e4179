//! Sandboxes that refuse system calls, as the seccomp filters of containers and gVisor do.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc::{self, c_int, c_long, sock_filter};
use nix::sys::prctl::set_no_new_privs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Every use of a system call.
    Call(c_long),
    Prctl(c_int),
    /// A socket of this address family.
    Socket(c_int),
    /// A clone(2) that suspends its caller, as vfork(2) does. Shells may call vfork(2) itself,
    /// which gives the child no stack.
    Vfork,
    Thread,
    /// An flock(2) that unlocks.
    Unlock,
}

/// A sandbox without the fast way to start a process.
pub fn without_vfork(command: &mut Command) {
    refuse(command, &[Refused::Vfork], Errno::EPERM);
}

/// Lets the command run in a sandbox that answers each of these with `errno`.
pub fn refuse<'a>(command: &'a mut Command, refused: &[Refused], errno: Errno) -> &'a mut Command {
    let deny = answer(libc::SECCOMP_RET_ERRNO | errno as u32);
    let mut filter = Vec::new();
    for refused in refused {
        let mut conditions = refused.conditions();
        conditions.push(deny);
        // A condition that does not hold skips the rest.
        let count = conditions.len();
        for (place, condition) in conditions.iter_mut().enumerate() {
            let skipped = u8::try_from(count - 1 - place).unwrap();
            (condition.jt, condition.jf) = (condition.jt * skipped, condition.jf * skipped);
        }
        filter.extend(conditions);
    }
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    // SAFETY: two system calls between fork and exec, which allocate nothing.
    unsafe { command.pre_exec(move || Ok(install(&mut filter)?)) }
}

impl Refused {
    /// What all must hold, as a program of a filter.
    fn conditions(self) -> Vec<sock_filter> {
        let (call, arguments) = match self {
            Self::Call(call) => (call, vec![]),
            Self::Prctl(option) => (libc::SYS_prctl, vec![load(argument(0)), equal(option.into())]),
            Self::Socket(family) => {
                (libc::SYS_socket, vec![load(argument(0)), equal(family.into())])
            }
            Self::Vfork => {
                let suspends = [load(argument(0)), any_of(libc::CLONE_VFORK)];
                (libc::SYS_clone, [suspends, [load(argument(1)), any_of(-1)]].concat())
            }
            Self::Unlock => (libc::SYS_flock, vec![load(argument(1)), equal(libc::LOCK_UN.into())]),
            Self::Thread => (libc::SYS_clone, vec![load(argument(0)), any_of(libc::CLONE_THREAD)]),
        };
        [vec![load(NUMBER), equal(call)], arguments].concat()
    }
}

/// Where a filter finds the number of the system call.
const NUMBER: u32 = 0;

/// Where a filter finds the low half of an argument.
const fn argument(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

fn load(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn answer(what: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, what)
}

fn equal(number: c_long) -> sock_filter {
    let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    sock_filter { jf: 1, ..statement(code, u32::try_from(number).unwrap()) }
}

fn any_of(bits: c_int) -> sock_filter {
    sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits as u32) }
}

fn statement(code: u32, operand: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: 0, k: operand }
}

fn install(filter: &mut [sock_filter]) -> nix::Result<()> {
    // Otherwise only root may do it.
    set_no_new_privs()?;
    let len = u16::try_from(filter.len()).map_err(|_| Errno::E2BIG)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter are valid until the call returns.
    let installed = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    Errno::result(installed).map(drop)
}
