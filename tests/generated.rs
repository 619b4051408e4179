//! The man pages, the completions and the README's table say what the program says.
//! `UPDATE=1 cargo test --test generated` writes them anew.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use rlock::exit;

fn program() -> Command {
    let mut command = rlock::cli::Cli::command();
    command.build();
    command
}

/// Compares a file with what it should be, or makes it so.
#[track_caller]
fn check(path: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, wanted).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == wanted,
        "{} is out of date; run UPDATE=1 cargo test --test generated",
        path.display()
    );
}

#[test]
fn the_man_pages_are_current() {
    let program = program();
    check("man/rlock.1", &page(&program));
    for subcommand in program.get_subcommands() {
        let name = format!("rlock-{}", subcommand.get_name());
        let subcommand = subcommand.clone().display_name(&name);
        check(&format!("man/{name}.1"), &page(&subcommand));
    }
}

fn page(command: &Command) -> String {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    // The version comes last, after what we add.
    let (front, version) = page.split_once(".SH VERSION").unwrap_or((&page, ""));
    let mut page = format!("{front}.SH \"EXIT STATUS\"\n");
    for (code, meaning) in exit::TABLE {
        page += &format!(".TP\n\\fB{}\\fR\n{}\n", roff(code), roff(meaning));
    }
    page += ".SH ENVIRONMENT\n";
    for (name, meaning) in VARIABLES {
        page += &format!(".TP\n\\fB{name}\\fR\n{}\n", roff(meaning));
    }
    let name = command.get_name();
    page += ".SH EXAMPLES\n";
    for (_, example, meaning) in EXAMPLES.iter().filter(|(whose, _, _)| *whose == name) {
        page += &format!(".PP\n{}\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", roff(meaning), roff(example));
    }
    if name == "inspect" {
        page += ".SH JSON\nAn array with one object a lock that is not free. Numbers are whole; times are RFC 3339, in UTC; what does not apply is null.\n";
        for (field, meaning) in FIELDS {
            page += &format!(".TP\n\\fB{}\\fR\n{}\n", roff(field), roff(meaning));
        }
    }
    page += ".SH SECURITY\n";
    for paragraph in SECURITY {
        page += &format!(".PP\n{}\n", roff(paragraph));
    }
    if !version.is_empty() {
        page += &format!(".SH VERSION{version}");
    }
    page
}

const VARIABLES: &[(&str, &str)] = &[
    ("RLOCK_URL", "the server, if there is no --url; several, separated by spaces, are a quorum"),
    ("RLOCK_PREFIX", "as --prefix; an empty one is an empty prefix"),
    ("RLOCK_IO_TIMEOUT, RLOCK_TTL, RLOCK_WAIT, RLOCK_LABEL", "as the options of these names"),
    ("RLOCK_USERNAME, RLOCK_PASSWORD", "who we are on the server, if the URL does not say"),
    (
        "RLOCK_SENTINEL_USERNAME, RLOCK_SENTINEL_PASSWORD",
        "who we are to the sentinels of a redis+sentinel: URL",
    ),
    ("RLOCK_NAME", "set for the command of exec: the lock's name"),
    ("RLOCK_TOKEN", "set for the command of exec, read by renew and release: the hold's token"),
    (
        "RLOCK_FENCE",
        "set for the command of exec: a number that is larger than that of any earlier hold of the \
         same lock, for a resource to check",
    ),
    (
        "RLOCK_HELD",
        "set for the command of exec: all holds it runs inside of, as key=token, the innermost last",
    ),
];

/// For each page: what to type, and what for.
const EXAMPLES: &[(&str, &str, &str)] = &[
    (
        "rlock",
        "RLOCK_URL=local: rlock exec demo -- echo hello",
        "Try it on this host, without a server:",
    ),
    (
        "rlock",
        "export RLOCK_URL=redis://redis.example/\nrlock exec -n backup -- backup.sh",
        "Run a job on one of several hosts at a time:",
    ),
    ("rlock", "rlock inspect", "See all locks that are held:"),
    (
        "exec",
        "rlock exec -q -n backup -- backup.sh",
        "In a crontab: if another host runs it, say nothing and end with status 75:",
    ),
    (
        "exec",
        "rlock exec -w 30m --label \"$JOB_URL\" deploy:prod -- make deploy",
        "In CI: wait in line for up to 30 minutes, and tell others who is ahead of them:",
    ),
    (
        "exec",
        "rlock exec --shared dataset -- report.sh",
        "Together with other readers, but not with a writer:",
    ),
    ("exec", "rlock exec --slots 3 render -- render.sh", "At most three at once:"),
    (
        "acquire",
        "t=$(rlock acquire --while-pid $$ import) || exit",
        "In a script: hold a lock until the script ends, however it ends:",
    ),
    (
        "acquire",
        "lock=$(rlock acquire --shell --ttl 10m import) || exit\neval \"$lock\"",
        "With variables to renew and release by:",
    ),
    ("renew", "RLOCK_TOKEN=$t rlock renew --ttl 10m import || exit", "Ten more minutes from now:"),
    (
        "release",
        "RLOCK_TOKEN=$t rlock release import",
        "Let go of what acquire printed the token of:",
    ),
    (
        "release",
        "rlock release --force deploy:prod",
        "Revoke a lock and wait until its holder has released it:",
    ),
    (
        "release",
        "rlock release --force --now deploy:prod",
        "The same from a holder that is known to be dead:",
    ),
    (
        "inspect",
        "rlock inspect deploy:prod",
        "Who has it, since when, who waits, and what became of the last holders:",
    ),
    ("inspect", "rlock inspect -W 'deploy:*'", "All locks that match, again every second:"),
    (
        "inspect",
        "rlock inspect --json | jq -r '.[] | select(.waiters != []) | .name'",
        "The names of those that somebody waits for:",
    ),
];

/// Each field of `inspect --json`, as paths.
const FIELDS: &[(&str, &str)] = &[
    ("name, key", "the lock, and its key on the server: prefix and name"),
    (
        "state",
        "held; cooling: released, but kept for --at-least; revoked: no longer held, but its holder has not released it yet; foreign: another tool's",
    ),
    ("mode", "exclusive, shared or slots"),
    ("slots", "how many holders there may be, if the mode is slots"),
    ("fence", "the last one that was handed out"),
    (
        "ttl_ms",
        "milliseconds until it is free if nobody renews it; null for another tool's lock without an expiry",
    ),
    ("holders[].id", "the first 8 characters of the token"),
    (
        "holders[].owner",
        "owner, for --reentrant; only its first 8 characters unless --owner or RLOCK_OWNER set it",
    ),
    (
        "holders[].host, .user, .pid, .command, .label",
        "who holds it; of the command only the program's name",
    ),
    ("holders[].fence", "the fencing token of this hold"),
    ("holders[].acquired_at, .renewed_at", "when it was granted, and last renewed"),
    ("holders[].ttl_ms", "milliseconds until this lease ends"),
    ("holders[].kind", "exec, acquire or while-pid: who keeps it alive"),
    ("waiters[].position", "place in line, from 1"),
    ("waiters[].id, .mode, .host, .user, .pid, .command, .label", "as with holders"),
    ("waiters[].waiting_ms", "milliseconds since it stood in line"),
    (
        "history[]",
        "only if one lock was asked for by name, the latest first, 16 at most: what became of its last holders",
    ),
    (
        "history[].event",
        "released; expired: not renewed or released in time; revoked: by release --force; deleted: its key or file was deleted; overwritten: another tool wrote its key; forgotten: the server lost its data; lost: its command was stopped because the lease could not be renewed in time",
    ),
    ("history[].at, .acquired_at, .held_ms", "when it ended and began, and the time between"),
    ("history[].exit, .signal", "how the command of exec ended, if that is known"),
    ("history[].by", "who revoked it, as user@host"),
    ("history[].id, .host, .user, .pid, .command, .label, .kind, .fence", "as with holders"),
];

const SECURITY: &[&str] = &[
    "A password in --url is visible to everybody on the host; put it into RLOCK_PASSWORD, into the URL in RLOCK_URL, or into the first line of a file for --password-file. The command of exec inherits RLOCK_PASSWORD, RLOCK_SENTINEL_PASSWORD and RLOCK_URL, including any password in them. Without TLS it crosses the network as it is.",
    "A token is a secret: anyone who has it can release the lock. It is in the environment of the command, on the standard output of acquire, in the environment of the keeper of --while-pid, and among the keys of the server; no message shows it. Pass it to renew and release in RLOCK_TOKEN: every user of the host can see arguments.",
    "Everybody who may use the server's keys can take a lock away. What a user of rlock needs is in the README as an ACL rule. What others have written about themselves is shown without control characters.",
    "A lock keeps apart those who ask for it. It protects nothing from those who do not; a resource that checks RLOCK_FENCE does.",
];

fn roff(text: &str) -> String {
    text.replace('\\', "\\\\").replace('-', "\\-").replace('\'', "\\(aq")
}

/// What clap generates, and after it the names of locks, which only the server knows.
fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program(), "rlock", &mut script);
    let script = String::from_utf8(script).unwrap();
    match shell {
        Shell::Bash => script + include_str!("generated/names.bash"),
        Shell::Fish => script + include_str!("generated/names.fish"),
        _ => {
            // In the subcommands that are about locks which exist already.
            let (before, after) = script.split_once("(renew)").unwrap();
            let after = after.replace("name -- The lock:_default", "name -- The lock:_rlock_names");
            let inspect = "subject -- The lock, or a pattern";
            let (lines, end) = after.split_once("\nif [ ").unwrap();
            let lines: Vec<String> = lines
                .lines()
                .map(|line| match line.contains(inspect) {
                    true => line.replace(":_default'", ":_rlock_names'"),
                    false => line.to_owned(),
                })
                .collect();
            let names = include_str!("generated/names.zsh");
            format!("{before}(renew){}\n{names}\nif [ {end}", lines.join("\n"))
        }
    }
}

#[test]
fn the_completions_are_current() {
    for (shell, file) in
        [(Shell::Bash, "rlock.bash"), (Shell::Zsh, "_rlock"), (Shell::Fish, "rlock.fish")]
    {
        check(&format!("completions/{file}"), &completions(shell));
    }
}

#[test]
fn the_readme_has_the_exit_status_table() {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split("## Exit status").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let wanted: Vec<String> =
        exit::TABLE.iter().map(|(code, meaning)| format!("| {code} | {meaning} |")).collect();
    assert_eq!(rows, wanted);
}
