//! Histories of past bugs.

use super::client::Client;
use super::world::World;
use crate::check::action::{Action, Turn};
use crate::check::search::Play;

/// Each of two servers gave the larger fencing token to another request. Both requests then asked for
/// the same larger one, again and again, until a lease was over.
#[test]
fn of_two_requests_that_outbid_each_other_one_leaps_further() {
    let (a, b) = (0, 1);
    let execute = |world: &World, client: usize, server: usize| {
        world.after(Turn::new(Action::Execute, client, server))
    };
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
