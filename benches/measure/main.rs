//! Measures the speed and size that the README states, next to other tools: `cargo bench`. Tools
//! that are not installed are skipped, with a message. `cargo bench -- quorum` measures one part.

#![allow(clippy::expect_used, reason = "a failed measurement has no result to print")]

#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "the tests in main.rs use the rest")]
mod support;

mod peers;
mod process;
mod quorum;
mod server;
mod timing;

fn main() {
    let parts: [(&str, fn()); 4] = [
        ("peers", peers::measure),
        ("server", server::measure),
        ("process", process::measure),
        ("quorum", quorum::measure),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    for (name, measure) in parts {
        if wanted.is_empty() || wanted.iter().any(|it| it == name) {
            measure();
        }
    }
}
