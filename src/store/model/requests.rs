//! The requests of a lock, each the twin of a script in `lua/requests/`.

mod acquire;
mod inspect;
mod leave;
mod release;
mod renew;
mod revoke;
