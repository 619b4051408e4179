//! Measures the figures that the README and docs/sizing.md state, next to other tools: `cargo bench`.
//! Tools that are not installed are skipped, with a message. `cargo bench -- sizing` measures one
//! part. `RLOCK_TEST_BINARY` names another binary to measure.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a failed measurement has no result to print"
)]
#![allow(clippy::disallowed_methods, reason = "this program has Rust's main")]

#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "the tests in main.rs use the rest")]
mod support;

mod handoff;
mod load;
mod peers;
mod process;
mod quorum;
mod recording;
mod server;
mod sizing;
mod statistics;
mod timing;

fn main() {
    let parts: [(&str, fn()); 6] = [
        ("peers", peers::measure),
        ("server", server::measure),
        ("handoff", handoff::measure),
        ("process", process::measure),
        ("quorum", quorum::measure),
        ("sizing", sizing::measure),
    ];
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, {}", statistics::version(&support::Server::start()));
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    for (name, measure) in parts {
        if wanted.is_empty() || wanted.iter().any(|it| it == name) {
            measure();
        }
    }
}
