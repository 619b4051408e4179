//! The directory of `local:`: who makes it, who may write it, and what others may put into it.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::local::{Local, age};
use crate::support::{Finished, READY, Running, binary, rlock, run};

fn set_mode(local: &Local, mode: u32) {
    fs::set_permissions(local.locks(), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_that_the_user_names_is_created_once_and_only_with_a_note() {
    let local = Local::new();
    let created = format!("rlock: L: created lock directory {}", local.locks().display());
    for err in [&*created, ""] {
        let output = run(&mut local.rlock(&["exec", "L", "true"]));
        assert_eq!((output.code(), output.err().as_str()), (0, err));
    }
    fs::remove_dir_all(local.locks()).unwrap();
    let output = run(&mut local.rlock(&["exec", "-q", "L", "true"]));
    assert_eq!((output.code(), output.err().as_str()), (0, ""));
    // A mistake in the name must not make a lock that excludes nobody.
    let typo = local.0.path().join("typo/locks");
    let url = format!("local:{}", typo.display());
    run(rlock(["exec", "L", "true"]).env("RLOCK_URL", url)).exits(78);
    assert!(!local.0.path().join("typo").exists());
}

#[test]
fn a_directory_that_users_outside_the_group_control_causes_a_warning() {
    let local = Local::new();
    fs::create_dir(local.locks()).unwrap();
    let told = |part: &str| {
        let output = run(&mut local.rlock(&["exec", "L", "true"])).exits(0);
        let lines = if part.is_empty() { 0 } else { 1 };
        assert!(output.err().lines().count() == lines && output.err().contains(part), "{output:?}");
    };
    for mode in [0o700, 0o755, 0o2770] {
        set_mode(&local, mode);
        told("");
    }
    set_mode(&local, 0o1777);
    told("writable by every user; use ");
    if nix::unistd::geteuid().is_root() {
        set_mode(&local, 0o700);
        chown(local.locks(), Some(54321), None).unwrap();
        told("owned by another user; use ");
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error_with_one_remedy() {
    let local = Local::new();
    fs::create_dir(local.locks()).unwrap();
    let as_nobody = |environment: &str| {
        let user = ["--reuid=54321", "--regid=54321", "--clear-groups", "env", environment];
        let mut command = Command::new("setpriv");
        command.args(user).args(["RLOCK_URL=local:", binary(), "exec", "L", "true"]);
        run(command.env_remove("XDG_STATE_HOME"))
    };
    if nix::unistd::geteuid().is_root() {
        let home = local.locks();
        fs::set_permissions(local.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (mode, part) in [(0o755, "cannot create "), (0o700, "/rlock: permission denied")] {
            set_mode(&local, mode);
            let output = as_nobody(&format!("HOME={}", home.display()));
            assert_eq!(output.code(), 78, "{output:?}");
            let remedy = "permission denied; name a writable directory with local:/DIRECTORY";
            assert!(output.err().contains(part) && output.err().ends_with(remedy), "{output:?}");
        }
    }
    run(&mut local.rlock(&["exec", "--tls-ca", "/dev/null", "L", "true"]))
        .exits(78)
        .says("require TLS; use a rediss:// URL");
}

#[test]
fn a_holder_whose_files_are_deleted_is_told_so() {
    let local = Local::new();
    let exec = ["exec", "--ttl", "1s", "L", "sh", "-c", READY];
    let mut holder = Running::start(&mut local.rlock(&exec)).prints_first("READY");
    fs::remove_dir_all(local.locks()).unwrap();
    holder.told("the lock was deleted with its files; stopping the command");
    assert_eq!(holder.end().code(), 76);
}

#[test]
fn a_state_file_of_any_size_ends_no_command() {
    let local = Local::new();
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 0);
    // Without a limit, reading it would take 60 s and 6 GB.
    let state = File::options().write(true).open(local.state()).unwrap();
    state.set_len(3 << 31).unwrap();
    let output = run(&mut local.rlock(&["exec", "L", "true"])).exits(78);
    let part = format!("{}: lock file exceeds 64 MiB; ", local.state().display());
    assert!(output.err().contains(&part), "{output:?}");
}

#[test]
fn the_sweep_waits_until_the_command_has_ended() {
    let local = Local::new();
    assert_eq!(run(&mut local.rlock(&["exec", "old", "true"])).code(), 0);
    let names = ["rlock:old.lock", ".rlock:old.state", ".swept"];
    let files = names.map(|name| local.locks().join(name));
    files.iter().for_each(|file| age(file));
    let holder =
        Running::start(&mut local.rlock(&["exec", "L", "sh", "-c", READY])).prints_first("READY");
    assert!(files[1].exists());
    assert_eq!(holder.finish().code(), 0);
    assert!(!files[0].exists() && !files[1].exists() && files[2].exists());
}
