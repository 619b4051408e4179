//! The search: breadth first on one thread, so that a counterexample is as short as one can be.
//!
//! A state is known by 64 bits of its hash. Among 20 million states, two with the same hash are found
//! with a probability of 1 in 90,000; then a part of the search may be missing, and the number of
//! states that a scope asserts would be another one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use super::properties::Property;
use super::scope::Scope;
use super::world::{Action, World};

/// What a search has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) states: usize,
    /// What is broken, and the shortest way there.
    pub(super) broken: Option<(Property, Vec<Action>)>,
}

/// The states that were found, by number.
#[derive(Default)]
struct Known {
    numbers: HashMap<u64, u32, BuildHasherDefault<Itself>>,
    /// Where each state was found: from which state, by which action.
    from: Vec<(u32, Action)>,
    /// All steps but faults, from one state to another.
    steps: Vec<(u32, u32)>,
    ends: Vec<u32>,
}

/// Plays all that can happen in a scope, until something is broken.
pub(super) fn search(scope: &'static Scope) -> Found {
    let mut known = Known::default();
    let start = World::start(scope);
    known.number(&start, (0, Action::Tick));
    let mut layer = vec![(0, start)];
    while !layer.is_empty() {
        let mut next = Vec::new();
        for (number, world) in layer {
            if world.is_end() {
                known.ends.push(number);
            }
            for action in world.actions() {
                let after = world.after(action);
                let (to, is_new) = known.number(&after, (number, action));
                if let Some(property) = after.broken {
                    let way = known.way_to(to);
                    return Found { states: known.from.len(), broken: Some((property, way)) };
                }
                if !action.is_fault() {
                    known.steps.push((number, to));
                }
                if is_new {
                    next.push((to, after));
                }
            }
        }
        layer = next;
    }
    let states = known.from.len();
    let stuck = known.stuck().map(|number| (Property::NothingIsStuck, known.way_to(number)));
    Found { states, broken: stuck }
}

impl Known {
    /// The number of a state, and whether it is new.
    fn number(&mut self, world: &World, from: (u32, Action)) -> (u32, bool) {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        let next = u32::try_from(self.from.len()).unwrap();
        match self.numbers.entry(hasher.finish()) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(place) => {
                place.insert(next);
                self.from.push(from);
                (next, true)
            }
        }
    }

    fn way_to(&self, mut number: u32) -> Vec<Action> {
        let mut way = Vec::new();
        while number > 0 {
            let (from, action) = self.from[number as usize];
            way.push(action);
            number = from;
        }
        way.reverse();
        way
    }

    /// The first state from which no steps lead to an end.
    fn stuck(&mut self) -> Option<u32> {
        // Once the states are found, their hashes are of no more use.
        self.numbers = HashMap::default();
        self.steps.sort_unstable_by_key(|(_, to)| *to);
        let mut leads = vec![false; self.from.len()];
        let mut todo = std::mem::take(&mut self.ends);
        todo.iter().for_each(|end| leads[*end as usize] = true);
        while let Some(number) = todo.pop() {
            let first = self.steps.partition_point(|(_, to)| *to < number);
            for (from, _) in self.steps[first..].iter().take_while(|(_, to)| *to == number) {
                if !std::mem::replace(&mut leads[*from as usize], true) {
                    todo.push(*from);
                }
            }
        }
        leads.iter().position(|leads| !leads).map(|number| number as u32)
    }
}

/// A hash is its own hash.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
