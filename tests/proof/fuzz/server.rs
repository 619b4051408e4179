//! Whole conversations with a server.

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::libc;
use socket2::SockRef;

use super::lock_files::request;
use super::prints::view;
use super::promises::one_line;
use rlock::rules::{Answer, Failure, Outcome, Prefix, Revocation};
use rlock::store::Store;
use rlock::store::location::Location;

/// How many connections hear the input; later ones hear nothing, so that every conversation ends.
const HEARD: usize = 3;

/// Checks a whole conversation with a server that says anything. The first byte selects the
/// request, and the rest is all that the server says.
pub fn server(bytes: &[u8]) {
    let Some((request, replies)) = bytes.split_first() else { return };
    let listener = Listener::new();
    thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&listener.socket, replies));
        let closing = Closing(&listener.socket);
        converse(&listener.path, *request);
        drop(closing);
        // The scope alone does not wait for the end of the thread, which then looks like a leak.
        serving.join().expect("a server");
    });
}

fn converse(path: &Path, request: u8) {
    let database = if request & 0x10 == 0 { "" } else { "?db=1" };
    let url = format!("unix://{}{database}", path.display());
    let location = Location::parse(&[&url], None).expect("a URL");
    let replicas = u32::from(request & 0x20 != 0);
    let mut store = location.open(Duration::from_secs(2), replicas).expect("a store");
    if let Err(failure) = ask(&mut *store, request & 7) {
        one_line(&failure.to_string());
    }
    store.hazards().iter().for_each(|warning| one_line(warning));
    let _ = store.diagnostics();
}

fn ask(store: &mut dyn Store, what: u8) -> Result<(), Failure> {
    let request = request();
    let (key, token) = (&request.key, &request.token);
    match what {
        0 => {
            let answer = store.acquire(&request, &[], None)?;
            if let Answer::Busy(seen) | Answer::Queued { view: seen, .. } = &answer {
                view(seen);
            }
            if let Answer::Queued { sleep, .. } = answer {
                store.sleep(&request, sleep, &[], None)?;
            }
        }
        1 => drop(store.renew(key, token, None, None)?),
        2 => drop(store.release(key, token, Outcome::Exit(0))?),
        3 => store.leave(&request)?,
        4 => view(&store.revoke(key, Revocation::Graceful, "me")?),
        5 => view(&store.inspect(key)?),
        _ => {
            let listing = store.list(&Prefix::default(), None, true)?;
            for (_, seen) in &listing.locks {
                match seen {
                    Ok(seen) => view(seen),
                    Err(failure) => one_line(&failure.to_string()),
                }
            }
            listing.failures.iter().for_each(|failure| one_line(&failure.to_string()));
        }
    }
    Ok(())
}

/// Answers each connection with the replies and the end, until the listener is closed.
fn serve(listener: &UnixListener, replies: &[u8]) {
    // A connection that is closed before its client has read everything would lose the rest.
    let mut open = Vec::new();
    while let Ok((client, _)) = listener.accept() {
        say(&client, if open.len() < HEARD { replies } else { &[] });
        open.push(client);
    }
}

fn say(client: &UnixStream, replies: &[u8]) {
    // Send only what fits into the socket, and not to a client that has gone, which raises SIGPIPE.
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    let _ = SockRef::from(client).send_with_flags(replies, flags);
    let _ = client.shutdown(Shutdown::Write);
}

/// A socket that listens. Its file is removed when dropped.
struct Listener {
    path: PathBuf,
    socket: UnixListener,
}

impl Listener {
    fn new() -> Self {
        static CASES: AtomicUsize = AtomicUsize::new(0);
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rlock-fuzz-{}-{case}.sock", process::id()));
        let socket = UnixListener::bind(&path).expect("a socket in the temporary directory");
        Self { path, socket }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Closes the listener when dropped, even if a check fails, so that its thread ends.
struct Closing<'a>(&'a UnixListener);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let _ = SockRef::from(self.0).shutdown(Shutdown::Both);
    }
}
