//! Interprets the votes of the members of a quorum: votes in, decisions out. `store::quorum`
//! collects the votes.

pub mod acquisition;
mod listing;
mod majority;
mod member_state;
mod merge;
mod release;
mod removal;
mod renewal;
mod votes;

pub use super::ask::{Held, MemberAnswer, MemberRequest, Nomination, Proposal, QuorumOp, Vote};
pub use acquisition::{Acquisition, AttemptEnd, AttemptStep, Outgoing};
pub(crate) use listing::merge_listings;
pub(crate) use majority::grace_until;
pub use majority::majority;
pub use member_state::MemberState;
pub(crate) use merge::merge;
pub(crate) use release::{ReleaseDecision, decide_release, is_release_decided};
pub(crate) use removal::decide_removal;
pub(crate) use renewal::is_renewal_decided;
pub use renewal::{RenewalDecision, decide_renewal};
pub use votes::Votes;
