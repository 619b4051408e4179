//! The directory of `local:`: who makes it, who may write it, and what others may put into it.

use std::fs::{self, File};
use std::os::unix::fs::chown;

use crate::local::{set_mode, state};
use crate::support::{Finished, Server, holder, rlock, run};

#[test]
fn a_directory_that_the_user_names_is_created_once_and_only_with_a_note() {
    let local = Server::local();
    let created = format!("rlock: L: created lock directory {}", local.locks().display());
    fs::remove_dir_all(local.locks()).unwrap();
    for told in [&*created, ""] {
        assert_eq!(local.run("exec L true").exits(0).err(), told);
    }
    fs::remove_dir_all(local.locks()).unwrap();
    assert_eq!(local.run("exec -q L true").exits(0).err(), "");
    // A mistake in the name must not make a lock that excludes nobody.
    let typo = local.directory().join("typo/locks");
    let url = format!("local:{}", typo.display());
    run(rlock(["exec", "L", "true"]).env("RLOCK_URL", url)).exits(78);
    assert!(!local.directory().join("typo").exists());
}

#[test]
fn a_directory_that_users_outside_the_group_control_causes_a_warning() {
    let local = Server::local();
    let told = || local.run("exec L true").exits(0).err();
    for mode in [0o700, 0o755, 0o2770] {
        set_mode(&local.locks(), mode);
        assert_eq!(told(), "");
    }
    set_mode(&local.locks(), 0o1777);
    assert!(told().contains("writable by every user; use "));
    if nix::unistd::geteuid().is_root() {
        set_mode(&local.locks(), 0o700);
        chown(local.locks(), Some(54321), None).unwrap();
        assert!(told().contains("owned by another user; use "));
    }
}

#[test]
fn a_holder_whose_files_are_deleted_is_told_so() {
    let local = Server::local();
    let holder = holder(&local, &["--ttl", "1s"], "L");
    fs::remove_dir_all(local.locks()).unwrap();
    let told = "the lock was deleted with its files; stopping the command";
    holder.end().exits(76).says(told);
}

#[test]
fn a_state_file_of_any_size_ends_no_command() {
    let local = Server::local();
    local.run("exec L true").exits(0);
    // Without a limit, reading it would take 60 s and 6 GB.
    File::options().write(true).open(state(&local)).unwrap().set_len(3 << 31).unwrap();
    let told = format!("{}: lock file exceeds 64 MiB; ", state(&local).display());
    local.run("exec L true").exits(78).says(&told);
}
