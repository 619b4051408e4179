//! The requests to a lock. Each is the twin of a script in `lua/requests/`.

mod acquire;
mod inspect;
mod leave;
mod release;
mod remove;
mod renew;
mod revoke;
