//! What a waiter decides after each answer, failure and signal.

use nix::sys::signal::Signal;

use super::*;
use crate::rules::{ClientInfo, Delivery, HoldKind, HoldState, Holder, ServerTime, State};

const TTL: u64 = 30_000;

fn at(millis: u64) -> Instant {
    Instant::at_millis(millis)
}

fn waiter(until: Option<u64>) -> WaitMachine {
    WaitMachine::new(Ttl::from_millis(TTL), until.map(at), until.map(at), at(0)).0
}

fn answered(sent: u64, answer: Result<Answer, Failure>) -> WaitEvent {
    WaitEvent::Answered { sent: at(sent), answer }
}

fn unreachable(delivery: Delivery) -> Failure {
    Failure::unreachable(UserMessage::new("refused"), delivery)
}

fn ask() -> WaitStep {
    WaitStep::Ask { seen: None, arrival: None }
}

fn granted() -> Result<Answer, Failure> {
    Ok(Answer::Granted { fence: Fence(1), slot: Slot::new(2) })
}

fn queued(sleep: u64) -> Result<Answer, Failure> {
    let sleep = Duration::from_millis(sleep);
    Ok(Answer::Queued { view: free(1), position: 1, sleep, arrival: None, obstacle: None })
}

/// A view that tests recognize by its time.
fn free(now: u64) -> View {
    View { now: ServerTime(now), ..View::default() }
}

#[test]
fn a_request_whose_connection_breaks_is_repeated_once() {
    let mut waiter = waiter(None);
    let lost = unreachable(Delivery::Lost);
    let notes = vec![Note::Retrying(lost.clone())];
    assert_eq!(waiter.on(answered(0, Err(lost.clone())), None, at(1)), (notes, ask()));
    let failed = WaitStep::Withdraw(WaitEnd::Failed(lost.clone()));
    assert_eq!(waiter.on(answered(1, Err(lost)), None, at(2)), (vec![], failed));
}

#[test]
fn a_queued_waiter_survives_a_server_outage() {
    let mut waiter = waiter(Some(60_000));
    assert_eq!(
        waiter.on(answered(0, queued(10_000)), None, at(1)).1,
        WaitStep::Sleep { at_most: Duration::from_secs(10), seen: None }
    );
    let away = unreachable(Delivery::NotExecuted);
    let (notes, step) = waiter.on(WaitEvent::Woken(Err(away.clone())), None, at(5_000));
    assert_eq!((notes, step), (vec![Note::Retrying(away.clone())], ask()));
    let (notes, step) = waiter.on(answered(5_000, Err(away.clone())), None, at(5_001));
    assert_eq!((notes, step), (vec![Note::Away(away.clone())], WaitStep::Rest { at: at(5_101) }));
    assert_eq!(waiter.on(WaitEvent::Rested, None, at(5_101)), (vec![], ask()));
    let (notes, step) = waiter.on(answered(5_101, Err(away.clone())), None, at(5_102));
    let away_still = vec![Note::Away(away.clone())];
    assert_eq!((notes, step), (away_still, WaitStep::Rest { at: at(5_302) }));
    let (notes, _) = waiter.on(answered(5_302, queued(10_000)), None, at(5_303));
    assert_eq!(notes.first(), Some(&Note::Back));
    let lost = WaitStep::Withdraw(WaitEnd::Failed(away.clone()));
    assert_eq!(waiter.on(WaitEvent::Woken(Err(away)), None, at(60_000)).1, lost);
}

#[test]
fn a_grant_counts_only_until_its_lease_expires() {
    let deadline = Lease::new(at(0), Ttl::from_millis(TTL)).deadline();
    let granted_step = WaitStep::End(WaitEnd::Granted(
        Lease::new(at(0), Ttl::from_millis(TTL)),
        Fence(1),
        Slot::new(2),
    ));
    let in_time = deadline - Duration::from_millis(1);
    assert_eq!(waiter(None).on(answered(0, granted()), None, in_time).1, granted_step);
    let (_, late) = waiter(None).on(answered(0, granted()), None, deadline);
    assert!(matches!(late, WaitStep::Withdraw(WaitEnd::Failed(_))), "{late:?}");
}

#[test]
fn a_signal_withdraws_the_request_and_leaves_a_grant_to_the_caller() {
    let signal = Some(Stop::Signal(Signal::SIGTERM));
    let stopped = WaitEnd::Stopped(Stop::Signal(Signal::SIGTERM));
    let unsent = answered(0, Err(Failure::interrupted(Delivery::NotExecuted)));
    assert_eq!(waiter(None).on(unsent, signal, at(1)).1, WaitStep::End(stopped.clone()));
    let sent = answered(0, Err(Failure::interrupted(Delivery::Pending)));
    assert_eq!(waiter(None).on(sent, signal, at(1)).1, WaitStep::Withdraw(stopped.clone()));
    let (_, step) = waiter(None).on(answered(0, queued(10)), signal, at(1));
    assert_eq!(step, WaitStep::Withdraw(stopped));
    let (_, step) = waiter(None).on(answered(0, granted()), signal, at(1));
    assert!(matches!(step, WaitStep::End(WaitEnd::Granted(..))), "{step:?}");
}

#[test]
fn a_waiter_reminds_the_server_of_holders_for_as_long_as_their_leases_may_last() {
    let holder = |id: &str, kind, state| Holder {
        id: id.into(),
        client: ClientInfo { kind, ..ClientInfo::default() },
        renewed: ServerTime(0),
        deadline: ServerTime(9_000),
        state,
        ..Holder::default()
    };
    let all = [
        holder("exec", HoldKind::Exec, HoldState::Held),
        holder("acquire", HoldKind::Acquire, HoldState::Held),
        holder("revoked", HoldKind::Exec, HoldState::Revoked),
    ];
    // A whole lease of one that renews, else the rest of the longest; half as much more if some are
    // not listed.
    for (from, unlisted_holders, told) in [
        (0, 0, "9s exec acquire revoked"),
        (1, 0, "5s acquire revoked"),
        (0, 1, "13.5s exec acquire revoked *"),
    ] {
        let view = View {
            now: ServerTime(1_000),
            state: State::Held,
            unlisted_holders,
            holders: all[from..].to_vec(),
            generation: "g".into(),
            ..View::default()
        };
        let sleep = Duration::from_millis(1);
        let queued = Answer::Queued { view, position: 1, sleep, arrival: None, obstacle: None };
        let mut waiter = waiter(None);
        waiter.on(answered(0, Ok(queued)), None, at(1_000));
        let (_, step) = waiter.on(WaitEvent::Woken(Ok(())), None, at(4_000));
        let WaitStep::Ask { seen: Some(seen), .. } = step else { panic!("{step:?}") };
        assert_eq!(format!("{:?} {}", seen.left, seen.ids.join(" ")), told);
    }
    assert_eq!(heartbeat(Duration::from_secs(6)), Duration::from_secs(2));
    assert_eq!(heartbeat(Duration::from_secs(60)), Duration::from_secs(10));
}

#[test]
fn a_waiter_whose_sleeps_are_cut_short_asks_ever_less_often_and_says_so_once() {
    let mut waiter = waiter(None);
    let cut = || WaitEvent::CutShort(unreachable(Delivery::Lost));
    let mut now = 0;
    let mut steps = |event: WaitEvent, after: u64| {
        now += after;
        waiter.on(answered(now, queued(10_000)), None, at(now));
        let (notes, step) = waiter.on(event, None, at(now));
        let noted = notes.iter().any(|note| matches!(note, Note::Polling(..)));
        match step {
            WaitStep::Rest { at: until } => {
                let rests = until.since(at(now)).as_millis();
                assert_eq!(waiter.on(WaitEvent::Rested, None, until), (vec![], ask()));
                (noted, rests)
            }
            step => {
                assert_eq!(step, ask());
                (noted, 0)
            }
        }
    };
    assert_eq!(steps(cut(), 0), (false, 0));
    assert_eq!(steps(cut(), 10), (true, 1_000));
    for rests in [2_000, 4_000, 8_000, 10_000, 10_000] {
        assert_eq!(steps(cut(), 10_000), (false, rests));
    }
    assert_eq!(steps(WaitEvent::Woken(Ok(())), 10_000), (false, 0));
    assert_eq!(steps(cut(), 10_000), (false, 0));
}

#[test]
fn on_a_slow_link_a_wait_ends_with_its_last_view_once_replies_are_too_late() {
    let timed_out = || WaitEnd::TimedOut(free(1));
    let mut slow = waiter(Some(2_000));
    // The end of the sleep is on the way for a round trip.
    let (_, step) = slow.on(answered(0, queued(10_000)), None, at(300));
    assert_eq!(step, WaitStep::Sleep { at_most: Duration::from_millis(1_400), seen: None });
    assert_eq!(slow.deadline(), Some(at(2_500)));
    // An answer would come too late, and the limit too early.
    let early = slow.on(WaitEvent::Woken(Ok(())), None, at(1_990)).1;
    assert_eq!(early, WaitStep::Rest { at: at(2_000) });
    assert_eq!(slow.on(WaitEvent::Rested, None, at(2_000)).1, WaitStep::Withdraw(timed_out()));
    let left = WaitEvent::Withdrawn(timed_out(), Err(unreachable(Delivery::Pending)));
    assert_eq!(slow.on(left, None, at(2_500)).1, WaitStep::End(timed_out()));
    // Nor does a waiter that has slept too long know of a fault.
    let mut starved = waiter(Some(2_000));
    starved.on(answered(0, queued(10_000)), None, at(1));
    let woken = WaitEvent::Woken(Err(Failure::interrupted(Delivery::NotExecuted)));
    assert_eq!(starved.on(woken, None, at(2_600)).1, WaitStep::Withdraw(timed_out()));
    // A server that did not end the sleep has stopped answering.
    let mut frozen = waiter(Some(2_000));
    frozen.on(answered(0, queued(10_000)), None, at(1));
    let lost = unreachable(Delivery::Pending);
    let step = frozen.on(WaitEvent::Woken(Err(lost.clone())), None, at(2_500)).1;
    assert_eq!(step, WaitStep::Withdraw(WaitEnd::Failed(lost)));
    // Too little time is left for a sleep.
    let mut slower = waiter(Some(2_000));
    let (_, step) = slower.on(answered(0, queued(10_000)), None, at(1_500));
    assert_eq!(step, WaitStep::Rest { at: at(2_000) });
}

#[test]
fn a_waiter_that_was_not_running_blames_no_server() {
    let not_running = |time: &str| {
        let why = "(suspended, or the host was overloaded)";
        format!("rlock was not running for at least {time} {why}")
    };
    let silent = || answered(0, Err(Failure::interrupted(Delivery::Pending)));
    for (now, problem) in
        [(9_000, "no answer within the wait limit".to_owned()), (20_000, not_running("10s"))]
    {
        let (notes, step) = waiter(Some(2_000)).on(silent(), None, at(now));
        let WaitStep::Withdraw(WaitEnd::Failed(failure)) = step else { panic!("{step:?}") };
        assert_eq!((failure.problem(), notes), (&*problem, vec![]));
    }
    // The reply came too late for its lease, but not from the server.
    let (_, step) = waiter(None).on(answered(0, granted()), None, at(60_000));
    let WaitStep::Withdraw(WaitEnd::Failed(failure)) = step else { panic!("{step:?}") };
    assert_eq!(failure.to_string(), not_running("22s"));
    // After a sleep that was too long, whatever the server answers.
    let told = |now: u64| {
        let mut waiter = waiter(None);
        waiter.on(answered(0, queued(10_000)), None, at(0));
        let (notes, step) = waiter.on(WaitEvent::Woken(Ok(())), None, at(now));
        assert_eq!(step, ask());
        Vec::from_iter(notes.into_iter().map(|note| match note {
            Note::NotRunning(why) => why.to_string(),
            note => format!("{note:?}"),
        }))
    };
    assert_eq!(told(18_000), Vec::<String>::new());
    assert_eq!(told(60_000), [not_running("42s")]);
}
