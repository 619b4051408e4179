//! How a hold stands, and what an operator can do about it. All messages take it from here.

use std::time::Duration;

use super::lease::{late_after, renewal_interval, stopped_after};
use super::{HoldKind, HoldState, Holder, ServerTime, View, show};
use crate::text::quoted;

/// How late a renewal or a release is at least before it is worth a warning.
const TOLERANCE: Duration = Duration::from_millis(200);

/// How a hold stands, as far as this host can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is renewed in time, or ends by itself.
    Fine,
    /// It was revoked a moment ago, so its rlock may be terminating the command.
    Terminating,
    /// It was revoked, and its rlock should have released it.
    NotReleased,
    /// It was revoked, and no rlock stops what runs under it.
    Unattended,
    /// Its process is not on this host, where it was.
    NotFound,
    NotRenewed,
    /// It keeps the lock closed.
    Closed,
}

impl Standing {
    /// `is_missing`: its process belongs to this host, and is not found.
    pub(crate) fn of(holder: &Holder, now: ServerTime, is_missing: bool) -> Self {
        let (renewed, lease) = (now.since(holder.renewed), holder.deadline.since(holder.renewed));
        let is_after = |time| renewed > TOLERANCE.max(time);
        // After a plain acquire, the recorded process has ended, and nothing renews the lease.
        let is_attended = holder.client.kind != HoldKind::Acquire;
        match holder.state {
            HoldState::Cooling => Self::Fine,
            _ if holder.is_closing() => Self::Closed,
            _ if is_attended && is_missing => Self::NotFound,
            HoldState::Revoked if !is_attended => Self::Unattended,
            HoldState::Revoked if is_after(stopped_after(lease)) => Self::NotReleased,
            HoldState::Revoked => Self::Terminating,
            HoldState::Held if is_attended && is_after(late_after(lease)) => Self::NotRenewed,
            HoldState::Held => Self::Fine,
        }
    }

    /// What is wrong, for a table, and the same with what to do about it; `None` if nothing is.
    /// `typed`: a command for the user to type, with these words, on this lock.
    pub(crate) fn problem(
        self,
        holder: &Holder,
        now: ServerTime,
        typed: &dyn Fn(&str) -> String,
    ) -> Option<(String, String)> {
        let (short, what) = match self {
            Self::Fine | Self::Terminating => return None,
            Self::NotReleased => ("revoked".into(), "revoked, but not released in time".into()),
            Self::Unattended => (
                "revoked".into(),
                "revoked, but nothing stops its holder, which used acquire".into(),
            ),
            Self::NotFound => (
                "process not found".into(),
                format!(
                    "process {} not found on this host (it may be in a container), lease expires in {}",
                    holder.client.pid,
                    show(holder.deadline.since(now))
                ),
            ),
            Self::NotRenewed => {
                let short = format!("not renewed for {}", show(now.since(holder.renewed)));
                let every = show(renewal_interval(holder.deadline.since(holder.renewed)));
                let remedy = "check whether its host, network or rlock is stopped";
                let long = format!("{short}, expected every {every}; {remedy}");
                return Some((short, long));
            }
            Self::Closed => ("closed".into(), holder.closing(now)),
        };
        Some((short, format!("{what}; {}", freeing(Some(holder), typed))))
    }
}

/// When it is safe to free this hold at once, and the command. It touches no hold that begins later,
/// except in a closed lock, or, without a holder, in that of another tool.
pub(crate) fn freeing(holder: Option<&Holder>, typed: &dyn Fn(&str) -> String) -> String {
    let holder = holder.filter(|holder| !holder.is_closing());
    let id = holder.map_or(String::new(), |holder| format!(" --id {}", quoted(&holder.id)));
    let free = typed(&format!("release --force --now{id}"));
    format!("if the holder and everything that it started are dead, run {free}")
}

/// What to do about a lock that something other than this version of rlock holds.
pub(crate) fn foreign(view: &View, typed: &dyn Fn(&str) -> String) -> String {
    if view.is_of_other_rlock() {
        return "revoke it with that version, or wait until its key expires".into();
    }
    freeing(None, typed)
}
