//! An installation has the program, its man pages and completions. A removal leaves nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Finished, binary, run};
use tempfile::TempDir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn go(program: &str, arguments: &[&str]) -> String {
    let output = run(Command::new(program).args(arguments).current_dir(ROOT));
    assert_eq!(output.code(), 0, "{program} {arguments:?}: {output:?}");
    output.out()
}

/// All files below a directory, with paths relative to it.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => left.push(entry.path()),
                false => {
                    found.push(entry.path().strip_prefix(directory).unwrap().display().to_string());
                }
            }
        }
    }
    found.sort();
    found
}

#[track_caller]
fn is_complete(files: &[String], parts: &[&str]) {
    for part in parts {
        assert!(files.iter().any(|file| file.ends_with(part)), "no {part} in {files:?}");
    }
}

/// Runs make with these variables, each as NAME=VALUE.
fn make(goal: &str, variables: &[&str]) {
    go("make", &[&[goal], variables].concat());
}

const INSTALLED: [&str; 6] = [
    "bin/rlock",
    "share/man/man1/rlock.1",
    "share/man/man1/rlock-exec.1",
    "share/bash-completion/completions/rlock",
    "share/zsh/site-functions/_rlock",
    "share/fish/vendor_completions.d/rlock.fish",
];

#[test]
fn make_installs_and_uninstalls() {
    let target = TempDir::new().unwrap();
    let destination = format!("DESTDIR={}", target.path().display());
    make("install", &[&destination, &format!("PROGRAM={}", binary())]);
    let root = target.path().join("usr/local");
    is_complete(&files(&root), &INSTALLED);
    assert_eq!(files(target.path()).len(), files(&root).len(), "all files are below PREFIX");
    let rlock = root.join("bin/rlock");
    assert!(go(&rlock.display().to_string(), &["--version"]).starts_with("rlock "));
    make("uninstall", &[&destination]);
    assert_eq!(files(target.path()), Vec::<String>::new());
}

#[test]
fn make_installs_the_build_of_cargo_below_any_prefix() {
    let directory = TempDir::new().unwrap();
    // As cargo lays out its target directory.
    let build = directory.path().join("the target/release");
    fs::create_dir_all(&build).unwrap();
    fs::copy(binary(), build.join("rlock")).unwrap();
    let target = format!("CARGO_TARGET_DIR={}", build.parent().unwrap().display());
    let root = directory.path().join("a root");
    let destination = format!("DESTDIR={}", root.display());
    make("install", &[&target, &destination, "PREFIX=/opt/r lock"]);
    is_complete(&files(&root.join("opt/r lock")), &INSTALLED);
    assert_eq!(files(&root).len(), files(&root.join("opt/r lock")).len());
    // The files of others stay.
    let other = root.join("opt/r lock/share/man/man1/other.1");
    fs::write(&other, "").unwrap();
    make("uninstall", &[&destination, "PREFIX=/opt/r lock"]);
    assert_eq!(files(&root), ["opt/r lock/share/man/man1/other.1"]);

    // From the environment too, and without DESTDIR.
    let prefix = directory.path().join("prefix");
    let mut install = Command::new("make");
    install.arg("install").current_dir(ROOT).env("PREFIX", &prefix);
    install.env("CARGO_TARGET_DIR", build.parent().unwrap());
    assert_eq!(run(&mut install).code(), 0);
    is_complete(&files(&prefix), &INSTALLED);
}

#[test]
fn the_debian_package_is_installed_and_removed() {
    let directory = TempDir::new().unwrap();
    let package = directory.path().join("rlock.deb");
    let target = PathBuf::from(env!("CARGO_BIN_EXE_rlock")).parent().unwrap().to_path_buf();
    let target = target.parent().unwrap().to_path_buf();
    // The tested binary, because a release build would take long.
    let mut build = Command::new("cargo-deb");
    build.args(["deb", "--no-build", "--profile", "dev", "--output"]).arg(&package);
    let output = run(build.current_dir(ROOT).env("CARGO_TARGET_DIR", target));
    assert_eq!(output.code(), 0, "{output:?}");

    let root = directory.path().join("root");
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |arguments: &[&str]| {
        let log = format!("--log={}", directory.path().join("log").display());
        let root = format!("--root={}", root.display());
        // This root has no libc to depend on.
        let all = [&[&root, &log, "--force-depends", "--force-not-root"], arguments].concat();
        go("dpkg", &all)
    };
    dpkg(&["--install", &package.display().to_string()]);
    let installed = files(&root.join("usr"));
    is_complete(
        &installed,
        &[
            "bin/rlock",
            "share/man/man1/rlock.1.gz",
            "share/man/man1/rlock-inspect.1.gz",
            "bash-completion/completions/rlock",
            "zsh/vendor-completions/_rlock",
            "fish/vendor_completions.d/rlock.fish",
            "share/doc/rlock/copyright",
        ],
    );
    let rlock = root.join("usr/bin/rlock").display().to_string();
    assert!(go(&rlock, &["--version"]).starts_with("rlock "));
    let listed = dpkg(&["--status", "rlock"]);
    assert!(listed.contains("Status: install ok installed"), "{listed}");
    assert!(listed.contains("Depends: libc6"), "{listed}");
    dpkg(&["--purge", "rlock"]);
    let left = files(&root).into_iter().filter(|file| file.starts_with("usr/"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new());
}
