//! Prints a history for readers: what happens, and what that changes.

use super::action::Action;
use super::client::{Client, Doing, Phase};
use super::server::{LastReply, Line, Sent, Server, What};
use super::world::World;
use crate::check::time::{NOW, now};
use rlock::rules::quorum::Reply;
use rlock::rules::{Answer, Proposal, QuorumOp};

fn name(client: impl Into<usize>) -> char {
    char::from(b'a' + client.into() as u8)
}

/// What an action does in a state.
pub(super) fn describe(world: &World, action: Action) -> String {
    let server = |member: u8| world.names[usize::from(member)] + 1;
    match action {
        Action::Start(client) => format!("{} asks for the lock", name(client)),
        Action::Execute(client, member) => {
            let line = &world.servers[usize::from(member)].lines[usize::from(client)];
            let what = line.requests.first().map(request).unwrap_or_default();
            format!("server {} executes {}: {what}", server(member), name(client))
        }
        Action::Read(client, member) => {
            format!("{} reads the reply of server {}", name(client), server(member))
        }
        Action::Hear(client, member) => {
            format!("a message from server {} wakes {}", server(member), name(client))
        }
        Action::Finish(client) => format!("the command of {} ends", name(client)),
        Action::Hurry(client) => format!("a short pause of {} is over", name(client)),
        Action::ExecuteLate(client, member) => {
            format!("server {} executes a late request of {}", server(member), name(client))
        }
        Action::LoseLate(client, member) => {
            format!("the late requests of {} to server {} are lost", name(client), server(member))
        }
        Action::Thaw(member) => format!("server {} thaws", server(member)),
        Action::Tick => "a second has passed".into(),
        Action::Break(client, member) => {
            format!("the connection of {} to server {} breaks", name(client), server(member))
        }
        Action::Crash(client) => format!("{} dies", name(client)),
        Action::Signal(client) => format!("a signal ends the wait of {}", name(client)),
        Action::Die(member) => format!("server {} dies", server(member)),
        Action::Freeze(member) => format!("server {} freezes", server(member)),
        Action::Forget(member) => format!("server {} restarts without its data", server(member)),
    }
}

/// A state in a few lines.
pub(super) fn lines_of(world: &World) -> Vec<String> {
    let clients = world.clients.iter().enumerate();
    let mut lines: Vec<String> =
        clients.map(|(index, client)| format!("{}: {}", name(index), state(client))).collect();
    let mut servers: Vec<(usize, &Server)> =
        world.names.iter().copied().zip(&world.servers).collect();
    servers.sort_by_key(|(number, _)| *number);
    for (number, server) in servers {
        let holds = server.lock.holds.iter().map(|hold| {
            let (id, left) = (&hold.token[..1], hold.deadline as i64 - server.clock as i64);
            format!("{id} for {left} ms, fence {}, slot {:?}", short(hold.fence), hold.slot)
        });
        let queue = server.lock.queue.iter().map(|waiter| {
            let nominated = server.lock.nominated.contains(&waiter.token);
            let (id, ticket) = (&waiter.token[..1], short(waiter.ticket));
            let nominated = if nominated { " nominated" } else { "" };
            format!("{id} {:?} {ticket}{nominated}", waiter.origin)
        });
        let under_way = server.lines.iter().enumerate().map(|(index, line)| under_way(index, line));
        lines.push(format!(
            "server {}, {:?}, up for {:?}: fence {}; held by [{}]; queue [{}]; {}",
            number + 1,
            server.state,
            now().since(server.since),
            short(server.lock.fence),
            holds.collect::<Vec<_>>().join(", "),
            queue.collect::<Vec<_>>().join(", "),
            under_way.collect::<String>(),
        ));
    }
    lines
}

/// Fencing tokens and tickets, counted from the clock.
fn short(number: u64) -> i64 {
    if number == 0 { -1 } else { number as i64 - (NOW * 1_000) as i64 }
}

fn state(client: &Client) -> String {
    let left = |until: rlock::rules::instant::Instant| until.since(now());
    match &client.phase {
        Phase::Idle => "not started".into(),
        Phase::Acquiring(_, acquisition, doing) => {
            let ticket = acquisition.ticket.map(|ticket| short(ticket.0));
            match doing {
                Doing::Attempt(_, until) => {
                    format!("asks with ticket {ticket:?} for {:?}", left(*until))
                }
                Doing::Sleep(until) => {
                    format!("sleeps with ticket {ticket:?} for {:?}", left(*until))
                }
                Doing::Rest(until) => format!("rests for {:?}", left(*until)),
            }
        }
        Phase::Holding(lease, slot, _) => {
            format!("its command runs, slot {slot:?}, lease of {:?}", left(lease.deadline()))
        }
        Phase::Ended(how) => format!("ended: {how:?}"),
    }
}

fn under_way(client: usize, line: &Line) -> String {
    let requests: Vec<String> = line.requests.iter().map(request).collect();
    let late: Vec<String> = line.late.iter().map(request).collect();
    let mut text = String::new();
    if !requests.is_empty() {
        text.push_str(&format!(" {} sends {};", name(client), requests.join(", ")));
    }
    if !late.is_empty() {
        text.push_str(&format!(" late from {}: {};", name(client), late.join(", ")));
    }
    if let Some(reply) = &line.reply {
        text.push_str(&format!(" to {}: {};", name(client), answer(&reply.reply)));
    }
    if line.listening.is_some() {
        text.push_str(&format!(" {} listens;", name(client)));
    }
    if !line.mail.is_empty() {
        text.push_str(&format!(" {} messages for {};", line.mail.len(), name(client)));
    }
    text
}

fn request(sent: &Sent) -> String {
    match sent.what {
        What::Ask(QuorumOp::Propose(ticket)) => {
            format!("place {:?}", ticket.map(|ticket| short(ticket.0)))
        }
        What::Ask(QuorumOp::Commit(_, (fence, slot))) => {
            format!("commit with fence {}, slot {slot:?}", short(fence.0))
        }
        What::Ask(QuorumOp::Restore((fence, slot))) => {
            format!("restore with fence {}, slot {slot:?}", short(fence.0))
        }
        What::Renew => "renew".into(),
        What::Release => "release".into(),
        What::Leave => "leave".into(),
    }
}

fn answer(said: &LastReply) -> String {
    match said {
        LastReply::To(Reply::Proposed(Proposal { nominated, ticket, kept_out, .. })) => {
            let nominated =
                nominated.as_ref().map(|it| (short(it.fence.0), it.position, &it.taken));
            format!(
                "placed, ticket {}, nominated {nominated:?}, kept out {kept_out}",
                short(ticket.0)
            )
        }
        LastReply::To(Reply::Answer(Answer::Granted { fence, slot })) => {
            format!("granted, fence {}, slot {slot:?}", short(fence.0))
        }
        LastReply::To(Reply::Failed(_)) | LastReply::Renewal(None) => "no answer".into(),
        said => format!("{said:?}"),
    }
}
