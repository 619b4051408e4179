//! Random histories of a command and its supervisor: any events in any order.

use proptest::collection::vec;
use proptest::prelude::*;

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::values::at_millis;
use rlock::rules::supervisor::{Action, Event, Machine};
use rlock::rules::{Instant, Lease, LossPolicy, OnLost, Reason, Ttl};

const TTL: Ttl = Ttl::DEFAULT;

/// What the world does next.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes while the supervisor waits for events.
    Wait(u64),
    /// Time passes while the machine is suspended, and the command with it.
    Pause(u64),
    /// SIGSTOP stops the supervisor, and SIGCONT continues it this many milliseconds later.
    Stopped(u64),
    /// The answer arrives to a renewal that was sent this many milliseconds ago.
    Renewed(u64),
    Unanswered,
    NotHeld,
    /// A signal, which may have reached the command too. If it stops the supervisor, SIGCONT
    /// continues that this many milliseconds later.
    Signal(Signal, bool, u64),
    /// The command ends and leaves descendants behind, or none.
    Ends(bool),
    /// The descendants that it left behind end.
    DescendantsEnd,
}

fn step() -> impl Strategy<Value = Step> {
    use Signal::{SIGCONT, SIGINT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};
    let signal = prop_oneof![
        Just(SIGCONT),
        Just(SIGINT),
        Just(SIGTERM),
        Just(SIGTSTP),
        Just(SIGTTIN),
        Just(SIGTTOU)
    ];
    prop_oneof![
        6 => (1..15_000_u64).prop_map(Step::Wait),
        1 => (1..60_000_u64).prop_map(Step::Pause),
        6 => (0..2_000_u64).prop_map(Step::Renewed),
        2 => Just(Step::Unanswered),
        1 => Just(Step::NotHeld),
        1 => (1..60_000_u64).prop_map(Step::Stopped),
        4 => (signal, any::<bool>(), 0..40_000_u64)
            .prop_map(|(signal, reached, away)| Step::Signal(signal, reached, away)),
        1 => any::<bool>().prop_map(Step::Ends),
        1 => Just(Step::DescendantsEnd),
    ]
}

/// A command, its supervisor and the clock, which the steps and the supervisor's actions change.
struct World {
    machine: Machine,
    on_lost: OnLost,
    kill_after: Duration,
    now: Instant,
    lease: Lease,
    lost_at: Option<Instant>,
    reported: u32,
    asked_to_end: bool,
    killed: bool,
    ended: bool,
    /// Whether a descendant still runs.
    descendants: bool,
}

impl World {
    fn new(on_lost: OnLost, kill_after: Duration) -> Self {
        let now = at_millis(1_000_000);
        let lease = Lease::new(now, TTL);
        Self {
            machine: Machine::new(lease, LossPolicy { on_lost, kill_after }),
            on_lost,
            kill_after: kill_after.min(TTL.get() / 3),
            now,
            lease,
            lost_at: None,
            reported: 0,
            asked_to_end: false,
            killed: false,
            ended: false,
            descendants: false,
        }
    }

    fn take(&mut self, step: &Step) {
        let millis = |millis: u64| Duration::from_millis(millis);
        let never = Duration::ZERO;
        match step {
            Step::Wait(time) => {
                let until = self.now + millis(*time);
                while let Some(wake_at) = self.machine.wake_at().filter(|&wake| wake <= until) {
                    self.now = self.now.max(wake_at);
                    self.happens(Event::Tick, never);
                    if let Some(next) = self.machine.wake_at() {
                        assert!(next > self.now, "it spins");
                    }
                }
                self.now = self.now.max(until);
            }
            Step::Pause(time) => self.now = self.now + millis(*time),
            Step::Stopped(time) => {
                self.is_stopped_for(millis(*time));
                self.happens(Event::Tick, never);
            }
            Step::Renewed(ago) => {
                let sent = self.now - millis(*ago);
                if sent.since(self.lease.deadline() - TTL.get()) > Duration::ZERO {
                    let renewed = Lease::new(sent, TTL);
                    // A renewal is too late for a command that has been asked to end.
                    if !self.asked_to_end {
                        self.lease = renewed;
                    }
                    self.happens(Event::Renewed(renewed), never);
                }
            }
            Step::Unanswered => self.happens(Event::Unanswered("refused".into()), never),
            Step::NotHeld => {
                self.lost_at.get_or_insert(self.now);
                self.happens(Event::NotHeld(Reason::unknown()), never);
            }
            Step::Signal(signal, reached, away) => {
                let (signal, reached) = (*signal, *reached);
                self.happens(Event::Signal { signal, reached }, millis(*away));
            }
            Step::Ends(descendants) => self.ends(*descendants),
            Step::DescendantsEnd => self.descendants_end(),
        }
        let over = self.ended && !self.must_await_descendants();
        assert_eq!(self.machine.is_over(), over, "it ends with the command");
    }

    /// After a loss, the command and all its descendants must end.
    fn must_await_descendants(&self) -> bool {
        let lost = self.reported == 1 && self.on_lost == OnLost::Kill;
        self.ended && self.descendants && lost && !self.killed
    }

    fn ends(&mut self, descendants: bool) {
        if !self.ended {
            (self.ended, self.descendants) = (true, descendants);
        }
        self.happens(Event::Ended, Duration::ZERO);
        if !self.descendants {
            self.happens(Event::DescendantsGone, Duration::ZERO);
        }
    }

    fn descendants_end(&mut self) {
        if self.ended {
            self.descendants = false;
            self.happens(Event::DescendantsGone, Duration::ZERO);
        }
    }

    /// Time passes while the supervisor is stopped. Its timer continues it if nothing else does.
    fn is_stopped_for(&mut self, away: Duration) {
        let by_timer = self.machine.continue_at().map(|at| at.max(self.now));
        let until = by_timer.into_iter().fold(self.now + away, Instant::min);
        let runs = self.on_lost == OnLost::Kill && !self.has_ended();
        let in_time = until == self.now || until <= self.deadline();
        assert!(in_time || !runs, "it runs on beside a stopped supervisor");
        self.now = until;
    }

    fn happens(&mut self, event: Event, away: Duration) {
        let mut resumed = false;
        for action in self.machine.on(event, self.now) {
            assert!(!resumed, "what was decided before a stop is done after it");
            match action {
                Action::Forward(_) => {}
                Action::Stop(_) => {
                    assert!(!self.asked_to_end && !self.killed, "it stops instead of acting");
                    self.is_stopped_for(away);
                    resumed = true;
                }
                Action::Continue => assert!(self.is_safe(), "continued without a lease"),
                Action::ReportLoss(_) => self.reported += 1,
                Action::ReportDelay(_) | Action::ReportRecovery(_) => {
                    assert!(self.reported == 0, "a loss is more than a delay");
                }
                Action::Terminate => {
                    assert!(self.now < self.deadline(), "it gets time that it does not have");
                    self.asked_to_end = true;
                }
                Action::Kill => {
                    let in_time = self.now < self.deadline();
                    assert!(!in_time, "killed while it had time to clean up");
                    self.killed = true;
                }
            }
        }
        if resumed {
            return self.happens(Event::Resumed, away);
        }
        assert!(self.is_safe(), "it runs on without a lease");
        assert!(self.ended || !self.machine.is_over(), "a command is reaped when it has ended");
        assert!(self.reported <= 1);
        if !self.machine.is_over() && !self.killed && self.on_lost == OnLost::Kill {
            let wakes = self.machine.wake_at();
            assert!(wakes.is_some_and(|at| at <= self.deadline()), "it would oversleep");
        }
    }

    /// Whether the command may be in its present state.
    fn is_safe(&self) -> bool {
        match self.on_lost {
            OnLost::Kill => self.has_ended() || self.now < self.deadline(),
            OnLost::Continue => !self.asked_to_end && !self.killed,
        }
    }

    /// Whether nothing runs that may not run without a lease.
    fn has_ended(&self) -> bool {
        self.killed || self.ended && !self.must_await_descendants()
    }

    /// When the command must be dead.
    fn deadline(&self) -> Instant {
        let lost = self.lost_at.map(|at| at + self.kill_after);
        lost.map_or(self.lease.deadline(), |lost| lost.min(self.lease.deadline()))
    }
}

fn on_lost() -> impl Strategy<Value = OnLost> {
    prop_oneof![4 => Just(OnLost::Kill), 1 => Just(OnLost::Continue)]
}

/// Runs 5,000 histories, or as many as PROPTEST_CASES says.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(5_000), failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_order_of_events_leaves_a_command_running_past_its_lease(
        on_lost in on_lost(),
        kill_after in 0..40_000_u64,
        steps in vec(step(), 0..40),
    ) {
        let mut world = World::new(on_lost, Duration::from_millis(kill_after));
        for step in &steps {
            if world.machine.is_over() {
                break;
            }
            world.take(step);
        }
        // When no other event remains, only time passes.
        if !world.machine.is_over() {
            world.take(&Step::Wait(2 * TTL.as_millis()));
            prop_assert!(world.killed || on_lost == OnLost::Continue);
            world.take(&Step::Ends(false));
        }
        prop_assert!(world.machine.is_over());
        prop_assert_eq!(world.machine.wake_at(), None);
        let more = [Event::Ended, Event::Signal { signal: Signal::SIGTERM, reached: false }];
        for event in more {
            prop_assert_eq!(world.machine.on(event, world.now), []);
        }
    }
}
