//! The promises.

use std::fmt;

/// A promise. If a search ends without a broken promise, all of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    HoldersExcludeEachOther,
    EachHolderHasItsSlot,
    FencesGrow,
    FirstComeFirstServed,
    TheNewestWins,
    NoLockIsIdleBesideAWaiter,
    ADeadHoldEndsInTime,
    AtLeastIsKept,
    ARevokedHolderStops,
    WhatIsOverStaysOver,
    SomebodyWins,
    ANominationLapses,
    EachProvesItsOwnLife,
    NothingIsLeft,
    NothingIsStuck,
    TheScriptsAgree,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HoldersExcludeEachOther => "two commands run that exclude each other",
            Self::EachHolderHasItsSlot => "two commands run with one slot number, or one without",
            Self::FencesGrow => "a fencing token did not grow",
            Self::FirstComeFirstServed => "a living waiter was overtaken",
            Self::TheNewestWins => "not the newest request with --supersede remains",
            Self::NoLockIsIdleBesideAWaiter => "the lock is idle beside a living waiter",
            Self::ADeadHoldEndsInTime => {
                "a hold lasts longer than its holder's last request allows"
            }
            Self::AtLeastIsKept => "the lock was granted before --at-least ended",
            Self::ARevokedHolderStops => "a command runs on although its hold was revoked",
            Self::WhatIsOverStaysOver => "a token that was released or given up is in the lock",
            Self::SomebodyWins => "a waiter gave up, or all that came together lost",
            Self::ANominationLapses => "a call lasts longer than the claim window",
            Self::EachProvesItsOwnLife => "a waiter is believed alive because of another client",
            Self::NothingIsLeft => "something is left when all have ended",
            Self::TheScriptsAgree => "the scripts do not do what the model does",
            Self::NothingIsStuck => "no way leads from here to the end",
        })
    }
}

impl Property {
    /// The first one that is broken.
    pub(super) fn first<const N: usize>(broken: [(Self, bool); N]) -> Option<Self> {
        broken.into_iter().find(|(_, broken)| *broken).map(|(property, _)| property)
    }
}
