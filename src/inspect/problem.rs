//! Why a lock might be stuck, as far as this host can tell.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::rules::{ClientInfo, Holder, Name, Standing, State, View, foreign, show};

/// The host that runs `inspect`, and what it looks for.
pub struct Here<'a> {
    pub host: String,
    /// A command for the user to type, with these words, on this lock.
    pub typed: &'a dyn Fn(&str, &Name) -> String,
    /// A hold is a problem if it has lasted for longer.
    pub at_most: Option<Duration>,
}

/// Whether this client is a process of this host that exists; `None` if it is on another host. One
/// that is not found may exist all the same, in a container with the same host name. A process that
/// rlock may not signal, or that /proc hides, exists.
pub(crate) fn exists(client: &ClientInfo, host: &str) -> Option<bool> {
    let pid = i32::try_from(client.pid).ok().filter(|pid| *pid > 0 && client.host == host)?;
    Some(kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH))
}

/// Something that needs the attention of an operator.
pub(crate) struct Problem {
    /// For the table.
    pub(crate) short: String,
    /// For the page: what is wrong, and what to do.
    pub(crate) long: String,
    /// Whether it is that a process was not found, which can also mean that it has just ended.
    pub(crate) is_of_process: bool,
}

/// The problems of a lock, the worst first.
///
/// A hold that was not in an `earlier` view may have begun since then, and even have ended.
pub(crate) fn of(
    name: &Name,
    view: &View,
    here: &Here<'_>,
    earlier: Option<&View>,
) -> Vec<Problem> {
    let typed = |words: &str| (here.typed)(words, name);
    let was_there = |id: &str| {
        earlier.is_none_or(|earlier| earlier.holders.iter().any(|holder| holder.id == id))
    };
    let of_holder = |holder: &Holder| {
        let is_missing = exists(&holder.client, &here.host) == Some(false) && was_there(&holder.id);
        let standing = Standing::of(holder, view.now, is_missing);
        let (short, long) = standing.problem(holder, view.now, &typed)?;
        Some(Problem { short, long, is_of_process: standing == Standing::NotFound })
    };
    let mut problems = Vec::from_iter(view.holders.iter().filter_map(of_holder));
    if view.state == State::Foreign && view.ttl.is_none() {
        let remedy = foreign(view, &typed);
        let (short, long) = ("no expiry".into(), format!("{view}; {remedy}"));
        problems.push(Problem { short, long, is_of_process: false });
    }
    if let (Some(age), Some(limit)) = (view.age(), here.at_most)
        && age > limit
    {
        let (age, short) = (show(age), format!("held for longer than {}", show(limit)));
        let long = format!("{short}, for {age}; check whether the holder hangs");
        problems.push(Problem { short, long, is_of_process: false });
    }
    problems
}
