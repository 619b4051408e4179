//! A wire between rlock and a server. A test can slow it down, cut it, silence it and count.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// Listens on a port of this host.
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
}

struct Wire {
    state: Mutex<State>,
    healed: Condvar,
}

#[derive(Default)]
struct State {
    server: u16,
    /// One way.
    delay: Duration,
    flights: usize,
    connections: usize,
    silent: bool,
    /// The proxy hangs up after this many bytes of the next reply.
    last_byte: Option<usize>,
    parted: bool,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// Starts a proxy to the server on that port. Every byte takes `delay` in each direction.
    pub fn to(server: u16, delay: Duration) -> Self {
        Self::at("127.0.0.1:0", server, delay)
    }

    /// Starts a proxy that listens on this address.
    pub fn at(address: impl ToSocketAddrs, server: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Mutex::new(State { server, delay, ..State::default() });
        let wire = Arc::new(Wire { state, healed: Condvar::new() });
        let accepting = Arc::clone(&wire);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.connect(client);
            }
        });
        Self { port, wire }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Leads new connections to the server on that port from now on.
    pub fn leads_to(&self, server: u16) {
        self.wire.state().server = server;
    }

    /// Delays every byte by `delay` in each direction from now on.
    pub fn delay(&self, delay: Duration) {
        self.wire.state().delay = delay;
    }

    /// How many flights clients have sent to the server so far.
    pub fn flights(&self) -> usize {
        self.wire.state().flights
    }

    pub fn connections(&self) -> usize {
        self.wire.state().connections
    }

    /// Drops the replies of the server from now on. Requests still arrive.
    pub fn drop_replies(&self, silent: bool) {
        self.wire.state().silent = silent;
    }

    /// Holds back all data in both directions until the partition ends. Then everything that was
    /// sent meanwhile arrives late, as with TCP.
    pub fn part(&self, parted: bool) {
        self.wire.state().parted = parted;
        self.wire.healed.notify_all();
    }

    /// Delivers at most this many bytes of the next reply, and then ends its connection.
    pub fn break_reply_after(&self, bytes: usize) {
        self.wire.state().last_byte = Some(bytes);
    }

    /// Ends all current connections.
    pub fn cut(&self) {
        for connection in self.wire.state().open.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        let to = self.state().server;
        let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { return };
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
            self.state().open.push(end.try_clone().unwrap());
        }
        self.state().connections += 1;
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        Arc::clone(self).carry(from, to, |state, bytes| {
            state.flights += 1;
            (bytes, true)
        });
        Arc::clone(self).carry(server, client, |state, bytes| match state.last_byte.take() {
            Some(last) => (bytes.min(last), false),
            None if state.silent => (0, true),
            None => (bytes, true),
        });
    }

    /// Reads on one thread, and writes after the delay on another. `passing` says how many of the
    /// bytes that have arrived pass, and whether the connection goes on.
    fn carry(
        self: Arc<Self>,
        mut from: TcpStream,
        mut to: TcpStream,
        passing: fn(&mut State, usize) -> (usize, bool),
    ) {
        let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
        let wire = Arc::clone(&self);
        std::thread::spawn(move || {
            for (due, bytes) in receiver {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                drop(wire.healed.wait_while(wire.state(), |state| state.parted).unwrap());
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let mut state = self.state();
                let (passing, goes_on) = passing(&mut state, count);
                let due = Instant::now() + state.delay;
                drop(state);
                if sender.send((due, buffer[..passing].to_vec())).is_err() || !goes_on {
                    break;
                }
            }
        });
    }
}
