//! What readers see of a client.

use super::client::{Client, Pending, Phase};
use crate::check::trace::{brief, until};

pub(super) fn client_line(client: &Client) -> String {
    let state = match &client.phase {
        Phase::Idle => "not started".into(),
        Phase::Waiting(_, Pending::Answer(..)) => "asks".into(),
        Phase::Waiting(_, Pending::Sleep(end)) => until("sleeps", *end),
        Phase::Waiting(_, Pending::Rest(end)) => until("rests", *end),
        Phase::Waiting(_, Pending::Withdrawal(_)) => "withdraws".into(),
        Phase::Holding(machine, _) => until("may run its command", machine.lease().deadline()),
        Phase::Releasing(..) => "releases".into(),
        Phase::Ended => "ended".into(),
        Phase::Crashed => "dead".into(),
    };
    let connection = &client.connection;
    let sent = connection.requests.iter().map(|sent| format!("sends {}", brief(&sent.what)));
    let late = connection.late.iter().flatten();
    let late = late.map(|sent| format!("late: {}", brief(&sent.what)));
    let reply = connection.reply.iter().map(|reply| format!("reply: {}", brief(reply)));
    let marks = [(client.mail, "mail"), (client.paused, "paused"), (client.cut, "cut off")];
    let marks = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark.into());
    let all = [state].into_iter().chain(sent).chain(late).chain(reply).chain(marks);
    all.collect::<Vec<String>>().join("; ")
}
