//! One connection to a server: its address, dialing, TLS, commands out and replies in.
//!
//! This is the only module that names the redis crate, which packs commands, defines values and
//! errors, and reads URLs.

mod connection;
mod dial;
mod endpoint;
mod limit;
mod peer;
mod resp;
mod route;
mod stream;
mod tls;

pub(super) use redis::from_redis_value;
pub use redis::{Cmd, ServerError, Value, cmd};

pub(super) use connection::Connection;
pub(super) use dial::ending_certificates;
pub use endpoint::Endpoint;
pub(super) use limit::Limit;
pub(super) use peer::mistakes;
pub use peer::{Credentials, Peer};
pub(super) use resp::OVERHEAD;
pub use resp::Reader;
pub(crate) use stream::any_server_has_answered;
pub(super) use stream::note_answer;
pub use tls::{Pem, PemFiles, Reread, TlsFiles};
