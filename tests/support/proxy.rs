//! A wire between rlock and a server. A test can slow it down, cut it, silence it and count.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

/// What happens to data that has arrived.
enum Passage {
    All,
    Drop,
    /// At most this many bytes, and then the connection ends.
    Last(usize),
}

fn micros(delay: Duration) -> u64 {
    u64::try_from(delay.as_micros()).unwrap()
}

/// Listens on a free port of 127.0.0.1.
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
}

struct Wire {
    server: u16,
    /// One way, in microseconds.
    delay: AtomicU64,
    requests: AtomicUsize,
    connections: AtomicUsize,
    silent: AtomicBool,
    /// The proxy hangs up after this many flights.
    last_flight: AtomicUsize,
    /// The proxy hangs up after this many bytes of the next reply.
    last_byte: AtomicUsize,
    parted: Mutex<bool>,
    healed: Condvar,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy to the server on that port. Every byte takes `delay` in each direction.
    pub fn to(server: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let wire = Arc::new(Wire {
            server,
            delay: AtomicU64::new(micros(delay)),
            requests: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            silent: AtomicBool::new(false),
            last_flight: AtomicUsize::new(usize::MAX),
            last_byte: AtomicUsize::new(usize::MAX),
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

    /// Delays every byte by `delay` in each direction from now on.
    pub fn delay(&self, delay: Duration) {
        self.wire.delay.store(micros(delay), Ordering::SeqCst);
    }

    /// How many flights clients have sent to the server so far.
    pub fn flights(&self) -> usize {
        self.wire.requests.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.wire.connections.load(Ordering::SeqCst)
    }

    /// Drops the replies of the server from now on. Requests still arrive.
    pub fn drop_replies(&self, silent: bool) {
        self.wire.silent.store(silent, Ordering::SeqCst);
    }

    /// Holds back all data in both directions until the partition ends. Then everything that was
    /// sent meanwhile arrives late, as with TCP.
    pub fn part(&self, parted: bool) {
        *self.wire.parted.lock().unwrap() = parted;
        self.wire.healed.notify_all();
    }

    /// Delivers at most this many bytes of the next reply, and then ends its connection.
    pub fn break_reply_after(&self, bytes: usize) {
        self.wire.last_byte.store(bytes, Ordering::SeqCst);
    }

    /// Ends all current connections.
    pub fn cut(&self) {
        self.wire.cut();
    }

    /// Carries this many more flights. The proxy hangs up on the next one, which does not arrive, and
    /// on all later clients, until it receives another number.
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
            if wire.hangs_up() { Passage::Drop } else { Passage::All }
        });
        Arc::clone(self).carry(server, client, |wire| {
            match wire.last_byte.swap(usize::MAX, Ordering::SeqCst) {
                usize::MAX if wire.silent.load(Ordering::SeqCst) => Passage::Drop,
                usize::MAX => Passage::All,
                last => Passage::Last(last),
            }
        });
    }

    /// Reads on one thread, and writes after the delay on another.
    fn carry(
        self: Arc<Self>,
        mut from: TcpStream,
        mut to: TcpStream,
        passage: fn(&Self) -> Passage,
    ) {
        let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
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
                let passage = passage(&self);
                let passing = match passage {
                    Passage::All => count,
                    Passage::Drop => continue,
                    Passage::Last(last) => count.min(last),
                };
                let delay = Duration::from_micros(self.delay.load(Ordering::SeqCst));
                let sent = sender.send((Instant::now() + delay, buffer[..passing].to_vec()));
                if sent.is_err() || matches!(passage, Passage::Last(_)) {
                    break;
                }
            }
        });
    }
}
