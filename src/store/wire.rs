//! One connection to a server: its address, dialing, TLS, commands out and replies in.
//!
//! This is the only module that names the redis crate, which packs commands, defines values and
//! errors, and reads URLs.

mod address;
mod connection;
mod dial;
mod endpoint;
mod limit;
mod resp;
mod stream;
mod tls;

pub(super) use redis::{Cmd, ServerError, Value, cmd, from_redis_value};

pub(super) use address::Address;
pub(crate) use address::Credentials;
pub(super) use address::mistakes;
pub(super) use connection::Connection;
pub(super) use dial::addresses_of;
pub(super) use endpoint::Endpoint;
pub(super) use limit::Limit;
#[cfg(any(test, fuzzing))]
pub(super) use resp::first_reply;
pub(super) use tls::Tls;
pub(crate) use tls::{Identity, Pem, TlsFiles};
