//! Since when a server is a master, if it was promoted.
//!
//! A promoted replica may have lost the last writes of its master, as a restarted server may. A
//! server tells that it was promoted, but not when. So the first client of a quorum that notices
//! leaves a mark on it, from which all clients count.

use std::time::Duration;

use crate::rules::ServerTime;

/// How long a mark outlasts its last use: longer than the pause between two runs of a yearly job.
pub(crate) const KEPT: Duration = Duration::from_secs(400 * 24 * 3_600);

/// A promotion, by the ID that the server's replication has had since.
///
/// The run ID does not suffice: a server can be promoted, demoted, and promoted again. A healthy
/// master also changes the ID of its replication, but then it no longer tells of a promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion(String);

impl Promotion {
    /// Reads the reply to INFO replication. `None` if the server was never promoted while it has
    /// been running. If it does not tell, it may have been, and the ID of its run has to do.
    pub fn from_info(information: &str, run: &str) -> Option<Self> {
        let field = |name| information.lines().find_map(|line| line.strip_prefix(name));
        match field("second_repl_offset:").map(str::trim) {
            Some("-1") => None,
            _ => Some(Self(field("master_replid:").unwrap_or(run).trim().to_owned())),
        }
    }

    /// Since when the server counts as promoted by its mark; `None` if the mark is of another
    /// promotion, or the clock was set back.
    pub fn marked(&self, mark: &str, now: ServerTime) -> Option<ServerTime> {
        let (id, since) = mark.split_once(' ')?;
        let since = ServerTime(since.parse().ok()?);
        (id == self.0 && since <= now).then_some(since)
    }

    /// The mark of a server that counts as promoted since then.
    pub fn mark(&self, since: ServerTime) -> String {
        format!("{} {}", self.0, since.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mark_of_the_same_promotion_counts() {
        let of = |information: &str| Promotion::from_info(information, "run");
        assert_eq!(of("master_replid:a\r\nsecond_repl_offset:-1\r\n"), None);
        let first = of("master_replid:a\r\nsecond_repl_offset:1\r\n").unwrap();
        let second = of("master_replid:b\r\nsecond_repl_offset:1\r\n").unwrap();
        assert_eq!(of("role:master\r\n"), Some(Promotion("run".into())));
        let mark = first.mark(ServerTime(5));
        assert_eq!(first.marked(&mark, ServerTime(5)), Some(ServerTime(5)));
        assert_eq!(first.marked(&mark, ServerTime(4)), None);
        assert_eq!(second.marked(&mark, ServerTime(5)), None);
        for damaged in ["", "a", "a ", "a x", "5"] {
            assert_eq!(first.marked(damaged, ServerTime(5)), None);
        }
    }
}
