//! A wire between rlock and a server that can be slow, count, be cut, and go silent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Listens on a free port of 127.0.0.1.
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
}

struct Wire {
    server: u16,
    /// One way.
    delay: Duration,
    requests: AtomicUsize,
    connections: AtomicUsize,
    silent: AtomicBool,
    /// After so many flights it hangs up.
    last_flight: AtomicUsize,
    parted: Mutex<bool>,
    healed: Condvar,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// To the server on that port, every byte taking `delay` in each direction.
    pub fn to(server: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let wire = Arc::new(Wire {
            server,
            delay,
            requests: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            silent: AtomicBool::new(false),
            last_flight: AtomicUsize::new(usize::MAX),
            parted: Mutex::new(false),
            healed: Condvar::new(),
            open: Mutex::new(Vec::new()),
        });
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

    /// Flights from clients to the server so far.
    pub fn flights(&self) -> usize {
        self.wire.requests.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.wire.connections.load(Ordering::SeqCst)
    }

    /// From now on what the server says is dropped, and what it is told still arrives.
    pub fn drop_replies(&self, silent: bool) {
        self.wire.silent.store(silent, Ordering::SeqCst);
    }

    /// From now on nothing gets through, in either direction, until it is healed. Then all that was
    /// sent meanwhile arrives, late, as it does with TCP.
    pub fn part(&self, parted: bool) {
        *self.wire.parted.lock().unwrap() = parted;
        self.wire.healed.notify_all();
    }

    /// Ends all connections there are.
    pub fn cut(&self) {
        self.wire.cut();
    }

    /// Carries so many flights more. With the next one, which does not arrive, it hangs up, and does
    /// so at once on all who call later; until it is told another number.
    pub fn hang_up_after(&self, flights: usize) {
        let last = self.flights().saturating_add(flights);
        self.wire.last_flight.store(last, Ordering::SeqCst);
    }
}

impl Wire {
    fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn hangs_up(&self) -> bool {
        self.requests.load(Ordering::SeqCst) > self.last_flight.load(Ordering::SeqCst)
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        if self.hangs_up() {
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        self.connections.fetch_add(1, Ordering::SeqCst);
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        self.open
            .lock()
            .unwrap()
            .extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        let forth = Arc::clone(self);
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        forth.carry(from, to, |wire| {
            wire.requests.fetch_add(1, Ordering::SeqCst);
            if wire.hangs_up() {
                wire.cut();
            }
            !wire.hangs_up()
        });
        Arc::clone(self).carry(server, client, |wire| !wire.silent.load(Ordering::SeqCst));
    }

    /// Reads on one thread and writes, later, on another.
    fn carry(
        self: Arc<Self>,
        mut from: TcpStream,
        mut to: TcpStream,
        lets_through: fn(&Self) -> bool,
    ) {
        let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
        let delay = self.delay;
        let wire = Arc::clone(&self);
        std::thread::spawn(move || {
            for (due, bytes) in receiver {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let parted = wire.parted.lock().unwrap();
                drop(wire.healed.wait_while(parted, |parted| *parted).unwrap());
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if lets_through(&self) {
                    let due = Instant::now() + delay;
                    if sender.send((due, buffer[..count].to_vec())).is_err() {
                        break;
                    }
                }
            }
        });
    }
}
