//! What readers see of a client.

use super::client::{Client, Phase};
use crate::check::trace::brief;

pub(super) fn client_line(client: &Client) -> String {
    let state = match &client.phase {
        Phase::Waiting(_, pending) => format!("waits for {}", brief(pending)),
        Phase::Holding(machine, _) => format!("holds the lock, {:?}", machine.lease),
        phase => brief(phase),
    };
    let connection = &client.connection;
    let sent = connection.requests.iter().map(|what| format!("sends {}", brief(what)));
    let late = connection.late.iter().flatten();
    let late = late.map(|what| format!("late: {}", brief(what)));
    let reply = connection.reply.iter().map(|reply| format!("reply: {}", brief(reply)));
    let marks = [(client.mail, "mail"), (client.paused, "paused"), (client.cut, "cut off")];
    let marks = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark.into());
    let all = [state].into_iter().chain(sent).chain(late).chain(reply).chain(marks);
    all.collect::<Vec<String>>().join("; ")
}
