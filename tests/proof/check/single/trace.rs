//! What readers see of a client.

use std::fmt;

use super::client::{Client, Pending, Phase};
use crate::check::time::now;
use crate::check::trace::brief;

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
                let left = machine.lease().deadline().since(now());
                write!(f, "its command runs, lease of {left:?}")
            }
            Phase::Releasing(..) => f.write_str("releases"),
            Phase::Ended => f.write_str("ended"),
            Phase::Crashed => f.write_str("dead"),
        }?;
        for sent in &self.connection.requests {
            write!(f, "; to the server: {}", brief(&sent.what))?;
        }
        if let Some(reply) = &self.connection.reply {
            write!(f, "; from the server: {}", brief(reply))?;
        }
        let marks = [(self.mail, "mail"), (self.paused, "paused"), (self.cut, "cut off")];
        marks.iter().filter(|(is, _)| *is).try_for_each(|(_, mark)| write!(f, "; {mark}"))
    }
}
