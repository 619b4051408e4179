//! The directory of `local:`: what others may put into it.

use std::fs::{self, File};
use std::process::Command;

use rustix::fs::{Mode, OFlags, mkdirat, openat};

use crate::local::{Local, age};
use crate::support::{Finished, READY, Running, binary, run};

#[test]
fn a_state_file_of_any_size_and_folders_of_any_depth_end_no_command() {
    let local = Local::new();
    let long = "ä".repeat(100);
    for name in ["L", &long] {
        assert_eq!(run(&mut local.rlock(&["exec", name, "true"])).code(), 0);
    }
    // Without a limit, reading it would take 60 s and 6 GB.
    let state = File::options().write(true).open(local.state()).unwrap();
    state.set_len(3 << 31).unwrap();
    let output = run(&mut local.rlock(&["exec", "L", "true"]));
    assert_eq!(output.code(), 78, "{output:?}");
    let part = format!("{}: lock file exceeds 64 MiB; ", local.state().display());
    assert!(output.err().contains(&part), "{output:?}");

    // Many more levels than a name may need.
    let folder = format!("{}+", "a".repeat(200));
    let mut level = File::open(local.locks()).unwrap();
    for _ in 0..1_000 {
        mkdirat(&level, &*folder, Mode::RWXU).unwrap();
        level = openat(&level, &*folder, OFlags::RDONLY, Mode::empty()).unwrap().into();
    }
    fs::remove_file(local.state()).unwrap();
    fs::remove_file(local.locks().join("rlock:L.lock")).unwrap();
    age(&local.locks().join(".swept"));
    let script = format!("ulimit -s 512; {0} exec {long} true && {0} inspect", binary());
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env("RLOCK_URL", format!("local:{}", local.locks().display()));
    let output = run(&mut shell);
    assert_eq!(output.code(), 0, "{output:?}");
}

#[test]
fn the_sweep_waits_until_the_command_has_ended() {
    let local = Local::new();
    assert_eq!(run(&mut local.rlock(&["exec", "old", "true"])).code(), 0);
    let names = ["rlock:old.lock", ".rlock:old.state", ".swept"];
    let files = names.map(|name| local.locks().join(name));
    files.iter().for_each(|file| age(file));
    let mut holder = Running::start(&mut local.rlock(&["exec", "L", "sh", "-c", READY]));
    assert_eq!(holder.line(), "READY");
    assert!(files[1].exists());
    assert_eq!(holder.finish().code(), 0);
    assert!(!files[0].exists() && !files[1].exists() && files[2].exists());
}
