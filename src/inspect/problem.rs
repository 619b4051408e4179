//! Why a lock might be stuck, as far as can be seen from here.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::duration::show;
use crate::lock::view::{HoldState, Holder, State, View};
use crate::lock::{ClientInfo, Kind, Name, Prefix};
use crate::text::quoted;

/// Where somebody looks from, and under which prefix.
pub(crate) struct Here<'a> {
    host: String,
    prefix: &'a Prefix,
}

impl<'a> Here<'a> {
    pub(crate) fn new(host: String, prefix: &'a Prefix) -> Self {
        Self { host, prefix }
    }

    /// Is it a process of this host that cannot be found? It may be in a container of the same name.
    /// One that may not be signalled, or that /proc hides, is there.
    fn misses(&self, about: &ClientInfo) -> bool {
        let pid = i32::try_from(about.pid).unwrap_or_default();
        about.host == self.host && pid > 0 && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)
    }

    /// What ends a hold whose process is dead, to be pasted into a shell.
    fn release(&self, name: &Name) -> String {
        let prefix = match self.prefix {
            usual if *usual == Prefix::default() => String::new(),
            // In one word, since it may begin with a dash.
            other => format!("--prefix={} ", quoted(other.as_str())),
        };
        let dashes = if name.as_str().starts_with('-') { "-- " } else { "" };
        format!("rlock release --force --now {prefix}{dashes}{}", quoted(name.as_str()))
    }
}

/// Something that an operator should look at.
pub(crate) struct Problem {
    /// For a column of a table.
    pub(crate) short: String,
    /// What it means, and what to do.
    pub(crate) long: String,
}

/// What is wrong with a lock, the worst first.
pub(crate) fn of(name: &Name, view: &View, here: &Here<'_>) -> Vec<Problem> {
    let mut problems: Vec<Problem> =
        view.holders.iter().filter_map(|holder| of_holder(name, holder, view, here)).collect();
    if view.state == State::Foreign && view.ttl.is_none() {
        problems.push(Problem {
            short: "no expiry".into(),
            long: format!(
                "held by another tool without an expiry; if that tool is dead, run {}",
                here.release(name)
            ),
        });
    }
    problems
}

fn of_holder(name: &Name, holder: &Holder, view: &View, here: &Here<'_>) -> Option<Problem> {
    let renewed = view.now.since(holder.renewed);
    let lease = holder.deadline.since(holder.renewed);
    // A script that has acquired it need not be the process that did.
    let is_kept = holder.client.kind != Kind::Acquire;
    let (short, long) = match holder.standing {
        HoldState::Cooling => return None,
        _ if is_kept && here.misses(&holder.client) => (
            "process not found".into(),
            format!(
                "process {} not found on this host, lease expires in {}; if it is not in a container \
                 and its children are dead too, run {}",
                holder.client.pid,
                show(holder.deadline.since(view.now)),
                here.release(name)
            ),
        ),
        HoldState::Revoked => {
            let release = here.release(name);
            (
                "revoked".into(),
                format!("revoked, but not released yet; if the holder is dead, run {release}"),
            )
        }
        // Every third of the lease is usual.
        HoldState::Held
            if is_kept && renewed > lease / 2 && renewed > Duration::from_millis(200) =>
        {
            (
                format!("not renewed for {}", show(renewed)),
                format!(
                    "not renewed for {}, expected every {}; check whether its host, network or rlock \
                     is stopped",
                    show(renewed),
                    show(lease / 3)
                ),
            )
        }
        HoldState::Held => return None,
    };
    Some(Problem { short, long })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_suggested_is_safe_to_paste() {
        let typed = |prefix: &str, name: &str| {
            let prefix = prefix.parse().unwrap();
            Here::new(String::new(), &prefix).release(&name.parse().unwrap())
        };
        let command = "rlock release --force --now";
        assert_eq!(typed("rlock:", "deploy:prod"), format!("{command} deploy:prod"));
        assert_eq!(typed("rlock:", "deploy;id>x"), format!("{command} 'deploy;id>x'"));
        assert_eq!(typed("rlock:", "-n"), format!("{command} -- -n"));
        assert_eq!(typed("a;b:", "-n"), format!("{command} --prefix='a;b:' -- -n"));
        assert_eq!(typed("", "L"), format!("{command} --prefix='' L"));
    }
}
