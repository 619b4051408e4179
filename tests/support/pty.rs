//! A user at a terminal: a real interactive shell on a pty.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};

use super::Server;
use super::limit::{Process, Stream, output_of};

pub struct Terminal {
    shell: Process,
    keyboard: File,
    screen: Stream,
}

/// An interactive bash for a terminal, with `$rlock` as the binary under test. It ignores no signals,
/// whatever runs these tests.
pub fn bash(server: &Server) -> Command {
    let bash = "setsid --ctty env --default-signal bash --norc --noprofile --noediting";
    let mut shell = server.program(bash, "-i");
    shell.env("PS1", "$ ").env("TERM", "dumb").env("HISTFILE", "");
    shell
}

/// The two ends of a new terminal: that of the user, and that of programs.
pub fn ends() -> (File, File) {
    // Closed on exec, unlike those of openpty, which any child of another test would inherit.
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let mut slave = File::options();
    slave.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
    let slave = slave.open(ptsname_r(&master).unwrap()).unwrap();
    (File::from(OwnedFd::from(master)), slave)
}

impl Terminal {
    pub fn start(server: &Server) -> Self {
        Self::of(bash(server))
    }

    /// The terminal of such a shell.
    pub fn of(mut shell: Command) -> Self {
        let (keyboard, slave) = ends();
        let stream = || slave.try_clone().unwrap();
        shell.stdin(stream()).stdout(stream()).stderr(stream());
        let shell = Process::start(&mut shell);
        let screen = Stream::of("the screen", keyboard.try_clone().unwrap());
        let mut terminal = Self { shell, keyboard, screen };
        terminal.sees("$ ");
        terminal
    }

    /// Suspends the job in the foreground, and waits for the next prompt. The shell may see the first
    /// process of the job stop before the others, which would still read what is typed then.
    #[track_caller]
    pub fn suspends(&mut self) -> String {
        self.types("\x1a");
        let shown = self.sees("Stopped") + &self.sees("$ ");
        let session = self.shell.id().to_string();
        super::until("the whole job stops", || {
            let all = output_of(Command::new("ps").args(["-o", "pid=,stat=", "-s", &session]));
            let all = String::from_utf8_lossy(&all.stdout).into_owned();
            let mut lines = all.lines().filter_map(|line| line.trim().split_once(' '));
            lines.all(|(pid, state)| pid == session || state.trim().starts_with(['T', 'Z']))
        });
        shown
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line and Enter.
    pub fn enters(&mut self, line: &str) {
        self.types(&format!("{line}\n"));
    }

    /// Types keys, and waits until this text appears.
    #[track_caller]
    pub fn presses(&mut self, keys: &str, part: &str) -> String {
        self.types(keys);
        self.sees(part)
    }

    /// Types a line and Enter, and waits until this text appears.
    #[track_caller]
    pub fn answers(&mut self, line: &str, part: &str) -> String {
        self.enters(line);
        self.sees(part)
    }

    /// Waits until this text appears, and returns everything up to its end.
    #[track_caller]
    pub fn sees(&mut self, part: &str) -> String {
        let what = format!("{part:?}");
        let shown = self.screen.through(part, &what);
        shown.unwrap_or_else(|| panic!("the shell ended without {what}: {}", self.screen.so_far()))
    }
}
