//! What is wrong with a command line that clap rejects, and what to do.

use std::error::Error;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::rules::UserMessage;
use crate::text::shown;

/// The remedy for a command line without a subcommand.
const SUBCOMMANDS: &str = "use exec, acquire, renew, release or inspect";

/// The remedy for words that would act on the holds of others. Nobody is told to type these.
const ASKS_FIRST: &str =
    "since release --force stops the holder's command, first run rlock inspect NAME";

/// What users of flock, `consul lock`, `etcdctl lock` and lock libraries type, and the remedy.
const HABITS: [(&str, &str); 20] = [
    ("unlock free remove rm delete del clear reset cancel", "use release"),
    ("revoke kill break steal evict", ASKS_FIRST),
    ("list ls ps status show who info stat describe history queue locks check", "use inspect"),
    ("watch top monitor", "use inspect --watch"),
    ("doctor ping test servers", "use inspect --servers"),
    ("version --version -V", "run rlock --version"),
    ("run lock with wrap wait", "use exec"),
    ("refresh extend keepalive heartbeat", "use renew"),
    ("-c --command", "use sh -c 'LINE' as the command"),
    ("--lock-timeout --wait-timeout --max-wait --acquire-timeout --try", "use --wait"),
    ("--nb --nonblocking --non-blocking --no-wait --fail", "use --nonblock"),
    ("-e --write", "use --exclusive"),
    ("--read --reader", "use --shared"),
    ("-u --unlock", "use release"),
    ("-o --close -F --no-fork --fcntl --child-exit-code", "remove it"),
    ("--lease --expire --expiry --ex --px", "use --ttl"),
    ("-j --jobs --limit --count --max --concurrency", "use --slots"),
    ("--host -p --port --server --addr --endpoint --endpoints --http-addr", "use --url"),
    ("--format --output", "use --json"),
    ("--token", "set RLOCK_TOKEN"),
];

/// The remedy for a word that users of other tools type.
fn habit(word: &str) -> Option<String> {
    let habit = HABITS.iter().find(|(words, _)| words.split(' ').any(|known| known == word));
    habit.map(|(_, remedy)| (*remedy).to_owned())
}

/// The fault of a command line with these words, for which clap gives this error; `None` if it asks
/// for help or the version.
pub(super) fn fault(error: &clap::Error, words: &[OsString]) -> Option<UserMessage> {
    let mut program = Cli::command();
    program.build();
    let named = |word: &OsString| program.find_subcommand(word);
    let subcommand = words.get(1).and_then(named);
    let later = words.iter().skip(2).find_map(named);
    let rejected = Rejected { error, program: &program, subcommand, later };
    let asks = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    rejected.with_one_dash(words).or_else(|| (!asks).then(|| rejected.fault()))
}

/// A command line that clap rejects.
struct Rejected<'a> {
    error: &'a clap::Error,
    program: &'a Command,
    /// The subcommand, if the first word is one.
    subcommand: Option<&'a Command>,
    /// The subcommand that a later word names.
    later: Option<&'a Command>,
}

impl Rejected<'_> {
    fn fault(&self) -> UserMessage {
        match self.error.kind() {
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                UserMessage::new("missing subcommand").with_remedy(SUBCOMMANDS)
            }
            ErrorKind::InvalidSubcommand => {
                let word = self.first(ContextKind::InvalidSubcommand).unwrap_or_default();
                // The most similar one is the last.
                let similar = self.all(ContextKind::SuggestedSubcommand).pop();
                let similar = || similar.map_or(SUBCOMMANDS.into(), |it| format!("use {it}"));
                let remedy = habit(word).unwrap_or_else(similar);
                UserMessage::new(format!("unknown subcommand {}", shown(word))).with_remedy(remedy)
            }
            ErrorKind::UnknownArgument => match self.first(ContextKind::InvalidArg) {
                Some(option) if option.starts_with('-') => self.unknown_option(option),
                Some(word) => self.unexpected(word),
                None => self.other(),
            },
            ErrorKind::MissingRequiredArgument => self.missing(),
            ErrorKind::ArgumentConflict => self.conflict(),
            ErrorKind::TooManyValues => {
                UserMessage::new(format!("{} does not take a value", self.argument()))
                    .with_remedy("remove the value")
            }
            ErrorKind::InvalidValue => self.unknown_value(),
            ErrorKind::ValueValidation => self.invalid_value(),
            _ => self.other(),
        }
    }

    fn unknown_option(&self, option: &str) -> UserMessage {
        let option = option.split('=').next().unwrap_or_default();
        let written = shown(option);
        let (problem, remedy) = match (self.subcommand, &self.owners(option)[..]) {
            (None, _) => match self.later {
                Some(later) => (
                    format!("{written} precedes the subcommand"),
                    format!("put it after {}", later.get_name()),
                ),
                None => (format!("missing subcommand before {written}"), SUBCOMMANDS.into()),
            },
            (Some(_), []) if option[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                (format!("negative value {written}"), "use a positive one".into())
            }
            (Some(_), []) => {
                let similar = self.first(ContextKind::SuggestedArg);
                let similar = || similar.map_or_else(|| self.help(), |it| format!("use {it}"));
                let plural = format!("{option}s");
                let plural = self.owns(&plural).then(|| format!("use {plural}"));
                let remedy = plural.or_else(|| habit(option)).unwrap_or_else(similar);
                (format!("unknown option {written}"), remedy)
            }
            (Some(subcommand), owners) => (
                format!("{written} is not an option of {}", subcommand.get_name()),
                format!("use it with {}", any_of(owners)),
            ),
        };
        UserMessage::new(problem).with_remedy(remedy)
    }

    /// A long option with one dash, in which clap finds an unknown option or value, or `-h`.
    fn with_one_dash(&self, words: &[OsString]) -> Option<UserMessage> {
        let value = self.first(ContextKind::InvalidValue).filter(|value| !value.is_empty());
        let letter = || self.first(ContextKind::InvalidArg)?.strip_prefix('-');
        let found = value.or_else(letter).unwrap_or("h");
        let words = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
        let mut short = words.filter(|word| word.starts_with('-') && !word.starts_with("--"));
        let word = short.find(|word| word[1..].contains(found))?.split('=').next()?;
        let option = format!("-{word}");
        let unknown = || UserMessage::new(format!("unknown option {}", shown(word)));
        match habit(&option) {
            _ if word.len() <= "-x".len() => None,
            _ if self.owns(&option) => Some(unknown().with_remedy(format!("use {option}"))),
            Some(remedy) => Some(unknown().with_remedy(remedy)),
            None => (!self.owners(&option).is_empty()).then(|| self.unknown_option(&option)),
        }
    }

    /// Whether the subcommand has this option.
    fn owns(&self, option: &str) -> bool {
        self.subcommand.is_some_and(|it| self.owners(option).contains(&it.get_name()))
    }

    /// The subcommands with this option, such as `-n` or `--wait`.
    fn owners(&self, option: &str) -> Vec<&str> {
        let is_same = |argument: &Arg| match option.strip_prefix("--") {
            Some(long) => {
                let aliases = argument.get_all_aliases().unwrap_or_default();
                argument.get_long() == Some(long) || aliases.contains(&long)
            }
            None => argument.get_short().is_some_and(|short| option[1..].chars().eq([short])),
        };
        let owns = |subcommand: &&Command| subcommand.get_arguments().any(is_same);
        self.program.get_subcommands().filter(owns).map(Command::get_name).collect()
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
        let missing: Vec<&str> = self.all(ContextKind::InvalidArg).into_iter().map(name).collect();
        let remedy = match self.subcommand.map_or("", Command::get_name) {
            "release" if missing.contains(&"--force") => ASKS_FIRST.to_owned(),
            _ if missing.iter().any(|name| name.starts_with("--")) => "add it".to_owned(),
            "exec" => "use rlock exec NAME COMMAND".into(),
            name => format!("use rlock {name} NAME"),
        };
        UserMessage::new(format!("missing {}", missing.join(" and "))).with_remedy(remedy)
    }

    fn conflict(&self) -> UserMessage {
        let argument = self.argument();
        let others = self.all(ContextKind::PriorArg).into_iter().map(name);
        let others: Vec<&str> = others.filter(|other| *other != argument).collect();
        match others.is_empty() {
            true => UserMessage::new(format!("{argument} is given twice")),
            false => {
                UserMessage::new(format!("{argument} cannot be used with {}", any_of(&others)))
            }
        }
        .with_remedy("remove one of them")
    }

    /// An option without its value, or with a value that is not one of its choices.
    fn unknown_value(&self) -> UserMessage {
        let (argument, choices) = (self.argument(), self.all(ContextKind::ValidValue));
        let fault = match self.first(ContextKind::InvalidValue).unwrap_or_default() {
            "" => UserMessage::new(format!("missing value after {argument}")),
            value => UserMessage::of_value(format_args!("{argument}: unknown value"), value),
        };
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

    /// For an error that nothing here knows. Clap's full text could repeat a value.
    fn other(&self) -> UserMessage {
        let what = self.error.kind().as_str().unwrap_or("unusable arguments");
        UserMessage::new(what).with_remedy(self.help())
    }

    fn help(&self) -> String {
        let subcommand = self.subcommand.map_or(String::new(), |it| format!(" {}", it.get_name()));
        format!("run rlock{subcommand} --help")
    }

    /// The argument that the error is about, such as `--ttl` or `NAME`.
    fn argument(&self) -> &str {
        self.first(ContextKind::InvalidArg).map_or("argument", name)
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
