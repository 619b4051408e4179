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
            let inspect = "name -- The lock, or a pattern";
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
