//! Histories of past bugs.

use super::client::Client;
use super::world::World;
use crate::check::action::{Action, Turn};
use crate::check::search::Play;

fn start(world: &World, client: usize) -> World {
    world.after(Turn::new(Action::Start, client, 0))
}

fn execute(world: &World, client: usize, server: usize) -> World {
    let member = world.names.iter().position(|name| *name == server);
    let member = member.expect("sorting the servers moves their names, but loses none");
    world.after(Turn::new(Action::Execute, client, member))
}

/// A request had a hold on two servers, but one of the replies was late, and the request gave the
/// hold up after 10 ms. Meanwhile, the other request had seen that hold on a majority, and left.
#[test]
fn a_request_with_n_awaits_late_replies_before_it_gives_up_a_hold() {
    let (a, b) = (0, 1);
    let mut world = start(&World::begin("xn,xn"), a);
    world = start(&execute(&world, a, 0), b);
    for (client, server) in [(b, 0), (b, 1), (a, 1), (b, 2), (a, 2), (b, 0), (b, 2)] {
        world = execute(&world, client, server);
    }
    assert!(!world.all_turns().contains(&Turn::new(Action::TimeOut, b, 0)));
}

/// Each of two servers gave the larger fencing token to another request. Both requests then asked for
/// the same larger one, again and again, until a lease was over.
#[test]
fn of_two_requests_that_outbid_each_other_one_leaps_further() {
    let (a, b) = (0, 1);
    let mut world = start(&start(&World::begin("2,2 Z1"), a), b);
    let places = [(a, 0), (b, 0), (a, 1), (b, 1)];
    let holds = [(a, 0), (b, 0), (b, 1), (a, 1)];
    for (client, server) in places.into_iter().chain(holds) {
        world = execute(&world, client, server);
    }
    world = world.after(Turn::TICK);
    assert!(!world.clients.iter().any(Client::holds));
    for (client, server) in holds {
        world = execute(&world, client, server);
    }
    assert!(world.clients.iter().any(Client::holds));
}
