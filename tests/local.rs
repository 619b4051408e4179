//! `local:`, locks on one host without a server: what differs from a server.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::libc;

use crate::support::{Finished, LongerWait, READY, Running, binary, rlock, run, state_file, until};
use tempfile::TempDir;

/// A unique part of a file name, as rlock makes it.
const UUID: &str = "21037f5e-fca6-4037-8f83-5797379be1c3";

/// A directory of locks, which the first command creates.
pub(crate) struct Local(pub(crate) TempDir);

impl Local {
    pub(crate) fn new() -> Self {
        Self(tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap())
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.0.path().join("locks")
    }

    pub(crate) fn rlock(&self, arguments: &[&str]) -> Command {
        let mut command = rlock(arguments);
        command.env("RLOCK_URL", format!("local:{}", self.locks().display()));
        command
    }

    /// The visible file of the lock, which users may delete.
    fn guard(&self) -> PathBuf {
        self.locks().join("rlock:L.lock")
    }

    /// The stored state of the lock.
    pub(crate) fn state(&self) -> PathBuf {
        self.locks().join(".rlock:L.state")
    }
}

/// The turn of a process that changes a lock. Ends when dropped.
struct Turn {
    state: PathBuf,
    _locked: Flock<File>,
}

impl Turn {
    fn take(state: &Path) -> Self {
        let locked = Flock::lock(File::open(state).unwrap(), FlockArg::LockExclusive).unwrap();
        Self { state: state.to_owned(), _locked: locked }
    }

    /// Writes the state again.
    fn change(&self) {
        let content = fs::read(&self.state).unwrap();
        let state = OpenOptions::new().write(true).open(&self.state).unwrap();
        state.write_all_at(&content, 0).unwrap();
    }

    /// Replaces the file, which the next process has locked already.
    fn replace(self) -> Self {
        let new = self.state.with_extension("new");
        fs::copy(&self.state, &new).unwrap();
        let next = Self::take(&new);
        fs::rename(&new, &self.state).unwrap();
        Self { state: self.state, ..next }
    }
}

/// Whether the process has opened the file that has this name now.
fn has_opened(process: &Running, file: &Path) -> bool {
    let opened = fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap();
    let inode = fs::metadata(file).unwrap().ino();
    opened.flatten().any(|it| fs::metadata(it.path()).is_ok_and(|it| it.ino() == inode))
}

/// Makes a file look as if the last write to it was two days ago.
#[track_caller]
pub(crate) fn age(path: &Path) {
    run(Command::new("touch").args(["-h", "-d", "2 days ago"]).arg(path)).exits(0);
}

#[track_caller]
fn make_pipe(path: &Path) {
    run(Command::new("mkfifo").arg(path)).exits(0);
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
        run(command.env("RLOCK_URL", "local:").env("XDG_STATE_HOME", home.path()))
            .exits(78)
            .says("chmod 700");
    }
    // A directory that the user names may be shared.
    let url = format!("local:{}", directory.display());
    assert_eq!(run(rlock(["exec", "demo", "true"]).env("RLOCK_URL", url)).code(), 0);
}

#[test]
fn an_invalid_local_url_exits_with_78() {
    for (url, home, part) in [
        ("local:here", "/tmp", "is not absolute"),
        ("local:", "", "without HOME"),
        ("local:/dev/null/x", "/tmp", "not a directory"),
        ("local:/proc/none", "/tmp", "no such file or directory; name a writable directory with"),
        ("local:", "/proc", "cannot create /proc/.local/state/rlock: no such file"),
        ("local:/none/locks", "/tmp", "cannot create /none/locks: /none does not exist; create it"),
    ] {
        let mut command = rlock(["exec", "demo", "true"]);
        command.env("RLOCK_URL", url).env("HOME", home).env_remove("XDG_STATE_HOME");
        run(&mut command).exits(78).says(part);
    }
}

#[test]
fn a_damaged_or_foreign_file_is_an_error_and_stays_as_it_is() {
    let local = Local::new();
    let token = run(&mut local.rlock(&["acquire", "L"])).out();
    let whole = fs::read_to_string(local.state()).unwrap();
    let half = &whole[..whole.len() / 2];
    let [earlier, later] =
        ["0", "2"].map(|it| whole.replace("rlock lock 1", &format!("rlock lock {it}")));
    let changed = whole.replace("\"start\":1", "\"start\":2");
    let content = state_file::read(&local.state());
    let with_checksum = |content: &str| {
        state_file::write(&local.state(), content);
        fs::read_to_string(local.state()).unwrap()
    };
    let (before, start) = content.split_once("\"start\":").unwrap();
    let rest = start.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let far = with_checksum(&format!("{before}\"start\":{}{rest}", u64::MAX));
    let cut = with_checksum(&content[..content.len() / 2]);
    let other_waiter =
        with_checksum(&content.replace("\"queue\":[", "\"queue\":[{\"owner\":\"me\"}"));
    let zeros = "\u{0}".repeat(whole.len());
    let damaged =
        ["", half, "something else", &earlier, &later, &changed, &zeros, &far, &cut, &other_waiter];
    for content in damaged {
        fs::write(local.state(), content).unwrap();
        for arguments in [
            &["exec", "-n", "L", "true"][..],
            &["acquire", "-n", "L"],
            &["renew", "L", &token],
            &["release", "L", &token],
            &["release", "--force", "--now", "L"],
            &["inspect", "L"],
            &["inspect"],
        ] {
            run(&mut local.rlock(arguments)).exits(78).says("damaged lock file");
        }
        assert_eq!(fs::read_to_string(local.state()).unwrap(), content);
    }
    fs::write(local.state(), whole).unwrap();
    assert_eq!(run(&mut local.rlock(&["release", "L", &token])).code(), 0);
}

#[test]
fn a_link_or_a_pipe_in_place_of_a_file_is_refused() {
    let local = Local::new();
    run(&mut local.rlock(&["exec", "L", "true"]));
    let elsewhere = local.0.path().join("elsewhere");
    fs::rename(local.state(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, local.state()).unwrap();
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 78);
    fs::remove_file(local.state()).unwrap();
    make_pipe(&local.state());
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 78);
}

#[test]
fn a_full_disk_causes_69_and_changes_nothing() {
    let local = Local::new();
    let about = "x".repeat(500);
    for _ in 0..10 {
        run(&mut local.rlock(&["exec", "--label", &about, "L", "true"]));
    }
    let token = run(&mut local.rlock(&["acquire", "--ttl", "1h", "L"])).out();
    let seen = || {
        let mut lock: serde_json::Value =
            serde_json::from_str(&run(&mut local.rlock(&["inspect", "--json", "L"])).out())
                .unwrap();
        assert!(lock[0]["ttl_ms"].take().as_u64().unwrap() < 3_600_000);
        assert!(lock[0]["holders"][0]["ttl_ms"].take().is_u64());
        lock
    };
    // No file may grow, which a program cannot tell from a full disk except by the name of the error.
    let limited = |kibibytes: u32, arguments: &str| {
        let script = format!("trap '' XFSZ; ulimit -f {kibibytes}; {} {arguments}", binary());
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]);
        shell.env("RLOCK_URL", format!("local:{}", local.locks().display()));
        run(&mut shell)
    };
    let release = format!("release L {token}");
    // The second change is to the other copy of the state.
    for change in [&["renew", "L", &token][..], &["renew", "L", &token]] {
        let before = seen();
        // With 4, the first page of a copy is written.
        for (kibibytes, arguments) in
            [(4, &*release), (1, &release), (0, &release), (0, "exec M true")]
        {
            let output = limited(kibibytes, arguments);
            assert_eq!(output.code(), 69, "{output:?}");
            assert!(output.err().contains("too large; raise ulimit -f"), "{output:?}");
            assert_eq!(seen(), before);
        }
        assert_eq!(run(&mut local.rlock(change)).code(), 0);
    }
    let script = format!(
        "mount -t tmpfs -o size=8k tmpfs $1; dd if=/dev/zero of=$1/all bs=4k 2>&-; {} exec M true",
        binary()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    let url = format!("local:{}", local.locks().display());
    run(unshare.arg(local.locks()).env("RLOCK_URL", url))
        .exits(69)
        .says("M.state: no space left on device; free space on its file system");
    assert!(!local.locks().join("rlock:M.lock").exists());
    assert!(!local.locks().join(".rlock:M.state").exists());
    let left = fs::read_dir(local.locks()).unwrap().count();
    assert_eq!(left, 3, "no draft is left behind, beside the two files of the lock and .swept");
    assert_eq!(run(&mut local.rlock(&["release", "L", &token])).code(), 0);
}

#[test]
fn a_stopped_process_in_the_middle_of_a_change_does_not_hang_others() {
    let local = Local::new();
    run(&mut local.rlock(&["exec", "L", "true"]));
    let mut flock = Command::new("flock");
    let other =
        Running::start(flock.arg(local.state()).args(["sh", "-c", READY])).prints_first("READY");
    run(&mut local.rlock(&["exec", "--io-timeout", "200ms", "L", "true"]))
        .exits(69)
        .says("check whether that process is stopped");
    other.finish();
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 0);
}

#[test]
fn a_client_outwaits_other_processes_as_long_as_they_take_turns() {
    let local = Local::new();
    run(&mut local.rlock(&["exec", "L", "true"]));
    let mut turn = Turn::take(&local.state());
    let mut client = Running::start(&mut local.rlock(&["exec", "--io-timeout", "6s", "L", "true"]));
    // Together, the turns take longer than the client waits for a process that is stopped.
    for replaces in [false, true, false, false, true, true, false] {
        until("the client waits", || has_opened(&client, &local.state()));
        thread::sleep(Duration::from_secs(1));
        turn.change();
        if replaces {
            turn = turn.replace();
        }
    }
    assert!(client.process.is_running());
    drop(turn);
    client.end().exits(0);
}

#[test]
fn a_signal_ends_the_wait_for_a_stopped_process() {
    let local = Local::new();
    run(&mut local.rlock(&["exec", "L", "true"]));
    let turn = Turn::take(&local.state());
    let wait = ["exec", "--ttl", "1d", "--io-timeout", "1h", "L", "true"];
    let client = Running::start(&mut local.rlock(&wait));
    until("the client waits", || has_opened(&client, &local.state()));
    client.signal("TERM");
    let output = client.end();
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
    drop(turn);
    assert_eq!(run(&mut local.rlock(&["exec", "-n", "L", "true"])).code(), 0);
}

#[test]
fn nothing_is_left_behind_but_the_files_of_locks() {
    let local = Local::new();
    let script = format!("exec {} exec L sh -c '{READY}'", binary());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("RLOCK_URL", format!("local:{}", local.locks().display()));
    let first = Running::start(&mut shell).prints_first("READY");
    let mut waiters: Vec<Running> = (0..3)
        .map(|_| {
            let mut options = local.rlock(&["exec", "--ttl", "3s", "L", "true"]);
            let mut waiter = Running::start(&mut options);
            waiter.told("waiting at position");
            waiter
        })
        .collect();
    let mail = || {
        let names = fs::read_dir(local.locks()).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".mail")).count()
    };
    assert_eq!(mail(), 3);
    // One enters, one gives up and one dies.
    waiters[1].signal("TERM");
    waiters[2].signal("KILL");
    waiters[1].process.wait().unwrap();
    waiters[2].process.wait().unwrap();
    assert_eq!(mail(), 2);
    assert_eq!(first.finish().code(), 0);
    assert_eq!(waiters[0].process.wait().unwrap().code(), Some(0));
    // The mailbox of the dead waiter is removed when a client finds that it is dead.
    until("its mailbox is removed", || {
        run(&mut local.rlock(&["exec", "L", "true"]));
        mail() == 0
    });
    let files: Vec<_> = fs::read_dir(local.locks()).unwrap().flatten().collect();
    assert_eq!(files.len(), 3, "{files:?}");
}

#[test]
fn every_name_has_its_own_file_and_is_listed() {
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
    run(&mut local.rlock(&["acquire", &"/".repeat(100)]))
        .exits(78)
        .says("too long for a file name; use a shorter name");
}

#[test]
fn forty_processes_increment_a_counter_without_lost_updates() {
    let local = Local::new();
    let count = local.0.path().join("count");
    fs::write(&count, "0").unwrap();
    let increment = format!("read n < {0}; echo $((n + 1)) > {0}", count.display());
    let processes: Vec<Running> = (0..40)
        .map(|_| Running::start(&mut local.rlock(&["exec", "-q", "L", "sh", "-c", &increment])))
        .collect();
    for process in processes {
        process.finish().exits(0);
    }
    assert_eq!(fs::read_to_string(&count).unwrap().trim(), "40");
}

#[test]
fn a_waiter_sleeps_until_it_is_woken() {
    let local = Local::new();
    let first =
        Running::start(&mut local.rlock(&["exec", "L", "sh", "-c", READY])).prints_first("READY");
    let mut second = Running::start(&mut local.rlock(&["exec", "L", "true"]));
    second.told("waiting at position 1");
    let ticks = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    // The CPU time that it uses while a third process waits for a second.
    let before = ticks(second.pid());
    assert_eq!(run(&mut local.rlock(&["exec", "-w", "1s", "L", "true"])).code(), 75);
    assert!(ticks(second.pid()) - before <= 1, "it spins");
    // Unless it is woken, it looks again after 10 s.
    let mut longer = LongerWait::of("8s");
    assert_eq!(first.finish().code(), 0);
    assert_eq!(second.end().code(), 0);
    longer.is_not_over();
}

#[test]
fn files_unused_for_a_day_are_removed() {
    let local = Local::new();
    for name in ["old", "held", "new"] {
        run(&mut local.rlock(&["exec", name, "true"]));
    }
    assert_eq!(run(&mut local.rlock(&["acquire", "--ttl", "1h", "held"])).code(), 0);
    let mut waiting = Running::start(&mut local.rlock(&["exec", "held", "true"]));
    waiting.told("waiting at position 1");
    let file = |name: &str| local.locks().join(name);
    let names = || -> Vec<String> {
        let files = fs::read_dir(local.locks()).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mail = names().into_iter().find(|name| name.ends_with(".mail")).unwrap();
    make_pipe(&file(&format!(".{UUID}.mail")));
    fs::write(file(&format!(".{UUID}.draft")), "").unwrap();
    let theirs = ["theirs", ".thesis.draft", ".old.mail", ".their.state", ".%.state", "c++"];
    theirs[..5].iter().for_each(|name| fs::write(file(name), "").unwrap());
    fs::create_dir(file("c++")).unwrap();
    let deeper = file("c++").join(format!(".{UUID}.draft"));
    fs::write(&deeper, "").unwrap();
    age(&deeper);
    for name in names().iter().filter(|name| !name.contains("new")) {
        age(&file(name));
    }
    // Used a moment ago, although its file looks two days old.
    run(&mut local.rlock(&["acquire", "--ttl", "3s", "lapsed"])).exits(0);
    age(&file(".rlock:lapsed.state"));
    age(&file(".swept"));
    run(&mut local.rlock(&["exec", "new", "true"]));
    assert!(deeper.exists());
    let mut expected = vec![".swept".into(), mail];
    expected.extend(theirs.map(str::to_owned));
    for name in ["held", "lapsed", "new"] {
        expected.extend([format!("rlock:{name}.lock"), format!(".rlock:{name}.state")]);
    }
    expected.sort();
    let mut left = names();
    left.sort();
    assert_eq!(left, expected);
    // The waiter is still woken. If it were not, it would look again after 10 s.
    let mut longer = LongerWait::of("8s");
    assert_eq!(run(&mut local.rlock(&["release", "--force", "--now", "held"])).code(), 0);
    assert_eq!(waiting.end().code(), 0);
    longer.is_not_over();
}

#[test]
fn planted_links_and_pipes_are_never_followed() {
    use std::os::unix::fs::symlink;
    let local = Local::new();
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 0);
    let victim = local.0.path().join("victim");
    let untouched = || {
        let (text, status) = (fs::read_to_string(&victim).unwrap(), fs::metadata(&victim).unwrap());
        let is_old = status.modified().unwrap().elapsed().unwrap() > Duration::from_secs(86_400);
        assert!(text == "theirs" && is_old && mode(&victim) == 0o644);
    };
    fs::write(&victim, "theirs").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o644)).unwrap();
    age(&victim);
    let plant = |what: &str, at: &Path| match what {
        "link" => symlink(&victim, at).unwrap(),
        "hard link" => fs::hard_link(&victim, at).unwrap(),
        _ => make_pipe(at),
    };
    for what in ["link", "hard link", "pipe"] {
        // In place of the mark of the sweep: it is replaced, and the sweep takes place.
        let swept = local.locks().join(".swept");
        fs::remove_file(&swept).unwrap();
        plant(what, &swept);
        age(&swept);
        let draft = local.locks().join(format!(".{UUID}.draft"));
        plant(what, &draft);
        age(&draft);
        run(&mut local.rlock(&["exec", "L", "true"])).exits(0);
        untouched();
        assert!(swept.symlink_metadata().unwrap().is_file(), "{what}");
        assert!(draft.symlink_metadata().is_err(), "{what}");

        // In place of a dead waiter's mailbox.
        let holder = Running::start(&mut local.rlock(&["exec", "M", "sh", "-c", READY]))
            .prints_first("READY");
        let mut dead = Running::start(&mut local.rlock(&["exec", "M", "true"]));
        dead.told("waiting at position 1");
        dead.signal("KILL");
        dead.process.wait().unwrap();
        let entries = fs::read_dir(local.locks()).unwrap().map(|entry| entry.unwrap().path());
        let mail = entries.filter(|path| path.extension().is_some_and(|it| it == "mail"));
        let mail: Vec<PathBuf> = mail.collect();
        fs::remove_file(&mail[0]).unwrap();
        plant(what, &mail[0]);
        assert_eq!(holder.finish().code(), 0);
        untouched();
        assert_eq!(run(&mut local.rlock(&["release", "--force", "--now", "M"])).code(), 0);
        untouched();
        assert!(mail[0].symlink_metadata().is_err(), "{what}: it goes with its owner");

        // In place of a lock's files.
        for file in [local.state(), local.guard()] {
            let aside = local.0.path().join("aside");
            fs::rename(&file, &aside).unwrap();
            plant(what, &file);
            for arguments in [&["exec", "-n", "L", "true"][..], &["inspect", "L"], &["inspect"]] {
                run(&mut local.rlock(arguments))
                    .exits(78)
                    .says("not a regular file with a single link");
            }
            untouched();
            fs::rename(&aside, &file).unwrap();
        }
        run(&mut local.rlock(&["exec", "L", "true"])).exits(0);
    }
}

#[test]
fn the_directory_itself_may_be_a_link() {
    let local = Local::new();
    let elsewhere = local.0.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, local.locks()).unwrap();
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 0);
    assert!(elsewhere.join("rlock:L.lock").exists());
}

#[test]
fn no_file_name_contains_a_token() {
    let local = Local::new();
    let show = r#"echo "$RLOCK_TOKEN"; read _ || :"#;
    let mut holder = Running::start(&mut local.rlock(&["exec", "L", "sh", "-c", show]));
    let held = holder.line();
    let mut waiter = Running::start(&mut local.rlock(&["exec", "L", "sh", "-c", show]));
    waiter.told("waiting at position 1");
    let names = || -> Vec<String> {
        let files = fs::read_dir(local.locks()).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    };
    let while_waiting = names();
    assert_eq!(holder.finish().code(), 0);
    let awaited = waiter.line();
    for name in while_waiting.into_iter().chain(names()) {
        assert!(!name.contains(&held) && !name.contains(&awaited), "{name}");
        assert!(!name.contains(&held[..8]) && !name.contains(&awaited[..8]), "{name}");
    }
    waiter.finish();
}

#[test]
fn removing_the_file_of_a_held_lock_revokes_it_and_lets_nobody_in_before_its_end() {
    let local = Local::new();
    let log = local.0.path().join("log");
    let script = format!(
        "trap 'echo ended >> {0}; exit' TERM; echo READY; while :; do sleep 0.01; done",
        log.display()
    );
    let exec = ["exec", "--ttl", "6s", "L", "bash", "-c", &script];
    let holder = Running::start(&mut local.rlock(&exec)).prints_first("READY");
    fs::remove_file(local.guard()).unwrap();
    let enter = format!("echo entered >> {}", log.display());
    run(&mut local.rlock(&["exec", "-n", "L", "sh", "-c", &enter])).exits(75).says("revoked");
    assert!(local.guard().exists(), "the lock is kept from others again");
    run(&mut local.rlock(&["exec", "L", "sh", "-c", &enter])).exits(0);
    assert_eq!(holder.end().code(), 76);
    assert_eq!(fs::read_to_string(log).unwrap(), "ended\nentered\n");
}

#[test]
fn a_lock_without_its_state_fails_with_78_until_its_visible_file_is_removed_too() {
    let local = Local::new();
    let holder =
        Running::start(&mut local.rlock(&["exec", "L", "sh", "-c", READY])).prints_first("READY");
    fs::remove_file(local.state()).unwrap();
    for arguments in [&["exec", "-n", "L", "true"][..], &["inspect", "L"]] {
        run(&mut local.rlock(arguments))
            .exits(78)
            .says("if the lock is not in use, remove it and ");
    }
    holder.finish();
    fs::remove_file(local.state()).unwrap();
    fs::remove_file(local.guard()).unwrap();
    assert_eq!(run(&mut local.rlock(&["exec", "-n", "L", "true"])).code(), 0);
}

#[test]
fn stray_files_do_not_hide_a_lock() {
    let local = Local::new();
    assert_eq!(run(&mut local.rlock(&["acquire", "L"])).code(), 0);
    fs::write(local.locks().join("notes+"), "").unwrap();
    std::os::unix::fs::symlink(".", local.locks().join("loop+")).unwrap();
    fs::write(local.locks().join(".rlock:bad.state"), "x").unwrap();
    let output = run(&mut local.rlock(&["inspect"])).exits(0);
    assert!(output.out().contains("\nL "), "{output:?}");
    assert!(output.err().contains("bad: ") && output.err().contains("damaged"), "{output:?}");
}

#[test]
fn a_lock_works_under_any_umask() {
    let local = Local::new();
    for umask in ["0777", "0000"] {
        let script = format!("umask {umask}; exec {} exec L true", binary());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        shell.env("RLOCK_URL", format!("local:{}", local.locks().display()));
        assert_eq!(run(&mut shell).code(), 0);
        assert_eq!(mode(&local.state()), 0o600);
    }
}

#[test]
fn a_crowd_of_waiters_does_not_keep_the_holder_from_renewing() {
    let local = Local::new();
    let hold = ["exec", "--ttl", "6s", "L", "sh", "-c", READY];
    let first = Running::start(&mut local.rlock(&hold)).prints_first("READY");
    let mut crowd: Vec<Running> = (0..60)
        .map(|_| {
            Running::start(&mut local.rlock(&["exec", "--ttl", "3s", "-w", "8s", "L", "true"]))
        })
        .collect();
    for waiter in &mut crowd {
        assert_eq!(waiter.process.wait().unwrap().code(), Some(75));
    }
    first.finish().exits(0);
}

/// A directory that a group shares, and some of its users. Only root can become other users; without
/// root, all of them are the user of the tests.
struct Group(TempDir);

impl Group {
    const USERS: [&str; 2] = ["54321", "54322"];

    fn new() -> Self {
        let group = Self(tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap());
        fs::set_permissions(group.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // The directory of the build may be closed to other users.
        fs::copy(binary(), group.0.path().join("rlock")).unwrap();
        fs::create_dir(group.locks()).unwrap();
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(group.locks(), None, Some(54320)).unwrap();
        }
        fs::set_permissions(group.locks(), fs::Permissions::from_mode(0o2770)).unwrap();
        group
    }

    fn locks(&self) -> PathBuf {
        self.0.path().join("locks")
    }

    fn rlock(&self, user: &str, arguments: &[&str]) -> Command {
        let user = format!("--reuid={user}");
        let mut become_user = vec!["setpriv", &user, "--regid=54320", "--clear-groups"];
        if !nix::unistd::geteuid().is_root() {
            become_user.clear();
        }
        // A umask that closes everything to the group.
        let script = "umask 077; exec \"$@\"";
        let mut command = Command::new("env");
        command.args(become_user).args(["sh", "-c", script, "sh"]);
        command.arg(self.0.path().join("rlock")).args(arguments);
        command.env("RLOCK_URL", format!("local:{}", self.locks().display()));
        command.env("RLOCK_TTL", "6s");
        command
    }
}

#[test]
fn users_of_a_group_exclude_each_other_in_a_shared_directory() {
    let group = Group::new();
    let [one, other] = Group::USERS;
    for name in ["L", &"long".repeat(50)] {
        let mut first = Running::start(&mut group.rlock(one, &["exec", name, "sh", "-c", READY]))
            .prints_first("READY");
        run(&mut group.rlock(other, &["exec", "-n", name, "true"])).exits(75);
        let shown = run(&mut group.rlock(other, &["inspect", name]));
        assert!(shown.out().contains("held by"), "{shown:?}");
        let enter = ["exec", name, "echo", "ENTERED"];
        let mut second = Running::start(&mut group.rlock(other, &enter));
        second.told("waiting at position 1");
        let mut third = Running::start(&mut group.rlock(one, &enter));
        third.told("waiting at position 2");
        first.say("");
        assert_eq!(first.finish().code(), 0);
        for waiter in [second, third] {
            waiter.end().exits(0).prints("ENTERED");
        }
        // Root's cron job, too.
        let mut root = rlock(["exec", "-n", name, "true"]);
        run(root.env("RLOCK_URL", format!("local:{}", group.locks().display()))).exits(0);
        run(&mut group.rlock(other, &["release", "--force", "--now", name])).exits(0);
    }
}

#[test]
fn a_file_that_may_not_be_opened_is_an_error_with_a_remedy() {
    let group = Group::new();
    let [one, other] = Group::USERS;
    assert_eq!(run(&mut group.rlock(one, &["exec", "L", "true"])).code(), 0);
    let state = group.locks().join(".rlock:L.state");
    let closed = if nix::unistd::geteuid().is_root() { 0o600 } else { 0 };
    fs::set_permissions(&state, fs::Permissions::from_mode(closed)).unwrap();
    let output = run(&mut group.rlock(other, &["exec", "L", "true"])).exits(78);
    assert!(output.err().contains("permission denied") && output.err().contains("chmod 2770"));
}

#[test]
fn a_container_without_proc_or_with_a_read_only_root_is_told_what_to_mount() {
    let local = Local::new();
    assert_eq!(run(&mut local.rlock(&["exec", "L", "true"])).code(), 0);
    let in_namespace = |mount: &str, arguments: &[&str]| {
        let script = format!("{mount} && exec \"$@\"");
        let mut shell = Command::new("unshare");
        shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
        shell.arg(binary()).args(arguments);
        shell.env("RLOCK_URL", format!("local:{}", local.locks().display()));
        run(&mut shell)
    };
    let output = in_namespace("mount -t tmpfs none /proc", &["exec", "L", "true"]);
    assert_eq!(output.code(), 78, "{output:?}");
    assert!(output.err().contains("; mount /proc"), "{output:?}");
    let locks = local.locks().display().to_string();
    let mount = format!("mount --bind {locks} {locks} && mount -o remount,ro,bind {locks}");
    let output = in_namespace(&mount, &["exec", "L", "true"]);
    assert_eq!(output.code(), 78, "{output:?}");
    assert!(output.err().contains("writable directory"), "{output:?}");
}
