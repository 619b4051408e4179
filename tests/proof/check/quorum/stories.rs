//! Histories of past bugs.

use super::action::Action;
use super::scope::Scope;
use super::world::World;
use crate::check::search::Play;

/// A request had a hold on two servers, but one of the replies was late, and the request gave the
/// hold up after 10 ms. Meanwhile, the other request had seen that hold on a majority, and left.
#[test]
fn a_request_with_n_awaits_late_replies_before_it_gives_up_a_hold() {
    let (a, b) = (0, 1);
    let mut world = World::start(Scope::leaked("xn,xn")).after(Action::Start(a));
    let execute = |world: &World, client, server| {
        let member = world.names.iter().position(|name| *name == server);
        let member = member.expect("sorting the servers moves their names, but loses none");
        world.after(Action::Execute(client, member as u8))
    };
    world = execute(&world, a, 0).after(Action::Start(b));
    for (client, server) in [(b, 0), (b, 1), (a, 1), (b, 2), (a, 2), (b, 0), (b, 2)] {
        world = execute(&world, client, server);
    }
    assert!(!world.actions().contains(&Action::Hurry(b)));
}
