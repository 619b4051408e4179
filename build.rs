//! What can be done at build time so that a run of rlock, which is short, need not do it.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    assemble_scripts()?;
    link_the_unwinder();
    Ok(())
}

/// Puts the prologue before each script of `lua/` and takes the hash by which a server knows the
/// result.
fn assemble_scripts() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
    let prologue = fs::read_to_string("lua/prologue.lua")?;
    let mut generated = String::new();
    for name in ["acquire", "renew", "release", "leave", "revoke", "inspect"] {
        let script = fs::read_to_string(format!("lua/{name}.lua"))?;
        let source = without_comments(&format!("{prologue}\n{script}"));
        let hash = sha1_smol::Sha1::from(&source).hexdigest();
        let constant = name.to_uppercase();
        // Writing to a string cannot fail.
        let _ = writeln!(
            generated,
            "pub(super) const {constant}: Script = Script {{ source: {source:?}, hash: {hash:?} }};"
        );
    }
    fs::write(Path::new(&variable("OUT_DIR")).join("scripts.rs"), generated)
}

/// What the server has to read, line by line as in the files so that its errors name their lines.
fn without_comments(script: &str) -> String {
    let lines = script.lines().map(|line| match line.trim_start() {
        comment if comment.starts_with("--") => "",
        line => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Links the unwinder into the program. It is never used, since a panic ends the process, but
/// Rust's library refers to it, and loading libgcc_s.so for that costs 0.1 ms at each start. Where
/// the compiler has no static one, the shared one serves as it always does.
fn link_the_unwinder() {
    println!("cargo::rerun-if-changed=build.rs");
    if variable("CARGO_CFG_TARGET_ENV") != "gnu" || variable("HOST") != variable("TARGET") {
        return;
    }
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    let path = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    // A compiler that does not find it prints the bare name.
    if path.is_ok_and(|path| Path::new(&path).is_absolute()) {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
