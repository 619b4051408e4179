//! One member of a quorum: a server, and the thread that talks to it. Each has its own thread, so
//! no member waits for another.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cannot_query;
use super::member_store::MemberStore;
use crate::report::Diagnostic;
use crate::rules::Failure;
use crate::rules::servers::Run;
use crate::store::Store;
use crate::store::server::{Node, Probe, RedisStore};
use crate::store::wire::Peer;
use crate::system::channel::Sender;
use crate::system::thread;
use crate::system::wakeup::Wakeup;

pub(super) struct MemberReply<T> {
    pub(super) number: usize,
    pub(super) answer: T,
    /// Messages about the member's server.
    pub(super) diagnostics: Vec<Diagnostic>,
}

type Work = Box<dyn FnOnce(&mut MemberStore) + Send>;

/// A member, which carries out one request at a time.
pub(super) struct Member {
    name: String,
    /// Requests, which the thread carries out in order.
    work: mpsc::Sender<Work>,
    /// How many of them are not finished.
    unfinished: Arc<AtomicUsize>,
    run: Arc<Mutex<Option<Run>>>,
    /// What makes the thread stop working on those since the last interruption.
    interrupt: RefCell<Option<Wakeup>>,
    idle: Arc<Idle>,
}

/// What a thread waits for until members are idle.
pub(super) struct Idle {
    /// Becomes readable when a member has finished a request.
    pub(super) wakeup: Wakeup,
    /// Whether a thread waits. Otherwise, members save the system call. Set this before looking whether
    /// a member is busy: then either that finds it idle, or the member finds this set.
    pub(super) is_awaited: AtomicBool,
}

impl Member {
    /// Starts the thread. It connects on first use. An error means that no thread can be started.
    pub(super) fn start(
        server: &Peer,
        io_timeout: Duration,
        min_replicas: u32,
        idle: &Arc<Idle>,
    ) -> Result<Self, Failure> {
        let name = server.to_string();
        let node = Node::new(server.clone(), io_timeout, Some(Probe::Run));
        let mut store = RedisStore::new(node, server.database, min_replicas);
        let (work, to_do) = mpsc::channel::<Work>();
        let thread =
            thread::start("member", move || to_do.into_iter().for_each(|work| work(&mut store)));
        thread.map_err(cannot_query)?;
        let (unfinished, run, interrupt) = Default::default();
        Ok(Self { name, work, unfinished, run, interrupt, idle: Arc::clone(idle) })
    }

    /// The server's address, without user and password.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a request is not finished yet.
    pub(super) fn is_busy(&self) -> bool {
        self.unfinished.load(Ordering::SeqCst) > 0
    }

    /// The run of the server program that answered last, even if that reply came too late.
    pub(super) fn run(&self) -> Option<Run> {
        self.run.lock().ok()?.clone()
    }

    /// Makes the thread stop working on its requests. What it has sent may still take effect.
    pub(super) fn interrupt(&self) {
        // It stays readable, so later requests need another.
        if let Some(interrupt) = self.interrupt.take() {
            interrupt.wake();
        }
    }

    /// Queues a request, whose result goes to `replies`. `interrupt` ends the wait for it.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        number: usize,
        replies: &Sender<MemberReply<T>>,
        request: impl FnOnce(&mut MemberStore) -> T + Send + 'static,
    ) {
        let (replies, run) = (replies.clone(), Arc::clone(&self.run));
        self.queue(move |store, unfinished| {
            let answer = request(store);
            if let Ok(mut run) = run.lock() {
                run.clone_from(&store.topology.run);
            }
            let reply = MemberReply { number, answer, diagnostics: store.diagnostics() };
            // Before the reply, so that its reader finds the member idle.
            unfinished.fetch_sub(1, Ordering::SeqCst);
            replies.send(reply);
        });
    }

    /// Sends a request without awaiting its reply. It follows whatever has been sent, even to a
    /// server that does not answer.
    pub(super) fn post(&self, act: impl FnOnce(&mut MemberStore) + Send + 'static) {
        self.interrupt();
        self.queue(move |store, unfinished| {
            // The end of the process does not cut it short.
            store.topology.default_interrupt = None;
            act(store);
            unfinished.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn queue(&self, act: impl FnOnce(&mut MemberStore, &AtomicUsize) + Send + 'static) {
        // Without descriptors, nothing interrupts the request.
        let interrupt = self.interrupt.take().or_else(|| Wakeup::new().ok());
        self.interrupt.replace(interrupt.clone());
        let (unfinished, idle) = (Arc::clone(&self.unfinished), Arc::clone(&self.idle));
        unfinished.fetch_add(1, Ordering::SeqCst);
        let work: Work = Box::new(move |store| {
            store.topology.default_interrupt = interrupt;
            act(store, &unfinished);
            if idle.is_awaited.load(Ordering::SeqCst) {
                idle.wakeup.wake();
            }
        });
        // The thread ends only when this sender is dropped, so it receives everything.
        let _ = self.work.send(work);
    }
}
