//! Whole conversations with a server.

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;

use nix::libc;
use socket2::SockRef;

use super::requests::{ask, open};

/// How many connections hear the input; later ones hear nothing, so that every conversation ends.
const HEARD: usize = 3;

/// Checks a whole conversation with a server that says anything. The first byte selects the
/// request, and the rest is all that the server says.
pub fn server(bytes: &[u8]) {
    let Some((request, replies)) = bytes.split_first() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("socket");
    let listener = Arc::new(UnixListener::bind(&path).expect("a socket"));
    let (socket, replies) = (Arc::clone(&listener), replies.to_vec());
    let serving = thread::spawn(move || serve(&socket, &replies));
    let database = if request & 0x10 == 0 { "" } else { "?db=1" };
    let replicas = u32::from(request & 0x20 != 0);
    let mut store = open(&format!("unix://{}{database}", path.display()), replicas);
    let _ = ask(&mut *store, request & 7);
    let _ = store.diagnostics();
    let _ = SockRef::from(&*listener).shutdown(Shutdown::Both);
    serving.join().expect("a server");
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
