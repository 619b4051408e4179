//! Histories of past bugs.

use super::action::Action;
use super::client::Client;
use super::scope::Scope;
use super::world::World;
use crate::check::search::Play;

fn execute(world: &World, client: u8, server: usize) -> World {
    let member = world.names.iter().position(|name| *name == server);
    let member = member.expect("sorting the servers moves their names, but loses none");
    world.after(Action::Execute(client, member as u8))
}

/// A request had a hold on two servers, but one of the replies was late, and the request gave the
/// hold up after 10 ms. Meanwhile, the other request had seen that hold on a majority, and left.
#[test]
fn a_request_with_n_awaits_late_replies_before_it_gives_up_a_hold() {
    let (a, b) = (0, 1);
    let mut world = World::start(Scope::leaked("xn,xn")).after(Action::Start(a));
    world = execute(&world, a, 0).after(Action::Start(b));
    for (client, server) in [(b, 0), (b, 1), (a, 1), (b, 2), (a, 2), (b, 0), (b, 2)] {
        world = execute(&world, client, server);
    }
    assert!(!world.actions().contains(&Action::Hurry(b)));
}

/// Each of two servers gave the larger fencing token to another request. Both requests then asked for
/// the same larger one, again and again, until a lease was over.
#[test]
fn of_two_requests_that_outbid_each_other_one_leaps_further() {
    let (a, b) = (0, 1);
    let mut world = World::start(Scope::leaked("2,2 Z1")).after(Action::Start(a));
    world = world.after(Action::Start(b));
    let places = [(a, 0), (b, 0), (a, 1), (b, 1)];
    let holds = [(a, 0), (b, 0), (b, 1), (a, 1)];
    for (client, server) in places.into_iter().chain(holds) {
        world = execute(&world, client, server);
    }
    world = world.after(Action::Tick);
    assert!(!world.clients.iter().any(Client::holds));
    for (client, server) in holds {
        world = execute(&world, client, server);
    }
    assert!(world.clients.iter().any(Client::holds));
}
