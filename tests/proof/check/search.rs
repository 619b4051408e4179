//! The search: breadth first on one thread, so that a counterexample is as short as one can be.
//!
//! A state is recognized by 64 bits of its hash. Among 20 million states, two have the same hash
//! with a probability of 1 in 90,000. Part of the search may then be missing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::action::{Action, Faults, Turn};
use super::calls;
use super::property::Property;
use super::scope::{Budget, Scope};

/// What a search plays: one state, and what can happen in it.
pub(super) trait Play: Clone + Hash {
    /// The faults that it plays. In the texts, `{client}` and `{server}` stand for those concerned.
    const FAULTS: Faults;

    fn start(scope: &'static Scope) -> Self;

    fn course(&self) -> &Course;

    fn course_mut(&mut self) -> &mut Course;

    /// What can happen, except that time passes, and with faults of which none is left.
    fn turns(&self) -> Vec<Turn>;

    /// How many messages are under way that time would delay.
    fn under_way(&self) -> u8;

    fn act(&mut self, turn: Turn);

    /// Whether it matters when a client notices a reply or a message: what is under way may be
    /// delayed or lost, or a signal may come first.
    fn is_patient(&self) -> bool {
        false
    }

    /// Gives all states that behave the same one form. Returns the promise that this one breaks,
    /// apart from those that the last turn broke.
    fn settle(&mut self) -> Option<Property>;

    /// Whether nothing more can happen, and nothing but faults stands in the way of that.
    fn is_end(&self) -> bool;

    fn has_begun(&self, client: usize) -> bool;

    /// This state in a few lines, for readers.
    fn lines(&self) -> Vec<String>;

    /// The first state of the scope with this name.
    fn begin(name: &'static str) -> Self {
        let mut world = Self::start(Scope::leaked(name, Self::FAULTS));
        world.settle();
        world
    }

    fn all_turns(&self) -> Vec<Turn> {
        let (mut turns, Course { scope, left, .. }) = (self.turns(), self.course());
        turns.retain(|turn| match turn.action {
            Action::Fault(letter) => left.of(letter) > 0,
            // Clients that differ only in their tokens begin in order: the others would play the same.
            Action::Start => {
                !scope.is_like_the_one_before(turn.client()) || self.has_begun(turn.client() - 1)
            }
            _ => true,
        });
        if self.under_way() <= left.of('d') && !self.is_end() {
            turns.push(Turn::TICK);
        }
        turns
    }

    fn after(&self, turn: Turn) -> Self {
        let mut world = self.clone();
        if turn == Turn::TICK {
            let late = world.under_way();
            world.course_mut().left.use_up('d', late);
        }
        if let Some(letter) = turn.fault() {
            world.course_mut().left.use_up(letter, 1);
        }
        world.act(turn);
        // Clients notice at once what waits for them, where it makes no difference when they do.
        let notices = |turn: &Turn| matches!(turn.action, Action::Read | Action::Wake);
        while !world.is_patient()
            && let Some(turn) = world.turns().into_iter().find(notices)
        {
            world.act(turn);
        }
        if let Some(difference) = calls::difference() {
            println!("{difference}");
            world.course_mut().breaks(Property::TheScriptsAgree);
        }
        if let Some(property) = world.settle() {
            world.course_mut().breaks(property);
        }
        world
    }

    /// The words of the scope's name that this state has not used up: clients that have not begun,
    /// and faults that can still occur.
    fn unplayed(&self) -> Vec<&'static str> {
        let Course { scope, left, .. } = self.course();
        let clients = scope.clients.iter().enumerate();
        let clients = clients.filter(|(index, _)| !self.has_begun(*index));
        let is_left = |word: &&str| {
            let letter = word.chars().next().filter(char::is_ascii_lowercase);
            letter.is_some_and(|letter| left.of(letter) > 0)
        };
        let faults = scope.name.split(' ').skip(1).filter(is_left);
        clients.map(|(_, terms)| terms.word).chain(faults).collect()
    }
}

/// How far a search has come with a scope.
#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) scope: &'static Scope,
    /// How often each fault may still occur.
    pub(super) left: Budget,
    /// What this state breaks.
    pub(super) broken: Option<Property>,
}

impl Course {
    pub(super) fn new(scope: &'static Scope) -> Self {
        Self { scope, left: scope.budget, broken: None }
    }

    /// How often a fault has occurred so far.
    pub(super) fn used(&self, letter: char) -> u8 {
        self.scope.budget.of(letter) - self.left.of(letter)
    }

    pub(super) fn breaks(&mut self, property: Property) {
        self.broken.get_or_insert(property);
    }
}

impl Hash for Course {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.left.hash(hasher);
    }
}
#[derive(Debug)]
pub(super) struct Found {
    pub(super) states: usize,
    /// The promise that is broken, and a shortest way there.
    pub(super) broken: Option<(Property, Vec<Turn>)>,
    /// The words of the scope's name that no state has used up.
    pub(super) unplayed: Vec<&'static str>,
}

/// The states that were found, by number.
struct Known {
    numbers: HashMap<u64, u32>,
    /// Where each state was found: from which state, by which action.
    from: Vec<(u32, Turn)>,
    /// All steps but faults, from one state to another.
    steps: Vec<(u32, u32)>,
    ends: Vec<u32>,
}

/// Plays all that can happen, until a property is broken.
pub(super) fn search<W: Play>(start: W) -> Found {
    let (numbers, from, steps, ends) = Default::default();
    let mut known = Known { numbers, from, steps, ends };
    known.number(&start, (0, Turn::TICK));
    let mut unplayed = start.unplayed();
    let mut layer = vec![(0, start)];
    while !layer.is_empty() {
        let mut next = Vec::new();
        for (number, world) in layer {
            if world.is_end() {
                known.ends.push(number);
            }
            for turn in world.all_turns() {
                let after = world.after(turn);
                let (to, is_new) = known.number(&after, (number, turn));
                if let Some(property) = after.course().broken {
                    let way = known.way_to(to);
                    let (states, broken) = (known.from.len(), Some((property, way)));
                    return Found { states, broken, unplayed };
                }
                if turn.fault().is_none() {
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

impl Known {
    /// The number of a state, and whether it is new.
    fn number(&mut self, world: &impl Hash, from: (u32, Turn)) -> (u32, bool) {
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

    fn way_to(&self, mut number: u32) -> Vec<Turn> {
        let mut way = Vec::new();
        while number > 0 {
            let (from, turn) = self.from[number as usize];
            way.push(turn);
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
