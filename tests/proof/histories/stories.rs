//! Fixed stories, played by the scripts and by the model. Most are the trace of a fault; the others
//! show what random histories seldom play, such as exact times and equal numbers.

use std::fmt::Debug;
use std::mem;
use std::ops::ControlFlow::{Break, Continue};
use std::str::FromStr;

use super::play::{Both, seen_in};
use super::step::{Ask, Step, plain_ask};
use crate::scripts::shim::Shim;
use rlock::rules::quorum::Proposal;
use rlock::rules::{Answer, HoldKind, Outcome, Revocation, Slot, Verdict};

/// The name of each story, and what happens in it, one step a line. `a` to `t` are clients: `asks` is
/// an exclusive request with a lease of 100 ms that does not wait, and `waits` one with a lease of 30
/// s that does. After `=` is the reply to that request, or else what can be seen of the lock.
const STORIES: &str = "
a client that is turned away counts once until the next hold begins
    a waits
    b asks
    b asks  # Its reply was lost.
    c waits
    c gives up
    late c leaves
    d waits
    d leaves
    a releases
    skipped = 2
    a waits
    skipped = 0
    write  # A lock that another tool holds is busy too.
    e asks
    skipped = 1

freeing the lock of another tool ends every hold that its key has voided
    a waits shared
    b waits shared
    write
    revoke now 1  # The operator has not seen the second hold.
    b waits shared = Ended
    lock = Free

a late duplicate does not end the sender's revoked hold
    a waits = Granted
    revoke
    a waits overtaken = Again
    b waits = Queued 1
    a waits = Queued 1  # It has lost its turn.
    b waits = Granted

a request that arrives after it was given up or released is rejected
    a leaves early
    a waits = Ended
    b waits shared at-least:60000 = Granted
    b releases
    late b waits shared at-least:60000 = Ended
    lock = Cooling b
    pass 59000
    late b waits shared at-least:60000 = Ended
    pass 1001
    lock = Free

a release ends what a late copy of its request queued after the lease had expired
    a waits = Granted
    pass 30001
    b waits = Granted
    a waits overtaken = Queued 1
    c waits = Queued 2
    a releases
    b releases  # Nobody waits for the dead entry: the next one holds the lock.
    c waits = Granted

a holder that a waiter has seen excludes others after the server loses its data
    a waits shared = Granted
    b waits = Queued 1
    remember
    forget
    c waits shared = Granted
    b waits reminds = Queued 1
    b leaves
    d waits shared = Queued 1  # The closed lock also excludes others.
    pass 15000
    d waits shared reminds = Queued 1  # This does not extend it.
    c releases
    pass 5001
    d waits shared reminds = Granted

a late duplicate does not revive a hold that was revoked at once
    a waits = Granted
    revoke now
    a waits overtaken = Ended
    b waits = Granted

a late duplicate does not revive a hold as long as the claim window
    a waits ttl:2000 = Granted
    a waits overtaken = Granted
    revoke now
    a waits overtaken = Ended

a waiter whose unclaimed grant is revoked at once keeps waiting
    a waits = Granted
    b waits = Queued 1
    c waits = Queued 2
    a releases
    b waits overtaken = Again  # A duplicate does not claim the grant.
    revoke now
    b waits = Queued 1
    c waits = Granted

a waiter learns of the holders whose leases last longest
    a waits shared ttl:2000
    b waits shared ttl:60000
    c waits shared ttl:1000
    d waits shared ttl:3000
    e waits shared ttl:4000
    f waits = Queued 1
    seen f = d e b

a closed lock takes no slot
    a waits slots:2 ttl:60000 = Granted
    b waits = Queued 1
    remember
    forget
    c waits slots:2 ttl:60000 = Granted
    b waits reminds = Queued 1
    slots = 1
    b leaves
    pass 20001
    d waits slots:2 ttl:60000 = Granted
    slots = 1 2

a slot that a waiter gets first is not granted to one of a quorum
    a waits shared ttl:1000 = Granted
    b waits slots:2 = Queued 1
    pass 1001
    c waits slots:2 ticket:1 fence:0 slot:1 = Busy  # This request admits the waiter.
    slots = 1

a slot that a waiter gets first is not restored to another holder
    f waits fence:-216 proposes
    b waits slots:2 next
    f gives up
    a waits slots:2 fence:-1252 slot:1  # The waiter is admitted before the slot is restored.
    slots = 1

a shared hold that outlasts the exclusive one around it shares the lock
    a waits owner:0 reentrant ttl:1000
    b waits owner:0 reentrant shared
    pass 1001
    b renews
    c waits shared = Granted

a released hold does not close the lock
    a waits = Granted
    b waits = Queued 1
    remember
    b leaves
    a releases
    c waits reminds = Granted
    lock = Held c

a hold that was released after the server had lost its data does not close the lock
    a waits = Granted
    b waits = Queued 1
    remember
    forget
    a releases
    b waits reminds = Granted

a hold that was given up after the server had lost its data does not close the lock
    a waits = Granted
    b waits = Queued 1
    remember
    forget
    a leaves
    b waits reminds = Granted

a removal is remembered for as long as a release
    a waits = Granted
    b waits = Queued 1
    remove b
    pass 60000
    a waits = Granted
    b waits = Removed
    pass 1
    b waits = Queued 1

a lease whose end another tool has overwritten ends one TTL later
    a waits shared = Granted
    b waits shared = Granted
    overwrite a 9000000000000000
    overwrite b 9000000000000000
    c waits shared = Granted
    left = 30s
    pass 30001
    d waits = Granted

a hold that is cooling can be removed
    a waits at-least:20000
    a releases = Cooling a
    late remove a = Free

a renewal under exec never shortens the lease
    a waits = Granted
    a renews 1000
    left = 30s
    a renews 60000
    pass 50000
    a renews
    left = 60s
    a releases
    a waits acquire = Granted
    a renews 1000
    left = 1s

a duplicate that arrives after the grant does not consume the wake-up
    a waits = Granted
    b waits = Queued 1
    a releases
    b waits overtaken = Again
    mailboxes = 1
    b waits = Granted
    mailboxes = 0

only a waiter that becomes the head is woken
    a waits = Granted
    b waits = Queued 1
    c waits = Queued 2
    d waits = Queued 3
    woken =
    b leaves
    woken = c
    a releases
    woken = d c  # The message to the new holder is the last one.

the limit of a call counts the older waiters that keep another one out
    abc waits proposes
    d waits ticket:2000
    e asks proposes = Proposed

waiters of one mode do not keep each other out
    a waits shared ticket:0
    b waits shared ticket:1
    c waits shared ticket:2
    d asks shared proposes = Proposed
    e asks proposes = KeptOut

holds that the key of another tool has voided do not keep a waiter out
    a waits slots:2 ticket:0 fence:0
    b waits slots:2 ticket:1
    write
    c asks slots:2 proposes = Proposed

a waiter is alive until the last millisecond
    a waits ticket:0
    b waits ticket:1
    pass 22000
    c asks proposes = KeptOut

another tool's lock is free after its last millisecond
    write 1000
    pass 1000
    a waits = Queued 1
    pass 1
    a waits = Granted

a call that leaves one expired hold decides nothing
    abcd waits shared ttl:1000
    e waits shared
    pass 2000
    f waits shared = Again
    f waits shared = Granted

an exclusive hold can be released beside an expired one that a call leaves
    a waits owner:0
    bcde waits owner:0 reentrant shared ttl:1000
    pass 2000
    a releases = Free

a release that leaves an expired hold wakes the first waiter, which drops it
    abcd waits shared ttl:1000
    e waits shared
    f waits
    pass 2000
    woken =
    e releases
    woken = f
    f waits = Granted

a release can leave an expired hold though nobody waits any more
    abcd waits shared ttl:1000
    e waits shared
    f waits
    f leaves
    pass 2000
    e releases = Free

the holder of an expired hold that a call leaves learns the same as the others
    abcd waits shared ttl:1000
    e waits shared
    pass 2000
    d renews

a revocation that is continued leaves out no hold
    abcd waits shared ttl:1000
    e waits shared
    pass 2000
    revoke now = Free

a hold that is cooling is not recorded twice
    a waits at-least:20000
    a releases
    revoke now
    history = 1

a hold cools until the last millisecond of its minimum time
    a waits shared at-least:20000
    pass 19999
    a releases = Cooling a
    forget
    a waits shared at-least:20000
    pass 20000
    a releases = Free

beside another hold, too, a hold cools until the last millisecond of its minimum time
    b waits shared
    a waits shared at-least:20000
    pass 19999
    a releases = Held a b
    forget
    b waits shared
    a waits shared at-least:20000
    pass 20000
    a releases = Held b

a waiter keeps the lock for its minimum time
    a waits
    b waits at-least:1
    a releases
    b waits
    b releases = Cooling b

of two requests with the same ticket the larger token is the newer one
    a waits
    b waits supersedes
    c waits supersedes = Queued 1
    b waits supersedes = Superseded

the mark of the newest request lasts longer than what was there before
    a waits ttl:1000
    bcdef waits heartbeat:100
    pass 2201
    g waits supersedes = Again  # One call does not drop all waiters that are dead.

a lock that was closed gets a new generation
    a waits
    remember
    forget
    b asks reminds = Busy
    pass 20001
    d renews
    c waits = Granted

a waiter closes a lock whose holds were deleted together with the guard
    a waits
    b waits = Queued 1
    remember
    lose holds
    delete
    b waits reminds = Queued 1
    lock = Revoked closed then b
    pass 20001
    b waits reminds = Granted

a closed lock opens when the last of its holders has released it
    a waits shared
    b waits shared
    c waits = Queued 1
    remember
    forget
    c waits reminds = Queued 1
    a releases
    lock = Revoked closed then c
    b releases
    lock = Held c
    c waits reminds = Granted  # This does not close it again.
    lock = Held c

a waiter that saw another holder closes the lock for longer
    a waits
    remember
    forget
    b waits
    c waits reminds = Queued 1
    b releases
    forget
    pass 10000
    d waits reminds = Queued 1
    pass 10001
    d waits = Queued 1
    pass 10000
    d waits = Granted

a waiter whose holder's lease ends sooner does not open a closed lock sooner
    a waits
    b waits = Queued 1
    forget
    c waits = Granted
    d waits = Queued 1
    forget
    b waits reminds = Queued 1
    d waits reminds:5000 = Queued 2
    pass 5001
    b waits = Queued 1
    pass 15000
    b waits = Granted

a waiter closes a lock whose server went back to a time before the hold
    a waits
    a releases
    lag
    c waits = Granted
    b waits = Queued 1
    go back
    b waits reminds = Queued 1
    lock = Revoked closed then b
    c releases
    lock = Held b

a server that went back, but not to a time before the hold, does not close the lock
    a waits
    lag
    b waits = Queued 1
    go back
    b waits reminds = Queued 1
    lock = Held a then b

a fencing token that is far ahead of the clock does not close the lock
    a waits
    b waits = Queued 1
    forget 172800000  # Its clock was two days ahead.
    b waits reminds = Granted
    lock = Held b

a revocation leaves alone what is granted after a loss of data with the clock set back
    a waits
    forget 60000
    b waits shared
    late revoke  # The operator has seen the lost hold.
    lock = Revoked b
    c waits shared = Granted
    lock = Held b c

the hold of a closed lock counts
    a waits
    remember
    forget
    c waits shared ttl:1000
    d waits heartbeat:100
    pass 2201  # Nobody is left in the queue.
    b waits reminds
    lock = Revoked closed then b

a lock can be closed beside a hold
    a waits
    remember
    forget
    c waits shared
    d waits heartbeat:100
    pass 2201
    b waits reminds
    lock = Held closed c then b

a hold from the future is not restored
    a waits fence:172800000 = AheadOfClock

a released hold stays released though its tombstone is lost
    a waits at-least:20000
    a releases
    lose tombstones
    late a waits
    lock = Cooling a

a tombstone lasts until its last millisecond
    a leaves early
    pass 1000
    b leaves early  # Another tombstone, so that the key lasts longer.
    pass 59000
    a waits = Ended
    pass 1
    a waits = Granted

an expired hold of many is in the history
    a waits shared ttl:1000
    bcdefghijklmnopqr waits shared
    pass 1001
    history = 1

many dead waiters are dropped by several calls
    a waits
    bcdef waits heartbeat:100
    g waits
    pass 2201
    woken =
    remove a
    woken = e  # The next one, which is dead too, is to continue.
    a renews = Revoked a then g

a slot is freed though its client leaves before the expired hold is dropped
    abcd waits slots:5 ttl:1000
    e waits slots:5
    pass 2000
    d leaves  # One call drops three holds. The fourth is that of the client that leaves.
    fghi waits slots:5
    slots = 1 2 3 4 5

a server whose memory is full grants no lock
    full a waits = Again

a waiter that leaves takes its message with it
    a waits
    b waits
    a releases
    mailboxes = 1
    b leaves
    mailboxes = 0

a waiter of several servers that asks again needs no message
    a waits ticket:0 fence:0 = Granted
    b waits ticket:1 = Proposed
    a releases
    mailboxes = 1
    b waits ticket:1 = Proposed
    mailboxes = 0

a holder keeps its lock while memory is full
    a waits
    full a renews 60000
    left = 60s
    full a waits overtaken = Granted

a waiter gets no fencing token that is far ahead of the clock
    a waits
    b waits
    set fence 5e15
    a releases
    pass 2001
    set fence 5
    c waits = Queued 1

a hold whose lock was deleted stays revoked, whatever was written as the fencing token
    a waits
    set fence 1e300
    delete
    b asks = AheadOfClock
    set fence 5
    a waits overtaken = Again

a ticket of several servers does not concern a request to one
    set ticket 5e15
    a waits = Granted

a fencing token that is not a number, or is far ahead, is not continued
    set fence x
    a waits = Granted
    forget
    set fence -7
    a waits = Granted
    forget
    set fence 1e300
    b waits = AheadOfClock
    forget
    set fence 5e15
    b waits = AheadOfClock
    forget
    a waits
    set fence 1e300
    delete
    b waits = AheadOfClock
    forget
    set fence 5e15
    c waits proposes = AheadOfClock
";

fn stories() -> impl Iterator<Item = &'static str> {
    STORIES.trim().split("\n\n")
}

/// Plays all of them.
pub(super) fn all() {
    stories().for_each(play_story);
}

#[test]
fn every_story_goes_as_it_is_told() {
    for story in stories() {
        println!("{story}\n");
        play_story(story);
    }
}

fn play_story(story: &'static str) {
    play(|both| {
        let mut remembered = None;
        for line in story.lines().skip(1) {
            let (line, _) = line.split_once('#').unwrap_or((line, ""));
            let (step, expected) = line.split_once('=').unwrap_or((line, ""));
            let words: Vec<_> = step.split_whitespace().collect();
            if words == ["remember"] {
                remembered = seen_in(&both.inspect());
            }
            if remembered.is_some() {
                both.seen.fill(remembered.clone());
            }
            steps(&words).iter().for_each(|step| both.play(step));
            if line.contains('=') {
                assert_eq!(shown(both, &words), expected.trim(), "{line}");
            }
        }
    });
}

pub(super) fn play(story: impl FnOnce(&mut Both<'_>)) {
    story(&mut Both::new(&mut Shim::store(0)));
}

/// The steps in a line, one for each client. A line that only looks has none.
fn steps(words: &[&'static str]) -> Vec<Step> {
    let late = |step| Step::Late(Box::new(step));
    let full = |step| Step::InFullMemory(Box::new(step));
    vec![match *words {
        ["late", ref rest @ ..] => return steps(rest).into_iter().map(late).collect(),
        ["full", ref rest @ ..] => return steps(rest).into_iter().map(full).collect(),
        ["delete"] => Step::Delete,
        ["forget"] => Step::Forget(0),
        ["forget", back] => Step::Forget(number(back)),
        ["lag"] => Step::Lag,
        ["go", "back"] => Step::GoBack,
        ["lose", side_key] => Step::Lose(side_key),
        ["overwrite", client, until] => Step::Overwrite(client.as_bytes()[0] - b'a', number(until)),
        ["set", field, value] => Step::Set(field, value),
        ["pass", time] => Step::Pass(number(time)),
        ["seen", _] => return Vec::new(),
        ["write"] => Step::Write(None),
        ["write", ttl] => Step::Write(Some(number(ttl))),
        ["revoke"] => Step::Revoke(Revocation::Graceful, 0),
        ["revoke", "now"] => Step::Revoke(Revocation::Now, 0),
        ["revoke", "now", unseen] => Step::Revoke(Revocation::Now, number(unseen)),
        ["remove", client] => Step::Remove(client.as_bytes()[0] - b'a', Revocation::Graceful),
        [clients, verb, ref rest @ ..] => {
            return clients.bytes().map(|client| step_of(client - b'a', verb, rest)).collect();
        }
        _ => return Vec::new(),
    }]
}

fn step_of(client: u8, verb: &str, rest: &[&str]) -> Step {
    match (verb, rest) {
        ("asks", options) => Step::Ask(with(options, Ask { client, ..plain_ask() })),
        ("waits", options) => Step::Ask(with(options, a_client(client))),
        ("renews", []) => Step::Renew(client, None),
        ("renews", [ttl]) => Step::Renew(client, Some(number(ttl))),
        ("releases", []) => Step::Release(client, Outcome::Exit(0)),
        ("leaves", []) => Step::Leave(client, false),
        ("leaves", ["early"]) => Step::LeaveEarly(client),
        ("gives", ["up"]) => Step::Leave(client, true),
        unknown => panic!("{unknown:?}"),
    }
}

pub(super) fn a_client(client: u8) -> Ask {
    Ask { client, ttl: 30_000, heartbeat: Some(10_000), ..plain_ask() }
}

fn with(options: &[&str], mut ask: Ask) -> Ask {
    for option in options {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        match name {
            "shared" | "slots" => ask.mode = (*option).to_owned().try_into().unwrap(),
            "ttl" => ask.ttl = number(value),
            "at-least" => ask.at_least = number(value),
            "heartbeat" => ask.heartbeat = Some(number(value)),
            "owner" => ask.owner = Some(number(value)),
            "reentrant" => ask.reentrant = true,
            "next" => ask.next = true,
            "supersedes" => (ask.supersedes, ask.arrival) = (true, Some(0)),
            "proposes" => ask.ticket = Some(None),
            "ticket" => ask.ticket = Some(Some(number(value))),
            "fence" => ask.held = Some((number(value), None)),
            "slot" => ask.held = ask.held.map(|(fence, _)| (fence, Slot::new(number(value)))),
            "acquire" => ask.kind = HoldKind::Acquire,
            "overtaken" => ask.overtaken = 1,
            "reminds" if value.is_empty() => ask.reminds = Some(20_000),
            "reminds" => ask.reminds = Some(number(value)),
            unknown => panic!("{unknown:?}"),
        }
    }
    ask
}

fn number<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// What a line looks at: the reply to a request, or the lock.
fn shown(both: &mut Both<'_>, words: &[&str]) -> String {
    let view = both.inspect();
    let is_request = |word: &&str| ["asks", "waits"].contains(word);
    match words {
        ["skipped"] => view.skipped.map_or(0, |it| it.count).to_string(),
        ["history"] => view.history.len().to_string(),
        ["left"] => format!("{:?}", view.ttl.unwrap()),
        ["slots"] => {
            let mut slots: Vec<_> = view.holders.iter().filter_map(|holder| holder.slot).collect();
            slots.sort();
            slots.iter().map(Slot::to_string).collect::<Vec<_>>().join(" ")
        }
        ["seen", client] => {
            let seen = &both.seen[usize::from(client.as_bytes()[0] - b'a')];
            clients(seen.iter().flat_map(|seen| &seen.ids))
        }
        ["woken"] => clients(mem::take(&mut both.woken).iter()),
        ["mailboxes"] => {
            let mailbox = both.key.side("mail:").into_bytes();
            let is_mailbox = |key: &&Vec<u8>| key.starts_with(&mailbox);
            Shim::redis(|redis| redis.home().keys().filter(is_mailbox).count().to_string())
        }
        words if words.iter().any(is_request) => match &both.verdict {
            Break(Verdict::Answer(Answer::Queued { position, .. })) => format!("Queued {position}"),
            Break(Verdict::Answer(answer)) => name(answer),
            Break(verdict) => name(verdict),
            Continue(Proposal { kept_out: true, .. }) => "KeptOut".into(),
            Continue(_) => "Proposed".into(),
        },
        _ => {
            let holders = clients(view.holders.iter().map(|holder| &holder.id));
            let waiters = clients(both.model.queue.iter().map(|waiter| &waiter.token));
            let then = if waiters.is_empty() { "" } else { "then" };
            let words = [&name(&view.state), &holders, then, &waiters];
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        }
    }
}

/// The clients that have these tokens or ids.
fn clients<'t>(tokens: impl Iterator<Item = &'t String>) -> String {
    let letter = |token: &String| match u8::from_str_radix(&token[..2], 16) {
        Ok(client) => char::from(b'a' + client).to_string(),
        Err(_) => token.clone(),
    };
    tokens.map(letter).collect::<Vec<_>>().join(" ")
}

fn name(variant: &impl Debug) -> String {
    format!("{variant:?}").chars().take_while(|c| c.is_alphanumeric()).collect()
}
