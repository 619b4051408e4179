//! An installation contains the program, its man pages and completions. A removal leaves nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::*;
use tempfile::TempDir;

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[track_caller]
pub(crate) fn go(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(ROOT).env("SOURCE_DATE_EPOCH", "1700000000");
    run(&mut command).exits(0).out()
}

/// All files below a directory.
pub(crate) fn files(directory: &Path) -> Vec<String> {
    let found = go("find", &[&directory.display().to_string(), "-type", "f"]);
    found.lines().map(str::to_owned).collect()
}

#[track_caller]
pub(crate) fn is_complete(files: &[String], parts: &[&str]) {
    for part in parts {
        assert!(files.iter().any(|file| file.ends_with(part)), "no {part} in {files:?}");
    }
}

#[test]
fn make_installs_below_any_prefix_and_uninstalls() {
    let directory = TempDir::new().unwrap();
    // As cargo lays out its target directory.
    let target = directory.path().join("the target");
    fs::create_dir_all(target.join("release")).unwrap();
    fs::copy(binary(), target.join("release/rlock")).unwrap();
    let destination = directory.path().join("a root");
    let root = destination.join("opt/r lock");
    let variables = [("CARGO_TARGET_DIR", &target), ("DESTDIR", &destination)]
        .map(|(name, value)| format!("{name}={}", value.display()));
    let make = |goal: &str| go("make", &[goal, &variables[0], &variables[1], "PREFIX=/opt/r lock"]);
    let missing = run(Command::new("make").args(["install", "PROGRAM=none"]).current_dir(ROOT));
    missing.exits(2).says("none is missing: run make first");
    make("install");
    let installed = files(&root);
    assert_eq!(installed, files(&destination), "all files are below PREFIX");
    is_complete(
        &installed,
        &[
            "share/man/man1/rlock.1",
            "share/man/man1/rlock-exec.1",
            "share/bash-completion/completions/rlock",
            "share/zsh/site-functions/_rlock",
            "share/fish/vendor_completions.d/rlock.fish",
        ],
    );
    let rlock = root.join("bin/rlock").display().to_string();
    assert!(go(&rlock, &["--version"]).starts_with("rlock "));
    // Files of other programs stay.
    let other = root.join("share/man/man1/other.1");
    fs::write(&other, "").unwrap();
    make("uninstall");
    assert_eq!(files(&destination), [other.display().to_string()]);
}

pub(crate) fn installer(from: &str, prefix: &Path) -> Command {
    let mut sh = Command::new("sh");
    sh.arg(Path::new(ROOT).join("packaging/install.sh")).arg(from).arg(prefix);
    sh
}

#[test]
fn an_installation_from_https_never_falls_back_to_http() {
    let directory = TempDir::new().unwrap();
    let curl = directory.path().join("curl");
    fs::write(&curl, "#!/bin/sh\necho \"$@\" >&2; exit 1\n").unwrap();
    fs::set_permissions(&curl, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let mut installer = installer("https://host", &directory.path().join("prefix"));
    run(installer.env("PATH", path)).exits(1).says("--proto =https --proto-redir =https");
}

/// The message names what is missing before anything is built, installed or started: the programs that
/// would do so are not there.
#[test]
fn what_a_build_lacks_is_said_at_once() {
    let directory = TempDir::new().unwrap();
    let program = |name: &str, script: &str| {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    };
    for name in ["sh", "make", "sed", "cut", "sort", "head", "uname", "dirname"] {
        program(name, &format!("exec {} \"$@\"", go("which", &[name]).trim()));
    }
    let says = |line: &str| {
        for words in [&["make"][..], &["make", "static"], &["tests/demo"], &["packaging/dist"]] {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).current_dir(ROOT).env_clear();
            let output = run(command.env("PATH", directory.path()).env("HOME", "/nowhere"));
            assert_ne!(output.code(), 0, "{words:?}");
            output.says(line);
        }
    };
    let rust = "install Rust 1.88 or later (https://rustup.rs";
    let compiler = "a C compiler (on Debian or Ubuntu: apt install gcc libc6-dev)";
    says(&format!("{rust}), and {compiler}"));
    program("cc", "");
    says(&format!("{rust})"));
    program("cargo", "echo 'cargo 1.63.0'");
    says(&format!("{rust}; cargo here is 1.63.0)"));
    program("cargo", "echo 'cargo 1.88.0 (873a06493 2025-05-10)'");
    program("cc", "exit 1");
    says(&format!(": install {compiler}"));
}
