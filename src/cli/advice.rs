//! What is wrong with a command line that clap rejects, and what to do.

use std::error::Error;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::rules::UserMessage;
use crate::text::{listed, shown};

/// The remedy for a command line without a subcommand.
const SUBCOMMANDS: &str = "use exec, acquire, renew, release or inspect";

/// The remedy for words that would act on the holds of others. Nobody is told to type these.
const ASKS_FIRST: &str =
    "since release --force stops the holder's command, first run rlock inspect NAME";

const AFTER_NAME: &str = "unexpected word after NAME";

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
    let asks = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let one_dash = long_option_with_one_dash(error, words);
    if asks && one_dash.is_none() {
        return None;
    }
    let mut program = Cli::command();
    program.build();
    let named = |word: &OsString| program.find_subcommand(word);
    let subcommand = words.get(1).and_then(named);
    let later = words.iter().skip(2).find_map(named);
    let rejected = Rejected { error, program: &program, subcommand, later };
    let known = one_dash.and_then(|word| rejected.known_elsewhere(word, &format!("-{word}")));
    known.or_else(|| (!asks).then(|| rejected.fault()))
}

/// A long option with one dash, in which clap finds an unknown option or value, or `-h`.
fn long_option_with_one_dash<'a>(error: &clap::Error, words: &'a [OsString]) -> Option<&'a str> {
    let value = first(error, ContextKind::InvalidValue).filter(|value| !value.is_empty());
    let letter = || first(error, ContextKind::InvalidArg)?.strip_prefix('-');
    let found = value.or_else(letter).unwrap_or("h");
    let words = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    let mut short = words.filter(|word| word.starts_with('-') && !word.starts_with("--"));
    let word = short.find(|word| word[1..].contains(found))?.split('=').next()?;
    (word.len() > "-x".len()).then_some(word)
}

fn first(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    all(error, kind).first().copied()
}

fn all(error: &clap::Error, kind: ContextKind) -> Vec<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text],
        Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
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
        let (argument, values) = (self.argument(), all(self.error, ContextKind::ValidValue));
        match (self.error.kind(), self.subcommand.map(Command::get_name)) {
            (
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand,
                _,
            ) => advice("missing subcommand", SUBCOMMANDS),
            (ErrorKind::InvalidSubcommand, _) => {
                let word = first(self.error, ContextKind::InvalidSubcommand).unwrap_or_default();
                // The most similar one is the last.
                let similar = all(self.error, ContextKind::SuggestedSubcommand).pop();
                let similar = || similar.map_or(SUBCOMMANDS.into(), |it| format!("use {it}"));
                let problem = format!("unknown subcommand {}", shown(word));
                advice(problem, habit(word).unwrap_or_else(similar))
            }
            (ErrorKind::UnknownArgument, subcommand) => {
                match (first(self.error, ContextKind::InvalidArg).unwrap_or_default(), subcommand) {
                    (option, _) if option.starts_with('-') => self.unknown_option(option),
                    (_, None) => advice("missing subcommand before '--'", SUBCOMMANDS),
                    (word, Some("acquire")) => UserMessage::of_value(AFTER_NAME, word)
                        .with_remedy("to run a command, use rlock exec"),
                    (word, Some("inspect")) => UserMessage::of_value(AFTER_NAME, word)
                        .with_remedy("to show several locks, quote a pattern such as 'a*'"),
                    // The word may be a token, so it is not shown.
                    _ => advice("unexpected word after TOKEN", "remove it"),
                }
            }
            (ErrorKind::MissingRequiredArgument, subcommand) => {
                let missing = all(self.error, ContextKind::InvalidArg).into_iter().map(name);
                let missing = Vec::from_iter(missing).join(" and ");
                let remedy = match subcommand.unwrap_or_default() {
                    "release" if missing.contains("--force") => ASKS_FIRST.to_owned(),
                    _ if missing.contains("--") => "add it".to_owned(),
                    "exec" => "use rlock exec NAME COMMAND".to_owned(),
                    subcommand => format!("use rlock {subcommand} NAME"),
                };
                advice(format!("missing {missing}"), remedy)
            }
            (ErrorKind::ArgumentConflict, _) => {
                let others = all(self.error, ContextKind::PriorArg).into_iter().map(name);
                let others = listed(others.filter(|other| *other != argument), "or");
                let problem = match &*others {
                    "" => format!("{argument} is given twice"),
                    others => format!("{argument} cannot be used with {others}"),
                };
                advice(problem, "remove one of them")
            }
            (ErrorKind::TooManyValues, _) => {
                advice(format!("{argument} does not take a value"), "remove the value")
            }
            (ErrorKind::InvalidValue, _) => {
                let problem = match first(self.error, ContextKind::InvalidValue).unwrap_or_default()
                {
                    "" => format!("missing value after {argument}"),
                    value => format!("{argument}: unknown value: {}", shown(value)),
                };
                let choose = || format!("use {}", listed(values.iter().copied(), "or"));
                advice(problem, if values.is_empty() { self.help() } else { choose() })
            }
            (kind, _) => match self.error.source().and_then(<dyn Error>::downcast_ref) {
                // A value that its own type rejects.
                Some(fault) => {
                    UserMessage::clone(fault).reworded(|problem| format!("{argument}: {problem}"))
                }
                // Clap's full text could repeat a value.
                None => advice(kind.as_str().unwrap_or("unusable arguments"), self.help()),
            },
        }
    }

    fn unknown_option(&self, option: &str) -> UserMessage {
        let option = option.split('=').next().unwrap_or_default();
        self.known_elsewhere(option, option).unwrap_or_else(|| {
            if option[1..].starts_with(|c: char| c.is_ascii_digit()) {
                return advice(format!("negative value {}", shown(option)), "use a positive one");
            }
            let similar =
                first(self.error, ContextKind::SuggestedArg).map(|it| format!("use {it}"));
            let problem = format!("unknown option {}", shown(option));
            advice(problem, similar.unwrap_or_else(|| self.help()))
        })
    }

    /// An option as it is written and as it is meant, if another form, tool, place or subcommand has
    /// it.
    fn known_elsewhere(&self, written: &str, option: &str) -> Option<UserMessage> {
        let (owners, plural, written) = (self.owners(option), format!("{option}s"), shown(written));
        let own = |option: &&str| {
            self.subcommand.is_some_and(|it| self.owners(option).contains(&it.get_name()))
        };
        let own = [option, &plural].into_iter().find(own).map(|option| format!("use {option}"));
        Some(match (own.or_else(|| habit(option)), self.subcommand, self.later) {
            (Some(remedy), ..) => advice(format!("unknown option {written}"), remedy),
            (None, None, Some(later)) => advice(
                format!("{written} precedes the subcommand"),
                format!("put it after {}", later.get_name()),
            ),
            (None, None, None) => {
                advice(format!("missing subcommand before {written}"), SUBCOMMANDS)
            }
            (None, Some(_), _) if owners.is_empty() => return None,
            (None, Some(subcommand), _) => advice(
                format!("{} is not an option of {}", shown(option), subcommand.get_name()),
                format!("use it with {}", listed(owners, "or")),
            ),
        })
    }

    /// The subcommands with this option, such as `-n` or `--wait`.
    fn owners(&self, option: &str) -> Vec<&str> {
        let is_same = |argument: &Arg| {
            let long = argument.get_long_and_visible_aliases().unwrap_or_default();
            option.strip_prefix("--").is_some_and(|name| long.contains(&name))
                || argument.get_short().is_some_and(|short| option == format!("-{short}"))
        };
        let owns = |subcommand: &&Command| subcommand.get_arguments().any(is_same);
        self.program.get_subcommands().filter(owns).map(Command::get_name).collect()
    }

    fn help(&self) -> String {
        let subcommand = self.subcommand.map_or(String::new(), |it| format!(" {}", it.get_name()));
        format!("run rlock{subcommand} --help")
    }

    /// The argument that the error is about, such as `--ttl` or `NAME`.
    fn argument(&self) -> &str {
        first(self.error, ContextKind::InvalidArg).map_or("argument", name)
    }
}

fn advice(problem: impl Into<String>, remedy: impl Into<String>) -> UserMessage {
    UserMessage::new(problem).with_remedy(remedy)
}

/// The name in clap's text for an argument: of `--ttl <DURATION>`, `<NAME>` and `[TOKEN]`.
fn name(text: &str) -> &str {
    let name = text.split(' ').next().unwrap_or_default();
    name.trim_matches(['<', '>', '[', ']', '.'])
}
