//! Puts a limit on every wait, so that a broken build fails instead of hanging. The failure names
//! what the test waited for.

use std::cell::Cell;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

thread_local! {
    /// Far longer than anything takes, even on a busy machine. Each test has its own thread.
    static LIMIT: Cell<Duration> = const { Cell::new(Duration::from_secs(120)) };

    /// Puts each process that this test starts into a sandbox.
    static CONFINE: Cell<fn(&mut Command)> = const { Cell::new(|_| ()) };
}

/// The longest that a test waits for anything.
pub fn limit() -> Duration {
    LIMIT.get()
}

/// Changes the limit for this test, which waits in vain.
pub fn set_limit(limit: Duration) {
    LIMIT.set(limit);
}

/// Puts each process that this test starts from now on into a sandbox.
pub fn set_sandbox(confine: fn(&mut Command)) {
    CONFINE.set(confine);
}

/// Waits for something that cannot announce itself, such as the end of another process. Fails after
/// the limit.
#[track_caller]
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let give_up = Instant::now() + limit();
    while !happened() {
        assert!(Instant::now() < give_up, "did not happen: {what}");
        // Long enough to leave the processor to others, and short enough not to delay the test.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The output of a process. A thread reads it at once, so that the process never blocks.
pub struct Stream {
    name: &'static str,
    pieces: Receiver<Vec<u8>>,
    unread: Vec<u8>,
}

impl Stream {
    pub fn of(name: &'static str, mut source: impl Read + Send + 'static) -> Self {
        let (sender, pieces) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    // The test has dropped this stream. The writer must not notice.
                    let _ = std::io::copy(&mut source, &mut std::io::sink());
                }
            }
        });
        Self { name, pieces, unread: Vec::new() }
    }

    /// The next line without its newline, or an unfinished last line; `None` at the end.
    #[track_caller]
    pub fn line(&mut self, what: &str) -> Option<String> {
        let line = self.through("\n", what);
        let line = line.or_else(|| (!self.unread.is_empty()).then(|| self.so_far()))?;
        Some(line.trim_end().to_owned())
    }

    /// Everything through the end of this text; `None` if the stream ends before.
    #[track_caller]
    pub fn through(&mut self, text: &str, what: &str) -> Option<String> {
        let give_up = Instant::now() + limit();
        let mut searched = 0;
        loop {
            let mut windows = self.unread[searched..].windows(text.len());
            if let Some(start) = windows.position(|window| window == text.as_bytes()) {
                let rest = self.unread.split_off(searched + start + text.len());
                return Some(self.take_as_text(rest));
            }
            searched = self.unread.len().saturating_sub(text.len());
            if !self.more(give_up, what) {
                return None;
            }
        }
    }

    /// Everything up to the end.
    #[track_caller]
    pub fn rest(&mut self, what: &str) -> Vec<u8> {
        let give_up = Instant::now() + limit();
        while self.more(give_up, what) {}
        std::mem::take(&mut self.unread)
    }

    /// Everything that has arrived and was not read yet.
    pub fn so_far(&mut self) -> String {
        self.unread.extend(self.pieces.try_iter().flatten());
        self.take_as_text(Vec::new())
    }

    fn take_as_text(&mut self, rest: Vec<u8>) -> String {
        let taken = std::mem::replace(&mut self.unread, rest);
        String::from_utf8_lossy(&taken).into_owned()
    }

    /// Waits for more output. Returns `false` at the end.
    #[track_caller]
    fn more(&mut self, give_up: Instant, what: &str) -> bool {
        let left = give_up.saturating_duration_since(Instant::now());
        // Endless output is a wait in vain too.
        let piece = match left.is_zero() {
            true => Err(RecvTimeoutError::Timeout),
            false => self.pieces.recv_timeout(left),
        };
        match piece {
            Ok(piece) => self.unread.extend(piece),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!(
                "waited {:?} for {what} on {}; last output: {:?}",
                limit(),
                self.name,
                String::from_utf8_lossy(&self.unread[self.unread.len().saturating_sub(2_000)..])
            ),
        }
        true
    }
}

/// A child process that ends with its test, even if the test fails or is killed.
pub struct Process(Child);

impl Process {
    /// Starts it without the terminal at which the tests may run.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        // SAFETY: system calls between fork and exec, which touch no memory.
        unsafe {
            command.pre_exec(|| {
                if let Ok(terminal) = open(c"/dev/tty", OFlag::O_RDWR, Mode::empty()) {
                    libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY);
                }
                // The kernel sends the signal when the thread of this test ends. A sandbox under
                // test may refuse that.
                let _ = set_pdeathsig(Signal::SIGKILL);
                Ok(())
            });
        }
        CONFINE.get()(command);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self(child)
    }

    /// Its standard input, if it is a pipe that nobody has taken yet.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.0.stdin.take()
    }

    /// Its standard output, which has to be a pipe.
    pub fn stdout(&mut self) -> Stream {
        Stream::of("stdout", self.0.stdout.take().unwrap())
    }

    /// Its standard error, which has to be a pipe.
    pub fn stderr(&mut self) -> Stream {
        Stream::of("stderr", self.0.stderr.take().unwrap())
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Kills the process if it is still running.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Waits as `Child::wait` does, but no longer than the limit.
    #[track_caller]
    pub fn wait(&mut self) -> std::io::Result<ExitStatus> {
        until(&format!("the end of process {}", self.id()), || !self.is_running());
        self.0.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command and returns its output, as `Command::output` does.
#[track_caller]
pub fn output_of(command: &mut Command) -> Output {
    let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (mut stdout, mut stderr) = (process.stdout(), process.stderr());
    let what = format!("the end of {command:?}");
    let (stdout, stderr) = (stdout.rest(&what), stderr.rest(&what));
    Output { status: process.wait().unwrap(), stdout, stderr }
}
