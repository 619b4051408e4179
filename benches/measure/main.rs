//! Measures the figures that the README and docs/servers.md state: `cargo bench`. `cargo bench --
//! server` measures one part. `RLOCK_TEST_BINARY` names another binary to measure.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a failed measurement has no result to print"
)]
#![allow(clippy::disallowed_methods, reason = "this program has Rust's main")]

#[path = "../../tests/support/mod.rs"]
mod support;

mod client;
mod floor;
mod handoff;
mod hyperfine;
mod load;
mod loss;
mod peers;
mod quorum;
mod recording;
mod server;
mod storm;

fn main() {
    // SAFETY: no other thread runs yet.
    unsafe {
        // Cargo sets it, and every program then searches more directories for its libraries.
        std::env::remove_var("LD_LIBRARY_PATH");
    }
    let parts: [(&str, fn()); 8] = [
        ("floor", floor::measure),
        ("peers", peers::measure),
        ("handoff", handoff::measure),
        ("server", server::measure),
        ("client", client::measure),
        ("quorum", quorum::measure),
        ("loss", loss::measure),
        ("storm", storm::measure),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, {}", load::version(&support::Server::start()));
    for (name, measure) in parts {
        if wanted.is_empty() || wanted.iter().any(|it| it == name) {
            println!("{name}:");
            measure();
        }
    }
}
