//! Prints a history for readers: what happens, and what that changes.

use std::fmt;

use super::action::Action;
use super::client::{Client, Pending, Phase};
use super::connection::{Reply, Sent, What};
use super::time::{NOW, now};
use super::world::World;
use rlock::rules::{Answer, Renewal, Verdict};

fn name(client: u8) -> char {
    char::from(b'a' + client)
}

/// A state in a few lines.
pub(super) fn lines_of(world: &World) -> Vec<String> {
    let clients = (0..).zip(&world.clients);
    let mut lines: Vec<String> =
        clients.map(|(index, client)| format!("{}: {client}", name(index))).collect();
    let holds = world.lock.holds.iter().map(|hold| {
        let (id, left) = (&hold.token[..8], hold.deadline as i64 - NOW as i64);
        format!("{id} for {left} ms, {:?}, fencing token {}", hold.status, hold.fence)
    });
    let guard = world.is_foreign().then(|| "another tool".to_owned());
    let held = list(holds.chain(guard));
    let queue = list(world.lock.queue.iter().map(|waiter| waiter.token[..8].to_owned()));
    lines.push(format!("server: held by {held}; queue: {queue}"));
    lines.push(format!(
        "old connections: {}",
        list(world.late.iter().flatten().map(Sent::to_string))
    ));
    lines
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".into() } else { items.join(", ") }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Start(client) => write!(f, "{} asks for the lock", name(client)),
            Self::Execute(client) => write!(f, "the server executes a request of {}", name(client)),
            Self::Read(client) => write!(f, "{} reads its reply", name(client)),
            Self::Wake(client) => write!(f, "a message wakes {}", name(client)),
            Self::Finish(client) => write!(f, "the command of {} ends", name(client)),
            Self::TimeOut(client) => write!(f, "{} stops waiting for a reply", name(client)),
            Self::ExecuteLate(index) => {
                write!(f, "the server executes a request of old connection {}", index + 1)
            }
            Self::LoseLate(index) => write!(f, "the rest of old connection {} is lost", index + 1),
            Self::Tick => f.write_str("a second has passed"),
            Self::Resume(client) => write!(f, "{} resumes", name(client)),
            Self::Reconnect(client) => write!(f, "{} can reach the server again", name(client)),
            Self::ForeignGone => f.write_str("the other tool deletes its key"),
            Self::Break(client) => write!(f, "the connection of {} breaks", name(client)),
            Self::Crash(client) => write!(f, "{} dies", name(client)),
            Self::Signal(client) => write!(f, "a signal ends the wait of {}", name(client)),
            Self::Revoke => f.write_str("an operator revokes all holds"),
            Self::RevokeNow => f.write_str("an operator revokes all holds with --now"),
            Self::DeleteKey => f.write_str("another tool deletes the key"),
            Self::ForeignWrites => f.write_str("another tool writes the key"),
            Self::Restart => f.write_str("the server restarts with its data"),
            Self::Forget => f.write_str("the server restarts without its data"),
            Self::Pause(client) => write!(f, "{} is paused", name(client)),
            Self::CutOff(client) => write!(f, "{} can no longer reach the server", name(client)),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.phase {
            Phase::Idle => f.write_str("not started"),
            Phase::Waiting(_, Pending::Answer(..)) => f.write_str("asks"),
            Phase::Waiting(_, Pending::Sleep(until)) => {
                write!(f, "sleeps for {:?}", until.since(now()))
            }
            Phase::Waiting(_, Pending::Rest(until)) => {
                write!(f, "rests for {:?}", until.since(now()))
            }
            Phase::Waiting(_, Pending::Withdrawal(_)) => f.write_str("withdraws"),
            Phase::Holding(machine, _) => {
                write!(
                    f,
                    "its command runs, lease of {:?}",
                    machine.lease().deadline().since(now())
                )
            }
            Phase::Releasing(..) => f.write_str("releases"),
            Phase::Ended => f.write_str("ended"),
            Phase::Crashed => f.write_str("dead"),
        }?;
        for sent in &self.connection.requests {
            write!(f, "; to the server: {sent}")?;
        }
        if let Some(reply) = &self.connection.reply {
            write!(f, "; from the server: {reply}")?;
        }
        let marks = [(self.mail, "mail"), (self.paused, "paused"), (self.cut, "cut off")];
        marks.iter().filter(|(is, _)| *is).try_for_each(|(_, mark)| write!(f, "; {mark}"))
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} ", name(self.client), self.round)?;
        match &self.what {
            What::Acquire { attempt, seen, .. } => {
                write!(f, "acquire, attempt {attempt}")?;
                seen.iter().try_for_each(|seen| write!(f, ", reminds of {}", seen.holder.id))
            }
            What::Renew => f.write_str("renew"),
            What::Release => f.write_str("release"),
            What::Leave => f.write_str("leave"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(Verdict::Answer(Answer::Granted { fence, slot })) => {
                write!(f, "granted, fencing token {fence}")?;
                slot.map_or(Ok(()), |slot| write!(f, ", slot {slot}"))
            }
            Self::Verdict(Verdict::Answer(Answer::Queued { sleep, .. })) => {
                write!(f, "queued, sleep {sleep:?}")
            }
            Self::Verdict(verdict) => write!(f, "{verdict:?}"),
            Self::Renewal(Renewal::Renewed { .. }) => f.write_str("renewed"),
            Self::Renewal(Renewal::NotHeld(why)) => write!(f, "the lock {why}"),
            Self::Release(release) => write!(f, "{release:?}"),
            Self::Left => f.write_str("left"),
        }
    }
}
