//! Interprets the votes of the members of a quorum: votes in, decisions out. `store::quorum`
//! collects the votes.

pub mod acquisition;
mod ask;
mod listing;
mod majority;
mod member_state;
mod merge;
mod release;
mod removal;
mod renewal;
mod votes;

pub use acquisition::{
    Acquisition, AttemptEnd, AttemptStep, MemberAnswer, MemberRequest, Outgoing,
};
pub use ask::{Held, Nomination, Proposal, QuorumOp, Vote};
pub use listing::merge_listings;
pub use majority::{grace_until, majority};
pub use member_state::{LastReply, MemberState};
pub use merge::merge;
pub use release::{ReleaseDecision, decide_release, is_release_decided};
pub use removal::decide_removal;
pub use renewal::{RenewalDecision, decide_renewal, is_renewal_decided};
pub use votes::Votes;
