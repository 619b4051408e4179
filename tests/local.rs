//! `local:`, locks on one host without a server: what is different from a server.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use support::{Finished, READY, Running, rlock, run, until};
use tempfile::TempDir;

/// A directory of locks, and rlock with it.
struct Local(TempDir);

impl Local {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap())
    }

    fn locks(&self) -> PathBuf {
        self.0.path().join("locks")
    }

    fn rlock(&self, arguments: &[&str]) -> Command {
        let mut command = rlock(arguments);
        command.env("RLOCK_URL", format!("local:{}", self.locks().display()));
        command
    }

    fn file(&self) -> PathBuf {
        self.locks().join("rlock:L.lock")
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_command_needs_no_server_and_no_setting_but_its_url() {
    let home = tempfile::tempdir().unwrap();
    let mut command = rlock(["exec", "demo", "--", "echo", "I hold the lock"]);
    command.env("RLOCK_URL", "local:").env("HOME", home.path()).env_remove("XDG_STATE_HOME");
    assert_eq!(run(&mut command).out(), "I hold the lock");
    let directory = home.path().join(".local/state/rlock");
    assert_eq!((mode(&directory), mode(&directory.join("rlock:demo.lock"))), (0o700, 0o600));
    let state = home.path().join("state");
    let mut command = rlock(["exec", "demo", "true"]);
    command.env("RLOCK_URL", "local:").env("XDG_STATE_HOME", &state);
    assert_eq!(run(&mut command).code(), 0);
    assert!(state.join("rlock/rlock:demo.lock").exists());
}

#[test]
fn a_default_directory_that_others_could_write_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("rlock");
    fs::create_dir(&directory).unwrap();
    for mode in [0o770, 0o702, 0o755] {
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = rlock(["exec", "demo", "true"]);
        let output = run(command.env("RLOCK_URL", "local:").env("XDG_STATE_HOME", home.path()));
        assert_eq!(output.code(), 78, "{mode:o}: {output:?}");
        assert!(output.err().contains("chmod 700"), "{output:?}");
    }
    // One that is named may be shared.
    let url = format!("local:{}", directory.display());
    assert_eq!(run(rlock(["exec", "demo", "true"]).env("RLOCK_URL", url)).code(), 0);
}

#[test]
fn bad_local_urls_are_78() {
    for (url, home, part) in [
        ("local:here", "/tmp", "starts with a slash"),
        ("local:", "", "needs HOME"),
        ("local:/dev/null/x", "/tmp", "not a directory"),
        ("local:/proc/none", "/tmp", "no such file"),
    ] {
        let mut command = rlock(["exec", "demo", "true"]);
        command.env("RLOCK_URL", url).env("HOME", home).env_remove("XDG_STATE_HOME");
        let output = run(&mut command);
        assert_eq!(output.code(), 78, "{url}: {output:?}");
        assert!(output.err().contains(part), "{output:?}");
    }
}

#[test]
fn a_damaged_or_foreign_file_is_an_error_and_stays_as_it_is() {
    let local = Local::new();
    let token = run(&mut local.rlock(&["acquire", "L"])).out();
    let whole = fs::read_to_string(local.file()).unwrap();
    let half = &whole[..whole.len() / 2];
    let other_version = whole.replace("rlock lock 1", "rlock lock 2");
    for content in ["", half, "something else", &other_version, "\u{0}\u{0}"] {
        fs::write(local.file(), content).unwrap();
        for arguments in [
            &["exec", "-n", "L", "true"][..],
            &["acquire", "-n", "L"],
            &["renew", "L", &token],
            &["release", "L", &token],
            &["release", "--force", "--now", "L"],
            &["inspect", "L"],
            &["inspect"],
        ] {
            let output = run(&mut local.rlock(arguments));
            assert_eq!(output.code(), 78, "{arguments:?}: {output:?}");
            assert!(output.err().contains("damaged, or not a lock's file"), "{output:?}");
        }
        assert_eq!(fs::read_to_string(local.file()).unwrap(), content);
    }
    fs::write(local.file(), whole).unwrap();
    assert_eq!(run(&mut local.rlock(&["release", "L", &token])).code(), 0);
}

#[test]
fn a_link_or_a_pipe_in_place_of_a_file_is_refused() {
    let local = Local::new();
    run(&mut local.rlock(&["exec", "L", "true"]));
    let elsewhere = local.0.path().join("elsewhere");
    fs::rename(local.file(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, local.file()).unwrap();
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 78);
    fs::remove_file(local.file()).unwrap();
    assert!(Command::new("mkfifo").arg(local.file()).status().unwrap().success());
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 78);
}

#[test]
fn a_full_disk_is_69_and_changes_nothing() {
    let local = Local::new();
    let token = run(&mut local.rlock(&["acquire", "L"])).out();
    let before = fs::read_to_string(local.file()).unwrap();
    // No file may grow beyond nothing, which is how a full disk looks to a program but for the name.
    let limited = |arguments: &str| {
        let script =
            format!("trap '' XFSZ; ulimit -f 0; {} {arguments}", env!("CARGO_BIN_EXE_rlock"));
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]);
        shell.env("RLOCK_URL", format!("local:{}", local.locks().display()));
        run(&mut shell)
    };
    for arguments in [format!("release L {token}"), "exec M true".into()] {
        let output = limited(&arguments);
        assert_eq!(output.code(), 69, "{output:?}");
        assert!(output.err().contains("too large"), "{output:?}");
    }
    assert_eq!(fs::read_to_string(local.file()).unwrap(), before);
    assert!(!local.locks().join("rlock:M.lock").exists());
    let left = fs::read_dir(local.locks()).unwrap().count();
    assert_eq!(left, 2, "no draft is left behind, beside the lock and .swept");
    assert_eq!(run(&mut local.rlock(&["release", "L", &token])).code(), 0);
}

#[test]
fn a_stopped_process_in_the_middle_of_a_change_does_not_hang_others() {
    let local = Local::new();
    run(&mut local.rlock(&["exec", "L", "true"]));
    let mut flock = Command::new("flock");
    let mut other = Running::start(flock.arg(local.file()).args(["sh", "-c", READY]));
    assert_eq!(other.line(), "READY");
    let output = run(&mut local.rlock(&["exec", "--io-timeout", "200ms", "L", "true"]));
    assert_eq!(output.code(), 69, "{output:?}");
    assert!(output.err().contains("is it stopped?"), "{output:?}");
    other.finish();
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 0);
}

#[test]
fn a_reboot_frees_all_locks_and_keeps_the_fence() {
    let local = Local::new();
    run(&mut local.rlock(&["acquire", "--ttl", "1h", "L"]));
    let fence = |text: &str| {
        let rest = text.split("\"fence\":").nth(1).unwrap();
        rest.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let text = fs::read_to_string(local.file()).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    // As if it had been written before, by a clock that was far ahead.
    let last = fence(&text);
    let ahead = last + 10_000_000;
    let text = text.replace(boot.trim_end(), "another-boot");
    fs::write(local.file(), text.replace(&last.to_string(), &ahead.to_string())).unwrap();
    let output = run(&mut local.rlock(&["exec", "-n", "L", "sh", "-c", "echo $RLOCK_FENCE"]));
    assert_eq!(output.out(), (ahead + 1).to_string());
}

#[test]
fn nothing_is_left_behind_but_the_files_of_locks() {
    let local = Local::new();
    let script = format!("exec {} exec L sh -c '{READY}'", env!("CARGO_BIN_EXE_rlock"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("RLOCK_URL", format!("local:{}", local.locks().display()));
    let mut first = Running::start(&mut shell);
    assert_eq!(first.line(), "READY");
    let mut waiters: Vec<Running> = (0..3)
        .map(|_| {
            let mut options = local.rlock(&["exec", "--ttl", "300ms", "L", "true"]);
            let mut waiter = Running::start(&mut options);
            waiter.told("waiting in place");
            waiter
        })
        .collect();
    let mail = || {
        let names = fs::read_dir(local.locks()).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".mail-")).count()
    };
    assert_eq!(mail(), 3);
    // One is served, one gives up and one dies.
    waiters[1].signal("TERM");
    waiters[2].signal("KILL");
    waiters[1].process.wait().unwrap();
    waiters[2].process.wait().unwrap();
    assert_eq!(mail(), 2);
    assert_eq!(first.finish().code(), 0);
    assert_eq!(waiters[0].process.wait().unwrap().code(), Some(0));
    // The dead one's goes when somebody finds that it is dead.
    until("its mailbox is removed", || {
        run(&mut local.rlock(&["exec", "L", "true"]));
        mail() == 0
    });
    let files: Vec<_> = fs::read_dir(local.locks()).unwrap().flatten().collect();
    assert_eq!(files.len(), 2, "{files:?}");
}

#[test]
fn names_of_all_kinds_have_files_of_their_own_and_are_listed() {
    let local = Local::new();
    let long = "ä".repeat(100);
    let names = ["a/b", "..", ".x", "%2E", "x.lock", "x+", &long];
    for name in names {
        assert_eq!(run(&mut local.rlock(&["acquire", name])).code(), 0, "{name}");
        assert_eq!(run(&mut local.rlock(&["acquire", "-n", name])).code(), 75, "{name}");
    }
    assert_eq!(run(&mut local.rlock(&["acquire", "--prefix", "other:", "a"])).code(), 0);
    let output = run(&mut local.rlock(&["inspect", "--json"]));
    let locks: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
    let mut listed: Vec<&str> =
        locks.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    listed.sort_unstable();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[test]
fn a_crowd_of_processes_loses_no_count() {
    let local = Local::new();
    let count = local.0.path().join("count");
    fs::write(&count, "0").unwrap();
    let increment = format!("read n < {0}; echo $((n + 1)) > {0}", count.display());
    let processes: Vec<Running> = (0..40)
        .map(|_| Running::start(&mut local.rlock(&["exec", "-q", "L", "sh", "-c", &increment])))
        .collect();
    for process in processes {
        let output = process.finish();
        assert_eq!(output.code(), 0, "{output:?}");
    }
    assert_eq!(fs::read_to_string(&count).unwrap().trim(), "40");
}

#[test]
fn whoever_waits_sleeps_until_it_is_woken() {
    let local = Local::new();
    let mut first = Running::start(&mut local.rlock(&["exec", "L", "sh", "-c", READY]));
    assert_eq!(first.line(), "READY");
    let mut second = Running::start(&mut local.rlock(&["exec", "L", "true"]));
    second.told("waiting in place 1");
    let ticks = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    // What it uses while a third one waits for a second.
    let before = ticks(second.pid());
    assert_eq!(run(&mut local.rlock(&["exec", "-w", "1s", "L", "true"])).code(), 75);
    assert!(ticks(second.pid()) - before <= 1, "it spins");
    let start = Instant::now();
    assert_eq!(first.finish().code(), 0);
    assert_eq!(second.end().code(), 0);
    assert!(start.elapsed() < Duration::from_secs(8), "it would look by itself after 10 s");
}

#[test]
fn what_nobody_has_used_for_a_day_is_removed() {
    let local = Local::new();
    for name in ["old", "held", "new"] {
        run(&mut local.rlock(&["exec", name, "true"]));
    }
    assert_eq!(run(&mut local.rlock(&["acquire", "--ttl", "1h", "held"])).code(), 0);
    let file = |name: &str| local.locks().join(name);
    fs::write(file(".mail-dead"), "").unwrap();
    for name in ["rlock:old.lock", "rlock:held.lock", ".mail-dead", ".swept"] {
        let touched = Command::new("touch").args(["-d", "2 days ago"]).arg(file(name)).status();
        assert!(touched.unwrap().success());
    }
    run(&mut local.rlock(&["exec", "new", "true"]));
    let there = |name: &str| file(name).exists();
    assert!(!there("rlock:old.lock") && !there(".mail-dead"));
    assert!(there("rlock:held.lock") && there("rlock:new.lock"));
}

#[test]
fn a_stray_entry_hides_no_lock() {
    let local = Local::new();
    assert_eq!(run(&mut local.rlock(&["acquire", "L"])).code(), 0);
    fs::write(local.locks().join("notes+"), "").unwrap();
    std::os::unix::fs::symlink(".", local.locks().join("loop+")).unwrap();
    fs::write(local.locks().join("rlock:bad.lock"), "").unwrap();
    let output = run(&mut local.rlock(&["inspect"]));
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.out().contains("\nL "), "{output:?}");
    assert!(output.err().contains("bad: ") && output.err().contains("damaged"), "{output:?}");
}

#[test]
fn no_umask_makes_a_lock_unusable() {
    let local = Local::new();
    for umask in ["0777", "0000"] {
        let script = format!("umask {umask}; exec {} exec L true", env!("CARGO_BIN_EXE_rlock"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        shell.env("RLOCK_URL", format!("local:{}", local.locks().display()));
        assert_eq!(run(&mut shell).code(), 0);
        assert_eq!(mode(&local.file()), 0o600);
    }
}

#[test]
fn a_crowd_of_waiters_does_not_keep_the_holder_from_renewing() {
    let local = Local::new();
    let hold = ["exec", "--ttl", "2s", "L", "sh", "-c", READY];
    let mut first = Running::start(&mut local.rlock(&hold));
    assert_eq!(first.line(), "READY");
    let mut crowd: Vec<Running> = (0..60)
        .map(|_| {
            Running::start(&mut local.rlock(&["exec", "--ttl", "2s", "-w", "4s", "L", "true"]))
        })
        .collect();
    for waiter in &mut crowd {
        assert_eq!(waiter.process.wait().unwrap().code(), Some(75));
    }
    let output = first.finish();
    assert_eq!(output.code(), 0, "{output:?}");
}
