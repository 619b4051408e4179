//! One server.

mod canonical;
mod client;
mod connection;
mod monitor;
mod moves;
mod play;
mod properties;
mod scopes;
mod server;
mod trace;
mod world;
