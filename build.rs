//! Puts the prologue before each script of `lua/` and takes the hash by which a server knows the
//! result: at build time, because a run of rlock is too short to hash kilobytes first.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
    let prologue = fs::read_to_string("lua/prologue.lua")?;
    let mut generated = String::new();
    for name in ["acquire", "renew", "release", "leave", "inspect"] {
        let script = fs::read_to_string(format!("lua/{name}.lua"))?;
        let source = format!("{prologue}\n{script}");
        let hash = sha1_smol::Sha1::from(&source).hexdigest();
        let constant = name.to_uppercase();
        // Writing to a string cannot fail.
        let _ = writeln!(
            generated,
            "pub(super) const {constant}: Script = Script {{ source: {source:?}, hash: {hash:?} }};"
        );
    }
    let directory = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&directory).join("scripts.rs"), generated)
}
