//! The directory of `local:`: who makes it, who may write it, and what others may put into it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::process::{Command, Output};

use nix::unistd::geteuid;

use crate::local::{mode, set_mode, state};
use crate::support::*;
use crate::tls::Authority;

/// Runs an exec with this URL and this home directory.
#[track_caller]
fn at_home(url: &str, home: &str) -> Output {
    let mut exec = rlock(["exec", "demo", "echo", "I hold the lock"]);
    run(exec.env("RLOCK_URL", url).env("HOME", home).env_remove("XDG_STATE_HOME"))
}

#[test]
fn the_first_command_needs_no_server_and_no_setting_but_its_url() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().display().to_string();
    at_home("local:", &home).exits(0).prints("I hold the lock");
    let directory = format!("{home}/.local/state/rlock");
    let lock = format!("{directory}/rlock:demo.lock");
    assert_eq!((mode(directory.as_ref()), mode(lock.as_ref())), (0o700, 0o600));
    if geteuid().is_root() {
        chown(&directory, Some(54321), None).unwrap();
        at_home("local:", &home).exits(78).says("belongs to uid 54321; name a writable directory");
        chown(&directory, Some(0), None).unwrap();
    }
    // Nobody else may be able to write it.
    for mode in [0o770, 0o702, 0o755] {
        set_mode(directory.as_ref(), mode);
        at_home("local:", &home).exits(78).says("chmod 700");
    }
    let state = format!("{home}/state");
    let mut exec = rlock(["exec", "demo", "true"]);
    run(exec.env("RLOCK_URL", "local:").env("XDG_STATE_HOME", &state)).exits(0);
    assert!(fs::exists(format!("{state}/rlock/rlock:demo.lock")).unwrap());
}

#[test]
fn an_invalid_local_url_exits_with_78() {
    for (url, home, part) in [
        ("local:here", "/tmp", "is not absolute"),
        ("local:", "", "without HOME"),
        ("local:/dev/null/x", "/tmp", "not a directory; name a writable directory with"),
        ("local:/proc/none", "/tmp", "no such file or directory; name a writable directory with"),
        ("local:", "/proc", "cannot create /proc/.local/state/rlock: no such file"),
        ("local:/none/locks", "/tmp", "cannot create /none/locks: /none does not exist; create it"),
    ] {
        at_home(url, home).exits(78).says(part);
    }
    let authority = Authority::new();
    let tls = format!("exec --tls-ca {} L true", authority.file("ca.crt").display());
    Server::local().run(&tls).exits(78).says("require TLS; use a rediss:// URL");
}

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
    if geteuid().is_root() {
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
fn a_waiter_closes_a_lock_whose_files_are_deleted_under_its_holder() {
    let local = Server::local();
    let first = holder(&local, &["--ttl", "1h", "--on-lost", "continue"], "L");
    let second = waiter(&local, &["--ttl", "1500ms"], "L", "second");
    fs::remove_dir_all(local.locks()).unwrap();
    until("the lock is closed", || local.run("exec -n L true").err().contains("closed for up to "));
    // Its release opens the lock.
    first.finish().exits(76);
    second.end().prints("ENTERED second");
}

#[test]
fn the_directory_itself_may_be_a_link() {
    let local = Server::local();
    let elsewhere = local.directory().join("elsewhere");
    fs::rename(local.locks(), &elsewhere).unwrap();
    symlink(&elsewhere, local.locks()).unwrap();
    local.run("exec L true").exits(0);
    assert!(elsewhere.join("rlock:L.lock").exists());
}

#[test]
fn a_lock_works_under_any_umask() {
    let local = Server::local();
    for umask in ["0777", "0000"] {
        let script = format!("umask {umask}; exec $rlock exec L true");
        run(&mut local.program("sh -c", &script)).exits(0);
        assert_eq!(mode(&state(&local)), 0o600);
    }
}

/// A directory that a group shares. Only root can become other users; without root, all of them are
/// the user of the tests.
fn shared_by_a_group() -> Server {
    let local = Server::local();
    set_mode(local.directory(), 0o755);
    // The directory of the build may be closed to other users.
    fs::copy(binary(), local.directory().join("rlock")).unwrap();
    if geteuid().is_root() {
        chown(local.locks(), None, Some(54320)).unwrap();
    }
    set_mode(&local.locks(), 0o2770);
    local
}

/// An rlock of a user of the group, whose umask closes everything to the others.
fn by(user: u32, local: &Server, line: &str) -> Command {
    let become_user = match geteuid().is_root() {
        true => format!("setpriv --reuid={user} --regid=54320 --clear-groups"),
        false => String::new(),
    };
    let script = format!("umask 077; exec {}/rlock {line}", local.directory().display());
    let mut command = local.program(&format!("env {become_user} sh -c"), &script);
    command.env("RLOCK_TTL", "6s");
    command
}

const USERS: [u32; 2] = [54321, 54322];

#[test]
fn users_of_a_group_exclude_each_other_in_a_shared_directory() {
    let local = shared_by_a_group();
    let [one, other] = USERS;
    let exec = format!("exec L sh -c '{READY}'");
    let first = Running::start(&mut by(one, &local, &exec)).prints_first("READY");
    run(&mut by(other, &local, "exec -n L true")).exits(75);
    run(&mut by(other, &local, "inspect L")).shows("held by");
    let waiters = [other, one].map(|user| {
        Running::start(&mut by(user, &local, "exec L true")).tells("waiting at position")
    });
    first.finish().exits(0);
    for waiter in waiters {
        waiter.end().exits(0);
    }
    // Root's cron job, too.
    local.run("exec -n L true").exits(0);
    run(&mut by(other, &local, "release --force --now L")).exits(0);
}

#[test]
fn root_leaves_the_directory_of_another_user_usable_and_is_woken_there() {
    let local = shared_by_a_group();
    let [owner, _] = USERS;
    if geteuid().is_root() {
        chown(local.locks(), Some(owner), None).unwrap();
    }
    set_mode(&local.locks(), 0o700);
    // Root makes the files, and then replaces one by a larger one.
    for label in ["", &"x".repeat(500)] {
        for _ in 0..10 {
            run(&mut local.rlock(["exec", "--label", label, "L", "true"])).exits(0);
        }
        run(&mut by(owner, &local, "exec -n L true")).exits(0);
    }
    let exec = format!("exec L sh -c '{READY}'");
    let first = Running::start(&mut by(owner, &local, &exec)).prints_first("READY");
    let next = waiter(&local, &[], "L", "");
    // Unless it is woken, it looks again after 10 s.
    let mut longer = LongerWait::of("8s");
    first.finish().exits(0);
    next.end().exits(0);
    longer.is_not_over();
}

#[test]
fn root_makes_no_directory_of_its_own_where_another_user_needs_one() {
    let local = shared_by_a_group();
    let owner = if geteuid().is_root() { USERS[0] } else { geteuid().as_raw() };
    chown(local.locks(), Some(owner), None).unwrap();
    let new = local.locks().join("new");
    run(&mut at(&format!("local:{}", new.display()), "exec -n L true")).exits(0);
    assert_eq!(std::fs::metadata(new).unwrap().uid(), owner);
    let output = at_home("local:", &local.locks().display().to_string());
    if geteuid().is_root() {
        output.exits(78).says(&format!("would be in a directory of uid {owner}"));
        assert!(!local.locks().join(".local").exists());
    }
}

#[test]
fn a_file_that_may_not_be_opened_is_an_error_with_a_remedy() {
    let local = shared_by_a_group();
    let [one, other] = USERS;
    run(&mut by(one, &local, "exec L true")).exits(0);
    set_mode(&state(&local), if geteuid().is_root() { 0o600 } else { 0 });
    let told = "permission denied";
    run(&mut by(other, &local, "exec L true")).exits(78).says(told).says("chmod 2770");
}

#[test]
fn a_container_without_proc_or_with_a_read_only_root_is_told_what_to_mount() {
    let local = Server::local();
    let read_only =
        format!("mount --bind {0} {0} && mount -o remount,ro,bind {0}", local.locks().display());
    for (mount, told) in [
        ("mount -t tmpfs none /proc", "mount /proc without subset=pid"),
        ("mount -t proc -o subset=pid none /proc", "mount /proc without subset=pid"),
        (&read_only, "writable directory"),
    ] {
        let script = format!("{mount} && exec $rlock exec L true");
        run(&mut local.contained("--mount --pid --fork", &script)).exits(78).says(told);
    }
}
