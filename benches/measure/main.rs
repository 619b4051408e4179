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

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

fn main() {
    let wanted: Vec<String> = env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rlock");
    if Path::new(support::binary()) != installed {
        start_again(&installed);
    }
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
    for (name, measure) in parts {
        if wanted.is_empty() || wanted.iter().any(|it| it == name) {
            measure();
        }
    }
}

/// Measures what users have: a copy of the binary that was read from the disk, and no variable of
/// Cargo. Linux maps a file that was just written in larger or smaller pieces. With
/// `LD_LIBRARY_PATH`, which Cargo sets, flock and `true` look for their libraries in more
/// directories.
fn start_again(installed: &Path) -> ! {
    let _ = fs::remove_file(installed);
    fs::copy(support::binary(), installed).expect("the binary can be copied");
    let file = fs::File::open(installed).expect("the copy can be read");
    file.sync_all().expect("the copy can be written to the disk");
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("it is a file");
    let mut again = Command::new(env::current_exe().expect("this program has a path"));
    again.args(env::args_os().skip(1));
    again.env("RLOCK_TEST_BINARY", installed).env_remove("LD_LIBRARY_PATH");
    panic!("this program cannot start again: {}", again.exec());
}
