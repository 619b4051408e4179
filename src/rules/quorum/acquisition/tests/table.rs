//! Each row of the table in `majority.rs`.

use super::play::*;
use super::*;
use crate::rules::quorum::majority::blocking;
use crate::rules::quorum::{
    ReleaseDecision, RenewalDecision, decide_release, decide_removal, decide_renewal,
};
use crate::rules::{
    ClientInfo, Fence, HoldState, Holder, Operator, Reason, Release, Removal, Renewal, State,
};

/// Whether the answer decides if `count` of `servers` servers give it.
type Decides = fn(count: usize, servers: usize) -> bool;

const ROWS: [(&str, Decides); 16] = [
    ("acquire | nominated", |count, servers| {
        begun(true, servers, |member| give(member < count, nominated(12))).commits()
    }),
    ("acquire | granted with one fencing token and slot", |count, servers| {
        let mut play = Play::begin_in(Mode::Exclusive, true, vec![0; servers]);
        (0..servers).for_each(|member| play.reply(member, nominated(12)));
        (0..servers).for_each(|member| {
            if play.waits() {
                play.reply(member, granted(if member < count { 12 } else { 11 }));
            }
        });
        matches!(play.step, AttemptStep::End(AttemptEnd::Granted(_)))
    }),
    ("acquire | nested, upgrade, ended", |count, servers| {
        let ended = || Answer::Ended(Reason::unknown());
        are_refused(count, servers, [|| Answer::Nested, || Answer::Upgrade, ended])
    }),
    ("acquire | superseded, removed", |count, servers| {
        let superseded = || Answer::Superseded(ClientInfo::default());
        are_refused(count, servers, [superseded, || Answer::Removed(Operator::default())])
    }),
    ("acquire | kept out by older waiters", |count, servers| {
        let kept_out =
            |kept_out| MemberAnswer::Proposed(Proposal { kept_out, ..place(12, free()) });
        is_busy(&begun(false, servers, |member| kept_out(member < count)))
    }),
    ("acquire | held by the same holder", |count, servers| {
        let held = || proposal(12, None, held_by("a"));
        is_busy(&begun(false, servers, |member| give(member < count, held())))
    }),
    ("acquire | held by more holders than are listed", |count, servers| {
        let crowd = |member: usize| View { unlisted_holders: 100, ..held_by(&member.to_string()) };
        let crowded = |member| proposal(12, None, crowd(member));
        is_busy(&begun(false, servers, |member| give(member < count, crowded(member))))
    }),
    ("acquire | a number that is too far ahead", |count, servers| {
        let days = |days: u64| View { now: ServerTime(days * DAY), ..free() };
        let play = begun(true, servers, |member| match member {
            _ if member + 1 == servers => proposal(2_000 * DAY + 1, None, days(2)),
            _ => proposal(12, None, days(if member < count { 0 } else { 2 })),
        });
        let members = &play.acquisition.members;
        members.is_ahead(&members.0[servers - 1])
    }),
    ("acquire | a holder with a longer lease than the uptime of the others", |count, servers| {
        let mut view = held_by("a");
        view.holders[0].deadline = ServerTime(20_000);
        // All have been up for 10 s.
        let mut play = Play::begin_in(Mode::Exclusive, true, vec![90_000; servers]);
        play.all_reply(|member| match member < count {
            true => proposal(12, None, view.clone()),
            false => nominated(12),
        });
        !play.commits()
    }),
    ("acquire | a holder, while too few others answer", |count, servers| {
        let held = |member| match member < count {
            true => proposal(12, None, held_by("a")),
            false => failed(),
        };
        let mut play = begun(false, servers, held);
        play.pass(3_000);
        play.all_reply(held);
        is_busy(&play)
    }),
    ("renew | renewed in one slot", |count, servers| {
        let renewed = |slot| Renewal::Renewed {
            left: Duration::from_secs(1),
            fence: Fence(7),
            slot: Slot::new(slot),
            before: Duration::ZERO,
        };
        let votes = votes(servers, |member| Some(renewed(if member < count { 1 } else { 2 })));
        let decision = decide_renewal(&votes);
        matches!(decision, RenewalDecision::Renewed { held, .. } if held.1 == Slot::new(1))
    }),
    ("renew | not held", |count, servers| {
        let not_held = || Renewal::NotHeld(Reason::unknown());
        let votes = votes(servers, |member| (member < count).then(not_held));
        matches!(decide_renewal(&votes), RenewalDecision::NotHeld(_))
    }),
    ("release | released, unless not held", |count, servers| {
        let release = |member| if member < count { Release::Released } else { Release::Unknown };
        let votes = votes(servers, |member| Some(release(member)));
        matches!(decide_release(&votes, false), ReleaseDecision::Decided(Release::Released))
    }),
    ("release | not held", |count, servers| {
        let not_held = || Release::NotHeld(Reason::unknown());
        let votes = votes(servers, |member| (member < count).then(not_held));
        matches!(decide_release(&votes, false), ReleaseDecision::Decided(Release::NotHeld(_)))
    }),
    ("remove | revoked, removed, gone, several", |count, servers| {
        let acts = [
            || Removal::Revoked(Holder::default(), ServerTime(0)),
            || Removal::Gone,
            || Removal::Several(View::default()),
        ];
        let decided = acts.map(|act| {
            let unknown = || Removal::Unknown(View::default());
            let act = |member| if member < count { act() } else { unknown() };
            let votes = votes(servers, |member| Some(act(member)));
            !matches!(decide_removal(&votes), Removal::Unknown(_))
        });
        assert_eq!(decided, [decided[0]; 3]);
        decided[0]
    }),
    ("revoke, inspect, list | a holder; a member without an answer counts", |count, servers| {
        let held = |member| if member < count { held_by("a") } else { free() };
        // The last has not answered, so one fewer has to.
        let views: Vec<View> = (1..servers).map(held).collect();
        let merged = crate::rules::quorum::merge(&views, servers, false);
        merged.state == State::Held && merged.holders[0].state == HoldState::Held
    }),
];

/// A request on servers that all answer, twice.
fn begun(waits: bool, servers: usize, reply: impl Fn(usize) -> MemberAnswer) -> Play {
    let mut play = Play::begin_in(Mode::Exclusive, waits, vec![0; servers]);
    play.all_reply(reply);
    play
}

/// This reply or that of a server where the lock is free, which does not nominate the request.
fn give(gives: bool, reply: MemberAnswer) -> MemberAnswer {
    if gives { reply } else { proposal(12, None, free()) }
}

/// Whether a request that all others nominate is refused with each of these answers.
fn are_refused<const N: usize>(count: usize, servers: usize, answers: [fn() -> Answer; N]) -> bool {
    let refused = answers.map(|answer| {
        let play = begun(true, servers, |member| match member < count {
            true => MemberAnswer::Answer(answer()),
            false => nominated(12),
        });
        play.step == AttemptStep::End(AttemptEnd::Refused(Box::new(answer())))
    });
    assert_eq!(refused, [refused[0]; N]);
    refused[0]
}

fn is_busy(play: &Play) -> bool {
    matches!(&play.step, AttemptStep::End(AttemptEnd::Refused(answer)) if matches!(**answer, Answer::Busy(_)))
}

fn votes<T>(servers: usize, vote: impl Fn(usize) -> Option<T>) -> Votes<T> {
    Votes { votes: (0..servers).map(|it| vote(it).map(Ok)).collect(), asked: vec![true; servers] }
}

#[test]
fn each_answer_decides_as_soon_as_as_many_servers_give_it_as_the_table_says() {
    let table = include_str!("../../majority.rs").lines();
    let rows = table.filter_map(|line| line.strip_prefix("//! | ")?.rsplit_once(" | "));
    let rows: Vec<(&str, &str)> = rows.skip(2).collect();
    assert!(rows.iter().map(|row| row.0).eq(ROWS.map(|row| row.0)), "{rows:?}");
    for ((name, takes), (_, decides)) in rows.into_iter().zip(ROWS) {
        for servers in 3..=5 {
            let takes = match takes {
                "one |" => 1,
                "blocking |" => blocking(servers),
                _ => {
                    assert_eq!(takes, "majority |");
                    majority(servers)
                }
            };
            assert!(decides(takes, servers), "{name}: {takes} of {servers}");
            assert!(!decides(takes - 1, servers), "{name}: {} of {servers}", takes - 1);
        }
    }
}
