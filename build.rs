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

/// Puts what it needs of the prologue before each script of `lua/`, and takes the hash by which a
/// server knows the result.
fn assemble_scripts() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
    let prologue = fs::read_to_string("lua/prologue.lua")?;
    let mut generated = String::new();
    for name in ["acquire", "renew", "release", "leave", "revoke", "inspect"] {
        let script = fs::read_to_string(format!("lua/{name}.lua"))?;
        let (prologue, script) = (without_comments(&prologue), without_comments(&script));
        let source = format!("{}\n{script}", needed_by(&script, &prologue));
        let lines = source.lines().map(str::trim_start).filter(|line| !line.is_empty());
        let source = lines.collect::<Vec<_>>().join("\n");
        // What takes a request back is written behind it, and the connection is closed. A server reads
        // 16 KiB at a time, and forgets the rest when it cannot answer the first.
        let follows = name == "leave" || name == "release";
        assert!(!follows || source.len() < 14 * 1024, "{name} takes {} bytes", source.len());
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

fn without_comments(script: &str) -> String {
    let lines = script.lines().map(|line| match line {
        comment if comment.trim_start().starts_with("--") => "",
        line => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The prologue without the functions that a script does not come to. A function begins with
/// `local function` and ends with `end`, both at the beginning of a line, or is all on one line.
fn needed_by(script: &str, prologue: &str) -> String {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.map(str::to_owned).collect()
    };
    // The number of the function that each line is of; of none, it is always needed.
    let mut functions: Vec<(&str, Vec<String>)> = Vec::new();
    let mut owners = Vec::new();
    let mut inside = false;
    let mut known = words(script);
    for line in prologue.lines() {
        if let Some(rest) = line.strip_prefix("local function ") {
            functions.push((rest.split('(').next().unwrap_or_default(), Vec::new()));
            inside = !line.ends_with(" end");
            owners.push(Some(functions.len() - 1));
        } else if inside {
            owners.push(Some(functions.len() - 1));
            inside = line != "end";
        } else {
            known.extend(words(line));
            owners.push(None);
        }
        if let (Some(Some(_)), Some((_, used))) = (owners.last(), functions.last_mut()) {
            used.extend(words(line));
        }
    }
    let mut needed = vec![false; functions.len()];
    while let Some(next) = (0..functions.len())
        .find(|&number| !needed[number] && known.iter().any(|word| word == functions[number].0))
    {
        needed[next] = true;
        known.extend(functions[next].1.iter().cloned());
    }
    let lines = prologue.lines().zip(owners).map(|(line, owner)| match owner {
        Some(number) if !needed[number] => "",
        _ => line,
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
