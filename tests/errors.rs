//! Bad input and bad servers cause one clear line, the right status and no panic, and leave nothing.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::support::acl::{TO_INSPECT, as_ci, as_inspector, rule, rule_to_inspect, set_up};
use crate::support::limit::limit;
use crate::support::proxy::Proxy;
use crate::support::server::free_port;
use crate::support::{self, Finished, Running, Server, acquire, binary, rlock, run, until};

/// A token that holds nothing.
const TOKEN: &str = "01234567-89ab-4cde-8f01-23456789abcd";

/// Checks that a command fails with one line that contains each part.
#[track_caller]
fn fails(command: &mut Command, status: i32, parts: &[&str]) -> Output {
    let output = run(command);
    let told = output.err();
    assert_eq!(output.code(), status, "{command:?}: {output:?}");
    assert_eq!(told.lines().count(), 1, "{command:?}: {told}");
    assert!(told.starts_with("rlock: "), "{told}");
    for part in parts {
        assert!(told.contains(part), "no {part:?} in: {told}");
    }
    output
}

/// Command lines, and what rlock says about each of them.
const MISTAKES: &[(&str, &str)] = &[
    ("", "missing subcommand; use exec, acquire, renew, release or inspect"),
    ("frob", "unknown subcommand 'frob'; use exec, acquire, renew, release or inspect"),
    ("acquier L", "unknown subcommand 'acquier'; use acquire"),
    ("-q exec L true", "'-q' precedes the subcommand; put it after exec"),
    ("-n L true", "missing subcommand before '-n'; use exec, acquire, renew, release or inspect"),
    ("exec", "missing NAME and COMMAND; use rlock exec NAME COMMAND"),
    ("exec L", "missing COMMAND; use rlock exec NAME COMMAND"),
    ("acquire", "missing NAME; use rlock acquire NAME"),
    ("exec -z L true", "unknown option '-z'; run rlock exec --help"),
    ("exec --wiat 5 L true", "unknown option '--wiat'; use --wait"),
    ("acquire --on-lost kill L", "'--on-lost' is not an option of acquire; use it with exec"),
    ("exec --force L true", "'--force' is not an option of exec; use it with release"),
    ("renew -w 5 L", "'-w' is not an option of renew; use it with exec or acquire"),
    ("exec -n -w 5 L true", "--nonblock cannot be used with --wait; remove one of them"),
    ("acquire --json --shell L", "--json cannot be used with --shell; remove one of them"),
    ("exec -t 5 -t 6 L true", "--ttl is given twice; remove one of them"),
    ("exec --nonblock=yes L true", "--nonblock does not take a value; remove the value"),
    ("exec -w", "missing value after --wait; run rlock exec --help"),
    ("exec --on-lost", "missing value after --on-lost; use kill or continue"),
    ("exec -w L true", "--wait: not a duration: 'L'; use a form such as 90s, 1m30s or 250ms"),
    (
        "exec -w 5M L true",
        "--wait: exceeds the limit of 7d: '5M'; use 'm' for minutes ('M' is months)",
    ),
    ("exec --ttl 9ms L true", "--ttl: below the limit of 100ms: '9ms'; use a longer duration"),
    (
        "exec -E 256 L true",
        "--conflict-exit-code: not an exit status: '256'; use a number from 0 to 255",
    ),
    (
        "exec --slots 0 L true",
        "--slots: not a number of slots: '0'; use a number from 1 to 4294967295",
    ),
    ("exec --on-lost die L true", "--on-lost: unknown value: 'die'; use kill or continue"),
    ("acquire L true", "unexpected word after NAME: 'true'; to run a command, use rlock exec"),
    ("release --now L", "missing --force; add it"),
    ("release L 5f0c21aa", "TOKEN: not a token; use the token that acquire printed"),
    (
        "inspect a b",
        "unexpected word after NAME: 'b'; to show several locks, quote a pattern such as 'a*'",
    ),
    ("inspect -W 0", "--watch: below the limit of 1ms: '0'; use a longer duration"),
    ("inspect --watch=a", "--watch: not a duration: 'a'; use a form such as 90s, 1m30s or 250ms"),
    ("inspect a{b", "NAME: contains '{': 'a{b'; remove it"),
    (r"exec a\b true", r"NAME: contains '\': 'a\b'; remove it"),
];

#[test]
fn a_mistake_on_the_command_line_exits_with_64_and_states_the_fault_and_its_remedy() {
    for (line, answer) in MISTAKES {
        let output = fails(&mut rlock(line.split_whitespace()), 64, &[]);
        assert_eq!(output.err(), format!("rlock: {answer}"), "{line}");
    }
    let long = format!("a{}z", "x".repeat(2_000));
    let output = fails(&mut rlock(["exec", &long, "true"]), 64, &["NAME: exceeds 200 bytes: 'ax"]);
    assert!(output.err().ends_with("xz'; use a shorter one"), "{output:?}");
    let broken = std::ffi::OsStr::from_bytes(b"\xff");
    fails(rlock(["exec"]).arg(broken).arg("true"), 64, &["UTF-8"]);
    for words in [&["help"][..], &["help", "exec"]] {
        let output = run(&mut rlock(words));
        let mut option = words[1..].to_vec();
        option.push("--help");
        assert_eq!((output.code(), output.out()), (0, run(&mut rlock(option)).out()));
    }
}

#[test]
fn a_program_that_reads_the_output_learns_of_a_usage_error() {
    for command in
        ["acquire --json", "renew --json L x", "release --frob L --json", "inspect --json a b"]
    {
        let output = run(&mut rlock(command.split(' ')));
        let document: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
        assert_eq!(document["status"], "usage", "{command}");
        assert_eq!(document["exit"], output.code(), "{command}");
        assert_eq!(format!("rlock: {}", document["message"].as_str().unwrap()), output.err());
    }
    run(&mut rlock(["acquire", "--shell", "--frob", "L"])).exits(64).prints("(exit 64)");
    // The words of a command are not options.
    for command in ["exec --json L", "exec L --frob -- x --json", "inspect --frob -- --json"] {
        assert_eq!(run(&mut rlock(command.split(' '))).out(), "", "{command}");
    }
}

#[test]
fn an_invalid_name_exits_with_64() {
    let invisible = ["a\u{202e}b", "a\u{200b}b", "a\u{200d}b", "a\u{2066}b", "a\u{feff}b"];
    let plain = ["", "a b", "a\tb", "a{b", "a}b", "a*", "a?", "a[b", "a]", "a\\b", "a\u{1}b"];
    for name in plain.into_iter().chain(invisible) {
        for command in
            [vec!["exec", name, "true"], vec!["acquire", name], vec!["release", name, TOKEN]]
        {
            fails(&mut rlock(command), 64, &["NAME"]);
        }
    }
    fails(&mut rlock(["inspect", &"x".repeat(201)]), 64, &["200 bytes"]);
    for deceptive in invisible {
        fails(&mut rlock(["acquire", "--prefix", deceptive, "L"]), 64, &["prefix"]);
        fails(&mut rlock(["acquire", "--owner", deceptive, "L"]), 64, &["owner"]);
    }
}

#[test]
fn an_invalid_duration_exits_with_64_and_suggests_the_right_unit() {
    for bad in ["", "x", "-1", "10S", "1e9", "inf", "5 parsecs", "99999999999999999999"] {
        fails(&mut rlock(["acquire", &format!("--wait={bad}"), "L"]), 64, &["--wait"]);
        fails(&mut rlock(["acquire", &format!("--ttl={bad}"), "L"]), 64, &["--ttl"]);
    }
    fails(&mut rlock(["acquire", "--ttl", "5M", "L"]), 64, &["limit of 7d", "'m' for minutes"]);
    fails(&mut rlock(["acquire", "--wait", "5M", "L"]), 64, &["limit of 7d"]);
    fails(&mut rlock(["acquire", "--ttl", "99ms", "L"]), 64, &["limit of 100ms"]);
    fails(&mut rlock(["acquire", "--io-timeout", "0", "L"]), 64, &["--io-timeout"]);
    fails(rlock(["acquire", "L"]).env("RLOCK_TTL", "soon"), 64, &["RLOCK_TTL"]);
    fails(rlock(["acquire", "L"]).env("RLOCK_WAIT", "5M"), 64, &["RLOCK_WAIT", "limit of 7d"]);
}

#[test]
fn options_override_the_environment_and_an_empty_variable_counts_as_unset() {
    let server = Server::start();
    let mut command = server.rlock(["acquire", "--json", "--ttl", "7", "L"]);
    let output = run(command.env("RLOCK_TTL", "9s").env("RLOCK_LABEL", ""));
    assert!(output.out().contains("\"ttl_ms\":7000"), "{output:?}");
    let mut command = server.rlock(["acquire", "--json", "M"]);
    let output = run(command.env("RLOCK_TTL", "9s"));
    assert!(output.out().contains("\"ttl_ms\":9000"), "{output:?}");
    let mut command = server.rlock(["acquire", "--json", "N"]);
    let output = run(command.env("RLOCK_TTL", ""));
    assert!(output.out().contains("\"ttl_ms\":30000"), "{output:?}");
    // -n does not contradict a wait in the environment.
    run(server.rlock(["acquire", "-n", "N"]).env("RLOCK_WAIT", "1h")).exits(75);
}

#[test]
fn a_missing_url_exits_with_78_and_shows_how_to_set_one() {
    for command in [vec!["exec", "L", "true"], vec!["inspect"], vec!["release", "L", TOKEN]] {
        fails(&mut rlock(&command), 78, &["RLOCK_URL=redis://127.0.0.1:6379/0"]);
        fails(rlock(&command).env("RLOCK_URL", ""), 78, &["RLOCK_URL"]);
    }
}

#[test]
fn an_invalid_url_exits_with_78_and_never_shows_its_password() {
    for url in [
        "localhost",
        "localhost:6379",
        "http://:secret@h",
        "rediss://:secret@h#insecure",
        "redis://:secret@h:port",
        "redis://:secret@h:70000",
        "redis://:secret@h/db",
        "redis://:secret@h?db=3",
        "redis://:secret@h redis://:secret@h",
        "redis://user@h",
        "unix:///s?password=secret",
    ] {
        let output = fails(rlock(["inspect"]).env("RLOCK_URL", url), 78, &[]);
        assert!(!output.err().contains("secret"), "{output:?}");
        let output = fails(&mut rlock(["inspect", "--url", url]), 78, &[]);
        assert!(!output.err().contains("secret"), "{output:?}");
    }
}

#[test]
fn a_url_in_the_wrong_place_is_refused_without_its_password() {
    let long = format!("redis://ana:secret{}@h", "x".repeat(500));
    for url in ["redis://ana:secret@h:1", "rediss://:sec/secret#@h", "unix:///s?pass=secret", &long]
    {
        for arguments in [
            vec![url],
            vec!["acquire", url],
            vec!["inspect", url],
            vec!["release", "L", "t", url],
            vec!["acquire", "--ttl", url, "L"],
            vec!["exec", "--no-such", url, "L", "true"],
            vec!["acquire", "--prefix", "a b", "--label", url, "L"],
        ] {
            let output = fails(&mut rlock(arguments), 64, &[]);
            assert!(!output.err().contains("secret"), "{output:?}");
            assert!(!output.err().contains("ana"), "{output:?}");
        }
        let output = fails(rlock(["acquire", "L"]).env("RLOCK_MIN_REPLICAS", url), 64, &[]);
        assert!(!output.err().contains("secret"), "{output:?}");
        let told = ["lock name is a URL; give the server with --url"];
        fails(&mut rlock(["exec", url, "true"]), 64, &told);
        let server = Server::start();
        let output = fails(&mut server.rlock(["exec", "L", url]), 127, &["command not found"]);
        assert!(!output.err().contains("secret"), "{output:?}");
        let output = run(&mut rlock(["acquire", "--json", "--url", "x", url]));
        assert!(!output.out().contains("secret"), "{output:?}");
    }
}

#[test]
fn a_port_without_a_server_causes_69() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    for command in [vec!["exec", "L", "true"], vec!["acquire", "L"], vec!["inspect"]] {
        let told = format!("cannot connect to 127.0.0.1:{port}: connection refused");
        fails(rlock(command).env("RLOCK_URL", &url), 69, &[&told]);
    }
    let url = "unix:///nonexistent/socket";
    fails(rlock(["inspect"]).env("RLOCK_URL", url), 69, &["no such file or directory"]);
    let url = "redis://no-such-host.invalid";
    fails(rlock(["inspect"]).env("RLOCK_URL", url), 69, &["no-such-host.invalid"]);
}

#[test]
fn a_dns_server_that_does_not_answer_is_not_mistaken_for_a_lock_server_or_a_wrong_name() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = directory.path().join("resolv.conf");
    std::fs::write(&configuration, "nameserver 127.0.0.1\n").unwrap();
    let beside_dns = |listens: bool| {
        // Runs in a new network namespace, where the loopback interface is down at first.
        let script = "socket(S, PF_INET, SOCK_DGRAM, 0) or die $!;
            my $up = pack('a16 s', 'lo', 1);
            ioctl(S, 0x8914, $up) or die $!;
            shift and (bind(S, sockaddr_in(53, INADDR_LOOPBACK)) or die $!);
            system('mount', '--bind', shift, '/etc/resolv.conf') and die;
            exit(system(@ARGV) >> 8)";
        let mut shell = Command::new("unshare");
        shell.args(["--user", "--map-root-user", "--mount", "--net", "perl", "-MSocket", "-e"]);
        shell.args([script, if listens { "1" } else { "0" }]).arg(&configuration).arg(binary());
        shell.args(["inspect", "--io-timeout", "1s", "--url", "redis://host.example"]);
        fails(&mut shell, 69, &["cannot connect to host.example:6379: host name not resolved"])
    };
    let output = beside_dns(true);
    assert!(output.err().ends_with(" in time; check the DNS server"), "{output:?}");
    // musl does not notice that nobody listens.
    let output = beside_dns(false);
    assert!(output.err().ends_with("the DNS server"), "{output:?}");
}

/// Whether the character moves the cursor, breaks the line or changes how the line reads.
fn is_deceptive(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks that no control character of another user reaches the terminal.
#[track_caller]
fn reports_in_one_harmless_line(command: &mut Command, status: i32) {
    let output = run(command);
    let (told, printed) = (output.err(), output.out());
    assert_eq!(output.code(), status, "{output:?}");
    assert!(!told.is_empty() && !told.contains(is_deceptive), "{told:?}");
    assert!(!printed.contains(is_deceptive), "{printed:?}");
}

#[test]
fn text_from_a_server_cannot_control_a_terminal() {
    for words in [
        "-ERR \u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m \u{202e}evil\u{2028}\r\n",
        "-\u{1b}[2JWHAT is this\r\n",
        "-NOPERM \u{1b}[2J\u{9b}2J\r\n",
        "-MOVED 1 \u{1b}[2J\u{9b}:x\r\n",
        "-ERR unknown command '\u{1b}[2J'\r\n",
    ] {
        let url = saying(words.as_bytes());
        for command in [vec!["exec", "L", "true"], vec!["acquire", "--json", "L"]] {
            reports_in_one_harmless_line(rlock(command).env("RLOCK_URL", &url), 78);
        }
    }
}

#[test]
fn text_from_the_command_line_cannot_control_a_terminal() {
    let server = Server::start();
    let evil = "x\u{1b}[2J\nrlock: L: \u{9b}2J\u{202e}";
    reports_in_one_harmless_line(&mut server.rlock(["exec", "L", evil]), 127);
    reports_in_one_harmless_line(&mut rlock([evil]), 64);
    reports_in_one_harmless_line(&mut rlock(["exec", &format!("--{evil}"), "L", "true"]), 64);
    reports_in_one_harmless_line(&mut rlock(["inspect", evil]), 64);
    reports_in_one_harmless_line(&mut rlock(["inspect", "--url", &format!("{evil}://h")]), 78);
    reports_in_one_harmless_line(rlock(["acquire", "L"]).env("RLOCK_TTL", evil), 64);
    let mut command = server.rlock(["exec", "--password-file", evil, "L", "true"]);
    reports_in_one_harmless_line(command.env("RLOCK_URL", "redis://h"), 78);
}

#[test]
fn acquire_accepts_any_label() {
    let server = Server::start();
    let label = || server.inspect("L")["holders"][0]["label"].as_str().unwrap().to_owned();
    let long = format!("x{}", "ä".repeat(600));
    for (given, shown) in [
        (long.as_bytes(), format!("x{}", "ä".repeat(499))),
        (b"job \xff", "job \u{fffd}".into()),
        ("a\u{1b}[2J\u{202e}b\nc".as_bytes(), "a [2J b c".into()),
        ("👩\u{200d}🚀".as_bytes(), "👩\u{200d}🚀".into()),
    ] {
        let given = std::ffi::OsStr::from_bytes(given);
        for option in [true, false] {
            let mut command = server.rlock(["acquire"]);
            match option {
                true => command.arg("--label").arg(given),
                false => command.env("RLOCK_LABEL", given),
            };
            assert_eq!(run(command.arg("L")).code(), 0, "{given:?}");
            assert_eq!(label(), shown);
            server.run("release --force --now L").exits(0);
        }
    }
}

/// The URL of a port that sends these bytes to each client, and nothing more.
fn saying(words: &[u8]) -> String {
    let words = words.to_vec();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut client in listener.incoming().flatten() {
            let _ = client.write_all(&words);
            open.push(client);
        }
    });
    url
}

#[test]
fn a_server_that_is_not_redis_is_rejected_with_78() {
    for words in [
        &b"SSH-2.0-OpenSSH_9.2p1\r\n"[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"220 mail ESMTP\r\n",
        b"\x15\x03\x01\x00\x02\x02\x50",
        b"\0\0\0\0",
        b"+PONG\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"*1\r\n*1\r\n*1\r\n$3\r\nabc\r\n",
        b"*2\r\n$6\r\nqueued\r\n$-1\r\n",
        b"*2\r\n$4\r\nbusy\r\n*1\r\n:1\r\n",
    ] {
        let url = saying(words);
        let mut command = rlock(["acquire", "-n", "L"]);
        run(command.env("RLOCK_URL", url)).exits(78).says("Redis or Valkey");
    }
}

#[test]
fn a_server_that_never_answers_causes_69_after_the_timeout() {
    for words in [&b""[..], b"*3\r\n$7\r\ngrant", b"$1000000\r\nabc"] {
        let url = saying(words);
        let exec = |timeout: &str| {
            let mut command = rlock(["exec", "--ttl", "1m", "--io-timeout", timeout, "L", "true"]);
            command.env("RLOCK_URL", &url);
            command
        };
        let mut patient = Running::start(&mut exec("10s"));
        let start = Instant::now();
        let output = fails(&mut exec("200ms"), 69, &["did not answer within 200ms"]);
        assert!(start.elapsed() >= Duration::from_millis(200), "{output:?}");
        assert!(patient.process.is_running(), "the timeout is longer than 200ms");
    }
}

#[test]
fn a_server_that_hangs_up_causes_69() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || listener.incoming().flatten().for_each(drop));
    fails(rlock(["acquire", "L"]).env("RLOCK_URL", url), 69, &[]);
}

#[test]
fn passwords_are_taken_from_url_variable_and_file() {
    let server = Server::on_tcp(&["--requirepass", "s3cret"]);
    let url = server.tcp_url();
    let missing = fails(rlock(["acquire", "L"]).env("RLOCK_URL", &url), 78, &["RLOCK_PASSWORD"]);
    assert!(!missing.err().contains("s3cret"));
    let wrong = |command: &mut Command| {
        let output = fails(command, 78, &["rejected the username or password"]);
        assert!(!output.err().contains("wr0ng"), "{output:?}");
    };
    wrong(rlock(["acquire", "L"]).env("RLOCK_URL", &url).env("RLOCK_PASSWORD", "wr0ng"));
    let mut verbose = rlock(["acquire", "-v", "L"]);
    let verbose = run(verbose.env("RLOCK_URL", &url).env("RLOCK_PASSWORD", "wr0ng")).exits(78);
    assert!(!verbose.err().contains("wr0ng"), "{verbose:?}");
    let right = |command: &mut Command| assert_eq!(run(command).code(), 0, "{command:?}");
    right(rlock(["exec", "L", "true"]).env("RLOCK_URL", &url).env("RLOCK_PASSWORD", "s3cret"));
    let file = server.directory().join("password");
    std::fs::write(&file, "s3cret\nchanged on Monday\n").unwrap();
    right(rlock(["inspect"]).env("RLOCK_URL", &url).arg("--password-file").arg(&file));
    right(rlock(["inspect"]).env("RLOCK_URL", &url).env("RLOCK_PASSWORD_FILE", &file));
    let with_password = url.replace("redis://", "redis://:s3cret@");
    right(rlock(["inspect"]).env("RLOCK_URL", &with_password));
    let shown = run(&mut rlock(["inspect", "--url", &with_password])).exits(0).says("ps");
    assert!(!shown.err().contains("s3cret"));
    std::fs::write(&file, "\n").unwrap();
    let mut command = rlock(["inspect"]);
    fails(command.env("RLOCK_URL", &url).arg("--password-file").arg(&file), 78, &["no password"]);
    fails(
        rlock(["inspect", "--password-file", "/nonexistent"]).env("RLOCK_URL", &url),
        78,
        &["/nonexistent"],
    );
}

/// Runs bash with the URL of a server whose password is "s3cret", and the binary in `$rlock`.
fn bash(server: &Server, script: &str) -> Output {
    let mut bash = Command::new("bash");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"RLOCK_"))
    {
        bash.env_remove(name);
    }
    bash.env("RLOCK_URL", server.url()).env("rlock", binary());
    run(bash.current_dir(server.directory()).args(["-c", script]))
}

#[test]
fn a_password_can_come_from_a_pipe_that_is_read_once() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    let output = bash(&server, "$rlock exec --password-file <(echo s3cret; echo notes) L echo in");
    assert_eq!((output.code(), output.out().as_str()), (0, "in"), "{output:?}");
    assert_eq!(output.err(), "");
    // A password that arrives in two pieces.
    let slow =
        "$rlock exec --password-file <(printf s3; $rlock --version >&2; echo cret) L echo in";
    bash(&server, slow).exits(0).prints("in");
    // A keeper needs the password too, long after the pipe is empty.
    // Nothing in the environment takes its place.
    let script = "export RLOCK_KEEPER_PASSWORD=wrong RLOCK_KEEPER_TOKEN=wrong
        t=$($rlock acquire --ttl 3s --while-pid $$ --password-file <(echo s3cret) L) \
        || exit
        export RLOCK_PASSWORD=s3cret
        until [ \"$($rlock inspect L | grep -c 'renewed [1-9]')\" = 1 ]; do :; done
        $rlock renew --ttl 5s L $t && $rlock release L $t && echo released";
    bash(&server, script).exits(0).prints("released");
}

#[test]
fn the_command_reads_what_follows_the_password_in_a_pipe() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    let script = "printf 's3cret\\n1\\n2\\n' | $rlock exec --password-file /dev/stdin L cat";
    bash(&server, script).exits(0).prints("1\n2");
}

#[test]
fn an_unusable_password_file_is_rejected_with_78_within_the_timeout() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    let file = |content: &[u8]| {
        let path = server.directory().join("password");
        std::fs::write(&path, content).unwrap();
        let mut command = server.rlock(["inspect", "--io-timeout", "300ms", "--password-file"]);
        command.arg(path);
        command
    };
    fails(&mut file("x".repeat(4097).as_bytes()), 78, &["exceeds 4096 bytes"]);
    fails(&mut file(&[b"x".repeat(5000), b"\n".to_vec()].concat()), 78, &["exceeds 4096 bytes"]);
    fails(&mut file(b"s3cret\xff\n"), 78, &["not UTF-8"]);
    fails(&mut file(b"\ns3cret\n"), 78, &["no password on the first line"]);
    // The password is the first line, however much follows.
    let notes = [&b"s3cret\r\n"[..], &[0xff; 10_000]].concat();
    assert_eq!(run(&mut file(&notes)).code(), 0);
    // A read without a timeout would exceed the limit of `bash` or `fails`.
    let silent = [
        "mkfifo f; $rlock inspect --io-timeout 300ms --password-file f",
        "mkfifo g; exec 3<>g; $rlock inspect --io-timeout 300ms --password-file g",
    ];
    for script in silent {
        bash(&server, script).exits(78).says("within 300ms");
    }
    let mut endless = server.rlock(["inspect", "--password-file", "/dev/zero"]);
    fails(&mut endless, 78, &["exceeds 4096 bytes"]);
    fails(&mut server.rlock(["inspect", "--password-file", "/"]), 78, &["is a directory"]);
}

#[test]
fn a_password_that_every_user_can_read_causes_a_warning() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    let path = server.directory().join("a password");
    std::fs::write(&path, "s3cret\n").unwrap();
    for (mode, warned) in [(0o644, true), (0o604, true), (0o640, false), (0o600, false)] {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, permissions).unwrap();
        let output = run(server.rlock(["inspect", "--password-file"]).arg(&path)).exits(0);
        let remedy = format!("chmod o-r -- '{}'", path.display());
        assert_eq!(output.err().matches(&remedy).count(), usize::from(warned), "{output:?}");
    }
    // A file name that looks like an option can be pasted too.
    let script = "umask 022; echo s3cret >-Rf
        said=$($rlock inspect --names --password-file=-Rf 2>&1) && eval \"${said##*; run }\" && stat -c %a -- -Rf";
    let output = bash(&server, script);
    assert_eq!(output.out(), "640", "{output:?}");
}

#[test]
fn a_user_with_its_own_password_can_lock() {
    let server =
        Server::on_tcp(&["--user", "ana", "on", ">pw", "~*", "+@all", "--user", "default", "off"]);
    let mut command = rlock(["exec", "L", "true"]);
    command.env("RLOCK_URL", server.tcp_url());
    assert_eq!(run(command.env("RLOCK_USERNAME", "ana").env("RLOCK_PASSWORD", "pw")).code(), 0);
    fails(command.env("RLOCK_USERNAME", "bob"), 78, &["rejected the username or password"]);
    command.env_remove("RLOCK_PASSWORD");
    fails(&mut command, 78, &["username without a password"]);
}

#[test]
fn an_unneeded_password_is_rejected_with_78_and_leaves_no_lock() {
    let server = Server::start();
    let mut command = server.rlock(["exec", "L", "true"]);
    fails(
        command.env("RLOCK_PASSWORD", "needless"),
        78,
        &["does not use a password; remove it from RLOCK_PASSWORD"],
    );
    assert_eq!(server.cli(&["KEYS", "rlock:L"]), "");
}

#[test]
fn the_documented_acl_rules_are_sufficient_for_every_feature() {
    let server = Server::start();
    set_up(&server, &rule(&TO_INSPECT));
    let ci = |arguments: &[&str]| {
        let output = as_ci(&mut server.rlock(arguments));
        assert_eq!(output.code(), 0, "{arguments:?}: {output:?}");
        output.out()
    };
    ci(&["exec", "--at-least", "10ms", "L", "true"]);
    ci(&["exec", "-s", "L", "true"]);
    let token = ci(&["acquire", "--slots", "2", "L"]);
    ci(&["exec", "--slots", "2", "L", "true"]);
    ci(&["renew", "L", &token]);
    ci(&["inspect", "L"]);
    ci(&["inspect"]);
    // Waiting, waking up, giving up, reentering and revoking.
    let waited = as_ci(&mut server.rlock(["exec", "-w", "300ms", "L", "true"]));
    assert_eq!(waited.code(), 75, "{waited:?}");
    ci(&["release", "L", &token]);
    let mut first = server.rlock(["exec", "L", "sh", "-c", support::READY]);
    first.env("RLOCK_USERNAME", "ci").env("RLOCK_PASSWORD", "secret");
    let first = support::Running::start(&mut first).prints_first("READY");
    let mut second = server.rlock(["exec", "L", "echo", "entered"]);
    second.env("RLOCK_USERNAME", "ci").env("RLOCK_PASSWORD", "secret");
    let mut second = support::Running::start(&mut second);
    second.told("waiting at position 1");
    first.finish();
    assert_eq!(second.end().out(), "entered");
    ci(&["acquire", "--reentrant", "--owner", "me", "L"]);
    ci(&["acquire", "--reentrant", "--owner", "me", "-s", "L"]);
    ci(&["release", "--force", "--now", "L"]);
    ci(&["acquire", "--ttl", "2s", "L"]);
    ci(&["release", "--force", "L"]);
    let another = server.url() + "?db=1";
    let mut command = server.rlock(["exec", "L", "true"]);
    assert_eq!(as_ci(command.env("RLOCK_URL", another)).code(), 0);
}

/// The first command that is denied to the user of a rule: it exits with 78 or reports the denial.
fn denied(server: &Server, rule: &[&str], commands: &[&[&str]], user: &str) -> Option<Output> {
    server.cli(&["ACL", "DELUSER", user]);
    server.cli(rule);
    let outputs = commands.iter().map(|arguments| {
        let mut command = server.rlock(*arguments);
        run(command.env("RLOCK_USERNAME", user).env("RLOCK_PASSWORD", "secret"))
    });
    outputs
        .into_iter()
        .find(|output| output.code() == 78 || output.err().contains("permission denied"))
}

/// Checks that a command is denied without each permission in turn.
#[track_caller]
fn each_is_needed(rule: &[String], user: &str, mut denied: impl FnMut(&[&str]) -> Option<Output>) {
    for missing in rule.iter().filter(|word| word.starts_with(['+', '~', '%'])) {
        let without = rule.iter().filter(|word| *word != missing).map(String::as_str);
        let told = denied(&without.collect::<Vec<_>>());
        assert!(told.is_some(), "{user}: {missing} is not needed");
        let told = told.unwrap().err();
        let named = match missing.strip_prefix('+') {
            // Every server has a substitute for it.
            Some("evalsha_ro") => told.contains("'evalsha'"),
            Some("eval_ro") => told.contains("'eval'"),
            Some("evalsha" | "eval" | "blpop" | "scan" | "select") => told.contains(&missing[1..]),
            Some(command) => {
                told.contains(&format!("allow +{command}"))
                    || told.contains(&format!("'{command}'"))
            }
            None => told.contains("~rlock:L and ~{rlock:L}?*") || told.contains("keys"),
        };
        assert!(named, "{user} {missing}: {told}");
    }
}

#[test]
fn a_missing_permission_is_named_and_exits_with_78() {
    let server = Server::start();
    let another = server.url() + "?db=1";
    let everything: &[&[&str]] = &[
        &["acquire", "--ttl", "3s", "--slots", "2", "L"],
        &["exec", "--slots", "2", "L", "true"],
        &["exec", "-w", "100ms", "L", "true"],
        &["renew", "L", TOKEN],
        &["release", "L", TOKEN],
        &["release", "--force", "--now", "L"],
        &["acquire", "--reentrant", "--owner", "me", "L"],
        &["acquire", "--reentrant", "--owner", "me", "-s", "L"],
        &["acquire", "--ttl", "1s", "M"],
        &["exec", "-w", "3s", "M", "true"],
        &["release", "--url", &another, "M", TOKEN],
    ];
    assert!(denied(&server, &words(&rule(&[])), everything, "ci").is_none());
    each_is_needed(&rule(&[]), "ci", |rule| {
        server.cli(&["FLUSHALL"]);
        server.cli(&["SCRIPT", "FLUSH"]);
        // As many as the history keeps.
        server.cli(&[&["RPUSH", "{rlock:L}?history"][..], &["x"; 16]].concat());
        denied(&server, rule, everything, "ci")
    });
}

#[test]
fn a_lock_whose_history_cannot_be_written_moves_on() {
    let server = Server::start();
    let without: Vec<_> = rule(&[]).into_iter().filter(|word| word != "+rpush").collect();
    set_up(&server, &without);
    let takes_back = ["release", "--force", "--now", "L"];
    acquire(&server, &[], "L");
    let output = as_ci(&mut server.rlock(takes_back));
    assert_eq!(output.code(), 78, "{output:?}");
    assert!(output.err().contains("rpush"), "{output:?}");
    assert!(server.is_free("L"));
    acquire(&server, &["--ttl", "2s"], "L");
    until("the lease expires", || server.cli(&["EXISTS", "rlock:L"]) == "0");
    // One call fails, because it cannot record the hold that expired.
    let output = as_ci(&mut server.rlock(["renew", "L", TOKEN]));
    assert_eq!(output.code(), 78, "{output:?}");
    let output = as_ci(&mut server.rlock(["renew", "L", TOKEN]));
    assert_eq!(output.code(), 77, "{output:?}");
}

#[test]
fn inspect_needs_exactly_the_documented_permissions() {
    let server = Server::start();
    let another = server.url() + "?db=1";
    for name in ["held", "waited-for", "deleted"] {
        acquire(&server, &[], name);
    }
    server.run("exec L true");
    let second = support::waiter(&server, &[], "waited-for", "second");
    server.cli(&["SET", "rlock:foreign", "x"]);
    server.cli(&["DEL", "rlock:deleted"]);
    let looks: &[&[&str]] = &[
        &["inspect"],
        &["inspect", "L"],
        &["inspect", "waited-for"],
        &["inspect", "deleted"],
        &["inspect", "foreign"],
        &["inspect", "--url", &another],
    ];
    let all = rule_to_inspect();
    let denied = |rule: &[&str]| {
        server.cli(&["SCRIPT", "FLUSH"]);
        denied(&server, rule, looks, "viewer")
    };
    assert!(denied(&words(&all)).is_none());
    each_is_needed(&all, "viewer", denied);
    denied(&words(&all));
    let output = as_inspector(&mut server.rlock(["acquire", "-n", "M"]));
    assert_eq!(output.code(), 78, "{output:?}");
    // docs/authentication.md also lists what `ci` needs for inspect.
    set_up(&server, &rule(&TO_INSPECT));
    for arguments in looks {
        let output = as_ci(&mut server.rlock(*arguments));
        assert!([0, 1].contains(&output.code()), "{output:?}");
        assert!(!output.err().contains("permission denied"), "{output:?}");
    }
    second.signal("TERM");
    second.end();
}

#[test]
fn inspect_works_on_a_server_without_read_only_scripts() {
    // As Redis 6.2 is.
    let hide = |command| ["--rename-command", command, ""];
    let server = Server::with(&[hide("EVALSHA_RO"), hide("EVAL_RO")].concat());
    acquire(&server, &[], "L");
    for arguments in [&["inspect", "L"][..], &["inspect"]] {
        let output = run(&mut server.rlock(arguments)).exits(0);
        assert!(output.err().is_empty(), "{output:?}");
    }
}

#[test]
fn a_replica_shows_locks_to_a_user_who_may_only_inspect() {
    let master = Server::on_tcp(&[]);
    let replica = Server::on_tcp(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    support::until("they are connected", || {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    acquire(&master, &[], "L");
    support::until("it has it", || replica.cli(&["EXISTS", "rlock:L"]) == "1");
    set_up(&replica, &rule_to_inspect());
    for arguments in [&["inspect", "L"][..], &["inspect"]] {
        let output = as_inspector(&mut replica.rlock(arguments));
        assert_eq!(output.code(), 0, "{output:?}");
        assert!(output.out().contains("held by") || output.out().contains("\nL "), "{output:?}");
    }
}

fn words(rule: &[String]) -> Vec<&str> {
    rule.iter().map(String::as_str).collect()
}

#[test]
fn selecting_a_database_adds_no_round_trip_and_a_missing_one_changes_nothing() {
    let server = Server::on_tcp(&["--requirepass", "pw", "--databases", "4"]);
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    let url =
        |database: u32| proxy.url().replace("redis://", "redis://:pw@") + &format!("/{database}");
    let cli =
        |arguments: &[&str]| server.cli(&[&["-a", "pw", "--no-auth-warning"], arguments].concat());
    run(rlock(["exec", "warm", "true"]).env("RLOCK_URL", url(0)));
    let before = proxy.flights();
    assert_eq!(run(rlock(["acquire", "L"]).env("RLOCK_URL", url(3))).code(), 0);
    assert_eq!(proxy.flights() - before, 1);
    assert_eq!(cli(&["-n", "3", "EXISTS", "rlock:L"]), "1");
    assert_eq!(cli(&["-n", "0", "EXISTS", "rlock:L"]), "0");
    fails(rlock(["acquire", "M"]).env("RLOCK_URL", url(4)), 78, &["has no such database"]);
    assert_eq!(cli(&["-n", "0", "EXISTS", "rlock:M"]), "0");
    // Waiting and listing select the database too.
    run(rlock(["exec", "-w", "300ms", "L", "true"]).env("RLOCK_URL", url(3))).exits(75);
    let listed = run(rlock(["inspect"]).env("RLOCK_URL", url(3)));
    assert!(listed.out().contains("\nL "), "{listed:?}");
}

#[test]
fn a_server_out_of_memory_still_revokes_and_releases_kept_locks() {
    let server = Server::start();
    let kept = acquire(&server, &["--at-least", "20s"], "kept");
    acquire(&server, &["--ttl", "2s"], "held");
    acquire(&server, &[], "dead");
    let next = support::waiter(&server, &["--at-least", "100ms"], "dead", "next");
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(run(&mut server.rlock(["release", "kept", &kept])).code(), 0);
    server.run("release --force held").exits(0);
    server.run("release --force --now dead").exits(0);
    assert_eq!(next.end().out(), "ENTERED next");
}

#[test]
fn a_lock_on_too_few_replicas_exits_with_69_and_is_released() {
    let master = Server::on_tcp(&[]);
    let mut replica = Server::on_tcp(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    support::until("they are connected", || {
        master.cli(&["INFO", "replication"]).contains("state=online")
    });
    let exec = ["exec", "--min-replicas", "1", "--io-timeout", "4s", "--ttl", "30s", "L", "true"];
    assert_eq!(run(&mut master.rlock(exec)).code(), 0);
    let two = ["acquire", "--min-replicas", "2", "--io-timeout", "4s", "--json", "L"];
    fails(&mut master.rlock(two), 69, &["1 of 2 replicas", "confirmed the lock"]);
    assert_eq!(master.cli(&["EXISTS", "rlock:L"]), "0");
    // A lease is not renewed if replicas do not confirm it.
    let hold = ["exec", "--min-replicas", "1", "--ttl", "6s", "L", "sh", "-c", support::READY];
    let mut first = support::Running::start(&mut master.rlock(hold)).prints_first("READY");
    replica.kill();
    first.told("0 of 1 replicas");
    assert_eq!(first.end().code(), 76);
    let mut command = master.rlock(["exec", "L", "true"]);
    fails(command.env("RLOCK_MIN_REPLICAS", "1").env("RLOCK_IO_TIMEOUT", "4s"), 69, &["0 of 1"]);
    let mut local = rlock(["exec", "--min-replicas", "1", "L", "true"]);
    fails(local.env("RLOCK_URL", "local:/tmp"), 78, &["does not replicate"]);
}

/// The repeated request finds the lock granted and writes nothing. The WAIT that follows it must still
/// cover the grant.
#[test]
fn a_replica_that_received_nothing_does_not_confirm_a_grant_repeated_on_a_new_connection() {
    let master = Server::on_tcp(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::on_tcp(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    support::until("they are connected", || {
        master.cli(&["INFO", "replication"]).contains("state=online")
    });
    let proxy = Proxy::to(master.port(), Duration::ZERO);
    let first = support::holder(&master, &[], "L");
    let options =
        ["exec", "--min-replicas", "1", "--ttl", "40s", "--io-timeout", "8s", "L", "true"];
    let mut second = support::Running::start(master.rlock(options).env("RLOCK_URL", proxy.url()));
    second.told("waiting at position 1");
    replica.signal("STOP");
    first.finish();
    support::until("the claim has arrived", || {
        master.inspect("L")["ttl_ms"].as_u64().is_some_and(|left| left > 10_000)
    });
    proxy.cut();
    // It keeps its place until the replica is back.
    second.told("0 of 1 replicas");
    replica.signal("CONT");
    second.end().exits(0);
}

#[test]
fn a_bounded_wait_outlasts_the_absence_of_a_replica() {
    let master = Server::on_tcp(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::on_tcp(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    support::until("they are connected", || {
        master.cli(&["INFO", "replication"]).contains("state=online")
    });
    replica.signal("STOP");
    let exec = |options: &[&str]| {
        let options = [&["exec", "--min-replicas", "1"], options, &["L", "true"]].concat();
        master.rlock(options)
    };
    fails(&mut exec(&["-n"]), 69, &["0 of 1 replicas"]);
    run(&mut exec(&["--io-timeout", "1s", "-w", "2s"])).exits(69).says("; retrying");
    assert_eq!(master.cli(&["EXISTS", "rlock:L"]), "0");
    let mut waits = Running::start(&mut exec(&["-w", "1m"]));
    waits.told("; retrying");
    replica.signal("CONT");
    let told = waits.end().exits(0);
    let last = "rlock: L: enough replicas confirm the lock again after ";
    assert!(told.err().starts_with(last) && told.err().lines().count() == 1, "{told:?}");
}

#[test]
fn a_lock_whose_confirmation_is_denied_exits_with_78_and_is_released() {
    let server = Server::on_tcp(&[]);
    server.cli(&["ACL", "SETUSER", "ci", "on", ">pw", "~*", "+@all", "-wait"]);
    for waits in [&["-n"][..], &["-w", "1m"]] {
        let arguments = [&["exec", "--min-replicas", "1"], waits, &["L", "true"]].concat();
        let mut exec = server.rlock(arguments);
        exec.env("RLOCK_USERNAME", "ci").env("RLOCK_PASSWORD", "pw");
        fails(&mut exec, 78, &["permission denied", "wait"]);
        assert!(server.is_free("L"));
    }
}

#[test]
fn a_replica_is_rejected_with_78() {
    let master = Server::on_tcp(&[]);
    let replica = Server::on_tcp(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    support::until("they are connected", || {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    for command in [vec!["exec", "L", "true"], vec!["acquire", "L"]] {
        fails(&mut replica.rlock(command), 78, &["is a replica"]);
    }
}

#[test]
fn a_server_out_of_memory_causes_69_and_can_still_be_inspected() {
    let server = Server::start();
    let token = acquire(&server, &[], "held");
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    fails(&mut server.rlock(["exec", "L", "true"]), 69, &["out of memory", "maxmemory"]);
    assert!(server.run("inspect held").out().contains(&token[..8]));
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    server.run("exec L true").exits(0);
}

#[test]
fn a_key_of_another_type_is_refused_and_left_alone() {
    let server = Server::start();
    server.cli(&["LPUSH", "rlock:L", "theirs"]);
    for command in [vec!["exec", "L", "true"], vec!["acquire", "-n", "L"], vec!["inspect", "L"]] {
        fails(&mut server.rlock(command), 78, &["something other than a lock"]);
    }
    assert_eq!(server.cli(&["LRANGE", "rlock:L", "0", "-1"]), "theirs");
}

#[test]
fn a_key_of_another_type_beside_a_lock_does_not_hide_that_it_was_released() {
    let server = Server::start();
    let spoil = |key: &str| {
        server.cli(&["DEL", key]);
        server.cli(&["SET", key, "theirs"]);
    };
    for side in ["history", "tombstones"] {
        let key = format!("{{rlock:L}}?{side}");
        for release in [vec!["release"], vec!["release", "--force", "--now"]] {
            let token = acquire(&server, &[], "L");
            spoil(&key);
            let mut command = server.rlock(release.iter().chain(&["L"]));
            run(command.env("RLOCK_TOKEN", token)).exits(0);
            assert_eq!(server.cli(&["EXISTS", "rlock:L"]), "0", "{side}");
            server.cli(&["DEL", &key]);
        }
    }
    // With a waiter, in whose mailbox nothing fits.
    let first = support::holder(&server, &[], "L");
    support::waiter(&server, &["--ttl", "3s"], "L", "dead").process.kill();
    spoil(&server.mailbox("L", &server.waiters_token("L")));
    let next = support::waiter(&server, &[], "L", "next");
    spoil("{rlock:L}?history");
    let first = first.finish();
    assert!(first.code() == 0 && first.err().is_empty(), "{first:?}");
    assert_eq!(next.finish().out(), "ENTERED next");
    // A hold that expired.
    acquire(&server, &["--ttl", "1s"], "L");
    until("it expires", || server.cli(&["EXISTS", "rlock:L"]) == "0");
    server.run("exec -n L true").exits(0);
    // What decides who gets the lock must be readable, before anything changes.
    let token = acquire(&server, &[], "L");
    let _waiter = support::waiter(&server, &[], "L", "never");
    spoil("{rlock:L}?queue");
    fails(&mut server.rlock(["release", "L", &token]), 78, &["something other than a lock"]);
    assert_eq!(server.cli(&["GET", "rlock:L"]), token);
}

#[test]
fn a_script_that_the_server_forgot_is_sent_again() {
    let server = Server::start();
    let token = acquire(&server, &[], "L");
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(run(&mut server.rlock(["renew", "L", &token])).code(), 0);
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(run(&mut server.rlock(["release", "L", &token])).code(), 0);
}

#[test]
fn a_closed_stderr_does_not_stop_the_work() {
    let server = Server::start();
    let script = format!("{} exec -v L sh -c 'exit 7' 2>&-", binary());

    run(Command::new("sh").args(["-c", &script]).env("RLOCK_URL", server.url())).exits(7);
}

#[test]
fn a_system_without_descriptors_leaves_no_lock_behind() {
    let server = Server::start();
    for limit in 3..=12 {
        let script = format!("ulimit -n {limit}; exec {} exec L true", binary());
        let mut shell = Command::new("bash");
        let output = run(shell.args(["-c", &script]).env("RLOCK_URL", server.url()));
        // Too few to start, too few for some step, or enough.
        assert!([127, 70, 69, 0].contains(&output.code()), "{limit}: {output:?}");
        assert!(output.err().lines().count() <= 1, "{limit}: {output:?}");
        assert!(server.is_free("L"), "{limit}: {output:?}");
    }
}

#[test]
fn a_reply_that_never_ends_is_abandoned() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let (sender, hung_up) = mpsc::channel();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.write_all(b"$999999999999\r\n");
            // At most a gigabyte, so that a client that reads all of it does not exhaust the machine.
            let mut pieces = std::iter::repeat_n([b'x'; 64 * 1024], 16 * 1024);
            let _ = sender.send(pieces.any(|piece| client.write_all(&piece).is_err()));
        }
    });
    let mut command = rlock(["inspect", "L"]);
    let output = run(command.env("RLOCK_URL", url));
    assert!([69, 78].contains(&output.code()), "{output:?}");
    assert!(hung_up.recv_timeout(limit()).unwrap(), "it takes whatever comes");
}

/// The URL of a server that answers the first request of each client with the first text, and all
/// others with the second one.
fn answering(first: &str, others: &str) -> String {
    let answers = [first.to_owned(), others.to_owned()];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let [first, others] = &answers;
            for answer in std::iter::once(first).chain(std::iter::repeat(others)) {
                let request = client.read(&mut [0; 64 * 1024]).unwrap_or(0);
                if request == 0 || client.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    url
}

#[test]
fn a_scan_that_never_ends_is_an_error_that_names_the_server() {
    let page = "*2\r\n$1\r\n1\r\n*0\r\n";
    let url = answering(page, page);
    let server = url.strip_prefix("redis://").unwrap();
    fails(rlock(["inspect"]).env("RLOCK_URL", &url), 78, &[server, "no end of SCAN"]);
}

#[test]
fn a_list_survives_one_lost_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let server = std::thread::spawn(move || {
        let ask = |answer: &[u8]| {
            let mut client = listener.accept().unwrap().0;
            assert_ne!(client.read(&mut [0; 1024]).unwrap(), 0);
            client.write_all(answer).unwrap();
            client
        };
        drop(ask(b"*2\r\n"));
        let mut client = ask(b"*2\r\n$1\r\n0\r\n*0\r\n");
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    });
    run(rlock(["inspect"]).env("RLOCK_URL", &url)).exits(0);
    server.join().unwrap();
}

#[test]
fn a_list_of_more_locks_than_fit_into_memory_is_refused() {
    let page = |first: u32| {
        let names = (first..first + 500_001).map(|name| format!("$13\r\nrlock:{name:07}\r\n"));
        format!("*2\r\n$1\r\n1\r\n*500001\r\n{}", names.collect::<String>())
    };
    let url = answering(&page(0), &page(500_001));
    // A loaded machine takes its time to read that much.
    let mut inspect = rlock(["inspect", "--io-timeout", "10m"]);
    fails(inspect.env("RLOCK_URL", url), 78, &["more than 1000000 locks", "pattern"]);
}

#[test]
fn a_revocation_that_never_ends_is_given_up() {
    // What the scripts reply: a view of a free lock, and that there is more to do.
    let free = "*12 $0  $4 free $0  :-2 $0  $0  :0 *0 :0 *0 *0 $0  ".replace(' ', "\r\n");
    let again = "*3 $5 again *0 :0 ".replace(' ', "\r\n");
    let mut revoke = rlock(["release", "-q", "--force", "--now", "L"]);
    let revoke = revoke.env("RLOCK_URL", answering(&free, &again));
    fails(revoke, 69, &["not all holds revoked"]);
}

#[test]
fn a_rejected_password_leaves_no_lock_on_a_server_that_requires_no_password() {
    let server = Server::on_tcp(&[]);
    let exec = ["exec", "-n", "--at-least", "10m", "L", "true"];
    let as_user = |command: &mut Command, user: &str| {
        run(command.env("RLOCK_PASSWORD", "wrong").env("RLOCK_USERNAME", user))
    };
    for user in ["", "nobody"] {
        server.cli(&["SCRIPT", "FLUSH"]);
        for warm in [false, true] {
            if warm {
                // Enough permissions to acquire, but not to withdraw.
                acquire(&server, &["--ttl", "2s"], "warm");
            }
            let output = as_user(&mut server.rlock(exec), user);
            assert_eq!(output.code(), 78, "{warm} {output:?}");
            assert_eq!(output.err().lines().count(), 1, "{warm} {output:?}");
            assert!(server.is_free("L"), "{warm} {output:?}");
        }
    }
    // The release took effect, and rlock warns about the password.
    let token = acquire(&server, &[], "L");
    let second = acquire(&server, &[], "M");
    assert_eq!(run(&mut server.rlock(["release", "M", &second])).code(), 0);
    let output = as_user(&mut server.rlock(["release", "L", &token]), "nobody");
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.err().contains("rejected the username or password"), "{output:?}");
    assert!(server.is_free("L"));
}

#[test]
fn a_withdrawal_arrives_after_the_unanswered_request() {
    let server = Server::on_tcp(&[]);
    for url in [server.url(), server.tcp_url()] {
        server.cli(&["SCRIPT", "FLUSH"]);
        // Enough permissions to acquire, but not to withdraw.
        acquire(&server, &["--ttl", "2s"], "warm");
        server.cli(&["CONFIG", "RESETSTAT"]);
        server.signal("STOP");
        let exec = ["exec", "-n", "--io-timeout", "200ms", "--ttl", "60s", "L", "true"];
        run(rlock(exec).env("RLOCK_URL", &url)).exits(69);
        server.signal("CONT");
        support::until("both have arrived", || server.calls_of("eval") > 0);
        assert_eq!(server.calls_of("evalsha"), 1);
        assert!(server.is_free("L"), "{url}");
    }
}

#[test]
fn an_abandoned_forced_release_revokes_nothing_later() {
    let server = Server::start();
    let token = acquire(&server, &["--ttl", "1h"], "L");
    for now in [&["--force"][..], &["--force", "--now"]] {
        server.signal("STOP");
        let force = [&["release", "--io-timeout", "200ms"], now, &["L"]].concat();
        let mut force = Running::start(&mut server.rlock(force));
        force.told("not revoked yet: ");
        force.signal("TERM");
        assert_eq!(force.end().status.signal(), Some(15));
        server.signal("CONT");
        run(&mut server.rlock(["renew", "L", &token])).exits(0);
    }
}

#[test]
fn a_signal_while_a_server_is_frozen_leaves_nothing_on_it() {
    let server = Server::on_tcp(&[]);
    for warm in [false, true] {
        server.cli(&["SCRIPT", "FLUSH"]);
        if warm {
            acquire(&server, &["--ttl", "2s"], "warm");
        }
        server.cli(&["CONFIG", "RESETSTAT"]);
        server.signal("STOP");
        let wire = Proxy::to(server.port(), Duration::ZERO);
        let mut exec =
            rlock(["exec", "-n", "-v", "--io-timeout", "1s", "--ttl", "60s", "L", "true"]);
        let first = Running::start(exec.env("RLOCK_URL", wire.url()));
        support::until("the request is on its way", || wire.flights() == 1);
        first.signal("TERM");
        assert_eq!(first.end().status.signal(), Some(15));
        server.signal("CONT");
        support::until("both have arrived", || server.calls_of("eval") > 0);
        assert_eq!(server.calls_of("evalsha"), 1);
        assert!(server.is_free("L"), "{warm}");
    }
}

#[test]
fn a_signal_on_a_slow_network_leaves_nothing_on_the_server() {
    let server = Server::on_tcp(&["--requirepass", "pw"]);
    let cli =
        |arguments: &[&str]| server.cli(&[&["-a", "pw", "--no-auth-warning"], arguments].concat());
    for cold in [true, false] {
        for delay in [50, 150, 250, 350, 450, 550] {
            if cold {
                cli(&["SCRIPT", "FLUSH"]);
            }
            let wire = Proxy::to(server.port(), Duration::from_millis(100));
            let mut exec = rlock(["exec", "-n", "--ttl", "60s", "L", "sleep", "9"]);
            exec.env("RLOCK_URL", wire.url()).env("RLOCK_PASSWORD", "pw");
            let first = support::Running::start(&mut exec);
            // The test is about this moment, so it has no event to wait for.
            std::thread::sleep(Duration::from_millis(delay));
            first.signal("TERM");
            assert_eq!(first.end().status.signal(), Some(15));
            assert_eq!(cli(&["EXISTS", "rlock:L"]), "0", "{cold} {delay}");
        }
    }
}

/// Each of these locks can be read, but not all of them together.
#[test]
fn locks_with_much_data_are_listed_completely() {
    let server = Server::start();
    let fill = "
        local text, locks = string.rep('x', 4000), tonumber(ARGV[1])
        local details = decoded('')
        details.mode, details.fence = 'shared', 1
        for _, name in ipairs({ 'owner', 'acquired', 'renewed', 'since', 'slot', 'about' }) do
            details[name] = text
        end
        for hold = 1, 100 do
            redis.call('ZADD', KEYS[2], 99999999999999, hold)
            write_details(hold, details)
        end
        redis.call('HSET', KEYS[3], 'guard', 1)
        redis.call('SET', KEYS[1], 1)
        for lock = 2, locks do
            for _, key in ipairs(KEYS) do redis.call('COPY', key, (key:gsub('n1', 'n' .. lock))) end
        end";
    let keys = ["rlock:n1", "{rlock:n1}?holds", "{rlock:n1}?state"];
    let fill = format!("{}{fill}", support::DETAILS);
    server.cli(&[&["EVAL", &fill, "3"][..], &keys, &["40"]].concat());
    let listed = server.run("inspect --io-timeout 1m");
    assert_eq!(listed.err(), "");
    assert_eq!(listed.out().lines().last(), Some("40 locks"));
}

#[test]
fn a_lock_with_too_much_data_does_not_hide_other_locks() {
    let server = Server::start();
    // A slow machine takes its time to fill that much memory.
    let long = ["--ttl", "1h"];
    acquire(&server, &long, "held");
    acquire(&server, &long, "huge");
    server.cli(&["SETRANGE", "rlock:theirs", "70000000", "x"]);
    let listed = server.run("inspect --io-timeout 1m").exits(0);
    for name in ["held ", "huge ", "theirs "] {
        assert!(listed.out().contains(&format!("\n{name}")), "{listed:?}");
    }
    let fill = "local token = redis.call('GET', KEYS[1])
        local field = 'details:' .. token
        local details = redis.call('HGET', KEYS[2], field)
        redis.call('HSET', KEYS[2], field, details .. string.rep('x', 70000000))";
    server.cli(&["EVAL", fill, "2", "rlock:huge", "{rlock:huge}?state"]);
    // It shows as much as can be read.
    for inspect in [&["inspect"][..], &["inspect", "huge"]] {
        let shown = run(server.rlock(inspect).args(["--io-timeout", "1m"]));
        assert!(shown.code() == 0 && shown.out().len() < 10_000, "{shown:?}");
        assert!(shown.out().contains("huge"), "{shown:?}");
    }
    // A server takes about as long as the I/O timeout to read 70 MB on a loaded machine.
    let release = ["release", "--io-timeout", "1m", "--force", "--now", "huge"];
    assert_eq!(run(&mut server.rlock(release)).code(), 0);
}

#[test]
fn a_huge_life_of_a_lock_does_not_prevent_inspecting_or_releasing_it() {
    let server = Server::start();
    acquire(&server, &["--ttl", "1h"], "L");
    let fill = "redis.call('HSET', KEYS[1], 'generation', string.rep('x', 70000000))";
    server.cli(&["EVAL", fill, "1", "{rlock:L}?state"]);
    // A server takes a while to copy 70 MB on a loaded machine.
    let patient = |arguments: &[&str]| {
        let output = run(server.rlock(arguments).env("RLOCK_IO_TIMEOUT", "1m"));
        assert!(output.out().len() + output.err().len() < 10_000, "{arguments:?}");
        output.code()
    };
    assert_eq!(patient(&["inspect"]), 0);
    assert_eq!(patient(&["inspect", "L"]), 0);
    assert_eq!(patient(&["exec", "-n", "L", "true"]), 75);
    assert_eq!(patient(&["release", "--force", "--now", "L"]), 0);
    assert_eq!(patient(&["exec", "-w", "1m", "L", "true"]), 0);
}

#[test]
fn a_long_life_of_a_lock_is_not_mistaken_for_lost_data() {
    let server = Server::start();
    let token = acquire(&server, &["--ttl", "1h"], "L");
    server.cli(&["HSET", "{rlock:L}?state", "generation", &"x".repeat(5_000)]);
    let waiter = support::waiter(&server, &["--ttl", "30s"], "L", "waited");
    // It asks again, and repeats what it has seen.
    let mailbox = server.mailbox("L", &server.waiters_token("L"));
    let asked = server.calls_of("evalsha");
    server.cli(&["RPUSH", &mailbox, "look"]);
    until("it has asked again", || server.calls_of("evalsha") > asked);
    assert_eq!(server.inspect("L")["holders"].as_array().unwrap().len(), 1);
    assert_eq!(run(&mut server.rlock(["release", "L", &token])).code(), 0);
    assert_eq!(waiter.end().out(), "ENTERED waited");
}

support::also_on_local! {
    options_override_the_environment_and_an_empty_variable_counts_as_unset,
    acquire_accepts_any_label,
    a_closed_stderr_does_not_stop_the_work,
    a_system_without_descriptors_leaves_no_lock_behind,
}
