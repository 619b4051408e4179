//! Since when a server that was promoted counts as the master that it is.

use super::super::scripts::Question;
use super::{Node, Refusal};
use crate::rules::servers::promotion::{KEPT, Promotion};
use crate::rules::servers::{Began, Run};
use crate::rules::{Failure, FailureKind, Instant, ServerTime, millis};
use crate::store::NEVER;
use crate::store::wire::{self, Value, from_redis_value};

/// What a server's last reply said of a promotion.
pub(super) struct Promoted {
    pub(super) promotion: Promotion,
    /// The latest time at which it can have been; `None` before its mark was read.
    pub(super) since: Option<Instant>,
}

impl Node {
    /// Reads what follows a commit.
    pub(super) fn learn_promotion(&mut self, information: &Value) -> Option<()> {
        let Value::BulkString(text) = information else { return None };
        let run = self.run.as_ref()?;
        let found = Promotion::from_info(&String::from_utf8_lossy(text), &run.id);
        let known = self.promoted.take();
        self.promoted = found.map(|promotion| {
            let known = known.filter(|known| known.promotion == promotion);
            known.unwrap_or(Promoted { promotion, since: None })
        });
        Some(())
    }

    /// Asks whether the server was promoted, without a commit.
    pub(in crate::store) fn ask_promotion(&mut self) -> Result<(), Failure> {
        let information = self.ask(Question::Promotion.command(), NEVER)?;
        self.learn_promotion(&information).ok_or_else(|| self.unexpected_reply())
    }

    /// The run of the server that answered last, since it started or was promoted; `None` before
    /// the first answer, and without `Probe::Run`. `mark` is the key of its mark.
    pub(in crate::store) fn run_as_master(&mut self, mark: &str) -> Result<Option<Run>, Failure> {
        let Some(run) = self.run.clone() else { return Ok(None) };
        let Some(Promoted { promotion, since }) = &self.promoted else { return Ok(Some(run)) };
        let since = match *since {
            Some(since) => since,
            None => {
                let promotion = promotion.clone();
                let since = self.marked(&promotion, mark)?;
                if self.run.as_ref().is_none_or(|now| now.id != run.id) {
                    let what = format!("{} led to another server meanwhile", self.endpoint());
                    return Err(Failure::unavailable(what, "try again"));
                }
                self.promoted = Some(Promoted { promotion, since: Some(since) });
                since
            }
        };
        Ok(Some(Run { since, began: Began::Promoted, ..run }))
    }

    /// Since when the server counts as promoted. If its mark does not say so, from now on.
    fn marked(&mut self, promotion: &Promotion, key: &str) -> Result<Instant, Failure> {
        let command = |name| wire::cmd(name).arg(key).to_owned();
        let set = |since: ServerTime| {
            let mut set = wire::cmd("SET");
            set.arg(key).arg(promotion.mark(since)).arg("PX").arg(millis(KEPT)).to_owned()
        };
        let commands = vec![command("GET"), command("PTTL"), wire::cmd("TIME")];
        let replies = self.ask_all(commands, NEVER).map_err(|it| self.unmarked(it, key))?;
        let [mark, left, time] = &replies[..] else { return Err(self.unexpected_reply()) };
        let (seconds, micros): (u64, u64) =
            from_redis_value(time.clone()).map_err(|_| self.unexpected_reply())?;
        let now = ServerTime(seconds.saturating_mul(1_000).saturating_add(micros / 1_000));
        let found = match mark {
            Value::BulkString(mark) => promotion.marked(&String::from_utf8_lossy(mark), now),
            _ => None,
        };
        let Some(since) = found else {
            self.ask(set(now), NEVER).map_err(|it| self.unmarked(it, key))?;
            return Ok(Instant::now());
        };
        let answered = Instant::now();
        if matches!(left, Value::Int(left) if *left < millis(KEPT / 2).cast_signed()) {
            // If this fails, the mark is as good as before.
            let _ = self.ask(set(since), NEVER);
        }
        Ok(answered - now.since(since))
    }

    /// The server was promoted, and cannot be marked.
    fn unmarked(&self, refusal: Refusal, key: &str) -> Failure {
        let is_denied = refusal.is_of_client();
        let failure = refusal.of_question();
        if !is_denied || failure.kind != FailureKind::Misconfigured {
            return failure.reworded(|what| format!("{what}: {key}"));
        }
        let what = "was promoted, and cannot vote for a user who cannot use the key";
        let what = format!("{} {what} {key}", self.endpoint());
        Failure::misconfigured(what, format!("allow ~{key}"))
    }
}
