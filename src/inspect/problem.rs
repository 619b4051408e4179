//! Why a lock might be stuck, as far as this host can tell.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::rules::lease::{late_after, renewal_interval};
use crate::rules::{ClientInfo, HoldKind, HoldState, Holder, Name, State, View, show};
use crate::text::quoted;

/// The host that runs `inspect`, and what it looks for.
pub struct Here<'a> {
    host: String,
    /// A command for the user to type, with these words, on this lock.
    typed: &'a dyn Fn(&str, &Name) -> String,
    /// A hold is a problem if it has lasted for longer.
    at_most: Option<Duration>,
}

impl<'a> Here<'a> {
    pub fn new(
        host: String,
        typed: &'a dyn Fn(&str, &Name) -> String,
        at_most: Option<Duration>,
    ) -> Self {
        Self { host, typed, at_most }
    }

    /// Whether this is a process of this host that does not exist. It may exist all the same, in a
    /// container with the same host name. A process that rlock may not signal, or that /proc hides,
    /// exists.
    fn is_missing(&self, client: &ClientInfo) -> bool {
        let pid = i32::try_from(client.pid).unwrap_or_default();
        client.host == self.host && pid > 0 && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)
    }

    /// The command that ends this hold, whose process is dead; without a holder, the hold of another
    /// tool. It touches no hold that begins later.
    fn release(&self, name: &Name, holder: Option<&Holder>) -> String {
        let id = holder.map_or(String::new(), |holder| format!(" --id {}", quoted(&holder.id)));
        (self.typed)(&format!("release --force --now{id}"), name)
    }
}

/// Something that needs the attention of an operator.
pub(crate) struct Problem {
    /// For the table.
    pub(crate) short: String,
    /// For the page: what is wrong, and what to do.
    pub(crate) long: String,
}

/// The problems of a lock, the worst first.
pub(crate) fn of(name: &Name, view: &View, here: &Here<'_>) -> Vec<Problem> {
    let mut problems: Vec<Problem> =
        view.holders.iter().filter_map(|holder| of_holder(name, holder, view, here)).collect();
    if view.state == State::Foreign && view.ttl.is_none() {
        problems.push(Problem {
            short: "no expiry".into(),
            long: format!(
                "held by {} without an expiry; if the holder is dead, run {}",
                view.foreigner(),
                here.release(name, None)
            ),
        });
    }
    if let (Some(age), Some(limit)) = (view.age(), here.at_most)
        && age > limit
    {
        let (age, short) = (show(age), format!("held for longer than {}", show(limit)));
        let long = format!("{short}, for {age}; check whether the holder hangs");
        problems.push(Problem { short, long });
    }
    problems
}

fn of_holder(name: &Name, holder: &Holder, view: &View, here: &Here<'_>) -> Option<Problem> {
    let renewed = view.now.since(holder.renewed);
    let lease = holder.deadline.since(holder.renewed);
    // After a plain acquire, the recorded process has ended, and nothing renews the lease.
    let is_renewed = holder.client.kind != HoldKind::Acquire;
    let (short, long) = match holder.state {
        HoldState::Cooling => return None,
        _ if holder.is_closing() => {
            let (closed, release) = (holder.closing(view.now), here.release(name, None));
            ("closed".into(), format!("{closed}; if no holder is left, run {release}"))
        }
        _ if is_renewed && here.is_missing(&holder.client) => (
            "process not found".into(),
            format!(
                "process {} not found on this host, lease expires in {}; if it is not in a container \
                 and its children are dead too, run {}",
                holder.client.pid,
                show(holder.deadline.since(view.now)),
                here.release(name, Some(holder))
            ),
        ),
        HoldState::Revoked => {
            let release = here.release(name, Some(holder));
            (
                "revoked".into(),
                format!("revoked, but not released yet; if the holder is dead, run {release}"),
            )
        }
        HoldState::Held
            if is_renewed
                && renewed > late_after(lease)
                && renewed > Duration::from_millis(200) =>
        {
            (
                format!("not renewed for {}", show(renewed)),
                format!(
                    "not renewed for {}, expected every {}; check whether its host, network or rlock \
                     is stopped",
                    show(renewed),
                    show(renewal_interval(lease))
                ),
            )
        }
        HoldState::Held => return None,
    };
    Some(Problem { short, long })
}
