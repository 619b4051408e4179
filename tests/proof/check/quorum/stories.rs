//! Histories of past bugs.

use super::client::Client;
use super::world::World;
use crate::check::action::{Action, Turn};
use crate::check::property::Property;
use crate::check::search::Play;

fn execute(world: &World, client: usize, server: usize) -> World {
    world.after(Turn::new(Action::Execute, client, server))
}

/// A client begins, and these servers execute all that it sends, one after another.
fn asks(world: &World, client: usize, servers: [usize; 3]) -> World {
    let mut world = world.after(Turn::new(Action::Start, client, 0));
    for server in servers.into_iter().cycle().take(30) {
        if !world.servers[server].lines[client].requests.is_empty() {
            world = execute(&world, client, server);
        }
    }
    world
}

/// Each of two servers gave the larger fencing token to another request. Both requests then asked for
/// the same larger one, again and again, until a lease was over.
#[test]
fn of_two_requests_that_outbid_each_other_one_leaps_further() {
    let (a, b) = (0, 1);
    let mut world = World::begin("2,2 Z1");
    for client in [a, b] {
        world = world.after(Turn::new(Action::Start, client, 0));
    }
    let places = [(a, 0), (b, 0), (a, 1), (b, 1)];
    let holds = [(a, 0), (b, 0), (b, 1), (a, 1)];
    for (client, server) in places.into_iter().chain(holds) {
        world = execute(&world, client, server);
    }
    // Both leap at once, before their tokens are renumbered.
    world.act(Turn::TICK);
    assert!(!world.clients.iter().any(Client::holds));
    for (client, server) in holds {
        world = execute(&world, client, server);
    }
    assert!(world.clients.iter().any(Client::holds));
}

/// The first client acquires the lock without the third server, and the second server then loses the
/// hold by a fault. The second client asks until it has the lock or so many seconds have passed.
/// Returns the promise that this breaks.
fn after_loss_of_a_hold(name: &'static str, fault: char, seconds: usize) -> Option<Property> {
    let (a, b) = (0, 1);
    let turn = |action| Turn::new(action, a, 1);
    let mut world = World::begin(name);
    if fault != 'w' {
        world = world.after(turn(Action::Fault(fault)));
    }
    world = asks(&world, a, [0, 1, 1]);
    assert!(world.clients[a].holds());
    let loss = if fault == 'w' { Action::Fault(fault) } else { Action::FailOver };
    world.servers[2].lines[a].requests.clear();
    world = world.after(turn(loss)).after(Turn::new(Action::Start, b, 0));
    let mut left = seconds;
    while left > 0 && !world.clients[b].holds() {
        // The third server is out of reach for the first client.
        world.servers[2].lines[a].requests.clear();
        let acts = |it: &Turn| matches!(it.action, Action::Execute | Action::TimeOut);
        let next = world.all_turns().into_iter().find(acts).unwrap_or(Turn::TICK);
        left -= usize::from(next == Turn::TICK);
        world = world.after(next);
    }
    world.course().broken
}

#[test]
fn a_member_that_was_promoted_without_a_hold_does_not_let_another_client_in() {
    for name in ["x,x p1", "xr,x p1"] {
        assert_eq!(after_loss_of_a_hold(name, 'p', 9), None, "{name}");
    }
}

/// docs/promises.md admits these. `RLOCK_CHECK_QUORUM='x,xt w1'` prints a history.
#[test]
fn a_loss_that_nothing_shows_lets_another_client_in_and_so_does_a_second_master() {
    let overlap = Some(Property::HoldersExcludeEachOther);
    assert_eq!(after_loss_of_a_hold("x,x w1", 'w', 1), overlap);
    assert_eq!(after_loss_of_a_hold("x,x q1", 'q', 1), overlap);
    // While the first client can still reach the former master.
    assert_eq!(after_loss_of_a_hold("xr,x m1", 'm', 9), overlap);
}
