//! Bad input and bad servers cause one clear line, the right status and no panic, and leave nothing.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{self, *};

/// A token that holds nothing.
const TOKEN: &str = "01234567-89ab-4cde-8f01-23456789abcd";

/// The right password in these tests, a wrong one, and a user in a URL.
const SECRETS: [&str; 3] = ["s3cret", "wr0ng", "us3r"];

#[track_caller]
pub(crate) fn shows_no_secret(output: &Output) {
    let shown = output.out() + &output.err();
    assert!(!SECRETS.iter().any(|secret| shown.contains(secret)), "{output:?}");
}

/// Checks that a command fails with one line that contains each part, and no secret.
#[track_caller]
pub(crate) fn fails(command: &mut Command, status: i32, parts: &[&str]) -> Output {
    let output = run(command);
    let told = output.err();
    assert_eq!(output.code(), status, "{command:?}: {output:?}");
    assert_eq!(told.lines().count(), 1, "{command:?}: {told}");
    assert!(told.starts_with("rlock: "), "{told}");
    for part in parts {
        assert!(told.contains(part), "no {part:?} in: {told}");
    }
    shows_no_secret(&output);
    output
}

/// URLs as users mistype them, and what rlock says about each.
const BAD_URLS: &str = r#"
    localhost => missing scheme; use redis://localhost
    localhost:6379 => missing scheme; use redis://localhost:6379
    127.0.0.1:6379/2 => missing scheme; use redis://127.0.0.1:6379/2
    [::1]:6379 => missing scheme; use redis://[::1]:6379
    redis => missing scheme; use redis://redis
    redis-1 => missing scheme; use ANY URL
    redis.example:port => missing scheme; use ANY URL
    user:pass@redis.example => missing scheme; use ANY URL
    redis:/localhost => missing '//' after 'redis:'; use ANY URL
    redis:localhost:6379 => missing '//' after 'redis:'; use ANY URL
    redis:// => missing host; use HOST or HOST:PORT
    redis:///0 => missing host; use HOST or HOST:PORT
    redis://:6379 => missing host; use HOST or HOST:PORT
    redis://h:abc => port is not a number; use 1 to 65535
    redis://h:-1 => port is not a number; use 1 to 65535
    redis://h:0 => port cannot be 0; use the port of the server
    redis://h:99999 => port is out of range; use 1 to 65535
    redis://h:6379:6379 => several ports; use redis://HOST:PORT
    redis://h/abc => database is not a number; use redis://HOST[:PORT]/DB
    redis://h/-1 => database number is out of range; use 0 or greater
    redis://h/99999999999 => database number is out of range; use 0 or greater
    redis://h/0/1 => database is not a number; use redis://HOST[:PORT]/DB
    redis://h?db=1 => database after '?'; use redis://HOST[:PORT]/DB
    redis://h/0?timeout=5 => options after '?'; remove them
    redis://h#1 => contains '#'; write '#' in a password as %23
    redis://a:1,b:2 => several servers in one URL; separate URLs with spaces in RLOCK_URL
    redis://a;redis://b => several servers in one URL; separate URLs with spaces in RLOCK_URL
    redis://::1:6379 => IPv6 address without brackets; write it as in redis://[::1]:6379
    redis://[::1 => IPv6 address without brackets; write it as in redis://[::1]:6379
    redis://:p/w@h => '/' in a password; write it as %2F, or set RLOCK_PASSWORD
    redis://:p#w@h => '#' in a password; write it as %23, or set RLOCK_PASSWORD
    redis://u:p?w@h => '?' in a password; write it as %3F, or set RLOCK_PASSWORD
    redis://a b => 2 of 2: missing scheme; use redis://b
    redis://my_host! => invalid host name; use letters, digits, '.', '-' and '_'
    redis://höst => invalid host name; use letters, digits, '.', '-' and '_'
    redis://$HOST => variable is not expanded; write its value
    $REDIS_URL => variable is not expanded; write its value
    "redis://h" => contains quotes; remove them
    <redis://h> => unknown scheme '***'; use ANY URL
    http://h:6379 => unknown scheme 'http'; use ANY URL
    tls://h => unknown scheme 'tls'; use ANY URL
    redis+tls://h => unknown scheme 'redis+tls'; use ANY URL
    sentinel://h/svc => unknown scheme 'sentinel'; use ANY URL
    redis+cluster:// => missing host; use HOST or HOST:PORT
    redis+cluster://a,,b => missing host; use HOST or HOST:PORT
    redis+cluster://a b => a quorum cannot include Sentinel, cluster or local: URLs; use one such URL, with commas between its hosts
    redis+cluster://h/1 => a cluster URL cannot name a database; remove what follows the hosts
    redis+cluster://h?db=2 => a cluster URL cannot name a database; remove what follows the hosts
    redis+cluster://h:x => port is not a number; use 1 to 65535
    redis+sentinel://h => missing service name; use redis+sentinel://HOST[:PORT],…/SERVICE[/DB]
    redis+sentinel://h/svc/x => database is not a number; use redis+sentinel://HOST[:PORT],…/SERVICE[/DB]
    redis+sentinel://h/svc?db=1 => service name contains a separator, such as ','; use redis+sentinel://HOST[:PORT],…/SERVICE[/DB]
    redis+sentinel://h:0/svc => port cannot be 0; use the port of the server
    redis+sentinel:///svc => missing host; use HOST or HOST:PORT
    redis+sentinel://u:p@a,u:p@b/svc => more than one '@'; give username and password once, before the first host, and write '@' in them as %40
    unix://run/redis.sock => host in a unix:// URL; use three slashes, as in unix:///path/to/socket
    unix:// => missing path; use unix:///path/to/socket
    unix:///s:0 => ':' in a path; write it as %3A
    unix:///s?db=x => db is not a number; use a form such as ?db=0
    unix:///s?database=1 => unknown option after '?'; use db, user or pass
    /run/redis.sock => missing scheme; use unix:///PATH
    ~/redis.sock => missing scheme; use unix:///PATH
    file:///run/redis.sock => unknown scheme 'file'; use ANY URL
    local => not a URL; use local:
    LOCAL: => not a URL; use local:
    local:/ => the directory of local: is /; use local: or local:/DIRECTORY
    local:// => the directory of local: is /; use local: or local:/DIRECTORY
    local:locks => the directory of local: is not absolute; use local:/DIRECTORY
    local: /tmp => a quorum cannot include Sentinel, cluster or local: URLs; use one such URL, with commas between its hosts
    redis://h local: => a quorum cannot include Sentinel, cluster or local: URLs; use one such URL, with commas between its hosts
    redis://h redis+sentinel://i/svc => a quorum cannot include Sentinel, cluster or local: URLs; use one such URL, with commas between its hosts
    redis://h redis://h:6379 => h:6379 is listed twice; list each server once
    h:6379,password=x,ssl=True => connection string instead of a URL; use a URL such as rediss://HOST:PORT, and set RLOCK_PASSWORD
    redis://h,password=x => connection string instead of a URL; use a URL such as rediss://HOST:PORT, and set RLOCK_PASSWORD
"#;

/// Command lines as users mistype them, and what rlock says about each.
pub(crate) const MISTAKES: &str = r#"
    frob => unknown subcommand 'frob'; use exec, acquire, renew, release or inspect
    acquier L => unknown subcommand 'acquier'; use acquire
    relase L => unknown subcommand 'relase'; use release
    unlock L => unknown subcommand 'unlock'; use release
    free L => unknown subcommand 'free'; use release
    revoke L => unknown subcommand 'revoke'; since release --force stops the holder's command, first run rlock inspect NAME
    kill -9 L => unknown subcommand 'kill'; since release --force stops the holder's command, first run rlock inspect NAME
    ps -q => unknown subcommand 'ps'; use inspect
    doctor => unknown subcommand 'doctor'; use inspect --servers
    with L true => unknown subcommand 'with'; use exec
    exec L -c true => unknown option '-c'; use sh -c 'LINE' as the command
    exec --lock-timeout=5s L true => unknown option '--lock-timeout'; use --wait
    exec -e L true => unknown option '-e'; use --exclusive
    -q exec L true => '-q' precedes the subcommand; put it after exec
    -n L true => missing subcommand before '-n'; use exec, acquire, renew, release or inspect
    exec => missing NAME and COMMAND; use rlock exec NAME COMMAND
    exec -z L true => unknown option '-z'; run rlock exec --help
    exec -o L true => unknown option '-o'; remove it
    exec --version => unknown option '--version'; run rlock --version
    exec -V => unknown option '-V'; run rlock --version
    exec --server redis://h L true => unknown option '--server'; use --url
    inspect --server => unknown option '--server'; use --servers
    exec -timeout=10m L true => unknown option '-timeout'; use --timeout
    exec -wait 10m L true => unknown option '-wait'; use --wait
    exec -ttl 10m L true => unknown option '-ttl'; use --ttl
    exec -url redis://h L true => unknown option '-url'; use --url
    exec -shared L true => unknown option '-shared'; use --shared
    exec -host h L true => unknown option '-host'; use --url
    exec -z L tar -xzf --ttl => unknown option '-z'; run rlock exec --help
    inspect -wait 5 L => '--wait' is not an option of inspect; use it with exec or acquire
    release --timeout 5 L => '--timeout' is not an option of release; use it with exec or acquire
    -version => unknown option '-version'; run rlock --version
    exec --wiat 5 L true => unknown option '--wiat'; use --wait
    acquire --on-lost kill L => '--on-lost' is not an option of acquire; use it with exec
    exec -n -w 5 L true => --nonblock cannot be used with --wait; remove one of them
    exec -n --supersede L true => --nonblock cannot be used with --supersede; remove one of them
    exec -w0 --supersede L true => L: --supersede requires waiting; use a --wait or RLOCK_WAIT other than 0
    exec --slots 2 -s L true => --slots cannot be used with --shared; remove one of them
    exec -t 5 -t 6 L true => --ttl is given twice; remove one of them
    exec --nonblock=yes L true => --nonblock does not take a value; remove the value
    exec -w => missing value after --wait; run rlock exec --help
    exec -w L true => --wait: not a duration: 'L'; FORM
    exec -w 5M L true => --wait: exceeds the limit of 7d: '5M'; use 'm' for minutes ('M' is months)
    exec --ttl 9ms L true => --ttl: below the limit of 100ms: '9ms'; use a longer duration
    exec -E 256 L true => --conflict-exit-code: not an exit status: '256'; use a number from 0 to 255
    exec --slots 0 L true => --slots: not a number of slots: '0'; use a number from 1 to 4294967295
    exec --on-lost die L true => --on-lost: unknown value: 'die'; use kill or continue
    acquire L true => unexpected word after NAME: 'true'; to run a command, use rlock exec
    release --now L => missing --force; since release --force stops the holder's command, first run rlock inspect NAME
    inspect --min-replicas 1 => missing --servers; add it
    release --force --id a*c45678 L => --id: not an id; use the 8 characters that inspect shows
    release L => L: no token; set RLOCK_TOKEN to the token that acquire printed
    renew L => L: no token; set RLOCK_TOKEN to the token that acquire printed
    release --token x L => unknown option '--token'; set RLOCK_TOKEN
    release L 5f0c21aa00004000800000000000000a => TOKEN: not a token; use the token that acquire printed
    inspect a b => unexpected word after NAME: 'b'; to show several locks, quote a pattern such as 'a*'
    inspect --sort size => --sort: unknown value: 'size'; use age, name, waiting or lease
    inspect --older-than 1 L => L: --older-than selects from a list, but NAME is one lock; to check its age, add --attention
    inspect a[ => NAME: not a pattern; use *, ? and [a-c] only
    inspect a{b => NAME: contains '{'; remove it
    acquire --prefix a?holds L => --prefix: contains '?'; remove it
    exec -t -5 L true => negative value '-5'; use a positive one
    exec -w -1 L true => negative value '-1'; use a positive one
    exec -t 5sek L true => --ttl: not a duration: '5sek'; FORM
    exec -t 1,5 L true => --ttl: not a duration: '1,5'; FORM
    exec -t 1:30 L true => --ttl: not a duration: '1:30'; FORM
    exec -t 1h30 L true => --ttl: not a duration: '1h30'; FORM
    exec -t 1e3 L true => --ttl: not a duration: '1e3'; FORM
    exec -t PT30S L true => --ttl: not a duration: 'PT30S'; FORM
    exec -t 30S L true => --ttl: not a duration: '30S'; FORM
    exec -t none L true => --ttl: not a duration: 'none'; FORM
    exec -t 1y L true => --ttl: exceeds the limit of 7d: '1y'; use a shorter duration
    exec -t 0 L true => --ttl: below the limit of 100ms: '0'; use a longer duration
    exec -t 99999999999999999999 L true => --ttl: not a duration: '***'; FORM
    exec -w forever L true => --wait: not a duration: 'forever'; FORM
    exec -k 5x L true => --kill-after: not a duration: '5x'; FORM
    exec --at-least 1mo L true => --at-least: not a duration: '1mo'; FORM
    exec --io-timeout 0 L true => --io-timeout: below the limit of 1ms: '0'; use a longer duration
    exec --io-timeout 700000 L true => --io-timeout: exceeds the limit of 7d: '700000'; use a shorter duration
    exec --slots -1 L true => negative value '-1'; use a positive one
    exec --slots 1.5 L true => --slots: not a number of slots: '1.5'; use a number from 1 to 4294967295
    exec --slots two L true => --slots: not a number of slots: 'two'; use a number from 1 to 4294967295
    exec --slots 4294967296 L true => --slots: not a number of slots: '4294967296'; use a number from 1 to 4294967295
    exec -E x L true => --conflict-exit-code: not an exit status: 'x'; use a number from 0 to 255
    exec --min-replicas many L true => --min-replicas: not a number of replicas: 'many'; use a number from 0 to 4294967295
    exec --on-lost=KILL L true => --on-lost: unknown value: 'KILL'; use kill or continue
    exec --on-unreachable wait L true => --on-unreachable: unknown value: 'wait'; use fail or run
    exec L => missing COMMAND; use rlock exec NAME COMMAND
    exec -- L => missing COMMAND; use rlock exec NAME COMMAND
    exec job* true => NAME: contains '*'; name one lock
    exec job{1} true => NAME: contains '{'; remove it
    exec a\b true => NAME: contains '\'; remove it
    exec redis://h true => NAME: lock name is a URL; give the server with --url
    acquire --while-pid 0 L => --while-pid: not a process ID: '0'; use a positive number, such as $$ in a script
    acquire --while-pid abc => --while-pid: not a process ID: 'abc'; put a number there, and check that its variable is not empty
    acquire --while-pid= L => --while-pid: empty process ID; set it with me=$(exec sh -c 'echo $PPID')
    release L abc => TOKEN: not a token; use the token that acquire printed
    release --force --id abc L => --id: not an id; use the 8 characters that inspect shows
    release --reason x L => missing --force; since release --force stops the holder's command, first run rlock inspect NAME
    renew --ttl 0 L => --ttl: below the limit of 100ms: '0'; use a longer duration
    inspect a**b => NAME: not a pattern; use *, ? and [a-c] only
    inspect --sort => missing value after --sort; use age, name, waiting or lease
    inspect --older-than x => --older-than: not a duration: 'x'; FORM
    inspect --watch=x => --watch: not a duration: 'x'; FORM
    inspect -W 5 -W 6 => --watch is given twice; remove one of them
    inspect --json --names => --json cannot be used with --names; remove one of them
    inspect --atention => unknown option '--atention'; use --attention
    -v => missing subcommand before '-v'; use exec, acquire, renew, release or inspect
    version => unknown subcommand 'version'; run rlock --version
    acquire --prefix app} L => --prefix: contains '}' without a hash tag; use a form such as {app}:
"#;

/// What these tables abbreviate.
const ANY_URL: &str = "redis://, rediss://, unix://, redis+sentinel://, redis+cluster:// or local:";
const FORM: &str = "use a form such as 90s, 1m30s or 250ms";

pub(crate) fn rows(table: &str) -> impl Iterator<Item = (&str, String)> {
    let rows = table.lines().filter_map(|row| row.trim().split_once(" => "));
    rows.map(|(wrong, told)| (wrong, told.replace("ANY URL", ANY_URL).replace("FORM", FORM)))
}

#[test]
fn a_mistyped_url_or_command_line_is_answered_with_what_to_type() {
    for (url, told) in rows(BAD_URLS) {
        let output = fails(at(url, "inspect").env("HOME", "/home"), 78, &[]);
        assert_eq!(output.err(), format!("rlock: bad URL: {told}"), "{url}");
    }
    for (line, told) in rows(MISTAKES) {
        let output = fails(&mut rlock(line.split(' ')), 64, &[]);
        assert_eq!(output.err(), format!("rlock: {told}"), "{line}");
    }
    assert!(rows(BAD_URLS).chain(rows(MISTAKES)).count() >= 150);
}

#[test]
fn a_mistake_in_a_variable_or_in_odd_words_exits_with_64_and_states_its_remedy() {
    for (variable, value, answer) in [
        ("RLOCK_TTL", "soon", "RLOCK_TTL: not a duration: 'soon'"),
        ("RLOCK_WAIT", "5M", "RLOCK_WAIT: exceeds the limit of 7d: '5M'"),
    ] {
        fails(rlock(["acquire", "L"]).env(variable, value), 64, &[answer]);
    }
    let long = format!("a{}z", "x".repeat(2_000));
    let told = ["NAME: exceeds 200 bytes; use a shorter one"];
    fails(&mut rlock(["exec", &long, "true"]), 64, &told);
    fails(&mut rlock([""; 0]), 64, &["missing subcommand; use exec, acquire, renew, release or"]);
    fails(&mut rlock(["release", "L", ""]), 64, &["TOKEN: empty"]);
    let told = ["--owner: contains '\\u{200b}'; remove it"];
    fails(&mut rlock(["acquire", "--owner", "a\u{200b}b", "L"]), 64, &told);
    fails(rlock(["exec"]).arg(OsStr::from_bytes(b"\xff")).arg("true"), 64, &["UTF-8"]);
    for (words, option) in
        [(&["help"][..], &["--help"][..]), (&["help", "exec"], &["exec", "--help"])]
    {
        run(&mut rlock(words)).exits(0).prints(&run(&mut rlock(option)).out());
    }
}

#[test]
fn a_program_that_reads_the_output_learns_of_a_usage_error() {
    for line in ["acquire --json", "release --frob L --json", "inspect --json a b"] {
        let output = run(&mut rlock(line.split(' ')));
        let document = output.json();
        assert_eq!(document["status"], "usage", "{line}");
        assert_eq!(document["exit"], output.code(), "{line}");
        assert_eq!(format!("rlock: {}", document["message"].as_str().unwrap()), output.err());
    }
    run(&mut rlock(["acquire", "--shell", "--frob", "L"])).exits(64).prints("(exit 64)");
    // The words of a command are not options.
    for line in ["exec --json L", "exec L --frob -- x --json"] {
        assert_eq!(run(&mut rlock(line.split(' '))).out(), "", "{line}");
    }
}

#[test]
fn options_override_the_environment_and_an_empty_variable_counts_as_unset() {
    let server = Server::start();
    for (option, variable, lease) in [("--ttl=7", "9s", 7_000), ("", "9s", 9_000), ("", "", 30_000)]
    {
        let mut acquire = at(&server.url(), &format!("acquire --shared --json {option} L"));
        assert_eq!(run(acquire.env("RLOCK_TTL", variable)).json()["ttl_ms"], lease);
    }
    // -n does not contradict a wait in the environment.
    run(server.rlock(["acquire", "-n", "L"]).env("RLOCK_WAIT", "1h")).exits(75);
}

#[test]
fn a_missing_url_exits_with_78_and_shows_how_to_set_one() {
    for line in ["exec L true", "inspect", "release L 01234567-89ab-4cde-8f01-23456789abcd"] {
        fails(&mut rlock(line.split(' ')), 78, &["RLOCK_URL=redis://127.0.0.1:6379/0"]);
        fails(&mut at("", line), 78, &["RLOCK_URL"]);
    }
}

#[test]
fn a_url_in_the_wrong_place_is_refused_without_its_password() {
    let server = Server::start();
    let long = format!("redis://us3r:s3cret{}@h", "x".repeat(500));
    for url in ["rediss://:s3/s3cret#@h", "unix:///s?pass=s3cret", &long] {
        for arguments in [
            &[url][..],
            &["acquire", url],
            &["release", "L", "t", url],
            &["acquire", "--ttl", url, "L"],
            &["exec", "--no-such", url, "L", "true"],
        ] {
            fails(&mut rlock(arguments), 64, &[]);
        }
        fails(rlock(["acquire", "L"]).env("RLOCK_MIN_REPLICAS", url), 64, &[]);
        let told = ["lock name is a URL; give the server with --url"];
        fails(&mut rlock(["exec", url, "true"]), 64, &told);
        fails(&mut server.rlock(["exec", "L", url]), 127, &["command not found"]);
        shows_no_secret(&server.run("inspect --json L"));
        shows_no_secret(&run(&mut rlock(["acquire", "--json", "--url", "x", url])));
    }
}

#[test]
fn a_secret_in_the_place_of_a_command_a_label_or_a_name_is_not_shown() {
    let server = Server::start();
    for program in ["PGPASSWORD=s3cret", "redis-cli -a s3cret", "h:6379,password=s3cret"] {
        fails(&mut server.rlock(["exec", "L", program, "dump"]), 127, &["command not found"]);
        shows_no_secret(&server.run("inspect L").exits(1));
    }
    let label = "https://us3r:s3cret@ci/job/1";
    let token = acquire(&server, &["--label", label], "L");
    assert!(server.inspect("L")["holders"][0]["label"].as_str().unwrap().ends_with("@ci/job/1"));
    for line in ["inspect L", "inspect --json L", "acquire -n --json L"] {
        shows_no_secret(&server.run(line));
    }
    for line in ["release", "renew --json", "inspect"] {
        for secret in [&*token, "h:6379,password=s3cret,ssl=True"] {
            let output = server.run(&format!("{line} {secret}")).exits(64);
            assert!(!(output.out() + &output.err()).contains(secret), "{output:?}");
            shows_no_secret(&output);
        }
    }
}

#[test]
fn an_unreachable_server_causes_69() {
    let port = free_port();
    let refused = format!("cannot connect to 127.0.0.1:{port}: connection refused");
    for (url, told) in [
        (&*format!("redis://127.0.0.1:{port}"), &*refused),
        ("unix:///nonexistent/socket", "no such file or directory"),
        ("redis://no-such-host.invalid", "no-such-host.invalid"),
    ] {
        for line in ["exec L true", "inspect", "inspect --attention"] {
            fails(&mut at(url, line), 69, &[told]);
        }
    }
}

#[test]
fn a_dns_server_that_does_not_answer_is_not_mistaken_for_a_lock_server_or_a_wrong_name() {
    let directory = tempfile::tempdir().unwrap();
    let configuration = directory.path().join("resolv.conf");
    std::fs::write(&configuration, "nameserver 127.0.0.1\n").unwrap();
    // Runs in a new network namespace, where the loopback interface is down at first.
    let script = "socket(S, PF_INET, SOCK_DGRAM, 0) or die $!;
        my $up = pack('a16 s', 'lo', 1);
        ioctl(S, 0x8914, $up) or die $!;
        bind(S, sockaddr_in(53, INADDR_LOOPBACK)) or die $!;
        system('mount', '--bind', shift, '/etc/resolv.conf') and die;
        exit(system(@ARGV) >> 8)";
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--mount", "--net", "perl", "-MSocket", "-e", script]);
    shell.arg(&configuration).arg(binary());
    shell.args(["inspect", "--io-timeout", "1s", "--url", "redis://host.example"]);
    let told = "host.example:6379: host name not resolved in time; check the DNS server";
    fails(&mut shell, 69, &[told]);
}

/// Checks that no control character of another user reaches the terminal, and nothing that breaks the
/// line or changes how it reads.
#[track_caller]
pub(crate) fn reports_in_one_harmless_line(command: &mut Command, status: i32) {
    let is_deceptive = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let output = run(command).exits(status);
    let (told, printed) = (output.err(), output.out());
    assert!(!told.is_empty() && !told.contains(is_deceptive), "{told:?}");
    assert!(!printed.contains(is_deceptive), "{printed:?}");
}

#[test]
fn text_from_the_command_line_cannot_control_a_terminal() {
    let evil = "x\u{1b}[2J\nrlock: L: \u{9b}2J\u{202e}";
    for (arguments, status) in [
        (&["exec", "L", evil][..], 127),
        (&[evil], 64),
        (&["exec", &format!("--{evil}"), "L", "true"], 64),
        (&["inspect", evil], 64),
        (&["inspect", "--url", &format!("{evil}://h")], 78),
        (&["exec", "--password-file", evil, "--url", "redis://h", "L", "true"], 78),
    ] {
        reports_in_one_harmless_line(&mut Server::start().rlock(arguments), status);
    }
    reports_in_one_harmless_line(rlock(["acquire", "L"]).env("RLOCK_TTL", evil), 64);
}

#[test]
fn acquire_accepts_any_label() {
    let server = Server::start();
    let label = OsStr::from_bytes(b"a\x1b[2J\xe2\x80\xaeb\nc\xff");
    run(server.rlock(["acquire", "option", "--label"]).arg(label)).exits(0);
    run(server.rlock(["acquire", "variable"]).env("RLOCK_LABEL", label)).exits(0);
    for name in ["option", "variable"] {
        assert_eq!(server.inspect(name)["holders"][0]["label"], "a [2J b c\u{fffd}", "{name}");
    }
}

/// Lets the user of this rule run lines, and returns the first error that reports a denial.
fn denied(server: &Server, rule: &[&str], lines: &[&str]) -> Option<String> {
    let name = rule[2];
    server.cli(&["ACL", "DELUSER", name]);
    set_up(server, rule);
    server.cli(&["SCRIPT", "FLUSH"]);
    // What is denied while a lock is held is tried again until the lease ends.
    let user = Client::of(server.url()).with_user(name).with("RLOCK_TTL", "1s");
    let verbose = |line: &str| {
        line.split_once(' ').map_or(format!("{line} -v"), |(a, b)| format!("{a} -v {b}"))
    };
    let mut outputs = lines.iter().map(|line| user.run(&verbose(line)));
    let reports = |it: &Output| it.code() == 78 || it.err().contains(" denies ");
    outputs.find(reports).map(|output| output.err())
}

/// Checks that no line is denied with this rule, and that one is without any of its permissions.
#[track_caller]
fn each_is_needed(rule: &[&str], denied: impl Fn(&[&str]) -> Option<String>) {
    assert_eq!(denied(rule), None);
    for missing in rule.iter().filter(|word| word.starts_with(['+', '~', '%'])) {
        let without: Vec<&str> = rule.iter().filter(|word| *word != missing).copied().collect();
        let told = denied(&without).unwrap_or_else(|| panic!("{missing} is not needed"));
        let named = match missing.strip_prefix('+') {
            // Every server has a substitute for what ends in _ro.
            Some(command) => told.to_lowercase().contains(command.trim_end_matches("_ro")),
            None => told.contains("~rlock:L and ~{rlock:L}?*") || told.contains("keys"),
        };
        assert!(named, "{missing}: {told}");
    }
}

#[test]
fn each_documented_permission_is_needed_and_a_missing_one_is_named_with_78() {
    let server = Server::start();
    let everything = [
        "acquire --ttl 3s --slots 2 L",
        "exec --slots 2 L true",
        "exec -w 100ms L true",
        &format!("renew L {TOKEN}"),
        &format!("release L {TOKEN}"),
        "release --force --now --id ffffffff L",
        "release --force --now L",
        "acquire --reentrant --owner me L",
        "acquire --reentrant --owner me -s L",
        "exec -s --at-least 10ms K true",
        "acquire --ttl 500ms M",
        "exec -w 3s M true",
        "acquire --ttl 100ms M",
        "release --force M",
        &format!("release --url {}?db=1 M {TOKEN}", server.url()),
    ];
    each_is_needed(&rule("ci", &["+hscan"]), |rule| {
        server.cli(&["FLUSHALL"]);
        // As many as only another client can have added.
        server.cli(&[&["RPUSH", &side_key("L", "history")][..], &["x"; 32]].concat());
        denied(&server, rule, &everything)
    });
    // They also suffice to hand a lock over.
    set_up(&server, &rule("ci", &[]));
    let ci = Client::of(server.url()).with_user("ci");
    let first = ci.holder("N");
    let second = ci.waiter("N");
    first.finish().exits(0);
    second.end().exits(0).prints("ENTERED");
}

#[test]
fn inspect_needs_exactly_the_documented_permissions() {
    let server = Server::start();
    for name in ["held", "waited-for", "deleted"] {
        acquire(&server, &[], name);
    }
    server.run("exec L true");
    let _second = waiter(&server, &[], "waited-for", "second");
    server.cli(&["SET", "rlock:foreign", "x"]);
    server.cli(&["DEL", "rlock:deleted"]);
    let looks = [
        "inspect",
        "inspect L",
        "inspect waited-for",
        "inspect deleted",
        "inspect foreign",
        &format!("inspect --url {}?db=1", server.url()),
    ];
    let viewer = rule("viewer", &[]);
    each_is_needed(&viewer, |rule| denied(&server, rule, &looks));
    assert!(denied(&server, &viewer, &["acquire -n M"]).is_some());
    // docs/authentication.md also lists what `ci` needs for inspect.
    assert_eq!(denied(&server, &rule("ci", &["+scan", "+info"]), &looks), None);
}

#[test]
fn inspect_works_on_a_server_without_read_only_scripts() {
    // As Redis 6.2 is.
    let hide = |command| ["--rename-command", command, ""];
    let server = Server::with(&[hide("EVALSHA_RO"), hide("EVAL_RO")].concat());
    acquire(&server, &[], "L");
    for line in ["inspect L", "inspect"] {
        assert_eq!(server.run(line).exits(0).err(), "");
    }
}

#[test]
fn a_server_of_another_kind_or_without_a_command_is_an_error_that_says_what_to_use() {
    let hides = |command| Server::on_tcp(&["--rename-command", command, ""]);
    for (server, scheme, line, told) in [
        (&hides("TIME"), "redis", "exec L true", "has disabled the command TIME; enable it"),
        (&hides("EVALSHA"), "redis", "exec L true", "command EVALSHA; use Redis 6.2 or later"),
        (
            &hides("SCAN"),
            "redis",
            "inspect",
            "; name the lock to inspect, or use redis+sentinel://127",
        ),
        (&hides("DEBUG"), "redis+cluster", "inspect", "not a cluster node; use a redis:// URL"),
    ] {
        let url = server.tcp_url().replace("redis:", &format!("{scheme}:"));
        fails(&mut at(&url, line), 78, &[told]);
    }
}

/// A master, and a replica that is connected to it.
pub(crate) fn replicated() -> (Server, Server) {
    let master = Server::on_tcp(&[]);
    let replica = Server::on_tcp(&[]);
    replica.follows(master.port());
    until("they are connected", || {
        master.reports("state=online") && replica.reports("master_link_status:up")
    });
    (master, replica)
}

#[test]
fn a_replica_only_shows_locks_and_a_viewer_may_look() {
    let (master, replica) = replicated();
    acquire(&master, &[], "L");
    until("it has it", || replica.has("L"));
    for line in ["exec L true", "acquire L", "exec -n L true"] {
        fails(&mut at(&replica.url(), line), 78, &["is a replica"]);
    }
    set_up(&replica, &rule("viewer", &[]));
    let viewer = Client::of(replica.url()).with_user("viewer");
    viewer.run("inspect L").exits(0).shows("held by");
    viewer.run("inspect").exits(0).shows("\nL ");
}

#[test]
fn each_database_has_its_own_locks_and_a_missing_one_changes_nothing() {
    let server = Server::on_tcp(&["--databases", "4"]);
    let on = |database: u32, line| run(&mut at(&format!("{}/{database}", server.tcp_url()), line));
    on(3, "acquire L").exits(0);
    assert_eq!(server.cli(&["-n", "3", "EXISTS", "rlock:L"]), "1");
    on(4, "acquire M").exits(78).says("has no such database");
    assert_eq!(server.cli(&["KEYS", "rlock:[LM]"]), "");
    // Waiting and listing select the database too.
    on(3, "exec -w 300ms L true").exits(75);
    on(3, "inspect").exits(0).shows("\nL ");
}

#[test]
fn a_server_out_of_memory_causes_69_and_still_shows_renews_revokes_and_releases_locks() {
    let server = Server::start();
    let kept = acquire(&server, &["--at-least", "20s"], "kept");
    acquire(&server, &["--ttl", "2s"], "held");
    acquire(&server, &[], "dead");
    let next = waiter(&server, &["--at-least", "100ms"], "dead", "next");
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    fails(&mut server.rlock(["exec", "L", "true"]), 69, &["out of memory", "maxmemory"]);
    server.run("inspect kept").exits(0).shows(&kept[..8]);
    for act in ["renew", "release"] {
        server.run(&format!("{act} kept {kept}")).exits(0);
    }
    server.run("release --force held").exits(0);
    server.run("release --force --now dead").exits(0);
    next.end().prints("ENTERED next");
}

#[test]
fn a_server_with_too_many_clients_is_named_with_its_remedy_whatever_else_was_sent_to_it() {
    let server = Server::on_tcp(&["--requirepass", "s3cret", "--maxclients", "1"]);
    let mut other = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    other.write_all(b"PING\r\n").unwrap();
    other.read_exact(&mut [0]).unwrap();
    let (tcp, unix) = (server.tcp_url(), server.url());
    let told = ["has too many clients", "; raise maxclients there"];
    for url in [&*tcp, &unix, &format!("{tcp} {unix}?db=1")] {
        for line in ["exec L true", "acquire -n --min-replicas 1 L", "inspect"] {
            fails(at(url, line).env("RLOCK_PASSWORD", "s3cret"), 69, &told);
        }
    }
    // Nothing listens on port 1, which shows sooner.
    let cluster = format!("redis+cluster://127.0.0.1:1,127.0.0.1:{}", server.port());
    let mut unlocked = at(&cluster, "exec -n --on-unreachable run L echo RUNS");
    fails(unlocked.env("RLOCK_PASSWORD", "s3cret"), 69, &told[..1]);
}

#[test]
fn a_lock_on_too_few_replicas_exits_with_69_unless_a_wait_outlasts_it_and_is_released() {
    let (master, mut replica) = replicated();
    let exec = "exec --min-replicas 1 --io-timeout 500ms";
    replica.signal("STOP");
    master.run(&format!("{exec} -w 1s L true")).exits(69).says("; retrying");
    assert!(!master.has("L"));
    let waits = master.starts(&format!("{exec} -w 1m L"), "true").tells("; retrying");
    replica.signal("CONT");
    let told = waits.end().exits(0).err();
    let last = "rlock: L: enough replicas confirm the lock again after ";
    assert!(told.starts_with(last) && told.lines().count() == 1, "{told}");
    let two = ["acquire", "--min-replicas", "2", "--json", "L"];
    fails(
        &mut master.rlock(two),
        69,
        &["1 of 2 replicas", "confirmed the lock", "to survive a failover, run 3 replicas"],
    );
    assert!(!master.has("L"));
    // A lease is not renewed if replicas do not confirm it.
    let first = holder(&master, &["--min-replicas", "1", "--ttl", "3s"], "L");
    replica.kill();
    first.tells("0 of 1 replicas").end().exits(76);
    fails(master.rlock(["exec", "L", "true"]).env("RLOCK_MIN_REPLICAS", "1"), 69, &["0 of 1"]);
    let renew = format!("renew --min-replicas 1 L {}", acquire(&master, &[], "M"));
    for line in ["exec --min-replicas 1 L true", &renew] {
        fails(&mut at("local:/tmp", line), 78, &["does not replicate"]);
    }
}

/// The repeated request finds the lock granted and writes nothing. The WAIT that follows it must still
/// cover the grant.
#[test]
fn a_replica_that_received_nothing_does_not_confirm_a_grant_repeated_on_a_new_connection() {
    let (master, replica) = replicated();
    let proxy = Proxy::to(master.port(), Duration::ZERO);
    let first = holder(&master, &[], "L");
    let exec = "exec --min-replicas 1 --ttl 40s --io-timeout 8s L true";
    let mut second = Running::start(&mut at(&proxy.url(), exec)).tells("waiting at position 1");
    replica.signal("STOP");
    first.finish();
    until("the claim has arrived", || {
        master.inspect("L")["ttl_ms"].as_u64().is_some_and(|left| left > 10_000)
    });
    proxy.cut();
    // It keeps its place until the replica is back.
    second.told("0 of 1 replicas");
    replica.signal("CONT");
    second.end().exits(0);
}

#[test]
fn a_lock_whose_confirmation_is_denied_exits_with_78_and_is_released() {
    let server = Server::on_tcp(&[]);
    server.cli(&["ACL", "SETUSER", "ci", "on", ">secret", "~*", "+@all", "-wait"]);
    for waits in ["-n", "-w1m"] {
        let ci = Client::of(server.url()).with_user("ci");
        let output = ci.run(&format!("exec --min-replicas 1 {waits} L true"));
        output.exits(78).says("denies permission for the command WAIT; allow +wait");
        assert!(server.is_free("L"));
    }
}

#[test]
fn a_key_of_another_type_is_refused_and_left_alone() {
    let server = Server::start();
    server.cli(&["LPUSH", "rlock:L", "theirs"]);
    for line in ["exec L true", "acquire -n L", "inspect L", "release --force --now L"] {
        fails(&mut server.rlock(line.split(' ')), 78, &["something other than a lock"]);
    }
    assert_eq!(server.cli(&["LRANGE", "rlock:L", "0", "-1"]), "theirs");
}

#[test]
fn a_closed_stderr_does_not_stop_the_work() {
    let server = Server::start();
    server.bash("$rlock exec -v L sh -c 'exit 7' 2>&-").exits(7);
}

#[test]
fn a_system_without_descriptors_leaves_no_lock_behind() {
    let server = Server::start();
    for limit in 3..=12 {
        let output = server.bash(&format!("ulimit -n {limit}; exec $rlock exec L true"));
        // Too few to start, too few for some step, or enough.
        assert!([127, 70, 69, 0].contains(&output.code()), "{limit}: {output:?}");
        assert!(output.err().lines().count() <= 1, "{limit}: {output:?}");
        assert!(server.is_free("L"), "{limit}: {output:?}");
    }
}

#[test]
fn where_descriptors_suffice_for_the_start_they_suffice_to_stop_all_processes() {
    let server = Server::start();
    let exec = |limit, options, command| {
        format!("ulimit -n {limit}; exec $rlock exec {options} L {command}")
    };
    let starts = |limit: &u32| server.bash(&exec(*limit, "", "true")).code() == 0;
    let limit = (8..64).find(starts).unwrap();
    let told = server.bash(&exec(limit - 1, "", "true")).exits(69).err();
    assert!(told.ends_with("too many open files; raise ulimit -n"), "{told}");
    let daemon = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.01; done'";
    let mut bash = server.program("bash -c", &exec(limit, "--ttl 3s", daemon));
    let mut running = Running::start(&mut bash);
    let started = running.line();
    server.revokes(running);
    assert!(is_gone(&started));
}

#[test]
fn a_system_without_descriptors_is_not_a_server_that_is_unreachable() {
    let server = Server::on_tcp(&[]);
    let held = holder(&server, &[], "L");
    for host in ["127.0.0.1", "localhost"] {
        for limit in 3..=12 {
            let url = format!("redis://{host}:{}", server.port());
            let exec = format!("exec --url {url} -n --on-unreachable run L echo RUNS");
            let output = server.bash(&format!("ulimit -n {limit}; exec $rlock {exec}"));
            assert!([127, 70, 69, 75].contains(&output.code()), "{host} {limit}: {output:?}");
            output.prints("");
        }
    }
    held.finish();
}

#[test]
fn a_list_survives_one_lost_connection() {
    let server = Server::on_tcp(&[]);
    acquire(&server, &[], "L");
    let proxy = Proxy::to(server.port(), Duration::ZERO);
    proxy.break_reply_after(4);
    run(&mut at(&proxy.url(), "inspect")).exits(0).shows("\nL ");
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn a_request_that_a_frozen_server_executes_late_leaves_no_lock() {
    let server = Server::on_tcp(&[]);
    let wire = Proxy::to(server.port(), Duration::ZERO);
    // It is given up after its timeout, or because of a signal. A server that knows only the script
    // to acquire is to be sent the one to withdraw.
    for (url, signaled, warm) in
        [(server.url(), false, true), (wire.url(), true, false), (wire.url(), true, true)]
    {
        server.cli(&["SCRIPT", "FLUSH"]);
        if warm {
            acquire(&server, &["--ttl", "2s"], "warm");
        }
        server.cli(&["CONFIG", "RESETSTAT"]);
        server.signal("STOP");
        let before = wire.flights();
        let exec = Running::start(&mut at(&url, "exec -n --io-timeout 500ms --ttl 60s L true"));
        if signaled {
            until("the request is on its way", || wire.flights() > before);
            exec.signal("TERM");
        }
        let ended = exec.end().status;
        assert_eq!(ended.signal().or(ended.code()), Some(if signaled { 15 } else { 69 }));
        server.signal("CONT");
        until("both have arrived", || server.calls_of("eval") > 0);
        assert_eq!(server.calls_of("evalsha"), 1);
        assert!(server.is_free("L"), "{url} {signaled} {warm}");
    }
}

#[test]
fn an_abandoned_forced_release_revokes_nothing_later() {
    let (server, token) = acquired(&["--ttl", "1h"]);
    for now in ["", "--now"] {
        server.signal("STOP");
        let force = format!("release --io-timeout 200ms --force {now} L");
        let force = Running::start(&mut at(&server.url(), &force)).tells("not revoked yet: ");
        assert_eq!(force.ends_by("TERM").status.signal(), Some(15));
        server.signal("CONT");
        server.run(&format!("renew L {token}")).exits(0);
    }
}

support::also_on_local! {
    acquire_accepts_any_label,
    a_system_without_descriptors_leaves_no_lock_behind,
}
