//! Interprets the votes of the members of a quorum: votes in, decisions out. `store::quorum`
//! collects the votes.

pub(crate) mod acquisition;
mod listing;
mod majority;
mod member_state;
mod merge;
mod release;
mod removal;
mod renewal;
mod votes;

pub(crate) use acquisition::{Acquisition, End, MemberRequest, Order, Reply, Step};
pub(crate) use listing::merge_listings;
pub(crate) use majority::{grace_until, required};
pub(crate) use member_state::Run;
pub(crate) use merge::merge;
pub(crate) use release::{ReleaseDecision, decide_release, is_release_decided};
pub(crate) use removal::decide_removal;
pub(crate) use renewal::{RenewalDecision, decide_renewal, is_renewal_decided};
pub(crate) use votes::Votes;
