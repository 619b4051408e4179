//! A password may change while locks are held and awaited.

use std::process::Command;

use crate::support::{Finished, READY, Running, Server, binary, rlock, run};

#[test]
fn a_holder_a_waiter_and_a_keeper_outlast_a_change_of_their_password() {
    let server = Server::start();
    server.cli(&["ACL", "SETUSER", "ci", "on", ">old", "~*", "+@all"]);
    // What follows a rejected login in the same flight must not run as this user.
    server.cli(&["ACL", "SETUSER", "default", "-eval", "-evalsha"]);
    let password = server.directory().join("password");
    std::fs::write(&password, "old\n").unwrap();
    let start = |command: &mut Command| {
        // A keeper leaves the directory.
        command.current_dir(server.directory()).env("RLOCK_PASSWORD_FILE", "password");
        command.env("RLOCK_URL", server.url()).env("RLOCK_USERNAME", "ci").env("RLOCK_TTL", "9s");
        Running::start(command)
    };
    let mut holder = start(&mut rlock(["exec", "-v", "L", "sh", "-c", READY]));
    assert_eq!(holder.line(), "READY");
    let mut waiter = start(&mut rlock(["exec", "L", "echo", "ENTERED"]));
    waiter.told("waiting at position 1");
    let script = format!("{} acquire --while-pid $$ M >&2 && {READY}", binary());
    let mut script = start(Command::new("sh").args(["-c", &script]));
    assert_eq!(script.line(), "READY");

    server.cli(&["ACL", "SETUSER", "ci", "resetpass", ">new"]);
    std::fs::remove_file(&password).unwrap();
    run(Command::new("mkfifo").arg(&password));
    server.cli(&["CLIENT", "KILL", "USER", "ci"]);
    let file = format!("(--password-file {}: no longer a readable file)", password.display());
    let rejected = format!("rejected the username or password {file}");
    waiter.told(&format!("{rejected}; still waiting, retrying"));
    holder.told(&format!("{rejected}; retrying"));
    std::fs::remove_file(&password).unwrap();
    std::fs::write(&password, "new\n").unwrap();
    waiter.told("the server is answering again");
    // A third of a lease apart.
    for _ in 0..4 {
        holder.told("] renewed for");
    }
    assert_eq!(server.cli(&["EXISTS", "rlock:M"]), "1");
    for running in [script, holder] {
        let output = running.finish();
        assert_eq!(output.code(), 0, "{output:?}");
    }
    assert_eq!(waiter.end().out(), "ENTERED");
    let wrong = run(server.rlock(["exec", "-w", "1h", "L", "true"]).env("RLOCK_PASSWORD", "old"));
    assert_eq!(wrong.code(), 78, "{wrong:?}");
}
