//! Chooses how the program is linked.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::variable;

/// Links the unwinder into the program. A panic ends the process, so nothing uses the unwinder, but
/// Rust's standard library refers to it. Loading libgcc_s.so for that takes 0.1 ms at each start.
/// If the compiler has no static unwinder, the program uses the shared one as usual.
pub(crate) fn unwinder() {
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

/// Places the functions that short runs execute next to each other, and likewise what they read. Linux
/// maps a file in pieces of 64 KiB, and each piece that a run uses costs it several microseconds. See
/// docs/decisions.md.
pub(crate) fn short_runs() {
    println!("cargo::rerun-if-changed=build/short_runs.ld");
    if variable("CARGO_CFG_TARGET_OS") != "linux" || variable("PROFILE") != "release" {
        return;
    }
    let script = env::current_dir().unwrap_or_default().join("build/short_runs.ld");
    if are_flags_default() && accepts(&script) {
        // Two arguments, because the path may contain a comma.
        println!("cargo::rustc-link-arg-bin=rlock=-T");
        println!("cargo::rustc-link-arg-bin=rlock={}", script.display());
    }
}

/// Whether the user passes nothing to the linker, such as the name of another one.
fn are_flags_default() -> bool {
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let mut options =
        flags.split('\x1f').map(|it| it.trim_start_matches("--codegen=").trim_start_matches("-C"));
    !options.any(|option| option.starts_with("link"))
}

/// Whether the linker accepts this script. GNU ld and lld do; gold and mold do not.
fn accepts(script: &Path) -> bool {
    let chosen = variable("RUSTC_LINKER");
    let mut linker = Command::new(if chosen.is_empty() { "cc" } else { &chosen });
    linker.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-T"]).arg(script);
    linker.arg("-o").arg(Path::new(&variable("OUT_DIR")).join("linked"));
    linker.output().is_ok_and(|output| output.status.success())
}
