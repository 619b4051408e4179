//! Chooses how the program is linked.

use std::fs;
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

/// Loads the program at a fixed address, so that it needs fewer relocations at each start. See
/// docs/decisions.md.
pub(crate) fn fixed_address() {
    let shares_libc = variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && !variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|it| it == "crt-static");
    // A static program needs another startup object too. Only rustc can choose it, by its relocation
    // model.
    if shares_libc && !is_chosen("relocation-model") {
        pass(&["-no-pie"]);
    }
}

/// Places the functions that short runs execute next to each other, and likewise the constants that
/// they read. On a page fault, Linux maps a block of 64 KiB, and each block that a run uses costs it
/// several microseconds. See docs/decisions.md.
pub(crate) fn short_runs() {
    // Cargo corrects a path in OUT_DIR if the directory has been moved since this ran.
    let script = Path::new(&variable("OUT_DIR")).join("short_runs.ld");
    if fs::write(&script, include_str!("short_runs.ld")).is_ok() {
        // Two arguments, because the path may contain a comma.
        pass(&["-T", &script.to_string_lossy()]);
    }
}

/// Passes arguments to the linker in release builds for Linux, if the linker accepts them and
/// `RUSTFLAGS` neither chooses a linker nor passes options to it.
fn pass(arguments: &[&str]) {
    let is_release = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("PROFILE") == "release";
    if is_release && !is_chosen("link") && accepts(arguments) {
        for argument in arguments {
            println!("cargo::rustc-link-arg-bin=rlock={argument}");
        }
    }
}

/// Whether `RUSTFLAGS` has a codegen option that starts with `beginning`.
fn is_chosen(beginning: &str) -> bool {
    // rustc accepts hyphens and underscores in the names of options.
    let flags = variable("CARGO_ENCODED_RUSTFLAGS").replace('_', "-");
    let mut options =
        flags.split('\x1f').map(|it| it.trim_start_matches("--codegen=").trim_start_matches("-C"));
    options.any(|option| option.starts_with(beginning))
}

/// Whether the linker accepts these arguments. GNU ld and lld accept a linker script; gold and mold do
/// not.
fn accepts(arguments: &[&str]) -> bool {
    let chosen = variable("RUSTC_LINKER");
    let mut linker = Command::new(if chosen.is_empty() { "cc" } else { &chosen });
    // Without an entry point, the linker would print a warning, which options can turn into an error.
    linker.args(["-nostdlib", "-Wl,--entry=0", "-x", "c", "/dev/null"]).args(arguments);
    linker.arg("-o").arg(Path::new(&variable("OUT_DIR")).join("linked"));
    linker.output().is_ok_and(|output| output.status.success())
}
