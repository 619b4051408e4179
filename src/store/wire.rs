//! One connection to a server: its address, dialing, TLS, commands out and replies in.
//!
//! This is the only module that names the redis crate, which packs commands, parses replies and
//! reads URLs.

mod address;
mod connection;
mod dial;
mod tls;

pub(super) use redis::{Cmd, FromRedisValue, ServerError, Value, cmd, from_redis_value};

#[cfg(any(test, fuzzing))]
pub(super) use redis::parse_redis_value;

pub(crate) use address::Credentials;
pub(super) use address::{Address, Endpoint};
pub(super) use connection::{Connection, Limit};
pub(super) use dial::addresses_of;
pub(super) use tls::Tls;
pub(crate) use tls::{Identity, Pem, TlsFiles};
