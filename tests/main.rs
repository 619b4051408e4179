//! What rlock promises, one file for each promise. They are one program, because they share `support`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(missing_docs)]

mod support;

mod addresses;
mod bounded;
mod cluster;
mod completion;
mod denials;
mod endpoint;
mod errors;
mod every_signal;
mod exclusion;
mod floors;
mod frozen;
mod hostile;
mod inspect;
mod interop;
mod json;
mod lease;
mod local;
mod local_clocks;
mod local_deaths;
mod local_directory;
mod modes;
mod nested;
mod packaging;
mod pages;
mod passwords;
mod picture;
mod precedence;
mod promotions;
mod quorum;
mod quorum_queue;
mod recipes;
mod refusals;
mod removal;
mod renewals;
mod retries;
mod round_trips;
mod sandboxes;
mod sentinel;
mod servers;
mod signals;
mod slots;
mod starts;
mod storms;
mod suggested;
mod suspended;
mod terminal;
mod terminal_table;
mod tls;
mod tokens;
mod transparency;
mod waiting;
mod while_pid;
