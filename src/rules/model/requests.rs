//! The requests to a lock. Each is the twin of a script in `lua/requests/`.

mod acquire;
mod commit;
mod inspect;
mod leave;
mod propose;
mod release;
mod remove;
mod renew;
mod revoke;
