//! A password may change while locks are held and awaited.

use std::process::Command;

use crate::support::{Finished, READY, Running, Server, binary, rlock, run, until};

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
        command.env("RLOCK_URL", server.url()).env("RLOCK_USERNAME", "ci").env("RLOCK_TTL", "6s");
        Running::start(command)
    };
    let holder = start(&mut rlock(["exec", "-v", "L", "sh", "-c", READY]));
    let mut holder = holder.prints_first("READY");
    let mut waiter = start(&mut rlock(["exec", "L", "echo", "ENTERED"]));
    waiter.told("waiting at position 1");
    let script = format!("{} acquire --while-pid $$ M >&2 && {READY}", binary());
    let script = start(Command::new("sh").args(["-c", &script])).prints_first("READY");

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
    // Both renew their locks with the new password.
    for key in ["rlock:L", "rlock:M"] {
        let left = || server.cli_number(&["PTTL", key]);
        let mut before = left();
        until("it is renewed", || {
            let now = left();
            now > std::mem::replace(&mut before, now)
        });
    }
    for running in [script, holder] {
        running.finish().exits(0);
    }
    waiter.end().prints("ENTERED");
    run(server.rlock(["exec", "-w", "1h", "L", "true"]).env("RLOCK_PASSWORD", "old")).exits(78);
}
