//! A wait with a limit covers the start: a server that cannot serve locks for the moment delays a
//! command, and does not fail it.

use std::fs;
use std::process::Command;

use crate::support::*;

/// Starts a command that waits, and has said once that the server does not serve it.
#[track_caller]
fn begun(server: &Server, problem: &str) -> Running {
    let exec = "exec --io-timeout 1s -w 1m L echo RUNS";
    let mut exec = Running::start(&mut at(&server.url(), exec));
    let told = exec.told("rlock: L: ");
    assert!(told.contains(problem) && told.ends_with("; retrying"), "{told}");
    exec
}

#[track_caller]
fn runs(exec: Running) {
    let output = exec.end().exits(0).prints("RUNS");
    let last = "rlock: L: the server is answering again after ";
    assert!(output.err().starts_with(last) && output.err().lines().count() == 1, "{output:?}");
}

#[test]
fn a_command_that_waits_outlasts_what_passes_by_itself() {
    let mut server = Server::with(&["--enable-debug-command", "yes"]);
    server.kill();
    let exec = begun(&server, "cannot connect to ");
    server.start_again();
    runs(exec);

    server.signal("STOP");
    let exec = begun(&server, "did not answer within 1s");
    server.signal("CONT");
    runs(exec);

    for (setting, bad, good, problem) in [
        ("maxmemory", "1", "0", "is out of memory"),
        ("min-replicas-to-write", "1", "0", "has too few replicas"),
    ] {
        server.cli(&["CONFIG", "SET", setting, bad]);
        let exec = begun(&server, problem);
        server.cli(&["CONFIG", "SET", setting, good]);
        runs(exec);
    }

    server.cli(&["DEBUG", "POPULATE", "100", "key", "2000"]);
    server.cli(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    server.cli(&["CONFIG", "SET", "key-load-delay", "20000"]);
    let socket = server.socket();
    let mut reload = Command::new("redis-cli");
    let reload = Running::start(reload.arg("-s").arg(socket).args(["DEBUG", "RELOAD"]));
    until("the server is loading", || server.cli(&["PING"]).contains("LOADING"));
    runs(begun(&server, "is loading its data"));
    reload.end();
}

#[test]
fn a_command_that_waits_outlasts_a_host_name_that_is_not_known_yet() {
    let server = Server::on_tcp(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    fs::write(file("hosts"), "").unwrap();
    fs::write(file("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n").unwrap();
    let script = "mount --bind $1 /etc/hosts && mount --bind $2 /etc/resolv.conf || exit
        shift 2; exec \"$@\"";
    let mut exec = Command::new("unshare");
    exec.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    exec.args([&file("hosts"), &file("resolv.conf"), binary()]);
    exec.args(["exec", "-w", "1m", "L", "echo", "RUNS"]);
    exec.env("RLOCK_URL", format!("redis://host.example:{}", server.port()));
    let mut exec = Running::start(&mut exec);
    exec.told("host name not resolved");
    fs::write(file("hosts"), "127.0.0.1 host.example\n").unwrap();
    runs(exec);
}

#[test]
fn what_does_not_pass_by_itself_or_is_not_waited_for_fails_at_once() {
    let mut server = Server::with(&["--requirepass", "secret"]);
    server.run("exec -w 1h L true").exits(78);
    server.kill();
    for (options, status) in
        [("-n", 69), ("", 69), ("-w 0", 69), ("-w 300ms", 69), ("-w 1h --on-unreachable run", 0)]
    {
        server.run(&format!("exec {options} L true")).exits(status);
    }
}
