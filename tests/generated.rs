//! The man pages, the completions and the exit statuses in the README match the program.
//! `UPDATE=1 cargo test --test generated` regenerates all but the README.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
#[path = "generated/arguments.rs"]
mod arguments;
#[path = "generated/completions.rs"]
mod completions;
#[path = "generated/man.rs"]
mod man;
#[path = "generated/manual.rs"]
mod manual;

fn program() -> Command {
    let mut command = rlock::cli::Cli::command();
    command.build();
    command
}

/// Compares a file with its expected content, or writes that content.
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
    for (name, page) in man::pages(&program) {
        check(&format!("man/{name}.1"), &page);
    }
}

#[test]
fn the_completions_are_current() {
    let program = program();
    check("completions/rlock.bash", &completions::bash(&program));
    check("completions/_rlock", &completions::zsh(&program));
    check("completions/rlock.fish", &completions::fish(&program));
}

/// Runs a program that checks a man page, and returns what it prints.
fn said(program: &str, arguments: &[&str], page: &Path) -> String {
    let output = std::process::Command::new(program).args(arguments).arg(page).output().unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn the_man_pages_have_no_faults() {
    for (name, _) in man::pages(&program()) {
        let page = format!("{}/man/{name}.1", env!("CARGO_MANIFEST_DIR"));
        let page = Path::new(&page);
        assert_eq!(said("mandoc", &["-T", "lint"], page), "");
        assert_eq!(said("groff", &["-ww", "-man", "-z", "-Tutf8"], page), "");
    }
}

#[test]
fn help_names_the_exit_statuses_of_the_man_page() {
    for subcommand in program().get_subcommands() {
        let help = subcommand.get_after_long_help().unwrap().to_string();
        let (_, sentence) = help.split_once("Exit status: ").unwrap();
        let words = sentence.split(|c: char| !c.is_ascii_digit());
        let mut named: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        named.sort_unstable();
        // Every subcommand can end by a bug or a signal, so the help leaves these statuses out.
        let table =
            man::statuses(Some(subcommand.get_name())).into_iter().map(|(status, _)| status);
        let mut wanted: Vec<&str> =
            table.filter(|status| !["the command's", "70", "128+n"].contains(status)).collect();
        wanted.sort_unstable();
        assert_eq!(named, wanted, "{}", subcommand.get_name());
    }
}

/// The text of all files below a directory.
fn sources(directory: &Path) -> String {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.map(|path| match path.is_dir() {
        true => sources(&path),
        false => fs::read_to_string(path).unwrap_or_default(),
    });
    texts.collect()
}

#[test]
fn the_man_page_has_each_variable_of_the_sources() {
    let page = man::pages(&program()).swap_remove(0).1;
    let page = page.replace("\\fB", "");
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let (_, environment) = page.split_once(".SH ENVIRONMENT").unwrap();
    let literals = sources.split('"').filter(|text| text.starts_with("RLOCK_"));
    let is_name = |text: &&str| text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    // Those of the tests are not for users.
    let is_public =
        |text: &&str| !["RLOCK_CHECK", "RLOCK_TEST"].iter().any(|own| text.starts_with(own));
    for variable in literals.filter(is_name).filter(is_public) {
        let names = environment.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        assert!(names.into_iter().any(|name| name == variable), "{variable}");
    }
}

#[test]
fn the_man_page_and_the_readme_list_each_exit_status() {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split("## Exit status").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let listed: Vec<&str> = rows.map(|row| row.split('|').nth(1).unwrap().trim()).collect();
    let statuses = man::statuses(None);
    let defined: Vec<&str> = statuses.iter().map(|(status, _)| *status).collect();
    assert_eq!(listed, defined);
    let sources = include_str!("../src/exit.rs").lines();
    let constants = sources.filter_map(|line| line.split_once(": u8 = ")?.1.strip_suffix(';'));
    let constants: BTreeSet<u8> = constants.map(|status| status.parse().unwrap()).collect();
    let defined = defined.iter().filter_map(|status| status.parse().ok());
    assert_eq!(constants, defined.collect());
}

/// Everything that `-h` and `--help` print, of the program and of each subcommand.
fn helps() -> Vec<(String, String)> {
    let program = program();
    let commands = std::iter::once(&program).chain(program.get_subcommands());
    let helps = commands.flat_map(|command| {
        let mut command = command.clone();
        let name = command.get_name().to_owned();
        let (short, long) = (command.render_help(), command.render_long_help());
        [(format!("{name} -h"), short.to_string()), (format!("{name} --help"), long.to_string())]
    });
    helps.collect()
}

#[test]
fn help_fits_into_80_columns() {
    for (name, help) in helps() {
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
        let count = help.lines().count();
        assert!(count <= 45 || name.ends_with("--help"), "{name} prints {count} lines");
    }
}

#[test]
fn each_option_is_explained_by_a_short_line_without_a_period() {
    let program = program();
    for command in program.get_subcommands() {
        for option in command.get_arguments() {
            let line = option.get_help().unwrap().to_string();
            // The variable and the default come on top.
            let line = line.split(" [").next().unwrap();
            let is_short = line.chars().count() <= 60 && !line.ends_with('.');
            assert!(
                is_short && line.starts_with(char::is_uppercase),
                "{}: {line}",
                option.get_id()
            );
        }
    }
}
