//! What tests need in C, because a script would be too slow, or cannot replace a function.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::limit::output_of;

/// Compiles a file of this folder. Each program of tests does so once: another one may be using the
/// last result.
#[track_caller]
pub fn compiled(source: &str, name: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (file, new) = (folder.join(name), folder.join(format!("{}-{name}", std::process::id())));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(source);
    let mut compile = Command::new("cc");
    let output = output_of(compile.args(options).arg("-o").arg(&new).arg(source));
    assert!(output.status.success(), "{output:?}");
    std::fs::rename(new, &file).unwrap();
    file
}

/// A program that leaves orphans, as its source describes.
pub static STORM: LazyLock<PathBuf> = LazyLock::new(|| compiled("storm.c", "storm", &["-O1"]));
