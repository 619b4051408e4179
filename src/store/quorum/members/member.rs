//! One member of a quorum: a server, and the thread that talks to it. Each has its own thread, so
//! no member waits for another.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::replies::{MemberReply, ReplySender};
use crate::store::server::{Probe, Run, Scripted, Single};
use crate::store::wire::Address;
use crate::store::{Failure, Interrupt, Store};
use crate::system::thread;

/// The locks on one member.
pub(in crate::store::quorum) type MemberStore = Scripted<Single>;

type Work = Box<dyn FnOnce(&mut MemberStore) + Send>;

/// A member, which carries out one request at a time.
pub(in crate::store::quorum) struct Member {
    name: String,
    /// Requests, which the thread carries out in order.
    work: Sender<Work>,
    /// How many of them are not finished.
    unfinished: Arc<AtomicUsize>,
    run: Arc<Mutex<Option<Run>>>,
}

impl Member {
    /// Starts the thread. It connects on first use. An error means that a TLS file cannot be used,
    /// or that no thread can be started.
    pub(in crate::store::quorum) fn start(
        server: &Address,
        io_timeout: Duration,
        min_replicas: u32,
    ) -> Result<Self, String> {
        let name = server.to_string();
        let server = Single::new(server.clone(), io_timeout, Some(Probe::Run))?;
        let mut store = Scripted::new(server, min_replicas);
        let (work, to_do) = channel::<Work>();
        let thread =
            thread::start("member", move || to_do.into_iter().for_each(|work| work(&mut store)));
        thread.map_err(|error| format!("cannot start a thread for {name}: {error}"))?;
        Ok(Self { name, work, unfinished: Arc::default(), run: Arc::default() })
    }

    /// The server's address, without user and password.
    pub(in crate::store::quorum) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a request is not finished yet.
    pub(in crate::store::quorum) fn is_busy(&self) -> bool {
        self.unfinished.load(Ordering::SeqCst) > 0
    }

    /// The run of the server program that answered last, even if that reply came too late.
    pub(in crate::store::quorum) fn run(&self) -> Option<Run> {
        self.run.lock().ok()?.clone()
    }

    /// Queues a request, whose result goes to `reply_sender`. The request gets a descriptor that
    /// becomes readable when the reply is no longer needed.
    pub(in crate::store::quorum) fn ask<T: Send + 'static>(
        &self,
        number: usize,
        reply_sender: &ReplySender<T>,
        request: impl FnOnce(&mut MemberStore, Interrupt<'_>) -> Result<T, Failure> + Send + 'static,
    ) {
        let reply_sender = reply_sender.clone();
        let (unfinished, run) = (Arc::clone(&self.unfinished), Arc::clone(&self.run));
        unfinished.fetch_add(1, Ordering::SeqCst);
        let work: Work = Box::new(move |store| {
            let answer = request(store, Some(reply_sender.withdrawal().into()));
            if let Ok(mut run) = run.lock() {
                *run = store.server_run().cloned();
            }
            let reply = MemberReply { number, answer, diagnostics: store.diagnostics() };
            // Before the reply, so that its reader finds the member idle.
            unfinished.fetch_sub(1, Ordering::SeqCst);
            reply_sender.send(reply);
        });
        // The thread ends only when this sender is dropped, so it receives everything.
        let _ = self.work.send(work);
    }
}
