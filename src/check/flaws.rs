//! Tests the checker: it must catch each seeded flaw by the property that the flaw breaks.

use super::properties::Property;
use super::report::flaws;
use super::world::World;

flaws! {
    a_newcomer_that_overtakes: Overtakes in "s,x,s" breaks FirstComeFirstServed;
    a_next_that_is_forgotten: ForgetsNext in "x,x,xh" breaks FirstComeFirstServed;
    a_newest_that_is_forgotten: ForgetsTheNewest in "x,xu,xu n1" breaks TheNewestWins;
    a_release_that_hands_nothing_over: KeepsAfterRelease in "x,xp" breaks NoLockIsIdleBesideAWaiter;
    a_waiter_that_is_not_woken: WakesNobody in "x,x" breaks NoLockIsIdleBesideAWaiter;
    a_head_that_is_not_told: TellsNoHead in "x,xp,xp c1 l1" breaks NoLockIsIdleBesideAWaiter;
    a_head_that_sleeps: SleepsPastTheLease in "x,xp c1" breaks NoLockIsIdleBesideAWaiter;
    a_fence_that_repeats: RepeatsFence in "x,x" breaks FencesGrow;
    a_lease_that_expires_early: ExpiresEarly in "x,x n1" breaks HoldersExcludeEachOther;
    a_slot_too_many: AddsASlot in "2,2,2" breaks HoldersExcludeEachOther;
    a_slot_that_is_given_twice: RepeatsSlot in "2,2,2" breaks EachHolderHasItsSlot;
    an_at_least_that_is_ignored: IgnoresAtLeast in "xa,xa" breaks AtLeastIsKept;
    a_revoked_hold_that_is_renewed: RenewsRevoked in "x,x v1" breaks ARevokedHolderStops;
    a_late_copy_that_is_obeyed: ObeysLateCopies in "x,x v1 b1" breaks HoldersExcludeEachOther;
    a_farewell_that_is_forgotten: ForgetsFarewells in "x,x b1 l1" breaks WhatIsOverStaysOver;
    a_release_that_is_forgotten: ForgetsReleases in "x,x b1" breaks WhatIsOverStaysOver;
    a_claim_that_does_not_lapse: KeepsUnclaimed in "x,x c1" breaks ADeadHoldEndsInTime;
    a_deleted_key_that_frees_the_lock: FreesDeleted in "x,x g1" breaks HoldersExcludeEachOther;
    a_reminder_that_is_ignored: IgnoresReminders in "x,x,x F1" breaks HoldersExcludeEachOther;
    an_idle_lock_that_keeps_traces: LeavesTraces in "x,x" breaks NothingIsLeft;
    a_cleanup_that_never_ends: NeverFinishes in "x,x c1" breaks NothingIsStuck;
    a_lease_that_is_counted_too_long: CountsTooLong in "x,x n1" breaks HoldersExcludeEachOther;
    a_lease_that_counts_from_the_answer: CountsFromAnswer in "xp,x d1 n1"
        breaks HoldersExcludeEachOther;
    a_grant_that_is_accepted_late: AcceptsLateGrants in "x,x d3" breaks HoldersExcludeEachOther;
    a_loss_that_is_ignored: IgnoresLoss in "x,x v1" breaks ARevokedHolderStops;
}
