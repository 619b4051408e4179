//! Queues that change any number of times, in a file and in new files.

use proptest::prelude::*;

use super::*;

/// A step, with the number of the waiter that it affects.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u64),
    Remove(u64),
    Change(u64),
    Read(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0..12_u64;
    (number, 0..4).prop_map(|(number, kind)| match kind {
        0 => Step::Insert(number),
        1 => Step::Remove(number),
        2 => Step::Change(number),
        _ => Step::Read(number),
    })
}

fn token(number: u64) -> String {
    format!("token-{number}")
}

fn waiter(number: u64) -> Waiter {
    let about = "host\nuser\n".to_owned();
    let next = number.is_multiple_of(3);
    Waiter { token: token(number), about, ticket: number, next, alive: 1, ..Waiter::default() }
}

fn apply(queue: &mut Queue, step: Step) {
    match step {
        Step::Insert(number) => {
            if queue.position(&token(number)).is_none() {
                queue.insert(waiter(number));
            }
        }
        Step::Remove(number) => {
            let removed = queue.remove(&token(number));
            assert!(removed.is_none_or(|waiter| waiter.token == token(number)));
        }
        Step::Change(number) => {
            if let Some(waiter) = queue.find_mut(&token(number)) {
                waiter.alive += 1;
            }
        }
        Step::Read(number) => {
            let read = queue.find(&token(number));
            assert!(read.is_none_or(|waiter| waiter.ticket == number));
        }
    }
}

/// A queue as a file stores it.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    index: String,
    details: Vec<u8>,
}

impl Details for Vec<u8> {
    fn size(&self) -> usize {
        self.len()
    }

    fn read(&self, extent: &Extent) -> Option<Vec<u8>> {
        self.get(extent.clone()).map(<[u8]>::to_vec)
    }
}

impl Kept {
    /// In a new file.
    fn new(queue: &Queue) -> Self {
        let layout = queue.whole().unwrap();
        let details = vec![0; layout.room()];
        Self { index: String::new(), details }.with(&layout)
    }

    /// In the file from which the queue was read; `None` if it needs a new one.
    fn changed(&self, queue: &Queue) -> Option<Self> {
        let layout = queue.changes(self.details.len()).unwrap()?;
        Some(self.clone().with(&layout))
    }

    fn with(mut self, layout: &Layout<'_>) -> Self {
        self.index = String::from_utf8(layout.index.concat()).unwrap();
        for (extent, details) in &layout.details {
            self.details[extent.clone()].copy_from_slice(details);
        }
        self
    }

    fn read(&self) -> Queue {
        let text = format!("first\n{}", self.index);
        Queue::read(text, 6, Rc::new(self.details.clone())).unwrap()
    }
}

impl Queue {
    /// Stores the queue and reads it again, as `local:` does between two requests.
    pub(crate) fn reread(&self) -> Self {
        Kept::new(self).read()
    }
}

fn waiters(queue: &Queue) -> Vec<Waiter> {
    queue.iter().cloned().collect()
}

/// An index with one line, whose waiter has these details.
fn stored(token: &str, details: &str) -> Queue {
    let index = format!("{:08x}{:08x}{token}\n", 0, details.len());
    Kept { index, details: details.into() }.read()
}

proptest! {
    #[test]
    fn a_stored_queue_behaves_like_the_original(
        rounds in prop::collection::vec(prop::collection::vec(step(), 0..20), 1..6),
    ) {
        let mut queue = Queue::default();
        let mut kept = Kept::new(&queue);
        for steps in rounds {
            let before = waiters(&queue);
            let mut read = kept.read();
            for step in steps {
                apply(&mut queue, step);
                apply(&mut read, step);
                prop_assert!(read.tokens().eq(queue.tokens()));
                prop_assert!(read.iter().map(Waiter::place).is_sorted());
            }
            prop_assert_eq!(waiters(&read), waiters(&queue));
            // A waiter that left and came back was replaced too.
            let replaced: Vec<Waiter> = read.replaced().collect();
            prop_assert!(replaced.iter().all(|waiter| before.contains(waiter)));
            for waiter in before.iter().filter(|old| read.find(&old.token) != Some(old)) {
                prop_assert!(replaced.contains(waiter));
            }
            let next = kept.changed(&read);
            if let Some(next) = &next {
                // A process that is killed now leaves the old index with the new details.
                let details = next.details.clone();
                let torn = Kept { index: kept.index, details };
                prop_assert_eq!(waiters(&torn.read()), before);
            }
            kept = next.unwrap_or_else(|| Kept::new(&read));
            prop_assert_eq!(waiters(&kept.read()), waiters(&queue));
            prop_assert_eq!(kept.read().replaced().count(), 0);
        }
    }
}

#[test]
fn only_the_details_of_changed_waiters_are_written() {
    let mut queue = Queue::default();
    for number in 0..100 {
        queue.insert(waiter(number));
    }
    let kept = Kept::new(&queue);
    let mut read = kept.read();
    read.remove(&token(7));
    read.find_mut(&token(50)).unwrap().alive += 1;
    let layout = read.changes(kept.details.len()).unwrap().unwrap();
    assert_eq!(layout.details.len(), 1);
    assert_eq!(layout.index.len(), 4, "{:?}", layout.index);
    assert_eq!(kept.read().changes(0).unwrap().unwrap().details, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn heartbeats_need_no_new_file(
        lengths in prop::collection::vec(0..1_000_usize, 1..12),
        heartbeats in prop::collection::vec(any::<prop::sample::Index>(), 100),
    ) {
        let mut queue = Queue::default();
        for (number, length) in (0..).zip(&lengths) {
            queue.insert(Waiter { about: "x".repeat(*length), ..waiter(number) });
        }
        let mut kept = Kept::new(&queue);
        for heartbeat in heartbeats {
            let mut read = kept.read();
            let token = token(heartbeat.index(lengths.len()) as u64);
            read.find_mut(&token).unwrap().alive += 1;
            kept = kept.changed(&read).expect("room");
        }
    }
}

#[test]
fn a_queue_can_double_before_it_needs_a_new_file() {
    let mut queue = Queue::default();
    for number in 0..80 {
        queue.insert(waiter(number));
    }
    let mut kept = Kept::new(&queue);
    for number in 80..160 {
        let mut read = kept.read();
        read.insert(waiter(number));
        kept = kept.changed(&read).expect("room");
    }
}

#[test]
fn shifting_to_another_clock_changes_only_waiters_that_it_sees_for_the_first_time() {
    let mut queue = Queue::default();
    for number in 1..=3 {
        queue.insert(Waiter { alive: 10, ..waiter(number) });
    }
    let kept = Kept::new(&queue);
    let mut read = kept.read();
    let see = |stamp: &mut Stamp| {
        stamp.seen.entry(1).or_insert(5);
        100
    };
    read.shift(see);
    assert!(read.iter().all(|waiter| waiter.alive == 110));
    read.find_mut("token-2").unwrap().alive = 200;
    read.shift_back();
    let alive = |queue: &Queue| queue.iter().map(|waiter| waiter.alive).collect::<Vec<_>>();
    // The third goes first, because `waiter` sets `next` for it.
    assert_eq!(alive(&read), [10, 10, 200]);
    assert!(read.iter().all(|waiter| waiter.stamp.seen.contains_key(&1)));
    let mut again = Kept::new(&read).read();
    again.shift(see);
    assert_eq!(alive(&again), [110, 110, 300]);
    again.shift_back();
    assert_eq!(alive(&again), [10, 10, 200]);
    assert_eq!(again.changed_mut().count(), 0);
}

#[test]
fn an_invalid_index_is_rejected() {
    let details: Rc<dyn Details> = Rc::new(vec![0; 100]);
    let read = |index: &str| Queue::read(index.to_owned(), 0, details.clone());
    assert!(read("0000000000000064own\n").is_some());
    for index in [
        "\n",
        "x\n",
        "0000000000000064\n",
        "0000000000000064own",
        "0000000000000065own\n",
        "0000006400000001own\n",
        "ffffffff00000001own\n",
        "000000000000006gown\n",
        "+0000000+0000064own\n",
        "00000000000000é4own\n",
        "0000000000000064own\n{}\n",
    ] {
        assert!(read(index).is_none(), "{index}");
    }
}

#[test]
fn a_waiter_with_invalid_details_is_dead_under_any_clock_and_has_no_place() {
    let own = Waiter { token: "own".to_owned(), alive: 7, ..Waiter::default() };
    let valid = serde_json::to_string(&own).unwrap();
    assert_eq!(stored("own", &valid).find("own").map(|waiter| waiter.alive), Some(7));
    let far = valid.replace("\"alive\":7", "\"alive\":1125899906842624");
    let other = valid.replace("\"own\"", "\"other\"");
    for details in ["", "\0\0\0", &valid[..30], &far, &other] {
        let mut queue = stored("own", details);
        queue.shift(|_| 100);
        assert_eq!(queue.get(0).map(|waiter| waiter.alive), Some(0), "{details}");
        assert!(queue.find("own").is_none() && queue.len() == 1);
        assert!(queue.remove("own").is_none() && queue.is_empty());
    }
}
