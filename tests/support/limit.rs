//! An end to every wait: what does not happen fails, and says what was waited for, so that a broken
//! build does not hang.

use std::cell::Cell;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

thread_local! {
    /// Long beyond any doubt, on the busiest machine. Each test has a thread of its own.
    static LIMIT: Cell<Duration> = const { Cell::new(Duration::from_secs(120)) };
}

/// How long anything is waited for.
pub fn limit() -> Duration {
    LIMIT.get()
}

/// Sets it for this test, which is about waiting in vain.
pub fn set_limit(limit: Duration) {
    LIMIT.set(limit);
}

/// What a process writes, as it comes. It is read at once, whether a test looks at it or not.
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
                    // Nobody looks any more, but the writer is not to notice.
                    let _ = std::io::copy(&mut source, &mut std::io::sink());
                }
            }
        });
        Self { name, pieces, unread: Vec::new() }
    }

    /// The next line without its end, or what is left; `None` at the end.
    #[track_caller]
    pub fn line(&mut self, what: &str) -> Option<String> {
        let give_up = Instant::now() + limit();
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let rest = self.unread.split_off(end + 1);
                return Some(self.take_as_text(rest));
            }
            if !self.more(give_up, what) {
                return (!self.unread.is_empty()).then(|| self.take_as_text(Vec::new()));
            }
        }
    }

    /// All that is still to come, to the end.
    #[track_caller]
    pub fn rest(&mut self, what: &str) -> Vec<u8> {
        let give_up = Instant::now() + limit();
        while self.more(give_up, what) {}
        std::mem::take(&mut self.unread)
    }

    /// What has come so far.
    pub fn so_far(&mut self) -> String {
        self.unread.extend(self.pieces.try_iter().flatten());
        self.take_as_text(Vec::new())
    }

    fn take_as_text(&mut self, rest: Vec<u8>) -> String {
        let taken = std::mem::replace(&mut self.unread, rest);
        String::from_utf8_lossy(&taken).trim_end().to_owned()
    }

    /// `false` at the end.
    #[track_caller]
    fn more(&mut self, give_up: Instant, what: &str) -> bool {
        let left = give_up.saturating_duration_since(Instant::now());
        match self.pieces.recv_timeout(left) {
            Ok(piece) => self.unread.extend(piece),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!(
                "waited {:?} for {what} on {}; last came: {:?}",
                limit(),
                self.name,
                String::from_utf8_lossy(&self.unread)
            ),
        }
        true
    }
}

/// A process, whose end is waited for no longer than that.
pub struct Process(Child);

impl Process {
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn try_wait(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Does what `Child::wait` does.
    #[track_caller]
    pub fn wait(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(ended) = self.0.try_wait()? {
            return Ok(ended);
        }
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let give_up = Instant::now() + limit();
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            let mut ends = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut ends, PollTimeout::try_from(left).unwrap()) {
                Err(nix::errno::Errno::EINTR) => {}
                Ok(0) => panic!("waited {:?} for the end of process {pid:?}", limit()),
                _ => return self.0.wait(),
            }
        }
    }
}

impl Drop for Process {
    /// A test that has failed leaves nothing behind.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Runs a command to its end, as `Command::output` does.
#[track_caller]
pub fn output_of(command: &mut Command) -> Output {
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdout = Stream::of("stdout", child.stdout.take().unwrap());
    let mut stderr = Stream::of("stderr", child.stderr.take().unwrap());
    let mut process = Process::new(child);
    let what = format!("the end of {command:?}");
    let (stdout, stderr) = (stdout.rest(&what), stderr.rest(&what));
    Output { status: process.wait().unwrap(), stdout, stderr }
}
