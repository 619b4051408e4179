//! Interprets the votes of the members. Everything here is pure: votes in, decisions out. `members`
//! collects the votes.

mod acquisition;
mod listing;
mod majority;
mod merge;
mod release;
mod renewal;
mod seat;
mod votes;

pub(super) use acquisition::{Acquisition, End, Order, Reply, Step, What};
pub(super) use listing::merge_listings;
pub(super) use majority::required;
pub(super) use merge::merge;
pub(super) use release::{ReleaseDecision, decide_release, is_release_decided};
pub(super) use renewal::{RenewalDecision, decide_renewal, is_renewal_decided};
pub(super) use votes::Votes;
