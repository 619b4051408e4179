//! `local:`, locks on one host without a server: what differs from a server.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use rlock::store::local::copies;

use crate::support::*;

/// A unique part of a file name, as rlock makes it.
const UUID: &str = "21037f5e-fca6-4037-8f83-5797379be1c3";

/// The visible file of the lock L, which users may delete.
fn guard(local: &Server) -> PathBuf {
    local.locks().join("rlock:L.lock")
}

/// The stored state of the lock L.
pub(crate) fn state(local: &Server) -> PathBuf {
    local.locks().join(".rlock:L.state")
}

/// The files in the directory of locks.
pub(crate) fn names(local: &Server) -> Vec<String> {
    let files = fs::read_dir(local.locks()).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// The mailboxes of waiters.
fn mail(local: &Server) -> Vec<PathBuf> {
    let names = names(local).into_iter().filter(|name| name.ends_with(".mail"));
    names.map(|name| local.locks().join(name)).collect()
}

/// Makes a file look as if the last write to it was two days ago.
#[track_caller]
fn age(path: &Path) {
    run(Command::new("touch").args(["-h", "-d", "2 days ago"]).arg(path)).exits(0);
}

#[track_caller]
fn make_pipe(path: &Path) {
    run(Command::new("mkfifo").arg(path)).exits(0);
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_damaged_or_foreign_file_is_an_error_and_stays_as_it_is() {
    let local = Server::local();
    let token = acquire(&local, &[], "L");
    let whole = fs::read_to_string(state(&local)).unwrap();
    let half = &whole[..whole.len() / 2];
    let later = whole.replace("rlock lock 1", "rlock lock 2");
    let changed = whole.replace("\"start\":1", "\"start\":2");
    // The checksum is right.
    let unknown = String::from_utf8(copies::new_file(b"{\"lock\":{\"format\":3}}")).unwrap();
    let another = "written by another version of rlock; use that version";
    for (content, told) in [
        ("", "damaged lock file"),
        (half, "damaged lock file"),
        ("something else", "damaged lock file"),
        (&later, another),
        (&unknown, another),
        (&changed, "damaged lock file"),
    ] {
        fs::write(state(&local), content).unwrap();
        for command in [
            "exec -n L true",
            &format!("renew L {token}"),
            &format!("release L {token}"),
            "release --force --now L",
            "inspect L",
            "inspect",
        ] {
            local.run(command).exits(78).says(told);
        }
        assert_eq!(fs::read_to_string(state(&local)).unwrap(), content);
    }
    // Without a limit, reading it would take 60 s and 6 GB.
    File::options().write(true).open(state(&local)).unwrap().set_len(3 << 31).unwrap();
    local.run("exec -n L true").exits(78).says("lock file exceeds 64 MiB; ");
}

#[test]
fn a_full_disk_causes_69_and_changes_nothing() {
    let local = Server::local();
    for _ in 0..10 {
        run(&mut local.rlock(["exec", "--label", &"x".repeat(500), "L", "true"]));
    }
    let token = acquire(&local, &["--shared", "--ttl", "1h"], "L");
    // The second change is to the other copy of the state.
    for _ in 0..2 {
        let before = local.inspect("L")["holders"].clone();
        // No file may grow, which a program cannot tell from a full disk except by the name of the
        // error. With 4, the first page of a copy is written.
        for kibibytes in [4, 0] {
            let script = format!("ulimit -f {kibibytes}; exec $rlock acquire --shared -n L");
            let told = "too large; raise ulimit -f";
            run(&mut local.program("bash -c", &script)).exits(69).says(told);
            assert_eq!(local.inspect("L")["holders"][0]["id"], before[0]["id"]);
        }
        run(&mut local.rlock(["renew", "L", &token])).exits(0);
    }
    let script = format!(
        "mount -t tmpfs -o size=8k tmpfs {0}; chmod 700 {0}; dd if=/dev/zero of={0}/all bs=4k 2>&-
        $rlock exec M true",
        local.locks().display()
    );
    run(&mut local.contained("--mount", &script))
        .exits(69)
        .says("M.state: no space left on device; free space on its file system");
}

#[test]
fn a_stopped_process_in_the_middle_of_a_change_does_not_hang_others() {
    let local = Server::local();
    local.run("exec L true");
    let turn = Flock::lock(File::open(state(&local)).unwrap(), FlockArg::LockExclusive).unwrap();
    local
        .run("exec --io-timeout 200ms L true")
        .exits(69)
        .says("check whether one of them is stopped");
    // A signal ends the wait too.
    let client = local.starts("exec --ttl 1d --io-timeout 1h L", "true");
    waits_for_the_file(&local, &client);
    assert_eq!(client.ends_by("TERM").status.signal(), Some(libc::SIGTERM));
    drop(turn);
    local.run("exec -n L true").exits(0);
}

/// Waits until a process has opened the state of L, which this process has locked.
fn waits_for_the_file(local: &Server, client: &Running) {
    let inode = fs::metadata(state(local)).unwrap().ino();
    until("it has opened the file", || {
        let opened = fs::read_dir(format!("/proc/{}/fd", client.pid())).unwrap();
        opened.flatten().any(|it| fs::metadata(it.path()).is_ok_and(|it| it.ino() == inode))
    });
}

#[test]
fn a_process_that_changes_a_file_again_and_again_holds_others_up_for_a_limited_time() {
    let local = Server::local();
    let mut holder = holder(&local, &["--ttl", "1h"], "L");
    let turn = Flock::lock(File::open(state(&local)).unwrap(), FlockArg::LockExclusive).unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let changed = &turn;
    thread::scope(|scope| {
        scope.spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout)
            {
                changed.set_modified(SystemTime::now()).unwrap();
            }
        });
        // It outwaits others for longer than it would wait for a process that is stopped, if it waits.
        let mut client = local.starts("exec -w 1h --io-timeout 1s L", "true");
        local.run("exec -n --io-timeout 1s L true").exits(69);
        assert!(client.process.is_running());
        client.told("locked for too long");
        client.ends_by("TERM");
        // A release, too.
        drop(holder.stdin.take());
        waits_for_the_file(&local, &holder);
        holder.ends_by("TERM").exits(0).says("not released (the lease expires within ");
        drop(stop);
    });
}

#[test]
fn a_request_ends_at_its_limit_even_if_another_process_keeps_the_file_locked() {
    let local = Server::local();
    let first = holder(&local, &[], "L");
    let queued = waiter(&local, &["-w", "3s"], "L", "");
    let _turn = Flock::lock(File::open(state(&local)).unwrap(), FlockArg::LockExclusive).unwrap();
    let mut longer = LongerWait::of("8s");
    // The file shows that a holder may exist.
    let waits = ["-n --on-unreachable run", "-w 1s", "-w 2s"];
    let late = waits.map(|it| local.starts(&format!("exec {it} L echo"), "RUNS"));
    for client in late.into_iter().chain([queued]) {
        client
            .end()
            .exits(69)
            .prints("")
            .says("other processes have kept the lock file locked for too long");
    }
    longer.is_not_over();
    drop(first);
}

#[test]
fn without_a_thread_to_wait_for_a_file_its_lack_is_reported_and_the_file_is_still_used() {
    let local = Server::local();
    local.run("exec L true");
    let refused = [Refused::Thread, Refused::Call(libc::SYS_clone3)];
    let turn = Flock::lock(File::open(state(&local)).unwrap(), FlockArg::LockExclusive).unwrap();
    let start = |wait| {
        let mut exec = local.rlock(["exec", "-w", wait, "L", "echo", "RUNS"]);
        Running::start(refuse(&mut exec, &refused, Errno::EAGAIN))
    };
    let (in_vain, in_time) = (start("1s"), start("1h"));
    in_vain.end().exits(69).says("cannot wait for a lock file: ").says("; raise ulimit -u");
    drop(turn);
    in_time.end().exits(0).prints("RUNS");
}

#[test]
fn a_file_that_cannot_be_unlocked_does_not_end_the_command() {
    let local = Server::local();
    let mut exec = local.rlock(["exec", "L", "sh", "-c", "exit 3"]);
    run(refuse(&mut exec, &[Refused::Unlock], Errno::EIO)).exits(3).prints("");
    local.run("exec -n L true").exits(0);
}

#[test]
fn attempts_at_a_file_that_stays_locked_leave_nothing_behind() {
    let local = Server::local();
    local.run("exec L true");
    let _turn = Flock::lock(File::open(state(&local)).unwrap(), FlockArg::LockExclusive).unwrap();
    let mut watch = local.starts("inspect --json --io-timeout 10ms --watch=1ms", "L");
    for _ in 0..50 {
        watch.told("locked for too long");
    }
    let count = |what| fs::read_dir(format!("/proc/{}/{what}", watch.pid())).unwrap().count();
    assert!(count("task") <= 2 && count("fd") <= 12, "{} {}", count("task"), count("fd"));
}

#[test]
fn the_visible_file_of_a_lock_that_is_used_never_looks_old() {
    let local = Server::local();
    local.run("exec L true");
    let is_old = || {
        let written = fs::metadata(guard(&local)).unwrap().modified().unwrap();
        written.elapsed().unwrap() > Duration::from_secs(86_400)
    };
    age(&guard(&local));
    let holder = holder(&local, &["--ttl", "1s"], "L");
    assert!(!is_old());
    age(&guard(&local));
    until("it is renewed", || !is_old());
    holder.finish().exits(0);
}

#[test]
fn nothing_is_left_behind_but_the_files_of_locks() {
    let local = Server::local();
    let first = holder(&local, &[], "L");
    let [enters, gives_up, dies] = [(); 3].map(|()| waiter(&local, &["--ttl", "3s"], "L", ""));
    assert_eq!(mail(&local).len(), 3);
    gives_up.ends_by("TERM");
    dies.ends_by("KILL");
    assert_eq!(mail(&local).len(), 2);
    first.finish().exits(0);
    enters.end().exits(0);
    // The mailbox of the dead waiter is removed when a client finds that it is dead.
    until("its mailbox is removed", || {
        local.run("exec L true");
        mail(&local).is_empty()
    });
    let left = names(&local);
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_waiter_sleeps() {
    let local = Server::local();
    let first = holder(&local, &[], "L");
    let second = waiter(&local, &[], "L", "");
    // The CPU time that it uses.
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", second.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = ticks();
    local.run("exec -w 1s L true").exits(75);
    assert!(ticks() - before <= 1, "it spins");
    first.finish().exits(0);
    second.end().exits(0);
}

#[test]
fn files_unused_for_a_day_are_removed() {
    let local = Server::local();
    for name in ["old", "held", "new"] {
        local.run(&format!("exec {name} true")).exits(0);
    }
    acquire(&local, &["--ttl", "1h"], "held");
    let waiting = waiter(&local, &[], "held", "");
    let file = |name: &str| local.locks().join(name);
    let draft = format!(".{UUID}.draft");
    fs::write(file(&draft), "").unwrap();
    let theirs = ["theirs", ".thesis.draft", ".old.mail", ".their.state", ".%.state"];
    theirs.iter().for_each(|name| fs::write(file(name), "").unwrap());
    for name in names(&local).iter().filter(|name| !name.contains("new")) {
        age(&file(name));
    }
    let mut expected = names(&local);
    expected.retain(|name| !["rlock:old.lock", ".rlock:old.state", &draft].contains(&&**name));
    // Theirs do not hide a lock.
    local.run("inspect").shows("\nheld ");
    local.run("exec new true").exits(0);
    let (mut left, mut expected) = (names(&local), expected);
    left.sort();
    expected.sort();
    assert_eq!(left, expected);
    // The waiter is still woken. If it were not, it would look again after 10 s.
    let mut longer = LongerWait::of("8s");
    local.run("release --force --now held").exits(0);
    waiting.end().exits(0);
    longer.is_not_over();
}

#[test]
fn planted_links_and_pipes_are_never_followed() {
    let local = Server::local();
    local.run("exec L true").exits(0);
    let victim = local.directory().join("victim");
    let untouched = || {
        let (text, status) = (fs::read_to_string(&victim).unwrap(), fs::metadata(&victim).unwrap());
        let is_old = status.modified().unwrap().elapsed().unwrap() > Duration::from_secs(86_400);
        assert!(text == "theirs" && is_old && mode(&victim) == 0o644);
    };
    fs::write(&victim, "theirs").unwrap();
    set_mode(&victim, 0o644);
    age(&victim);
    let plant = |what: &str, at: &Path| match what {
        "link" => symlink(&victim, at).unwrap(),
        "hard link" => fs::hard_link(&victim, at).unwrap(),
        _ => make_pipe(at),
    };
    for what in ["link", "hard link", "pipe"] {
        // In place of the mark of the sweep: it is replaced, and the sweep takes place.
        let [swept, draft] =
            [".swept", &format!(".{UUID}.draft")].map(|name| local.locks().join(name));
        fs::remove_file(&swept).unwrap();
        for planted in [&swept, &draft] {
            plant(what, planted);
            age(planted);
        }
        local.run("exec L true").exits(0);
        untouched();
        assert!(swept.symlink_metadata().unwrap().is_file(), "{what}");
        assert!(draft.symlink_metadata().is_err(), "{what}");

        // In place of a dead waiter's mailbox.
        let holder = holder(&local, &[], "M");
        let dead = waiter(&local, &[], "M", "");
        dead.ends_by("KILL");
        let mail = mail(&local).remove(0);
        fs::remove_file(&mail).unwrap();
        plant(what, &mail);
        holder.finish().exits(0);
        untouched();
        local.run("release --force --now M").exits(0);
        untouched();
        assert!(mail.symlink_metadata().is_err(), "{what}: it goes with its owner");

        // In place of a lock's files.
        for file in [state(&local), guard(&local)] {
            let aside = local.directory().join("aside");
            fs::rename(&file, &aside).unwrap();
            plant(what, &file);
            for command in ["exec -n L true", "inspect L", "inspect"] {
                local.run(command).exits(78).says("not a regular file with a single link");
            }
            untouched();
            fs::rename(&aside, &file).unwrap();
        }
        local.run("exec L true").exits(0);
    }
}

#[test]
fn no_file_name_contains_a_token() {
    let local = Server::local();
    let show = r#"echo "$RLOCK_TOKEN"; read _ || :"#;
    let mut holder = local.starts("exec L sh -c", show);
    let held = holder.line();
    let mut waiter = local.starts("exec L sh -c", show).tells("waiting at position 1");
    let while_waiting = names(&local);
    holder.finish().exits(0);
    let awaited = waiter.line();
    for name in while_waiting.into_iter().chain(names(&local)) {
        assert!(!name.contains(&held[..8]) && !name.contains(&awaited[..8]), "{name}");
    }
}

#[test]
fn removing_the_file_of_a_held_lock_revokes_it_and_lets_nobody_in_before_its_end() {
    let local = Server::local();
    let mut first = holder_that_cleans_up(&local, "L");
    fs::remove_file(guard(&local)).unwrap();
    local.run("exec -n L true").exits(75).says("revoked");
    assert!(guard(&local).exists(), "the lock is kept from others again");
    let next = waiter(&local, &[], "L", "next");
    assert_eq!(first.line(), "STOPPING");
    local.run("exec -n L true").exits(75);
    first.finish().exits(76);
    next.end().exits(0).prints("ENTERED next");
}

#[test]
fn a_lock_without_its_state_fails_with_78_until_its_visible_file_is_removed_too() {
    let local = Server::local();
    let holder = holder(&local, &[], "L");
    fs::remove_file(state(&local)).unwrap();
    for command in ["exec -n L true", "inspect L"] {
        local.run(command).exits(78).says("if the lock is not in use, remove it and ");
    }
    holder.finish();
    fs::remove_file(state(&local)).unwrap();
    fs::remove_file(guard(&local)).unwrap();
    local.run("exec -n L true").exits(0);
}

#[test]
fn a_crowd_of_waiters_does_not_keep_the_holder_from_renewing() {
    let local = Server::local();
    let first = holder(&local, &["--ttl", "6s"], "L");
    let crowd = Vec::from_iter((0..60).map(|_| local.starts("exec --ttl 3s -w 7s L", "true")));
    for waiter in crowd {
        waiter.end().exits(75);
    }
    first.finish().exits(0);
}
