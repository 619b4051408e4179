//! acquire --while-pid: a keeper holds the lock for as long as a process lives, and no longer.

use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use nix::libc;

use crate::support::limit::{Process, limit};
use crate::support::proxy::Proxy;
use crate::support::{self, Finished, LongerWait, Running, Server, binary, is_gone, run, until};

/// A shell script that takes the lock L, prints HELD, and then runs `body`.
fn script(server: &Server, body: &str) -> Command {
    let mut shell = Command::new("sh");
    let rlock = binary();
    shell.arg("-c").arg(format!(
        "t=$({rlock} acquire --ttl ${{TTL:-2s}} --label script --while-pid $$ L) || exit; echo HELD; {body}"
    ));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RLOCK_") {
            shell.env_remove(name);
        }
    }
    shell.env("RLOCK_URL", server.url());
    shell
}

/// The PID of the keeper for a script, found by its command line.
fn keeper_of(script: u32) -> Option<String> {
    let found = run(Command::new("pgrep").args(["-f", "--", &format!("--while-pid {script} L$")]));
    found.out().lines().next().map(str::to_owned)
}

/// A wire to the server, and the number of flights of an acquire.
fn measured_wire(server: &Server) -> (Proxy, usize) {
    let wire = Proxy::to(server.port(), Duration::ZERO);
    let mut flights = 0;
    // The server does not know the script of the first request.
    for name in ["M", "N"] {
        let before = wire.flights();
        let mut acquire = server.rlock(["acquire", "-n", name]);
        assert_eq!(run(acquire.env("RLOCK_URL", wire.url())).code(), 0);
        flights = wire.flights() - before;
    }
    (wire, flights)
}

#[test]
fn a_server_that_dies_while_the_keeper_starts_is_unreachable() {
    let server = Server::on_tcp(&[]);
    let (wire, flights) = measured_wire(&server);
    wire.hang_up_after(flights);
    let output = run(script(&server, "true").env("RLOCK_URL", wire.url())).exits(69).prints("");
    assert!(output.err().starts_with("rlock: L: the keeper failed to start: "), "{output:?}");
    assert!(output.err().contains("; check the "), "{output:?}");
}

#[test]
fn a_keeper_outlasts_a_short_outage_while_it_starts() {
    let server = Server::on_tcp(&[]);
    let (wire, flights) = measured_wire(&server);
    let before = wire.flights();
    // Keeps the request of the keeper back until it is held back altogether.
    wire.delay(Duration::from_millis(500));
    let mut script = script(&server, "true");
    script.env("RLOCK_URL", wire.url()).env("RLOCK_IO_TIMEOUT", "2s").env("TTL", "60s");
    let script = Running::start(&mut script);
    until("the keeper asks", || wire.flights() > before + flights);
    wire.part(true);
    until("the keeper asks again", || wire.flights() > before + flights + 1);
    wire.part(false);
    script.finish().exits(0).prints("HELD");
}

/// A process for a keeper to watch.
fn sleeper() -> Process {
    Process::start(Command::new("sleep").arg("600"))
}

#[test]
fn a_waiter_whose_process_ends_leaves_the_queue() {
    let server = Server::start();
    let holder = support::holder(&server, &[], "L");
    let mut sleeper = sleeper();
    let pid = sleeper.id().to_string();
    let mut waits =
        Running::start(&mut server.rlock(["acquire", "--json", "--while-pid", &pid, "L"]));
    waits.told("waiting at position 1");
    sleeper.kill();
    let told = waits.end().exits(64);
    assert!(told.err().ends_with("the process of --while-pid ended during the wait"), "{told:?}");
    assert_eq!(server.waiting("L"), 0);
    assert_eq!(holder.finish().code(), 0);
}

#[test]
fn a_signal_while_the_keeper_starts_prints_one_document() {
    let server = Server::on_tcp(&[]);
    let (wire, flights) = measured_wire(&server);
    let sleeper = sleeper();
    let pid = sleeper.id().to_string();
    for name in ["INT", "TERM", "HUP"] {
        let before = wire.flights();
        wire.delay(Duration::from_millis(800));
        let mut acquire = server.rlock(["acquire", "--json", "--while-pid", &pid, "L"]);
        let acquire = Running::start(acquire.env("RLOCK_URL", wire.url()));
        until("the keeper asks", || wire.flights() > before + flights);
        wire.part(true);
        wire.delay(Duration::ZERO);
        acquire.signal(name);
        wire.part(false);
        let told = acquire.end();
        let document: serde_json::Value = serde_json::from_str(&told.out()).unwrap();
        assert_eq!(document["status"], "stopped", "{told:?}");
        assert!(server.is_free("L"), "{name}");
    }
}

#[test]
fn a_lock_that_is_revoked_while_the_keeper_starts_is_lost() {
    let server = Server::on_tcp(&[]);
    let (wire, flights) = measured_wire(&server);
    for is_taken in [false, true] {
        let before = wire.flights();
        // Keeps the request of the keeper back until it is held back altogether.
        wire.delay(Duration::from_millis(500));
        let mut script = script(&server, "true");
        let script = Running::start(script.env("RLOCK_URL", wire.url()).env("TTL", "60s"));
        until("the keeper asks", || wire.flights() > before + flights);
        wire.part(true);
        let revoked = server.run("release --force --now L");
        assert!(revoked.out().starts_with("L: revoked"), "{revoked:?}");
        if is_taken {
            support::acquire(&server, &[], "L");
        }
        wire.part(false);
        let output = script.finish().exits(76).prints("");
        let told = "rlock: L: the lock was lost while the keeper started; acquire it again";
        assert_eq!(output.err(), told);
    }
}

#[test]
fn the_lock_is_held_for_longer_than_a_lease_and_freed_when_the_script_ends() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "read _")).prints_first("HELD");
    let holder = server.inspect("L")["holders"][0].clone();
    assert_eq!((&holder["kind"], &holder["label"]), (&"while-pid".into(), &"script".into()));
    assert_eq!((&holder["pid"], &holder["command"]), (&running.pid().into(), &"sh".into()));
    let fence = server.fence("L");
    // A third of the lease apart.
    let mut last = holder["renewed_at"].clone();
    for _ in 0..4 {
        let renewed = || server.inspect("L")["holders"][0]["renewed_at"].clone();
        until("it is renewed", || renewed() != last);
        last = renewed();
    }
    assert_eq!(server.fence("L"), fence);
    let keeper = keeper_of(running.pid()).unwrap();
    running.say("");
    assert_eq!(running.finish().code(), 0);
    until("it is freed", || server.is_free("L"));
    until("the keeper ends", || is_gone(&keeper));
}

#[test]
fn a_killed_script_frees_its_lock_too() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "read _")).prints_first("HELD");
    running.signal("KILL");
    running.process.wait().unwrap();
    until("it is freed", || server.is_free("L"));
    assert!(server.run("inspect L").out().contains("released, held by"));
}

#[test]
fn a_script_may_renew_and_release_its_lock_itself() {
    let server = Server::start();
    let rlock = binary();
    let body =
        format!("{rlock} renew L \"$t\" || exit 9; {rlock} release L \"$t\"; echo $?; read _");
    let mut running = Running::start(&mut script(&server, &body));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "0".into()));
    assert!(server.is_free("L"));
    until("the keeper has ended", || keeper_of(running.pid()).is_none());
    running.say("");
    assert_eq!(running.end().code(), 0);
}

#[test]
fn a_renewal_beside_a_keeper_never_shortens_its_lease() {
    let server = Server::start();
    let rlock = binary();
    let body = format!("{rlock} renew --ttl 1s L \"$t\" && echo RENEWED; read _");
    let mut running = Running::start(script(&server, &body).env("TTL", "1h"));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "RENEWED".into()));
    assert!(server.lease_left("L") > 1_800_000);
    running.say("");
    assert_eq!(running.end().code(), 0);
}

#[test]
fn a_script_that_loses_its_lock_is_stopped_with_all_that_it_started() {
    let server = Server::start();
    let body = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.01; done'";
    let mut command = script(&server, body);
    let mut running = Running::start(command.env("TTL", "3s")).prints_first("HELD");
    let stubborn = running.line();
    server.revoke("L");
    let output = running.end();
    assert!(!output.status.success(), "{output:?}");
    until("what it has started is stopped too", || is_gone(&stubborn));
}

#[test]
fn a_script_that_loses_its_lock_reads_the_reason_on_its_own_stderr() {
    let server = Server::start();
    let log = server.directory().join("log");
    for (before, after) in [("", ""), ("exec 2> ", "; echo own >&2")] {
        let file = if before.is_empty() { String::new() } else { log.display().to_string() };
        let mut shell = script(&server, "trap 'echo last >&2; exit 1' TERM; sleep 60 & wait");
        let body = shell.get_args().nth(1).unwrap().to_str().unwrap().to_owned();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before}{file}{after}\n{body}")]);
        for (name, value) in shell.env("TTL", "3s").get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let running = Running::start(&mut command).prints_first("HELD");
        let stops = format!("; stopping the script (pid {})", running.pid());
        server.revoke("L");
        let output = running.end();
        let told = match before {
            "" => output.err(),
            _ => std::fs::read_to_string(&log).unwrap(),
        };
        let lines: Vec<&str> = told.lines().filter(|line| *line != "own").collect();
        assert_eq!(lines.len(), 2, "{told}");
        assert!(lines[0].starts_with("rlock: L: the lock was "), "{told}");
        assert!(lines[0].ends_with(&stops), "{told}");
        assert_eq!(lines[1], "last");
        until("the keeper has let go", || server.is_free("L"));
    }
}

#[test]
fn the_reason_is_in_the_system_log_if_the_script_has_closed_its_stderr() {
    let mut server = Server::start();
    let [dev, log] = ["dev", "log"].map(|name| server.directory().join(name));
    // It appears in the reason, where it must not forge a line.
    std::os::unix::fs::symlink(server.socket(), server.directory().join("a\n<38>b")).unwrap();
    let url = server.url().replace("/socket", "/a%0A<38>b");
    std::fs::create_dir(&dev).unwrap();
    let log_daemon = UnixDatagram::bind(&log).unwrap();
    log_daemon.set_read_timeout(Some(limit())).unwrap();
    let shell = script(&server, "exec 2>&-; read _");
    // A /dev where the log is the socket of this test.
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "--mount", "sh", "-ec"]);
    inside.arg(
        "mount -t tmpfs none $DEV; touch $DEV/null; mount --bind /dev/null $DEV/null
        ln -s $LOG $DEV/log; mount --rbind $DEV /dev; exec \"$@\"",
    );
    inside.arg("sh").arg(shell.get_program()).args(shell.get_args());
    inside.env("DEV", &dev).env("LOG", &log).env("RLOCK_URL", url).env("TTL", "1s");
    let running = Running::start(&mut inside).prints_first("HELD");
    server.kill();
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
    assert!(message.contains("/a <38>b: "), "{message}");
    assert!(
        message.ends_with(&format!("; stopping the script (pid {})", running.pid())),
        "{message}"
    );
    assert!(!running.end().status.success());
}

#[test]
fn the_keeper_does_not_keep_the_callers_stderr_open() {
    let server = Server::start();
    let rlock = binary();
    let body = format!("x=$({rlock} acquire --while-pid $$ L 2>&1); echo \"got ${{#x}}\"");
    let output = run(Command::new("sh").args(["-c", &body]).env("RLOCK_URL", server.url()));
    assert_eq!(output.out(), "got 36");
}

#[test]
fn a_signal_makes_the_keeper_ask_and_only_the_server_ends_it() {
    let server = Server::start();
    let mut running =
        Running::start(script(&server, "read _").env("TTL", "1h")).prints_first("HELD");
    let keeper = keeper_of(running.pid()).unwrap();
    let renewed = || server.inspect("L")["holders"][0]["renewed_at"].clone();
    let before = renewed();
    support::send_signal(keeper.parse().unwrap(), "USR1");
    until("it has asked", || renewed() != before);
    assert!(!is_gone(&keeper));
    running.say("");
    running.finish();
    until("it is freed", || server.is_free("L"));
}

#[test]
fn a_daemon_in_the_session_of_a_script_is_stopped_with_it() {
    let server = Server::start();
    // Its parent has ended, so only the session links it to the script.
    let shell = script(&server, "(sh -c 'sleep 1000 >&- 2>&- & echo $!'); read _");
    let mut setsid = Command::new("setsid");
    setsid.arg(shell.get_program()).args(shell.get_args());
    let mut running =
        Running::start(setsid.env("RLOCK_URL", server.url()).env("TTL", "3s")).prints_first("HELD");
    let daemon = running.line();
    server.revoke("L");
    assert!(!running.end().status.success());
    until("it is stopped", || is_gone(&daemon));
}

#[test]
fn a_server_unreachable_for_too_long_stops_the_script_before_others_can_acquire_the_lock() {
    let server = Server::with(&[]);
    let running = Running::start(&mut script(&server, "sleep 60")).prints_first("HELD");
    server.signal("STOP");
    let output = running.end();
    assert!(!output.status.success(), "{output:?}");
    server.signal("CONT");
}

#[test]
fn the_keeper_survives_every_signal_that_can_be_blocked() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "read _")).prints_first("HELD");
    let keeper = keeper_of(running.pid()).unwrap();
    // The C library keeps 32 to 34 for itself.
    let others = [libc::SIGKILL, libc::SIGSTOP, 32, 33, 34];
    for signal in (1..=64).filter(|signal| !others.contains(signal)) {
        // SAFETY: it takes numbers only.
        assert_eq!(unsafe { libc::kill(keeper.parse().unwrap(), signal) }, 0, "{signal}");
    }
    let renewed = server.inspect("L")["holders"][0]["renewed_at"].clone();
    until("it renews", || {
        let now = server.inspect("L")["holders"][0]["renewed_at"].clone();
        now.is_string() && now != renewed
    });
    running.say("");
    running.finish();
    until("it is freed", || server.is_free("L"));
}

#[test]
fn a_stopped_keeper_is_continued_in_time_to_stop_its_script() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "read _; echo GOES"));
    assert_eq!(running.line(), "HELD");
    let keeper = keeper_of(running.pid()).unwrap();
    support::send_signal(keeper.parse().unwrap(), "STOP");
    server.revoke("L");
    let output = running.end();
    assert_eq!(output.status.signal(), Some(15), "{output:?}");
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
    assert!(server.is_free("L"));
}

#[test]
fn the_keeper_keeps_none_of_the_callers_descriptors_open() {
    let server = Server::start();
    let mut running = Running::start(&mut script(&server, "exec 7>&-; read _"));
    assert_eq!(running.line(), "HELD");
    let keeper = keeper_of(running.pid()).unwrap();
    let ours = format!("/proc/{}/fd", std::process::id());
    let pipes: Vec<_> = std::fs::read_dir(ours)
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("pipe:"))
        .collect();
    for entry in std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap();
        assert!(!pipes.contains(&target), "{target:?}");
    }
    // The caller of a script does not wait for the keeper, even with an extra descriptor.
    let rlock = binary();
    let body = format!("exec 3>&1; t=$({rlock} acquire --while-pid $$ M); echo got $t");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("x=$({body}); echo \"$x\"")]).env("RLOCK_URL", server.url());
    assert!(run(&mut shell).out().starts_with("got "));
    running.say("");
    running.finish();
}

#[test]
fn after_releasing_its_lock_a_script_survives_a_frozen_server() {
    let server = Server::start();
    let rlock = binary();
    // Longer than the lease of 2 s, at the end of which a keeper would stop the script.
    let body = format!("{rlock} release L \"$t\"; echo FREE; sleep 3; echo done");
    let mut running = Running::start(&mut script(&server, &body));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "FREE".into()));
    server.signal("STOP");
    assert_eq!(running.line(), "done");
    assert_eq!(running.end().code(), 0);
    server.signal("CONT");
}

#[test]
fn a_keeper_that_misses_the_release_does_not_stop_the_script() {
    let server = Server::start();
    let rlock = binary();
    // The release does not see the keeper's process, and the history remembers fewer holds.
    let body = format!(
        "RLOCK_TOKEN=$t unshare --pid --fork {rlock} release L || exit
        for i in $(seq 18); do {rlock} exec L true; done; echo FREE; read _; echo done"
    );
    let mut running = Running::start(&mut script(&server, &body));
    let (pid, held) = (running.pid(), running.line());
    assert_eq!((held.as_str(), running.line().as_str()), ("HELD", "FREE"));
    until("the keeper has asked", || keeper_of(pid).is_none());
    running.say("");
    assert_eq!(running.line(), "done");
    assert_eq!(running.end().code(), 0);
}

#[test]
fn a_process_started_while_the_script_is_stopped_is_stopped_too() {
    let server = Server::start();
    let child = "trap \"sleep 987 & echo \\$!\" TERM; echo UP; while :; do sleep 0.01; done";
    let mut running = Running::start(&mut script(&server, &format!("sh -c '{child}'")));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "UP".into()));
    server.revoke("L");
    let late = running.line();
    until("it is stopped", || is_gone(&late));
    let _ = running.end();
}

/// Processes that all have the same command line.
fn count_of(command: &str) -> usize {
    let found = run(Command::new("pgrep").args(["-fxc", "--", command]));
    found.out().parse().unwrap()
}

/// The same shell under a limit on descriptors that it cannot lift, even as root.
fn with_few_descriptors(shell: &Command) -> Command {
    let mut limited = Command::new("sh");
    let drop = "setpriv --bounding-set -sys_resource -- true 2>&- && \
        exec setpriv --bounding-set -sys_resource -- \"$@\"";
    limited.args(["-c", &format!("ulimit -n 20; {drop}; exec \"$@\""), "sh"]);
    limited.arg(shell.get_program()).args(shell.get_args());
    for (name, value) in shell.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

#[test]
fn stopping_many_processes_takes_no_longer_than_stopping_a_few() {
    let server = Server::start();
    let sleep = format!("sleep 600.{}", std::process::id());
    let body =
        format!("trap '' TERM; for i in $(seq 400); do {sleep} >&- 2>&- & done; echo UP; wait");
    let mut running = Running::start(script(&server, &body).env("TTL", "3s"));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "UP".into()));
    until("all have started", || count_of(&sleep) == 400);
    server.revoke("L");
    // They may take a second to clean up. To look for the children of each child took ten and more.
    let mut longer = LongerWait::of("6s");
    assert!(!running.end().status.success());
    until("all are stopped", || count_of(&sleep) == 0);
    longer.is_not_over();
}

#[test]
fn a_process_forked_while_the_script_is_killed_is_killed_too() {
    let server = Server::start();
    let sleep = format!("sleep 601.{}", std::process::id());
    let body = format!(
        "trap 'while :; do {sleep} >&- 2>&- & sleep 0.001; done' TERM
        for i in $(seq 100); do (trap '' TERM; exec {sleep} >&- 2>&-) & done
        echo UP; while :; do sleep 0.01; done"
    );
    let mut running = Running::start(script(&server, &body).env("TTL", "3s"));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "UP".into()));
    server.revoke("L");
    assert!(!running.end().status.success());
    until("all are killed", || count_of(&sleep) == 0);
}

#[test]
fn a_script_with_few_descriptors_is_stopped_with_all_that_it_started() {
    let server = Server::start();
    let sleep = format!("sleep 602.{}", std::process::id());
    let body =
        format!("trap '' TERM; for i in $(seq 40); do {sleep} >&- 2>&- & done; echo UP; wait");
    let mut command = script(&server, &body);
    let mut running = Running::start(&mut with_few_descriptors(command.env("TTL", "3s")));
    assert_eq!((running.line(), running.line()), ("HELD".into(), "UP".into()));
    until("all have started", || count_of(&sleep) == 40);
    server.revoke("L");
    assert!(!running.end().status.success());
    until("all are stopped", || count_of(&sleep) == 0);
}

#[test]
fn without_proc_the_keeper_warns_that_it_cannot_stop_every_process() {
    let server = Server::start();
    let shell = script(&server, "sleep 60 & wait");
    // Process 1 cannot be watched.
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "--pid", "--fork", "sh", "-c", "\"$@\"; true", "sh"]);
    inside.arg(shell.get_program()).args(shell.get_args());
    let running =
        Running::start(inside.env("RLOCK_URL", server.url()).env("TTL", "3s")).prints_first("HELD");
    server.revoke("L");
    let output = running.end();
    assert_eq!(output.err().matches("; mount /proc").count(), 1, "{output:?}");
}

support::also_on_local! {
    the_lock_is_held_for_longer_than_a_lease_and_freed_when_the_script_ends,
    a_killed_script_frees_its_lock_too,
    a_script_may_renew_and_release_its_lock_itself,
    a_renewal_beside_a_keeper_never_shortens_its_lease,
    a_script_that_loses_its_lock_is_stopped_with_all_that_it_started,
    the_keeper_survives_every_signal_that_can_be_blocked,
    a_stopped_keeper_is_continued_in_time_to_stop_its_script,
    a_script_that_loses_its_lock_reads_the_reason_on_its_own_stderr,
    a_signal_makes_the_keeper_ask_and_only_the_server_ends_it,
    a_waiter_whose_process_ends_leaves_the_queue,
}

support::also_without_vfork! {
    the_lock_is_held_for_longer_than_a_lease_and_freed_when_the_script_ends,
    a_script_that_loses_its_lock_is_stopped_with_all_that_it_started,
}
