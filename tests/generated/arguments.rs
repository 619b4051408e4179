//! What clap knows about an argument.

use clap::{Arg, Command};

pub(super) fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !argument.is_positional())
}

/// The names of an option that `--help` shows, the short ones first.
pub(super) fn names(option: &Arg) -> Vec<String> {
    let short = option.get_short_and_visible_aliases().unwrap_or_default();
    let long = option.get_long_and_visible_aliases().unwrap_or_default();
    let short = short.iter().map(|name| format!("-{name}"));
    short.chain(long.iter().map(|name| format!("--{name}"))).collect()
}

pub(super) fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

/// Whether the option takes a value but does not need one.
pub(super) fn is_optional(option: &Arg) -> bool {
    takes_value(option) && option.get_num_args().is_some_and(|count| count.min_values() == 0)
}

/// The name of the value, such as DURATION.
pub(super) fn value(argument: &Arg) -> &str {
    argument.get_value_names().unwrap()[0].as_str()
}

/// Whether the option can be given more than once.
pub(super) fn repeats(option: &Arg) -> bool {
    matches!(option.get_action(), clap::ArgAction::Append)
}
