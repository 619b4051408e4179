//! Why a lock might be stuck, as far as can be seen from here.

use std::path::Path;
use std::time::Duration;

use crate::duration::show;
use crate::lock::{About, Kind, Name};
use crate::view::{Holder, Standing, State, View};

/// The host that somebody looks from.
pub(crate) struct Here {
    host: String,
}

impl Here {
    pub(crate) fn new(host: String) -> Self {
        Self { host }
    }

    /// Is it a process of this host that is not there any more? In a container, both the name and
    /// the processes are the container's own.
    fn knows_dead(&self, about: &About) -> bool {
        about.host == self.host
            && about.pid > 0
            && Path::new("/proc/self").exists()
            && !Path::new(&format!("/proc/{}", about.pid)).exists()
    }
}

/// Something that an operator should look at.
pub(crate) struct Concern {
    /// For a column of a table.
    pub(crate) short: String,
    /// What it means, and what to do.
    pub(crate) long: String,
}

/// What is wrong with a lock, the worst first.
pub(crate) fn of(name: &Name, view: &View, here: &Here) -> Vec<Concern> {
    let mut concerns: Vec<Concern> =
        view.holders.iter().filter_map(|holder| of_holder(name, holder, view, here)).collect();
    if view.state == State::Foreign && view.ttl.is_none() {
        concerns.push(Concern {
            short: "no expiry".into(),
            long:
                "another tool's lock without an expiry stays until that tool deletes it; if it is \
                   dead, --force --now does"
                    .into(),
        });
    }
    concerns
}

fn of_holder(name: &Name, holder: &Holder, view: &View, here: &Here) -> Option<Concern> {
    let renewed = view.now.since(holder.renewed);
    let lease = holder.deadline.since(holder.renewed);
    // A script that has acquired it need not be the process that did.
    let is_kept = holder.about.kind != Kind::Acquire;
    let (short, long) = match holder.standing {
        Standing::Cooling => return None,
        _ if is_kept && here.knows_dead(&holder.about) => (
            "process gone".into(),
            format!(
                "process {} is gone from this host, though what it started may not be; the lock \
                 frees itself in {}, or at once by rlock release --force --now {name}",
                holder.about.pid,
                show(holder.deadline.since(view.now))
            ),
        ),
        Standing::Revoked => {
            ("revoked".into(), "revoked, and its holder has not let go yet".into())
        }
        // Every third of the lease is usual.
        Standing::Held
            if is_kept && renewed > lease / 2 && renewed > Duration::from_millis(200) =>
        {
            (
                format!("not renewed for {}", show(renewed)),
                format!(
                    "not renewed for {}, though every {} is usual: is its host, its network or its \
                 rlock stopped?",
                    show(renewed),
                    show(lease / 3)
                ),
            )
        }
        Standing::Held => return None,
    };
    Some(Concern { short, long })
}
