//! Why a lock might be stuck, as far as this host can tell.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::rules::{ClientInfo, Holder, Name, Standing, State, View, foreign, show};

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
    let typed = |words: &str| (here.typed)(words, name);
    let of_holder = |holder: &Holder| {
        let standing = Standing::of(holder, view.now, here.is_missing(&holder.client));
        let short = standing.short(holder, view.now)?;
        Some(Problem { short, long: standing.advice(holder, view.now, &typed) })
    };
    let mut problems = Vec::from_iter(view.holders.iter().filter_map(of_holder));
    if view.state == State::Foreign && view.ttl.is_none() {
        let remedy = foreign(view, &typed);
        problems.push(Problem { short: "no expiry".into(), long: format!("{view}; {remedy}") });
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
