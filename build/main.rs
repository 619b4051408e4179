//! Does at build time what would otherwise slow down each short run of rlock.

mod scripts;

use std::path::Path;
use std::process::Command;

fn main() -> std::io::Result<()> {
    link_unwinder();
    scripts::assemble()
}

/// Links the unwinder into the program. A panic ends the process, so nothing uses the unwinder, but
/// Rust's standard library refers to it. Loading libgcc_s.so for that takes 0.1 ms at each start.
/// If the compiler has no static unwinder, the program uses the shared one as usual.
fn link_unwinder() {
    if variable("CARGO_CFG_TARGET_ENV") != "gnu" || variable("HOST") != variable("TARGET") {
        return;
    }
    let found = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    let path = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    // A compiler that does not find it prints the bare name.
    if path.is_ok_and(|path| Path::new(&path).is_absolute()) {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// A variable that Cargo sets; empty if it does not.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
