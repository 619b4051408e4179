//! The search: breadth first on one thread, so that a counterexample is as short as one can be.
//!
//! A state is recognized by 64 bits of its hash. Among 20 million states, two have the same hash
//! with a probability of 1 in 90,000. Part of the search may then be missing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use super::property::Property;

/// What a search plays: one state, and what can happen in it.
pub(super) trait Play: Hash + Sized {
    type Action: Copy + PartialEq;
    /// Time passes.
    const TICK: Self::Action;

    /// The first state of the scope with this name.
    fn begin(name: &'static str) -> Self;

    fn actions(&self) -> Vec<Self::Action>;

    fn after(&self, action: Self::Action) -> Self;

    /// The property that this state breaks.
    fn broken(&self) -> Option<Property>;

    /// Whether nothing more can happen, and nothing but faults stands in the way of that.
    fn is_end(&self) -> bool;

    /// Whether an action is a fault or comes from outside, such as a signal. Reaching an end must
    /// not depend on it.
    fn is_fault(action: Self::Action) -> bool;

    /// The words of the scope's name that this state has not used up: clients that have not begun,
    /// and faults that can still occur.
    fn unplayed(&self) -> Vec<&'static str>;

    /// What an action does in this state, for readers.
    fn describe(&self, action: Self::Action) -> String;

    /// This state in a few lines, for readers.
    fn lines(&self) -> Vec<String>;
}

#[derive(Debug)]
pub(super) struct Found<A> {
    pub(super) states: usize,
    /// The property that is broken, and a shortest path to it.
    pub(super) broken: Option<(Property, Vec<A>)>,
    /// The words of the scope's name that no state has used up.
    pub(super) unplayed: Vec<&'static str>,
}

/// The states that were found, by number.
struct Known<A> {
    numbers: HashMap<u64, u32, BuildHasherDefault<Itself>>,
    /// Where each state was found: from which state, by which action.
    from: Vec<(u32, A)>,
    /// All steps but faults, from one state to another.
    steps: Vec<(u32, u32)>,
    ends: Vec<u32>,
}

/// Plays all that can happen, until a property is broken.
pub(super) fn search<W: Play>(start: W) -> Found<W::Action> {
    let (numbers, from, steps, ends) = Default::default();
    let mut known = Known { numbers, from, steps, ends };
    known.number(&start, (0, W::TICK));
    let mut unplayed = start.unplayed();
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
                if let Some(property) = after.broken() {
                    let way = known.way_to(to);
                    let (states, broken) = (known.from.len(), Some((property, way)));
                    return Found { states, broken, unplayed };
                }
                if !W::is_fault(action) {
                    known.steps.push((number, to));
                }
                if is_new {
                    if !unplayed.is_empty() {
                        let here = after.unplayed();
                        unplayed.retain(|word| here.contains(word));
                    }
                    next.push((to, after));
                }
            }
        }
        layer = next;
    }
    let states = known.from.len();
    let stuck = known.stuck().map(|number| (Property::NothingIsStuck, known.way_to(number)));
    Found { states, broken: stuck, unplayed }
}

impl<A: Copy> Known<A> {
    /// The number of a state, and whether it is new.
    fn number(&mut self, world: &impl Hash, from: (u32, A)) -> (u32, bool) {
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

    fn way_to(&self, mut number: u32) -> Vec<A> {
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
        // All states are found, so their hashes are no longer needed. This frees their memory.
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
