//! Compares the quick reader with clap: on ordinary command lines, on each option and on random
//! command lines.

use std::cell::Cell;
use std::os::unix::ffi::OsStringExt;

use clap::{Arg, CommandFactory, Parser};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

use super::*;

/// Whether the quick reader accepts the command line. If so, clap must return the same.
#[track_caller]
fn is_quick(words: &[OsString]) -> bool {
    let Some(quick) = read(words) else { return false };
    match Cli::try_parse_from(words) {
        Ok(clap) => assert_eq!(quick, clap, "{words:?}"),
        Err(error) => panic!("{words:?}: {quick:?}, but clap says: {error}"),
    }
    true
}

fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

#[test]
fn ordinary_command_lines_are_read_quickly() {
    for line in [
        "rlock exec backup true",
        "rlock exec -n L -- true",
        "rlock exec -q -n --at-least 1m nightly -- job.sh -v --now",
        "rlock exec -qn nightly job.sh -- x",
        "rlock exec -w 30m --label https://ci/1?a=b deploy:prod -- make deploy",
        "rlock exec -w=30m deploy:prod -E0 --slots=3 make --help",
        "rlock exec --url redis://a/ --url redis://b/ --url=redis://c/ L true",
        "rlock exec --supersede --timeout=1m --on-lost continue -k 1s -t 10 L -- true",
        "rlock exec -- L true",
        "rlock acquire --while-pid 1 import",
        "rlock acquire --shell --ttl 10m import",
        "rlock renew --ttl 10m import token",
        "rlock release import",
        "rlock release --force --json import",
        "rlock inspect",
        "rlock inspect --json deploy:*",
    ] {
        assert!(is_quick(&words(line)), "{line}");
    }
    let bytes = OsString::from_vec(vec![0xff, b'-']);
    let not_utf8 =
        [words("rlock exec --password-file"), vec![bytes.clone()], words("L"), vec![bytes]];
    assert!(is_quick(&not_utf8.concat()));
}

#[test]
fn what_is_not_ordinary_is_left_to_clap() {
    for line in [
        "rlock",
        "rlock --version",
        "rlock help exec",
        "rlock run L true",
        "rlock exec --help",
        "rlock exec L",
        "rlock exec L --",
        "rlock exec -n L -z true",
        "rlock exec -n -n L true",
        "rlock exec -n -w 5 L true",
        "rlock exec --nonbloc L true",
        "rlock exec --nonblock= L true",
        "rlock exec -w -5 L true",
        "rlock exec -w L true",
        "rlock exec --prefix= L true",
        "rlock exec a*b true",
        "rlock release --force --now L",
        "rlock inspect --watch",
    ] {
        assert!(!is_quick(&words(line)), "{line}");
    }
}

/// All forms of an option, with values of which clap may reject some.
fn forms(option: &Arg) -> Vec<String> {
    let takes_value = option.get_action().takes_values();
    let possible = option.get_possible_values().into_iter().map(|it| it.get_name().to_owned());
    let values: Vec<_> = ["1", "12345678"].map(String::from).into_iter().chain(possible).collect();
    let with_values = |name: String, separators: &[&str]| -> Vec<String> {
        if !takes_value {
            return vec![name];
        }
        let form =
            |separator: &&str| values.iter().map(|it| format!("{name}{separator}{it}")).collect();
        separators.iter().flat_map(|it| -> Vec<String> { form(it) }).collect()
    };
    let short = option.get_short().map(|short| with_values(format!("-{short}"), &["", "=", " "]));
    let aliases = option.get_all_aliases().unwrap_or_default();
    let longs = option.get_long().into_iter().chain(aliases);
    let longs = longs.flat_map(|long| with_values(format!("--{long}"), &["=", " "]));
    short.into_iter().flatten().chain(longs).collect()
}

/// A command line with some options, and as many positional arguments as clap requires.
fn line(subcommand: &clap::Command, options: &[&str]) -> Vec<OsString> {
    let required = subcommand.get_arguments().filter(|it| it.is_required_set()).map(|_| "L");
    let words = ["rlock", subcommand.get_name()].into_iter().chain(options.iter().copied());
    words.chain(required).flat_map(|part| part.split(' ')).map(OsString::from).collect()
}

#[test]
fn each_option_is_read_quickly_in_each_form_but_those_that_only_clap_reads() {
    let mut program = Cli::command();
    program.build();
    let mut left_to_clap = Vec::new();
    for subcommand in program.get_subcommands() {
        for option in subcommand.get_arguments().filter(|it| !it.is_positional()) {
            let lines = forms(option).into_iter().map(|form| line(subcommand, &[&form]));
            let mut accepted = lines.filter(|line| Cli::try_parse_from(line).is_ok()).peekable();
            if accepted.peek().is_none() || !accepted.all(|line| is_quick(&line)) {
                let name = subcommand.get_name();
                left_to_clap.push(format!("{name} --{}", option.get_long().unwrap()));
            }
        }
    }
    left_to_clap.retain(|option| !option.ends_with("--help"));
    let known = ["release --now", "release --id", "release --reason", "inspect --watch"];
    assert_eq!(left_to_clap, known);
}

#[test]
fn two_options_are_read_quickly_only_if_clap_accepts_them_together() {
    let mut program = Cli::command();
    program.build();
    for subcommand in program.get_subcommands() {
        let first_quick = |option: &Arg| {
            forms(option).into_iter().find(|form| is_quick(&line(subcommand, &[form])))
        };
        let options: Vec<String> = subcommand.get_arguments().filter_map(first_quick).collect();
        for one in &options {
            for other in &options {
                let line = line(subcommand, &[one, other]);
                assert_eq!(is_quick(&line), Cli::try_parse_from(&line).is_ok(), "{line:?}");
            }
        }
    }
}

/// Good and bad values of all options, names of locks, and words of commands.
const VALUES: [&[u8]; 32] = [
    b"",
    b" ",
    b"-",
    b"--",
    b"-1",
    b"-n",
    b"--now",
    b"0",
    b"+5",
    b"007",
    b"75",
    b"256",
    b"-0",
    b"4294967296",
    b"1e3",
    b"0.5",
    b"30s",
    b"5M",
    b"99ms",
    b"kill",
    b"KILL",
    b"run",
    b"age",
    b"12345678",
    b"a=b",
    b"=",
    b"a,b",
    b"deploy:*",
    b"a\xffb",
    b"\xc3\xa4",
    b"true",
    b"help",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(b"1".to_vec()), select(&VALUES[..]).prop_map(<[u8]>::to_vec)]
}

/// One or two words: an option of any subcommand in any form, or something else.
fn piece() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let mut program = Cli::command();
    program.build();
    let subcommands = program.get_subcommands();
    let options: Vec<&Arg> = subcommands.flat_map(|it| it.get_arguments()).collect();
    let shorts = options.iter().filter_map(|it| it.get_short()).map(|it| it as u8);
    let shorts: Vec<u8> = shorts.chain(*b"z5=\xff").collect();
    let longs = options
        .iter()
        .flat_map(|it| it.get_long().into_iter().chain(it.get_all_aliases().unwrap_or_default()));
    let longs: Vec<String> = longs.map(|it| format!("--{it}")).chain(["--nope".into()]).collect();
    let long = || select(longs.clone()).prop_map(String::into_bytes);
    let letters =
        || vec(select(shorts.clone()), 1..4).prop_map(|letters| [b"-".to_vec(), letters].concat());
    prop_oneof![
        4 => long().prop_map(|name| vec![name]),
        4 => (long(), value()).prop_map(|(name, value)| vec![name, value]),
        4 => (long(), value()).prop_map(|(name, value)| vec![[name, value].join(&b'=')]),
        1 => (long(), 0..8_usize).prop_map(|(mut name, cut)| {
            name.truncate(name.len().saturating_sub(cut));
            vec![name]
        }),
        4 => letters().prop_map(|letters| vec![letters]),
        3 => (letters(), value()).prop_map(|(letters, value)| vec![letters, value]),
        2 => (letters(), value()).prop_map(|(letters, value)| vec![[letters, value].concat()]),
        2 => value().prop_map(|value| vec![value]),
        1 => Just(vec![b"--".to_vec()]),
        1 => vec(select(b"-=nw5\xff".to_vec()), 0..5).prop_map(|word| vec![word]),
    ]
}

fn command_line() -> impl Strategy<Value = Vec<OsString>> {
    let subcommand = prop_oneof![
        6 => Just("exec"),
        4 => select(vec!["acquire", "renew", "release", "inspect"]),
        1 => select(vec!["", "help", "--help", "run", "-n", "--"]),
    ];
    // Without this end, most command lines would lack a positional argument.
    let end =
        prop_oneof![Just(""), Just("L"), Just("L true"), Just("-- L true"), Just("L -- true -n")];
    (subcommand, vec(piece(), 0..5), end).prop_map(|(subcommand, pieces, end)| {
        let pieces = pieces.into_iter().flatten().map(OsString::from_vec);
        let end = end.split_whitespace().map(OsString::from);
        ["rlock", subcommand].map(OsString::from).into_iter().chain(pieces).chain(end).collect()
    })
}

/// Compares 5,000 command lines, or PROPTEST_CASES of them if that is more.
#[test]
fn on_random_command_lines_the_quick_reader_agrees_with_clap() {
    let default = ProptestConfig::default();
    let cases = default.cases.max(5_000);
    let config = ProptestConfig { cases, failure_persistence: None, ..default };
    let quick = Cell::new(0);
    let compared = TestRunner::new(config).run(&command_line(), |words| {
        quick.set(quick.get() + u32::from(is_quick(&words)));
        Ok(())
    });
    if let Err(failure) = compared {
        panic!("{failure}");
    }
    assert!(quick.get() > cases / 10, "only {} of {cases} are read quickly", quick.get());
}
