//! What readers see of a client and a server.

use super::client::{Client, Phase};
use super::server::{Line, Server};
use crate::check::time::now;
use crate::check::trace::{brief, letter, shown};

pub(super) fn client_line(client: &Client) -> String {
    match &client.phase {
        Phase::Acquiring(_, _, doing) => format!("{doing:?}"),
        phase => brief(phase),
    }
}

pub(super) fn server_line(server: &Server) -> String {
    let lines = server.lines.iter().enumerate();
    let under_way: String = lines.map(|(index, line)| under_way(letter(index), line)).collect();
    let (state, lock) = (server.state, shown(&server.lock, server.clock));
    let replica = if server.replica.is_some() { "; a replica stopped following" } else { "" };
    format!("{state:?}, up for {:?}, {lock}{under_way}{replica}", now().since(server.since))
}

fn under_way(client: char, line: &Line) -> String {
    let sent = line.requests.iter().map(|sent| format!("; {client} sends {}", brief(&sent.what)));
    let late = line.late.iter().map(|sent| format!("; late from {client}: {}", brief(&sent.what)));
    let reply = line.reply.iter().map(|reply| format!("; to {client}: {}", brief(&reply.reply)));
    let mail = line.mail.iter().map(|_| format!("; a message for {client}"));
    sent.chain(late).chain(reply).chain(mail).collect()
}
