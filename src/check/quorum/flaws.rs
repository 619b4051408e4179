//! Tests the checker: it must catch each seeded flaw by the property that the flaw breaks.

use super::monitor::Property;
use super::world::World;
use crate::check::report::{catches, flaws};
use crate::seeded::Flaw;

flaws! {
    a_call_that_counts: CountsCalls in "x,xt D1" breaks FencesGrow;
    a_ticket_that_is_not_agreed: KeepsProposedTickets in "x,x D1" breaks NoLockIsIdleBesideAWaiter;
    a_call_that_does_not_lapse: NeverLapses in "x,x D1 c1" breaks ACallLapses;
    a_farewell_that_is_forgotten: ForgetsFarewells in "x D1 b1 l1" breaks WhatIsOverStaysOver;
    a_message_that_is_not_sent: WakesNobody in "x,x D1" breaks NoLockIsIdleBesideAWaiter;
    a_slot_too_many: AddsASlot in "1,1 D1" breaks HoldersExcludeEachOther;
    a_majority_for_a_slot: CountsSlotsAsOne in "2,2t,2t" breaks HoldersExcludeEachOther;
    a_lock_that_keeps_traces: LeavesTraces in "x D1" breaks NothingIsLeft;
}

/// These need three living servers, so their searches take long.
#[test]
fn the_checker_finds_seeded_flaws_among_three_servers() {
    if !std::env::var("RLOCK_CHECK").is_ok_and(|wanted| wanted == "all") {
        return;
    }
    catches::<World>(Flaw::TrustsYoungServers, "x,xt f1", Property::HoldersExcludeEachOther);
    catches::<World>(Flaw::LosesToProposals, "xn,xn", Property::SomebodyWins);
}
