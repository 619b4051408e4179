//! One server of a quorum, on a thread of its own, so that none has to wait for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use nix::sys::signal::SigSet;

use super::replies::{MemberReply, ReplySender};
use crate::store::server::{Probe, Scripted, Single};
use crate::store::wire::Address;
use crate::store::{Failure, Interrupt, Store};

/// A member's store.
pub(super) type Server = Scripted<Single>;

type Work = Box<dyn FnOnce(&mut Server) + Send>;

/// A server and what it is still to do, in order.
pub(super) struct Member {
    name: String,
    work: Sender<Work>,
    unfinished: Arc<AtomicUsize>,
}

impl Member {
    /// An error is a file for TLS that cannot be used, or a thread that cannot be had.
    pub(super) fn start(
        server: &Address,
        io_timeout: Duration,
        min_replicas: u32,
    ) -> Result<Self, String> {
        let name = server.to_string();
        let server = Single::new(server.clone(), io_timeout, Some(Probe::Run))?;
        let mut node = Scripted::new(server, min_replicas);
        let (work, to_do) = channel::<Work>();
        let thread = Builder::new().name("member".into()).spawn(move || {
            // They are the main thread's.
            let _ = SigSet::all().thread_block();
            to_do.into_iter().for_each(|work| work(&mut node));
        });
        thread.map_err(|error| format!("no thread for {name}: {error}"))?;
        Ok(Self { name, work, unfinished: Arc::default() })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Has it something to do still?
    pub(super) fn is_busy(&self) -> bool {
        self.unfinished.load(Ordering::SeqCst) > 0
    }

    /// Lets it do this when it has done what it has to do before, and cast its vote.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        number: usize,
        reply_sender: &ReplySender<T>,
        question: impl FnOnce(&mut Server, Interrupt<'_>) -> Result<T, Failure> + Send + 'static,
    ) {
        let (reply_sender, unfinished) = (reply_sender.clone(), Arc::clone(&self.unfinished));
        unfinished.fetch_add(1, Ordering::SeqCst);
        let work: Work = Box::new(move |node| {
            let answer = question(node, Some(reply_sender.withdrawal()));
            let vote = MemberReply { number, answer, diagnostics: node.diagnostics() };
            // Whoever sees the vote finds it at leisure.
            unfinished.fetch_sub(1, Ordering::SeqCst);
            reply_sender.cast(vote);
        });
        // Its thread ends only after us.
        let _ = self.work.send(work);
    }
}
