//! The functions that short runs execute and what they read, as the linker script
//! `build/short_runs.ld`.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::support::{Server, rlock_at};

/// Prints the linker script for the functions that short runs of these binaries execute. The binaries
/// must contain their symbols.
pub(crate) fn print(binaries: &[String]) {
    assert!(!binaries.is_empty(), "name the binaries, as in CONTRIBUTING.md");
    let server = Server::on_tcp(&[]);
    let locks = format!("local:{}", server.directory().join("locks").display());
    let mut executed = Executed::default();
    for binary in binaries {
        let program = Program::new(binary);
        for url in [server.tcp_url(), server.url(), locks.clone()] {
            let untraced = |arguments: &[&str]| {
                let status = program.rlock(&url, arguments).status();
                assert!(status.is_ok_and(|status| status.success()), "{binary} cannot use {url}");
            };
            let mut run = |arguments: &[&str]| executed.run(&program, &url, arguments);
            // The first run loads the scripts, which happens once per server.
            untraced(&["exec", "-n", "lock", "--", "true"]);
            // The traced rlock is slow, but not as slow as this command.
            run(&["exec", "-n", "lock", "--ttl", "1h", "--", "sleep", "20"]);
            let token = run(&["acquire", "-n", "lock", "--ttl", "1h"]);
            run(&["release", "lock", token.trim()]);
            untraced(&["acquire", "-n", "lock", "--ttl", "20s"]);
            run(&["exec", "lock", "--ttl", "1h", "--", "true"]);
        }
    }
    executed.print();
}

struct Program {
    binary: String,
    /// The names of its functions, by address in the file. A C function may have several, and its
    /// section is called by one of them.
    functions: BTreeMap<u64, Vec<String>>,
}

impl Program {
    fn new(binary: &str) -> Self {
        let output = Command::new("nm").arg("--defined-only").arg(binary).output();
        let output = output.expect("nm from binutils lists the symbols");
        let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
        let function = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            [address, "t" | "T" | "w" | "W", name] => {
                Some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
            }
            _ => None,
        };
        let mut functions = BTreeMap::<_, Vec<_>>::new();
        for (address, name) in symbols.lines().filter_map(function) {
            functions.entry(address).or_default().push(name);
        }
        assert!(!functions.is_empty(), "{binary} contains no symbols");
        Self { binary: binary.to_owned(), functions }
    }

    fn rlock(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = rlock_at(&self.binary, arguments);
        command.env("RLOCK_URL", url);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// The address at which the program starts in this process, less that in the file.
    fn offset(&self, process: Pid) -> u64 {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let first = maps.split('-').next().and_then(|it| u64::from_str_radix(it, 16).ok());
        let first = first.expect("the process has a mapping");
        // The address of the others is fixed.
        if self.functions.keys().all(|&address| address < first) { first } else { 0 }
    }

    fn function_at(&self, address: u64) -> Option<&[String]> {
        Some(self.functions.range(..=address).next_back()?.1)
    }
}

#[derive(Default)]
struct Executed {
    /// The patterns in `order`.
    seen: HashSet<String>,
    /// Patterns for the names of the functions, in the order of their first instructions.
    order: Vec<String>,
}

impl Executed {
    fn print(&self) {
        println!("/* Generated: see CONTRIBUTING.md. build/link.rs says what it is for. */");
        // The C library's functions in assembler have no sections of their own.
        self.print_section(".text", "*crt1.o(.text)\n    *libc.a:(.text)", "");
        // A table of a function has the function's name, but few other constants have a name.
        let first = "*libc.a:(.rodata*)\n    *(.rodata.cst*)\n    *(.rodata.str*)";
        self.print_section(".rodata", first, "    *(.rodata.*DIGITS*)\n    *(.rodata..Lanon.*)\n");
    }

    fn print_section(&self, name: &str, first: &str, last: &str) {
        println!("SECTIONS\n{{\n  {name}.short_runs :\n  {{\n    {first}");
        for pattern in &self.order {
            // The section of a function that is marked as cold has more words in front.
            println!("    *({name}*.{pattern})");
        }
        println!("{last}  }}\n}}\nINSERT BEFORE {name};");
    }

    /// Runs `rlock` instruction by instruction. Returns what it prints.
    #[allow(clippy::zombie_processes, reason = "step() waits for the process")]
    fn run(&mut self, program: &Program, url: &str, arguments: &[&str]) -> String {
        let mut command = program.rlock(url, arguments);
        // SAFETY: one system call between fork and exec, which touches no memory.
        unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
        let process = command.spawn().expect("the binary can be executed");
        let pid = Pid::from_raw(i32::try_from(process.id()).expect("process ids are small"));
        self.step(program, pid);
        let output = process.stdout.expect("it is a pipe");
        std::io::read_to_string(output).expect("its output is text")
    }

    /// Lets a stopped process run to its end, and its children until they execute a program.
    fn step(&mut self, program: &Program, process: Pid) {
        let mut offset = None;
        let mut last = None;
        loop {
            let status = waitpid(None, Some(WaitPidFlag::__WALL)).expect("the process is traced");
            let (pid, signal) = match status {
                WaitStatus::Exited(pid, status) if pid == process => {
                    assert_eq!(status, 0, "rlock failed");
                    return;
                }
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => continue,
                WaitStatus::PtraceEvent(pid, _, libc::PTRACE_EVENT_EXEC) => {
                    ptrace::detach(pid, None).expect("the child is stopped");
                    continue;
                }
                WaitStatus::PtraceEvent(pid, ..) => (pid, None),
                // A step ends with SIGTRAP, and a new child begins with SIGSTOP.
                WaitStatus::Stopped(pid, Signal::SIGTRAP | Signal::SIGSTOP) => (pid, None),
                WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
                other => panic!("{other:?}"),
            };
            let offset = *offset.get_or_insert_with(|| {
                let options = Options::PTRACE_O_TRACEFORK
                    | Options::PTRACE_O_TRACEVFORK
                    | Options::PTRACE_O_TRACECLONE
                    | Options::PTRACE_O_TRACEEXEC
                    | Options::PTRACE_O_EXITKILL;
                ptrace::setoptions(pid, options).expect("the process is stopped");
                program.offset(pid)
            });
            let function = program.function_at(instruction(pid).wrapping_sub(offset));
            if function != last {
                last = function;
                let patterns = function.into_iter().flatten().filter_map(|name| pattern(name));
                self.order.extend(patterns.filter(|pattern| self.seen.insert(pattern.clone())));
            }
            ptrace::step(pid, signal).expect("the process is stopped");
        }
    }
}

/// The address of the instruction that a stopped process executes next.
fn instruction(process: Pid) -> u64 {
    let registers = ptrace::getregs(process).expect("the process is stopped");
    #[cfg(target_arch = "x86_64")]
    return registers.rip;
    #[cfg(target_arch = "aarch64")]
    return registers.pc;
}

/// A pattern for the name of a function, without what depends on the compiler and the build: hashes,
/// and numbers at the end.
fn pattern(name: &str) -> Option<String> {
    if let Some((stable, _)) = name.split_once("17h").filter(|_| name.starts_with("_ZN")) {
        return Some(format!("{stable}17h*"));
    }
    let Some(name) = name.strip_prefix("_R") else { return Some(name.to_owned()) };
    let name = name.split('.').next()?;
    // A crate is `Cs`, a hash, `_` and its name.
    let mut parts = name.split("Cs");
    let mut pattern = format!("_R{}", parts.next()?);
    for part in parts {
        let (_, rest) = part.split_once('_')?;
        pattern += &format!("Cs*_{rest}");
    }
    Some(pattern + "*")
}
