//! Random histories of a command and its supervisor: any events in any order.

use std::ops::Range;
use std::time::Duration;

use nix::sys::signal::Signal;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::values::at_millis;
use rlock::rules::supervisor::{Action, Event, Machine};
use rlock::rules::{Instant, Lease, LossPolicy, OnLost, Reason, Ttl};

const TTL: Ttl = Ttl::DEFAULT;

/// What the world does next.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes while the supervisor waits for events.
    Wait(Duration),
    /// Time passes while the machine is suspended, and the command with it.
    Pause(Duration),
    /// SIGSTOP stops the supervisor, and SIGCONT continues it after this time.
    Stopped(Duration),
    /// The supervisor learns of several renewals at once: how long ago each was sent, and its answer
    /// read.
    Renewed(Vec<(Duration, Duration)>),
    /// If this stops the supervisor, SIGCONT continues that after this time.
    Happens(Event, Duration),
    /// The command ends and leaves descendants behind, or none.
    Ends(bool),
    /// The descendants that it left behind end.
    DescendantsEnd,
}

fn millis(range: Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn step() -> impl Strategy<Value = Step> {
    use Signal::{SIGCONT, SIGINT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};
    let signal = select(vec![SIGCONT, SIGINT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU]);
    // The signal may have reached the command too.
    let event = prop_oneof![
        4 => (signal, any::<bool>())
            .prop_map(|(signal, reached)| Event::Signal { signal, reached }),
        2 => Just(Event::NotRenewed("refused".into())),
        1 => Just(Event::NotHeld(Reason::unknown())),
    ];
    prop_oneof![
        6 => millis(1..15_000).prop_map(Step::Wait),
        1 => millis(1..60_000).prop_map(Step::Pause),
        6 => vec(millis(0..40_000), 2..8).prop_map(|mut times| {
            times.sort_unstable_by(|one, other| other.cmp(one));
            Step::Renewed(times.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
        }),
        1 => millis(1..60_000).prop_map(Step::Stopped),
        7 => (event, millis(0..40_000)).prop_map(|(event, away)| Step::Happens(event, away)),
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
            machine: Machine::new(lease, LossPolicy { on_lost, kill_after, ..LossPolicy::DEFAULT }),
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

    fn take(&mut self, step: Step) {
        let never = Duration::ZERO;
        match step {
            Step::Wait(time) => {
                let until = self.now + time;
                while let Some(wake_at) = self.machine.wake_at().filter(|&wake| wake <= until) {
                    self.now = self.now.max(wake_at);
                    self.happens(Event::Tick, never);
                    if let Some(next) = self.machine.wake_at() {
                        assert!(next > self.now, "it spins");
                    }
                }
                self.now = self.now.max(until);
            }
            Step::Pause(time) => self.now = self.now + time,
            Step::Stopped(away) => {
                self.is_stopped_for(away);
                self.happens(Event::Tick, never);
            }
            Step::Renewed(answers) => {
                let mut learned = Vec::new();
                for (ago, read_ago) in answers {
                    let (sent, read_at) = (self.now - ago, self.now - read_ago);
                    if sent.since(self.lease.deadline() - TTL.get()) == Duration::ZERO {
                        continue;
                    }
                    let renewed = Lease::new(sent, TTL);
                    // A renewal is too late for a command that has been asked to end, and an answer
                    // that was read after the lease ended, for any.
                    if !self.asked_to_end && read_at < self.lease.deadline() {
                        self.lease = renewed;
                    }
                    learned.push(Event::Renewed(renewed, read_at));
                }
                self.learns(learned, Event::Tick, never);
            }
            Step::Happens(event, away) => {
                if let Event::NotHeld(_) = event {
                    self.lost_at.get_or_insert(self.now);
                }
                self.happens(event, away);
            }
            Step::Ends(descendants) => {
                self.descendants = if self.ended { self.descendants } else { descendants };
                self.ended = true;
                self.happens(Event::Ended, never);
                if !self.descendants {
                    self.happens(Event::DescendantsGone, never);
                }
            }
            Step::DescendantsEnd => {
                if self.ended {
                    self.descendants = false;
                    self.happens(Event::DescendantsGone, never);
                }
            }
        }
        let over = self.ended && !self.must_await_descendants();
        assert_eq!(self.machine.is_over(), over, "it ends with the command");
    }

    /// After a loss, the command and all its descendants must end.
    fn must_await_descendants(&self) -> bool {
        let lost = self.reported == 1 && self.on_lost == OnLost::Kill;
        self.ended && self.descendants && lost && !self.killed
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
        self.learns(Vec::new(), event, away);
    }

    fn learns(&mut self, learned: Vec<Event>, event: Event, away: Duration) {
        let is_kept = self.reported == 0 && self.now < self.lease.deadline() - self.kill_after;
        let is_tick = event == Event::Tick;
        let mut resumed = false;
        for action in self.machine.on(learned, event, self.now) {
            assert!(!resumed, "what was decided before a stop is done after it");
            match action {
                Action::Forward(_) => {}
                Action::Stop(_) => {
                    assert!(!self.asked_to_end && !self.killed, "it stops instead of acting");
                    self.is_stopped_for(away);
                    resumed = true;
                }
                Action::Continue => assert!(self.is_safe(), "continued without a lease"),
                Action::ReportLoss(_) => {
                    assert!(!(is_kept && is_tick), "a lease that was renewed in time is lost");
                    self.reported += 1;
                }
                Action::ReportDelay(_) | Action::ReportRecovery(_) => {
                    assert!(self.reported == 0, "a loss is more than a delay");
                }
                Action::Terminate => {
                    assert!(self.now < self.deadline(), "it gets time that it does not have");
                    let search_until = self.machine.search_until(self.now);
                    assert!(search_until < self.deadline(), "a search delays SIGKILL");
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

/// Runs 5,000 histories, or as many as PROPTEST_CASES says.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(5_000), failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_order_of_events_leaves_a_command_running_past_its_lease(
        on_lost in prop_oneof![4 => Just(OnLost::Kill), 1 => Just(OnLost::Continue)],
        kill_after in millis(0..40_000),
        steps in vec(step(), 0..40),
    ) {
        let mut world = World::new(on_lost, kill_after);
        for step in steps {
            if world.machine.is_over() {
                break;
            }
            world.take(step);
        }
        // When no other event remains, only time passes.
        if !world.machine.is_over() {
            world.take(Step::Wait(2 * TTL.get()));
            prop_assert!(world.killed || on_lost == OnLost::Continue);
            world.take(Step::Ends(false));
        }
        prop_assert!(world.machine.is_over());
        prop_assert_eq!(world.machine.wake_at(), None);
        let more = [Event::Ended, Event::Signal { signal: Signal::SIGTERM, reached: false }];
        for event in more {
            prop_assert_eq!(world.machine.on([], event, world.now), []);
        }
    }
}
