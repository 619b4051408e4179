//! The man pages, the completions and the exit statuses in the README match the program.
//! `UPDATE=1 cargo test --test generated` regenerates them.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use rlock::cli::{self, Unparsed};
use rlock::exit;

#[path = "generated/arguments.rs"]
mod arguments;
#[path = "generated/completions.rs"]
mod completions;
#[path = "generated/man.rs"]
mod man;

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
fn the_exit_statuses_in_the_readme_are_current() {
    const HEAD: &str = "| code | meaning |\n| --- | --- |\n";
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (above, table) = readme.split_once(HEAD).unwrap();
    let (_, below) = table.split_once("\n\n").unwrap();
    let row = |(status, meanings): (&str, Vec<String>)| {
        format!("| {status} | {} |\n", meanings.join("; "))
    };
    let rows: String = exit::statuses(None, true).into_iter().map(row).collect();
    check("README.md", &format!("{above}{HEAD}{rows}\n{below}"));
}

#[test]
fn the_table_of_exit_statuses_is_complete() {
    assert!(program().get_subcommands().map(Command::get_name).eq(exit::ALL.iter().copied()));
    let constants = include_str!("../src/exit.rs").lines();
    let constants = constants.filter_map(|line| line.split_once(": u8 = ")?.1.strip_suffix(';'));
    let meanings = exit::statuses(None, true).into_iter().map(|(status, _)| status);
    let meanings = meanings.filter(|status| status.parse::<u8>().is_ok());
    assert_eq!(constants.collect::<BTreeSet<_>>(), meanings.collect());
}

/// What the program prints for these arguments.
fn help(arguments: &[&str]) -> String {
    let arguments: Vec<_> = ["rlock"].iter().chain(arguments).map(Into::into).collect();
    match cli::parse(&arguments) {
        Err(Unparsed::Help(text)) => text,
        _ => panic!("{arguments:?} prints no help"),
    }
}

#[test]
fn help_fits_into_80_columns() {
    let commands = exit::ALL.iter().map(|name| vec![*name]).chain([vec![]]);
    for (command, form) in commands.flat_map(|name| [(name.clone(), "-h"), (name, "--help")]) {
        let help = help(&[command.as_slice(), &[form]].concat());
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{command:?} {form}: {line}");
        }
        let count = help.lines().count();
        assert!(count <= 45 || form == "--help", "{command:?} -h prints {count} lines");
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
