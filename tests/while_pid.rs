//! acquire --while-pid: a keeper holds the lock for as long as a process lives, and no longer.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::geteuid;

use crate::support::{self, *};

/// A shell script that takes the lock L, prints HELD, and then runs `body`.
fn text(body: &str) -> String {
    let acquire = "$rlock acquire --ttl ${TTL:-2s} --label script --while-pid $$ L";
    format!("t=$({acquire}) || exit; echo HELD; {body}")
}

fn script(server: &Server, body: &str) -> Command {
    server.program("sh -c", &text(body))
}

/// Starts that script, and waits until it holds the lock with a lease of this length.
#[track_caller]
fn held(server: &Server, ttl: &str, body: &str) -> Running {
    Running::start(script(server, body).env("TTL", ttl)).prints_first("HELD")
}

/// The PID of the keeper for a script, found by its command line.
fn keeper_of(script: u32) -> Option<String> {
    let found = run(Command::new("pgrep").args(["-f", "--", &format!("--while-pid {script} L$")]));
    found.out().lines().next().map(str::to_owned)
}

/// Starts a command that acquires L for a keeper, and lets the wire hold back what the keeper asks.
#[track_caller]
pub(crate) fn held_back(server: &Server, command: &mut Command) -> (Running, Proxy) {
    let wire = Proxy::to(server.port(), Duration::ZERO);
    let mut flights = 0;
    // The server does not know the script of the first request.
    for name in ["M", "N"] {
        let before = wire.flights();
        let mut acquire = server.rlock(["acquire", "-n", name]);
        run(acquire.env("RLOCK_URL", wire.url())).exits(0);
        flights = wire.flights() - before;
    }
    let before = wire.flights();
    // Keeps the request of the keeper back until it is held back altogether.
    wire.delay(Duration::from_millis(800));
    // What the keeper may take to start does not grow with it.
    let running = Running::start(command.env("RLOCK_URL", wire.url()).env("TTL", "7d"));
    until("the keeper asks", || wire.flights() > before + flights);
    wire.part(true);
    wire.delay(Duration::ZERO);
    (running, wire)
}

#[test]
fn a_server_that_dies_while_the_keeper_starts_is_unreachable() {
    let mut server = Server::on_tcp(&[]);
    let (script, wire) = held_back(&server, &mut script(&server, "true"));
    server.kill();
    wire.part(false);
    let told = script.end().exits(69).prints("").says("L: not released (the lease expires").err();
    let told = told.lines().next_back().unwrap();
    assert!(told.starts_with("rlock: L: the keeper failed to start: "), "{told}");
    assert!(told.contains("; check the "), "{told}");
}

#[test]
fn a_keeper_outlasts_a_short_outage_while_it_starts() {
    let server = Server::on_tcp(&[]);
    let (script, wire) = held_back(&server, &mut script(&server, "true"));
    let before = wire.flights();
    until("the keeper asks again", || wire.flights() > before);
    wire.part(false);
    script.finish().exits(0).prints("HELD");
}

#[test]
fn a_signal_while_the_keeper_starts_leaves_no_lock_and_prints_one_document() {
    let server = Server::on_tcp(&[]);
    let pid = std::process::id().to_string();
    let mut acquire = server.rlock(["acquire", "--json", "--while-pid", &pid, "L"]);
    let (acquire, wire) = held_back(&server, &mut acquire);
    // The keeper gives up later.
    let mut longer = LongerWait::of("4s");
    let output = acquire.ends_by("TERM");
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
    assert_eq!(output.json()["status"], "stopped");
    longer.is_not_over();
    wire.part(false);
    until("the lock is free", || server.is_free("L"));
}

#[test]
fn a_lock_that_is_revoked_while_the_keeper_starts_is_lost() {
    let server = Server::on_tcp(&[]);
    let (script, wire) = held_back(&server, &mut script(&server, "true"));
    server.run("release --force --now L").shows("L: revoked");
    support::acquire(&server, &[], "L");
    wire.part(false);
    let told = "rlock: L: the lock was lost while the keeper started; acquire it again";
    assert_eq!(script.finish().exits(76).prints("").err(), told);
}

#[test]
fn a_waiter_whose_process_ends_leaves_the_queue() {
    let server = Server::start();
    let holder = support::holder(&server, &[], "L");
    let mut sleeper = Process::start(Command::new("sleep").arg("600"));
    let acquire = format!("acquire --while-pid {}", sleeper.id());
    let waits = server.starts(&acquire, "L").tells("waiting at position 1");
    sleeper.kill();
    let told = waits.end().exits(64).err();
    assert!(told.ends_with("the process of --while-pid ended during the wait"), "{told}");
    assert_eq!(server.waiting("L"), 0);
    holder.finish().exits(0);
}

#[test]
fn the_lock_is_held_for_longer_than_a_lease_and_freed_however_the_script_ends() {
    let server = Server::start();
    for is_killed in [false, true] {
        let running = held(&server, "2s", "read _");
        let holder = server.inspect("L")["holders"][0].clone();
        assert_eq!((&holder["kind"], &holder["label"]), (&"while-pid".into(), &"script".into()));
        assert_eq!((&holder["pid"], &holder["command"]), (&running.pid().into(), &"sh".into()));
        // A third of the lease apart.
        for _ in 0..4 {
            server.is_renewed();
        }
        let keeper = keeper_of(running.pid()).unwrap();
        if is_killed {
            running.signal("KILL");
        }
        running.finish();
        until("it is freed", || server.is_free("L"));
        until("the keeper ends", || is_gone(&keeper));
    }
}

#[test]
fn a_script_may_renew_and_release_its_lock_itself() {
    let server = Server::start();
    let body =
        "$rlock renew --ttl 1s L $t && echo RENEWED; read _; $rlock release L $t && echo FREE
        read _";
    let mut running = held(&server, "1h", body);
    assert_eq!(running.line(), "RENEWED");
    // A renewal beside a keeper never shortens its lease.
    assert!(server.lease_left("L") > 1_800_000);
    running.say("");
    assert_eq!(running.line(), "FREE");
    assert!(server.is_free("L"));
    until("the keeper has ended", || keeper_of(running.pid()).is_none());
    running.say("");
    running.end();
}

#[test]
fn a_script_that_loses_its_lock_is_stopped_with_all_that_it_started() {
    let server = Server::start();
    for body in [
        "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.01; done'",
        // The parent of the daemon has ended, so only the session links it to the script.
        "(sh -c 'sleep 1000 >&- 2>&- & echo $!'); read _",
    ] {
        // The script leads its session, or only its process group.
        let session = server.program("setsid sh -c", &text(body));
        let mut group = server.program("sh -c", &text(body));
        group.process_group(0);
        for mut leader in [session, group] {
            let mut running = Running::start(leader.env("TTL", "3s")).prints_first("HELD");
            let started = running.line();
            server.run("release --force L").exits(0).says("released the lock");
            assert!(is_gone(&started), "{body}");
            assert!(!running.end().status.success());
        }
    }
}

#[test]
fn a_lost_lock_is_free_only_when_even_processes_that_always_start_the_next_have_ended() {
    let server = Server::start();
    let storm = format!("{} 3 50000 60.{} 0 0", STORM.display(), std::process::id());
    let mut leader = server.program("setsid sh -c", &text(&format!("exec {storm} >&- 2>&-")));
    let running = Running::start(leader.env("TTL", "3s")).prints_first("HELD");
    until("all have started", || count_of(&storm) >= 4);
    server.run("release --force L").exits(0).says("released the lock");
    assert_eq!(count_of(&storm), 0);
    assert!(!running.end().status.success());
}

#[test]
fn a_keeper_stops_nothing_that_another_script_in_the_same_group_may_have_started() {
    let server = Server::start();
    let body = format!("(sleep 1000 >&- 2>&- & echo $!)\nsh -c '{}' & wait", text("read _ <&3"));
    let mut caller = server.program("sh -c", &format!("exec 3<&0; {body}"));
    let mut running = Running::start(caller.env("TTL", "3s").process_group(0));
    let others = running.line();
    let mut running = running.prints_first("HELD");
    server.revoke("L");
    running.told("stopping the script");
    running.end();
    until("the keeper has released the lock", || server.is_free("L"));
    assert!(!is_gone(&others));
    support::send_signal(others.parse().unwrap(), "KILL");
}

#[test]
fn a_keeper_that_lacks_descriptors_for_its_renewals_fails_while_it_starts() {
    let server = Server::start();
    let mut starts = 0;
    for limit in 8..=32 {
        let body = format!("ulimit -n {limit}; {}", text("read _"));
        let mut script = Running::start(server.program("bash -c", &body).env("TTL", "1s"));
        match script.stdout_line() {
            None => {
                let output = script.end();
                assert!([127, 70, 69].contains(&output.code()), "{limit}: {output:?}");
                assert!(server.is_free("L"), "{limit}");
            }
            Some(_) => {
                server.is_renewed();
                script.finish();
                until("it is freed", || server.is_free("L"));
                starts += 1;
                // All larger limits suffice too.
                if starts == 2 {
                    return;
                }
            }
        }
    }
    panic!("no limit suffices");
}

#[test]
fn a_script_that_loses_its_lock_reads_the_reason_on_its_own_stderr() {
    let server = Server::start();
    let log = server.directory().join("log");
    let body = text("trap 'echo last >&2; exit 1' TERM; sleep 60 & wait");
    let body = format!("exec 2>{}; echo own >&2; {body}", log.display());
    let mut shell = server.program("sh -c", &body);
    let running = Running::start(shell.env("TTL", "3s")).prints_first("HELD");
    let stops = format!("; stopping the script (pid {})", running.pid());
    server.revoke("L");
    running.end();
    let told = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert!(matches!(lines[..], ["own", _, "last"]), "{told}");
    assert!(lines[1].starts_with("rlock: L: the lock was "), "{told}");
    assert!(lines[1].ends_with(&stops), "{told}");
}

#[test]
fn the_reason_is_in_the_system_log_if_the_script_has_closed_its_stderr() {
    let server = Server::start();
    let [dev, log] = ["dev", "log"].map(|name| server.directory().join(name));
    std::fs::create_dir(&dev).unwrap();
    let log_daemon = UnixDatagram::bind(&log).unwrap();
    log_daemon.set_read_timeout(Some(limit())).unwrap();
    // A /dev where the log is the socket of this test.
    let script = format!(
        "mount -t tmpfs none $DEV; touch $DEV/null; mount --bind /dev/null $DEV/null
        ln -s $LOG $DEV/log; mount --rbind $DEV /dev
        {}",
        text("exec 2>&-; read _")
    );
    let mut inside = server.contained("--mount", &script);
    inside.env("DEV", &dev).env("LOG", &log).env("TTL", "1s");
    let running = Running::start(&mut inside).prints_first("HELD");
    server.signal("STOP");
    let next = || {
        let mut message = vec![0; 1_000];
        let length = log_daemon.recv(&mut message).expect("a message");
        message.truncate(length);
        String::from_utf8(message).unwrap()
    };
    // A late renewal may come first.
    let mut messages = std::iter::repeat_with(next);
    let message = messages.find(|message| message.contains("; stopping")).unwrap();
    assert!(message.starts_with("<11>rlock["), "{message}");
    assert!(message.contains("]: L: the lease expires in "), "{message}");
    let stops = format!("; stopping the script (pid {})", running.pid());
    assert!(message.ends_with(&stops), "{message}");
    assert!(!running.end().status.success());
}

#[test]
fn every_signal_that_can_be_blocked_makes_the_keeper_ask_and_only_the_server_ends_it() {
    let server = Server::start();
    let running = held(&server, "1h", "read _");
    let keeper = keeper_of(running.pid()).unwrap();
    let renewed = || server.inspect("L")["holders"][0]["renewed_at"].clone();
    let before = renewed();
    // The C library keeps 32 to 34 for itself.
    let others = [libc::SIGKILL, libc::SIGSTOP, 32, 33, 34];
    for signal in (1..=64).filter(|signal| !others.contains(signal)) {
        // SAFETY: it takes numbers only.
        assert_eq!(unsafe { libc::kill(keeper.parse().unwrap(), signal) }, 0, "{signal}");
    }
    until("it has asked", || renewed() != before);
    assert!(!is_gone(&keeper));
    running.finish();
    until("it is freed", || server.is_free("L"));
}

#[test]
fn a_stopped_keeper_is_continued_in_time_to_stop_its_script() {
    let server = Server::start();
    let running = held(&server, "2s", "read _; echo GOES");
    let keeper = keeper_of(running.pid()).unwrap();
    support::send_signal(keeper.parse().unwrap(), "STOP");
    server.revoke("L");
    assert_eq!(running.end().status.signal(), Some(15));
}

#[test]
fn acquire_with_while_pid_exits_with_64_for_a_process_it_cannot_watch() {
    let server = Server::start();
    let mut ended = Process::start(&mut Command::new("true"));
    until("it has ended", || is_gone(&ended.id().to_string()));
    let zombie = ended.id().to_string();
    for bad in ["0", "-1", "x", "4194304", "2147483647", "1", &zombie] {
        run(&mut server.rlock(["acquire", &format!("--while-pid={bad}"), "L"])).exits(64);
    }
    ended.wait().unwrap();
    let told = format!(": a thread of process {}; use that process", std::process::id());
    let thread = nix::unistd::gettid();
    run(&mut server.rlock(["acquire", &format!("--while-pid={thread}"), "L"]))
        .exits(64)
        .says(&told);
    assert!(server.is_free("L"));
}

#[test]
fn the_keeper_keeps_none_of_the_callers_descriptors_open() {
    let server = Server::start();
    // The shell reads them to their end, for which the keeper waits in turn.
    let body = "x=$(exec 3>&1; $rlock acquire --while-pid $$ L 2>&1); echo \"got ${#x}\"";
    run(&mut server.program("sh -c", body)).exits(0).prints("got 36");
}

#[test]
fn after_releasing_its_lock_a_script_survives_a_frozen_server() {
    let server = Server::start();
    let without_proc = "unshare --user --map-root-user --mount sh -c \
        'mount -t tmpfs none /proc && exec $rlock release L $0'";
    for release in ["$rlock release L", without_proc] {
        // Another user's process cannot take the place of the keeper.
        let become_user = match geteuid().is_root() {
            true => "env setpriv --reuid=54321 --regid=54321 --clear-groups sh -c",
            false => "sh -c",
        };
        let decoy = "read id; printf rlock-$id >/proc/$$/comm; echo READY; read _ || :";
        let mut decoy = Running::start(&mut server.program(become_user, decoy));
        // Longer than the lease, at the end of which a keeper would stop the script.
        let body = format!("echo ${{t%%-*}}; read _; {release} $t; echo FREE; sleep 3; echo done");
        let mut running = held(&server, "2s", &body);
        decoy.say(&running.line());
        assert_eq!(decoy.line(), "READY");
        running.say("");
        assert_eq!(running.line(), "FREE", "{release}");
        server.signal("STOP");
        running.end().exits(0).prints("done");
        server.signal("CONT");
        decoy.finish().exits(0);
    }
}

#[test]
fn a_keeper_writes_to_a_file_only_if_its_script_can() {
    let server = Server::start();
    for (how, is_written) in [("<", false), (">>", true)] {
        let file = server.directory().join("file");
        fs::write(&file, "theirs\n").unwrap();
        let body = text(&format!("exec 2{how}{}; echo READY; read _", file.display()));
        let mut shell = server.program("sh -c", &body);
        // So it must open the file again.
        let refused = [Refused::Call(libc::SYS_pidfd_getfd)];
        let shell = refuse(shell.env("TTL", "3s"), &refused, Errno::EPERM);
        let mut running = Running::start(shell).prints_first("HELD");
        assert_eq!(running.line(), "READY");
        server.revoke("L");
        assert!(!running.end().status.success());
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.contains("stopping the script"), is_written, "{text}");
        assert_eq!(text != "theirs\n", is_written, "{text}");
    }
}

/// Processes that all have the same command line.
fn count_of(command: &str) -> usize {
    let found = run(Command::new("pgrep").args(["-fxc", "--", command]));
    found.out().parse().unwrap()
}

#[test]
fn hundreds_of_processes_are_stopped_with_those_that_start_meanwhile() {
    let server = Server::start();
    let sleep = format!("sleep 600.{}", std::process::id());
    let body = text(&format!(
        "trap 'while :; do {sleep} >&- 2>&- & sleep 0.001; done' TERM
        for i in $(seq 400); do (trap '' TERM; exec {sleep} >&- 2>&-) & done
        echo UP; while :; do sleep 0.01; done"
    ));
    let mut shell = server.program("sh -c", &body);
    let mut running = Running::start(shell.env("TTL", "3s")).prints_first("HELD");
    assert_eq!(running.line(), "UP");
    until("all have started", || count_of(&sleep) == 400);
    server.revoke("L");
    // They may take a second to clean up. To look for the children of each child took ten.
    let mut longer = LongerWait::of("6s");
    assert!(!running.end().status.success());
    until("all are stopped", || count_of(&sleep) == 0);
    longer.is_not_over();
}

support::also_on_local! {
    the_lock_is_held_for_longer_than_a_lease_and_freed_however_the_script_ends,
    a_script_may_renew_and_release_its_lock_itself,
    every_signal_that_can_be_blocked_makes_the_keeper_ask_and_only_the_server_ends_it,
    a_waiter_whose_process_ends_leaves_the_queue,
    a_keeper_that_lacks_descriptors_for_its_renewals_fails_while_it_starts,
}

support::also_without_vfork! {
    the_lock_is_held_for_longer_than_a_lease_and_freed_however_the_script_ends,
}
