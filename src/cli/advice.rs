//! What is wrong with a command line that clap rejects, and what to do.

mod peers;

use std::error::Error;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::rules::UserMessage;
use crate::text::{masked, shown};

/// The remedy for a command line without a subcommand.
const SUBCOMMANDS: &str = "use exec, acquire, renew, release or inspect";

/// The fault of a command line with these words, which clap rejects with this error.
pub(super) fn fault(error: &clap::Error, words: &[OsString]) -> UserMessage {
    let mut program = Cli::command();
    program.build();
    let words: Vec<_> = words.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let subcommand = words.first().and_then(|word| program.find_subcommand(word));
    Rejected { error, words, program: &program, subcommand }.fault()
}

/// A command line that clap rejects.
struct Rejected<'a> {
    error: &'a clap::Error,
    /// All words but the name of the program.
    words: Vec<&'a str>,
    program: &'a Command,
    /// The subcommand, if the first word is one.
    subcommand: Option<&'a Command>,
}

impl Rejected<'_> {
    fn fault(&self) -> UserMessage {
        if let Some((word, long)) = self.single_dash() {
            return unknown("option", word).with_remedy(format!("use --{long}"));
        }
        match self.error.kind() {
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                UserMessage::new("missing subcommand").with_remedy(SUBCOMMANDS)
            }
            ErrorKind::InvalidSubcommand => self.unknown_subcommand(),
            ErrorKind::UnknownArgument => match self.first(ContextKind::InvalidArg) {
                Some(option) if option.starts_with('-') => self.unknown_option(option),
                Some(word) => self.unexpected(word),
                None => self.other(),
            },
            ErrorKind::MissingRequiredArgument => self.missing(),
            ErrorKind::ArgumentConflict => self.conflict(),
            ErrorKind::TooManyValues => takes_no_value(&self.argument()),
            ErrorKind::InvalidValue => self.unknown_value(),
            ErrorKind::ValueValidation => self.invalid_value(),
            _ => self.other(),
        }
    }

    fn unknown_subcommand(&self) -> UserMessage {
        let word = self.first(ContextKind::InvalidSubcommand).unwrap_or_default();
        let lower = word.to_lowercase();
        let meant = self.program.find_subcommand(&lower).map(Command::get_name);
        let meant = meant.or_else(|| peers::subcommand(&lower));
        let meant = meant.or_else(|| self.first(ContextKind::SuggestedSubcommand));
        let remedy = meant.map_or(SUBCOMMANDS.to_owned(), |meant| format!("use {meant}"));
        unknown("subcommand", word).with_remedy(remedy)
    }

    fn unknown_option(&self, option: &str) -> UserMessage {
        // In `-n=yes`, clap takes '=' for another option.
        if let ("-=", Some(word)) = (option, self.cluster(option)) {
            return takes_no_value(word.split('=').next().unwrap_or_default());
        }
        let option = option.split('=').next().unwrap_or_default();
        let fault = match self.cluster(option) {
            Some(cluster) => {
                UserMessage::new(format!("unknown option {} in {}", shown(option), shown(cluster)))
            }
            None => unknown("option", option),
        };
        let owners = self.owners(option);
        let Some(subcommand) = self.subcommand else {
            let named = |word: &&&str| self.program.find_subcommand(word).is_some();
            return match self.words.iter().find(named) {
                _ if owners.is_empty() => fault.with_remedy(self.known_elsewhere(option)),
                Some(later) => {
                    let problem = format!("{} precedes the subcommand", shown(option));
                    UserMessage::new(problem).with_remedy(format!("put it after {later}"))
                }
                None => {
                    let problem = format!("missing subcommand before {}", shown(option));
                    UserMessage::new(problem).with_remedy(SUBCOMMANDS)
                }
            };
        };
        if self.words.iter().any(|word| word.starts_with(option))
            && option[1..].parse::<f64>().is_ok()
        {
            return fault.with_remedy("use a number that is not negative");
        }
        let name = subcommand.get_name();
        match peers::option_of(name, option) {
            Some(remedy) => fault.with_remedy(remedy),
            None if owners.is_empty() => fault.with_remedy(self.known_elsewhere(option)),
            None => {
                let problem = format!("{} is not an option of {name}", shown(option));
                UserMessage::new(problem).with_remedy(format!("use it with {}", any_of(&owners)))
            }
        }
    }

    /// The remedy for an option that no subcommand has: what other tools mean by it, or a similar
    /// one.
    fn known_elsewhere(&self, option: &str) -> String {
        let similar = self.first(ContextKind::SuggestedArg).map(|similar| format!("use {similar}"));
        let Some(remedy) = peers::option(option).map(str::to_owned).or(similar) else {
            return self.help();
        };
        let named = remedy.split(' ').find(|word| word.starts_with("--"));
        let owners = named.map(|option| self.owners(option)).unwrap_or_default();
        let has = |subcommand: &Command| owners.contains(&subcommand.get_name());
        match owners.is_empty() || self.subcommand.is_some_and(has) {
            true => remedy,
            false => format!("{remedy} with {}", any_of(&owners)),
        }
    }

    /// The subcommands with this option, such as `-n` or `--wait`.
    fn owners(&self, option: &str) -> Vec<&str> {
        let is_same = |argument: &Arg| match option.strip_prefix("--") {
            Some(long) => {
                argument.get_long_and_visible_aliases().is_some_and(|all| all.contains(&long))
            }
            None => argument.get_short().is_some_and(|short| option[1..].chars().eq([short])),
        };
        let owns = |subcommand: &&Command| subcommand.get_arguments().any(is_same);
        let all = self.program.get_subcommands().filter(owns).map(Command::get_name);
        // All have --help.
        all.filter(|_| !matches!(option, "--help" | "-h")).collect()
    }

    /// A word that is not an option, after all words that the subcommand takes. A word of renew or
    /// release may be a token, so it is not shown.
    fn unexpected(&self, word: &str) -> UserMessage {
        match self.subcommand.map(Command::get_name) {
            None => UserMessage::new("missing subcommand before '--'").with_remedy(SUBCOMMANDS),
            Some("acquire") => UserMessage::of_value("unexpected word after NAME", word)
                .with_remedy("to run a command, use rlock exec"),
            Some("inspect") => UserMessage::of_value("unexpected word after NAME", word)
                .with_remedy("to show several locks, quote a pattern such as 'a*'"),
            _ => UserMessage::new("unexpected word after TOKEN").with_remedy("remove it"),
        }
    }

    fn missing(&self) -> UserMessage {
        let missing = self.all(ContextKind::InvalidArg);
        let lacks = |argument: &str| missing.iter().any(|other| other.starts_with(argument));
        let name = self.subcommand.map_or("", Command::get_name);
        let dashes = self.words.iter().position(|word| *word == "--");
        let (problem, remedy) = match name {
            _ if lacks("--force") => {
                ("--now, --id and --reason require --force", "add --force".to_owned())
            }
            "exec" if lacks("<NAME>") => {
                ("missing NAME and COMMAND", "use rlock exec NAME COMMAND".into())
            }
            "exec" if dashes.is_some_and(|at| at + 1 < self.words.len()) => {
                ("missing NAME before '--'", "use rlock exec NAME -- COMMAND".into())
            }
            "exec" => ("missing COMMAND after NAME", "use rlock exec NAME COMMAND".into()),
            _ if lacks("<NAME>") => ("missing NAME", format!("use rlock {name} NAME")),
            _ => return self.other(),
        };
        UserMessage::new(problem).with_remedy(remedy)
    }

    fn conflict(&self) -> UserMessage {
        let argument = self.argument();
        let others = self.all(ContextKind::PriorArg);
        let others: Vec<String> = others.into_iter().map(|it| self.written(name(it))).collect();
        let others: Vec<&str> =
            others.iter().map(String::as_str).filter(|it| **it != argument).collect();
        match others.is_empty() {
            true => {
                UserMessage::new(format!("{argument} is given twice")).with_remedy("remove one")
            }
            false => {
                UserMessage::new(format!("{argument} cannot be used with {}", any_of(&others)))
                    .with_remedy("remove one of them")
            }
        }
    }

    /// An option without its value, or with a value that is not one of its choices.
    fn unknown_value(&self) -> UserMessage {
        let (argument, choices) = (self.argument(), self.all(ContextKind::ValidValue));
        let value = self.first(ContextKind::InvalidValue).unwrap_or_default();
        if value.is_empty() {
            let kind = self.first(ContextKind::InvalidArg).and_then(|text| text.split(' ').nth(1));
            let kind = kind.map_or("value", name);
            let remedy = match kind {
                _ if !choices.is_empty() => format!("use {}", any_of(&choices)),
                "DURATION" => "add one such as 90s, 1m30s or 250ms".to_owned(),
                _ => "add it".to_owned(),
            };
            return UserMessage::new(format!("missing {kind} after {argument}"))
                .with_remedy(remedy);
        }
        let fault = UserMessage::of_value(format_args!("{argument}: unknown value"), value);
        match choices.is_empty() {
            true => fault.with_remedy(self.help()),
            false => fault.with_remedy(format!("use {}", any_of(&choices))),
        }
    }

    /// A value that its own type rejects.
    fn invalid_value(&self) -> UserMessage {
        let argument = self.argument();
        match self.error.source().and_then(|source| source.downcast_ref::<UserMessage>()) {
            Some(fault) => fault.clone().reworded(|problem| format!("{argument}: {problem}")),
            None => self.other(),
        }
    }

    /// For an error that nothing here knows: the first paragraph of clap's own text.
    fn other(&self) -> UserMessage {
        let text = masked(&self.error.render().to_string());
        let paragraph = text.split("\n\n").next().unwrap_or_default();
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        UserMessage::new(line.strip_prefix("error: ").unwrap_or(&line)).with_remedy(self.help())
    }

    fn help(&self) -> String {
        let subcommand = self.subcommand.map_or(String::new(), |it| format!(" {}", it.get_name()));
        format!("run rlock{subcommand} --help")
    }

    /// The argument that the error is about, as the user wrote it: `--ttl`, `-t` or `NAME`.
    fn argument(&self) -> String {
        self.written(self.first(ContextKind::InvalidArg).map_or("argument", name))
    }

    /// The short name of an option, if the user wrote that.
    fn written(&self, name: &str) -> String {
        let is_written = |name: &str| self.words.iter().any(|word| word.starts_with(name));
        let mut arguments = self.subcommand.into_iter().flat_map(Command::get_arguments);
        let option =
            arguments.find(|it| it.get_long().is_some_and(|long| name == format!("--{long}")));
        let short = option.and_then(Arg::get_short).map(|short| format!("-{short}"));
        match short {
            Some(short) if !is_written(name) && is_written(&short) => short,
            _ => name.to_owned(),
        }
    }

    /// A word such as `-wait`, and the name of the option without a dash.
    fn single_dash(&self) -> Option<(&str, &str)> {
        let words = self.words.iter().take_while(|word| **word != "--");
        let mut arguments = words.filter_map(|word| Some((*word, word.strip_prefix('-')?)));
        let is_long = |name: &str| {
            self.subcommand.is_some_and(|subcommand| {
                subcommand.get_arguments().any(|it| it.get_long() == Some(name))
            })
        };
        arguments.find(|(_, name)| is_long(name))
    }

    /// The word of several short options that contains this one.
    fn cluster(&self, option: &str) -> Option<&str> {
        let letter = option.strip_prefix('-').filter(|letter| letter.chars().count() == 1)?;
        let is_cluster = |word: &&str| word.starts_with('-') && !word.starts_with("--");
        let mut words = self.words.iter().copied().filter(is_cluster);
        words.find(|word| word.contains(letter)).filter(|word| *word != option)
    }

    fn first(&self, kind: ContextKind) -> Option<&str> {
        self.all(kind).first().copied()
    }

    fn all(&self, kind: ContextKind) -> Vec<&str> {
        match self.error.get(kind) {
            Some(ContextValue::String(text)) => vec![text],
            Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }
}

fn unknown(what: &str, word: &str) -> UserMessage {
    UserMessage::new(format!("unknown {what} {}", shown(word)))
}

fn takes_no_value(option: &str) -> UserMessage {
    UserMessage::new(format!("{option} does not take a value")).with_remedy("remove the value")
}

/// The name in clap's text for an argument: of `--ttl <DURATION>`, `<NAME>` and `[TOKEN]`.
fn name(text: &str) -> &str {
    let name = text.split(' ').next().unwrap_or_default();
    name.trim_matches(['<', '>', '[', ']', '.'])
}

/// `a, b or c`.
fn any_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}
