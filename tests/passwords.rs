//! Passwords come from the environment, a file or a pipe, are not shown, and may change while locks
//! are held and awaited.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::errors::{fails, shows_no_secret};
use crate::support::*;

const REJECTED: &str = "rejected the username or password";

#[test]
fn passwords_are_taken_from_url_variable_and_file() {
    let [ana, default] = ["on >pw ~* +@all", "on >s3cret ~* +@all"];
    let users = format!("--user ana {ana} --user default {default}");
    let server = Server::on_tcp(&users.split(' ').collect::<Vec<_>>());
    let at = |line: &str| at(&server.tcp_url(), line);
    for line in ["acquire L", "inspect", "inspect L"] {
        fails(&mut at(line), 78, &["requires a password; set RLOCK_PASSWORD"]);
        fails(at(line).env("RLOCK_PASSWORD", "wr0ng"), 78, &[REJECTED]);
    }
    shows_no_secret(&run(at("acquire -v L").env("RLOCK_PASSWORD", "wr0ng")).exits(78));
    run(at("exec L true").env("RLOCK_PASSWORD", "s3cret")).exits(0);
    let mut exec = at("exec L true");
    run(exec.env("RLOCK_USERNAME", "ana").env("RLOCK_PASSWORD", "pw")).exits(0);
    fails(exec.env("RLOCK_USERNAME", "bob"), 78, &[REJECTED]);
    fails(exec.env_remove("RLOCK_PASSWORD"), 78, &["username without a password"]);
    let file = server.directory().join("password");
    fs::write(&file, "s3cret\nchanged on Monday\n").unwrap();
    run(at("inspect --password-file").arg(&file)).exits(0);
    run(at("inspect").env("RLOCK_PASSWORD_FILE", &file)).exits(0);
    let with_password = server.tcp_url().replace("redis://", "redis://:s3cret@");
    run(at("inspect").env("RLOCK_URL", &with_password)).exits(0);
    // It says that other users can see the password with ps.
    shows_no_secret(&run(at("inspect --url").arg(&with_password)).exits(0).says("ps"));
}

#[test]
fn a_password_can_come_from_a_pipe_that_is_read_once() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    // It arrives in two pieces.
    let script = "$rlock exec --password-file \
        <(printf s3; $rlock --version >&2; echo cret; echo notes) L echo in";
    server.bash(script).exits(0).prints("in");
    // The command reads what follows the password.
    let script = "printf 's3cret\\n1\\n2\\n' | $rlock exec --password-file /dev/stdin L cat";
    server.bash(script).exits(0).prints("1\n2");
}

#[test]
fn an_unusable_password_file_is_rejected_with_78_within_the_timeout() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    let path = server.directory().join("password");
    let with = |file: &str| {
        let mut inspect = server.rlock(["inspect", "--io-timeout", "300ms", "--password-file"]);
        inspect.arg(file);
        inspect
    };
    let of = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        with(path.to_str().unwrap())
    };
    fails(&mut of(b"s3cret\xff\n"), 78, &["not UTF-8"]);
    fails(&mut of(b"\ns3cret\n"), 78, &["no password on the first line"]);
    // The password is the first line, however much follows.
    run(&mut of(&[&b"s3cret\r\n"[..], &[0xff; 10_000]].concat())).exits(0);
    fs::remove_file(&path).unwrap();
    run(Command::new("mkfifo").arg(&path));
    // A read without a timeout would exceed the limit of `fails`.
    for (path, told) in [
        ("/nonexistent", "/nonexistent"),
        ("/dev/zero", "exceeds 4096 bytes"),
        ("/", "is a directory"),
        (path.to_str().unwrap(), "within 300ms"),
    ] {
        fails(&mut with(path), 78, &[told]);
    }
}

#[test]
fn a_password_that_every_user_can_read_causes_a_warning() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    let path = server.directory().join("a password");
    fs::write(&path, "s3cret\n").unwrap();
    for (mode, warned) in [(0o604, true), (0o640, false)] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let output = run(server.rlock(["inspect", "--password-file"]).arg(&path)).exits(0);
        let remedy = format!("chmod o-r -- '{}'", path.display());
        assert_eq!(output.err().matches(&remedy).count(), usize::from(warned), "{output:?}");
    }
    // A file name that looks like an option can be pasted too.
    let script = "umask 022; echo s3cret >-Rf
        said=$($rlock inspect --names --password-file=-Rf 2>&1) && eval \"${said##*; run }\" && stat -c %a -- -Rf";
    server.bash(script).prints("640");
}

#[test]
fn an_unneeded_password_is_rejected_with_78_and_leaves_no_lock() {
    let server = Server::on_tcp(&[]);
    let unneeded = "does not use a password; remove it from RLOCK_PASSWORD";
    for (user, told) in [("", unneeded), ("nobody", REJECTED)] {
        server.cli(&["SCRIPT", "FLUSH"]);
        for warm in [false, true] {
            if warm {
                // Enough permissions to acquire, but not to withdraw.
                acquire(&server, &["--ttl", "2s"], "warm");
            }
            let mut exec = server.rlock(["exec", "-n", "--at-least", "10m", "L", "true"]);
            exec.env("RLOCK_PASSWORD", "wr0ng").env("RLOCK_USERNAME", user);
            fails(&mut exec, 78, &[told]);
            assert!(server.is_free("L"), "{user} {warm}");
        }
    }
    // The release took effect, and rlock warns about the password.
    server.run("exec L true").exits(0);
    let token = acquire(&server, &[], "L");
    let mut release = server.rlock(["release", "L", &token]);
    release.env("RLOCK_PASSWORD", "wr0ng").env("RLOCK_USERNAME", "nobody");
    run(&mut release).exits(0).says(REJECTED);
    assert!(server.is_free("L"));
}

#[test]
fn a_holder_a_waiter_and_a_keeper_outlast_a_change_of_their_password() {
    let server = Server::start();
    server.cli(&["ACL", "SETUSER", "ci", "on", ">old", "~*", "+@all"]);
    // What follows a rejected login in the same flight must not run as this user.
    server.cli(&["ACL", "SETUSER", "default", "-eval", "-evalsha"]);
    let password = server.directory().join("password");
    fs::write(&password, "old\n").unwrap();
    let ci = Client::of(server.url()).with("RLOCK_USERNAME", "ci").with("RLOCK_TTL", "6s");
    let ci = ci.with("RLOCK_PASSWORD_FILE", password.display().to_string());
    let mut holder = ci.holder("-v L");
    let mut waiter = ci.waiter("L");
    // A keeper leaves the directory.
    let acquire = "$rlock acquire --ttl 6s --while-pid $$ --password-file password M >&2";
    let script = format!("{acquire} && {READY}");
    let mut script = server.program("sh -c", &script);
    script.current_dir(server.directory()).env("RLOCK_USERNAME", "ci");
    let script = Running::start(&mut script).prints_first("READY");

    server.cli(&["ACL", "SETUSER", "ci", "resetpass", ">new"]);
    fs::remove_file(&password).unwrap();
    run(Command::new("mkfifo").arg(&password));
    server.cli(&["CLIENT", "KILL", "USER", "ci"]);
    let file = format!("(--password-file {}: no longer a readable file)", password.display());
    let rejected = format!("{REJECTED} {file}");
    waiter.told(&format!("{rejected}; still waiting, retrying"));
    holder.told(&format!("{rejected}; retrying"));
    fs::remove_file(&password).unwrap();
    fs::write(&password, "new\n").unwrap();
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
    script.finish().exits(0);
    holder.finish().exits(0);
    waiter.end().prints("ENTERED");
    run(server.rlock(["exec", "-w", "1h", "L", "true"]).env("RLOCK_PASSWORD", "old")).exits(78);
}

/// Values with a secret, none of which rlock accepts anywhere.
const FORMS: &str = r#"
    host:6379:S3cr3tKey
    host:S3cr3tKey
    [::1]:S3cr3tKey
    ::1:S3cr3tKey
    host,password=S3cr3tKey
    my.redis.example:6380,password=S3cr3tKey=,ssl=True
    host:6379;Password=S3cr3tKey
    Server=host;Password=S3cr3tKey
    host 6379 S3cr3tKey
    redis-cli -a S3cr3tKey -h host
    u:S3cr3tKey@h
    u:S3cr3tKey@h:6379/0
    S3cr3tKey@h:6379
    redis://u:S3cr3tKey
    redis://u:S3cr3tKey@
    redis://S3cr3tKey@h
    redis://u:S3cr3tKey@h:port
    redis://u:S3cr3tKey@h:99999
    redis://u:S3cr3tKey@h/x
    redis://u:S3cr3tKey@h?x=1
    redis://u:S3cr3tKey@h#x
    redis://u:S3cr3tKey/x@h
    redis://u:x/S3cr3tKey@h
    redis://u:x S3cr3tKey@h
    redis://u:S3cr3tKey x@h
    redis://u:x#S3cr3tKey@h
    redis://u:x?S3cr3tKey@h
    redis://u:x@S3cr3tKey@h:port
    redis://u:S3cr3tKey@$HOST
    redis://h,password=S3cr3tKey
    redis://h:6379,password=S3cr3tKey,ssl=True
    redis://h?password=S3cr3tKey
    redis://h/0?password=S3cr3tKey
    redis://h/S3cr3tKey
    redis://:S3cr3tKey@h redis://:S3cr3tKey@h
    redis://:S3cr3tKey@h local:/locks
    redis:/u:S3cr3tKey@h
    redis:u:S3cr3tKey@h
    redis//u:S3cr3tKey@h
    rediss://u:S3cr3tKey@h:port
    valkey://u:S3cr3tKey@h:port
    http://u:S3cr3tKey@h
    jdbc:redis://u:S3cr3tKey@h
    REDIS_URL=redis://u:S3cr3tKey@h
    S3cr3tKey://h
    u:S3cr3tKey://h
    'redis://u:S3cr3tKey@h'
    "redis://u:S3cr3tKey@h"
    $S3cr3tKey
    /run/s?pass=S3cr3tKey
    unix:///s:S3cr3tKey
    unix:///s,password=S3cr3tKey
    unix://s?pass=S3cr3tKey
    unix:///s?p%61ss=S3cr3tKey
    unix:///s?password=S3cr3tKey
    unix:///s?pass=S3cr3tKey&x=1
    unix://:S3cr3tKey@/s
    local:S3cr3tKey
    redis+sentinel://u:S3cr3tKey@h
    redis+sentinel://u:S3cr3tKey@h//0
    redis+sentinel://u:S3cr3tKey@h,,h2/svc
    redis+sentinel://u:S3cr3tKey@h/svc/x
    redis+sentinel://h/svc:S3cr3tKey
    redis+sentinel://h/svc,password=S3cr3tKey
    redis+sentinel://h/svc?password=S3cr3tKey
    redis+sentinel://h1,u:S3cr3tKey@h2,:x@h3/svc
    redis+cluster://u:S3cr3tKey@h/1
    redis+cluster://h,password=S3cr3tKey
    redis+cluster://h:S3cr3tKey
    redis+cluster://h1,u:S3cr3tKey@h2,:x@h3
    {"password":"S3cr3tKey"}
    -----BEGIN PRIVATE KEY-----\nS3cr3tKey\n-----END PRIVATE KEY-----
    +aS3cr3tKey/b1=
"#;

/// Where a user may put the wrong value: arguments, with the value in place of `@`.
const PLACES: &[&str] = &[
    "inspect --url @",
    "acquire -v --json --url @ L",
    "exec --ttl @ L true",
    "exec --wait=@ L true",
    "acquire --json --at-least @ L",
    "exec --io-timeout=@ L true",
    "exec --kill-after @ L true",
    "exec --slots=@ L true",
    "exec -E @ L true",
    "acquire --min-replicas=@ L",
    "acquire --while-pid=@ L",
    "exec --on-lost @ L true",
    "exec --nonblock=@ L true",
    "inspect --older-than @",
    "inspect --sort=@",
    "inspect --watch=@",
    "inspect --password-file=@",
    "inspect --tls-ca=@",
    "inspect --tls-cert=@ --tls-key=@",
    "release --json L @",
    "release --force --id=@ L",
    "exec --@ L true",
    "--@",
    "@",
    "acquire L @",
    "inspect a b @",
    "exec NAME true",
    "acquire --json NAME",
];

/// The variables of such options.
const VARIABLES: &[&str] = &[
    "RLOCK_URL",
    "RLOCK_TTL",
    "RLOCK_WAIT",
    "RLOCK_IO_TIMEOUT",
    "RLOCK_MIN_REPLICAS",
    "RLOCK_TOKEN",
    "RLOCK_PASSWORD_FILE",
    "RLOCK_SENTINEL_PASSWORD_FILE",
    "RLOCK_TLS_KEY",
];

#[test]
fn a_value_in_the_wrong_place_or_form_is_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    let forms = FORMS.lines().map(|form| form.trim().replace(r"\n", "\n"));
    let forms: Vec<String> = forms.filter(|form| !form.is_empty()).collect();
    let refused = "redis://127.0.0.1:1";
    let keeps = |mut command: Command, statuses: &[i32]| {
        let output = run(&mut command);
        let told = output.out() + &output.err();
        assert!(!told.contains("S3cr3t") && !told.is_empty(), "{command:?}: {output:?}");
        assert!(statuses.contains(&output.code()), "{command:?}: {output:?}");
    };
    for form in &forms {
        // Any other text is a name, which everybody may see.
        let is_name = !form.contains([' ', '{', '?', '\n']) && !form.contains("://");
        for place in PLACES.iter().filter(|place| !is_name || !place.contains("NAME")) {
            let words = place.replace("NAME", "@");
            let words = words.split(' ').map(|word| word.replace('@', form));
            let mut command = rlock(words);
            command.env("RLOCK_URL", refused);
            keeps(command, &[64, 78]);
        }
        for variable in VARIABLES {
            let needs_token = *variable == "RLOCK_TOKEN";
            let line = if needs_token { "release L" } else { "acquire -v --json L" };
            let mut command = at(refused, line);
            command.env(variable, form);
            keeps(command, &[64, 78]);
        }
        fs::write(&file, form).unwrap();
        let mut command = at(refused, "acquire -v --json L");
        command.env("RLOCK_PASSWORD_FILE", &file);
        keeps(command, &[69]);
    }
    for url in [
        "redis://u:S3cr3t@127.0.0.1:1",
        "redis+cluster://u:S3cr3t@127.0.0.1:1,127.0.0.1:2",
        "redis+sentinel://u:S3cr3t@127.0.0.1:1/svc",
        "redis://u:S3cr3t@127.0.0.1:1 redis://u:S3cr3t@127.0.0.1:2",
        "unix:///nonexistent?user=u&pass=S3cr3t",
    ] {
        keeps(at(url, "acquire -v --json L"), &[69]);
        keeps(at(url, "inspect -v"), &[69]);
        let urls = url.split(' ').flat_map(|url| ["--url", url]);
        keeps(rlock(["acquire", "-v", "--json", "L"].into_iter().chain(urls)), &[69]);
    }
    let tried = forms.len() * (PLACES.len() + VARIABLES.len());
    assert!(forms.len() > 60 && tried > 2_000, "{tried}");
}
