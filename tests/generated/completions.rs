//! The completions: what clap knows about the command line, and a script for each shell that knows
//! what the values are.

use clap::{Arg, Command};

use super::arguments::{is_optional, names, options, repeats, takes_value, value};

/// Durations to choose from.
const DURATIONS: &str = "10s 30s 1m 5m 1h";

/// What completes a value.
enum Kind {
    Duration,
    File,
    Name,
    Command,
    /// One of these, each with its help.
    Choice(Vec<(String, String)>),
    /// Nothing that a shell could know.
    Other,
}

/// The name of the value says what it is.
fn kind(argument: &Arg) -> Kind {
    let choices = argument.get_possible_values();
    if !choices.is_empty() {
        let choices = choices.iter().map(|choice| {
            let help = choice.get_help().map(ToString::to_string);
            (choice.get_name().to_owned(), help.unwrap_or_default())
        });
        return Kind::Choice(choices.collect());
    }
    match value(argument) {
        "DURATION" => Kind::Duration,
        "FILE" => Kind::File,
        "NAME" => Kind::Name,
        "COMMAND" => Kind::Command,
        _ => Kind::Other,
    }
}

/// The names of choices, each in this form with its help if it has one.
fn chosen(choices: Vec<(String, String)>, with_help: fn(&str, &str) -> String) -> String {
    let choice = |(name, help): (String, String)| {
        if help.is_empty() { name } else { with_help(&name, &help) }
    };
    choices.into_iter().map(choice).collect::<Vec<_>>().join(" ")
}

/// The names of all options of all subcommands that are like this, each once.
fn all(program: &Command, is_like: impl Fn(&Arg) -> bool) -> Vec<String> {
    let options = program.get_subcommands().flat_map(options).filter(|option| is_like(option));
    let mut names: Vec<String> = options.flat_map(names).collect();
    names.sort();
    names.dedup();
    names
}

/// The options that say which server has the locks.
fn of_server(program: &Command) -> String {
    let is_like = |option: &Arg| {
        option.get_help_heading() == Some("Server") && !matches!(kind(option), Kind::Duration)
    };
    all(program, is_like).join(" ")
}

/// The help of `-h`, without the parts in brackets.
fn about(argument: &Arg) -> String {
    argument.get_help().unwrap().to_string().split(" [").next().unwrap().to_owned()
}

pub(super) fn bash(program: &Command) -> String {
    let subcommands: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
    let own: Vec<String> = options(program).flat_map(names).collect();
    let mut tables = format!(
        "\n_rlock_subcommands='{} {}'\n_rlock_durations='{DURATIONS}'\n_rlock_server='{}'\n",
        subcommands.join(" "),
        own.join(" "),
        of_server(program)
    );
    tables +=
        "\n# Sets `takes` to the options of a subcommand.\n_rlock_options() {\n    case $1 in\n";
    for subcommand in program.get_subcommands() {
        let options: Vec<String> = options(subcommand).flat_map(names).collect();
        tables += &format!("        {}) takes='{}' ;;\n", subcommand.get_name(), options.join(" "));
    }
    tables += "        *) takes='' ;;\n    esac\n}\n\n";
    tables += "# Sets `takes` to what the value of an option is. Fails if the option takes none.\n";
    tables += "_rlock_value() {\n    case $1 in\n";
    let word = |option: &Arg| match kind(option) {
        _ if is_optional(option) => "OPTIONAL".to_owned(),
        Kind::Duration => "DURATION".to_owned(),
        Kind::File => "FILE".to_owned(),
        Kind::Choice(choices) => chosen(choices, |name, _| name.to_owned()),
        Kind::Name | Kind::Command | Kind::Other => "NOTHING".to_owned(),
    };
    let options = program.get_subcommands().flat_map(options).filter(|option| takes_value(option));
    let mut words: Vec<String> = options.map(word).collect();
    words.sort();
    words.dedup();
    for wanted in words {
        let options = all(program, |option| takes_value(option) && word(option) == wanted);
        tables += &format!("        {}) takes='{wanted}' ;;\n", options.join(" | "));
    }
    tables += "        *) return 1 ;;\n    esac\n}\n";
    include_str!("completion.bash").replace("\n# TABLES\n", &tables)
}

pub(super) fn zsh(program: &Command) -> String {
    let about = |command: &Command| command.get_about().unwrap().to_string();
    let mut script = String::from("#compdef rlock\n");
    script += "# zsh completion for rlock.\n";
    script += "# Generated from tests/generated/completion.zsh and from the command line.\n\n";
    script += &format!("_rlock_server=({})\n\n_rlock() {{\n", of_server(program));
    script += "    local curcontext=$curcontext state line ret=1\n    local -A opt_args\n";
    script += "    local -a subcommands=(\n";
    for subcommand in program.get_subcommands() {
        let line = format!("{}:{}", subcommand.get_name(), about(subcommand));
        script += &format!("        {}\n", quoted(&line));
    }
    script += "    )\n    _arguments -C -S \\\n";
    for option in options(program) {
        script += &zsh_option(program, option);
    }
    script += "        '1:subcommand:{_describe subcommand subcommands}' \\\n";
    script += "        '*::: :->subcommand' && ret=0\n";
    script += "    [[ $state == subcommand ]] || return ret\n";
    script += "    words=($line[1] \"${words[@]}\")\n    (( CURRENT += 1 ))\n";
    script += "    case $line[1] in\n";
    for subcommand in program.get_subcommands() {
        script += &format!("    {})\n        _arguments -s -S \\\n", subcommand.get_name());
        for option in options(subcommand) {
            script += &zsh_option(subcommand, option);
        }
        let mut positionals: Vec<String> =
            subcommand.get_positionals().map(zsh_positional).collect();
        let last = positionals.pop().unwrap();
        script += &positionals.iter().map(|line| format!("{line} \\\n")).collect::<String>();
        script += &format!("{last} && ret=0\n        ;;\n");
    }
    script += "    esac\n    return ret\n}\n\n";
    script + include_str!("completion.zsh")
}

/// The function that completes a value in zsh.
fn zsh_action(argument: &Arg) -> String {
    match kind(argument) {
        Kind::Duration => format!("({DURATIONS})"),
        Kind::File => "_files".into(),
        Kind::Name => "_rlock_names".into(),
        Kind::Command => "_command_names -e".into(),
        Kind::Choice(choices) => {
            let has_help = choices.iter().any(|(_, help)| !help.is_empty());
            let list = chosen(choices, |name, help| format!("{name}\\:\"{help}\""));
            if has_help { format!("(({list}))") } else { format!("({list})") }
        }
        Kind::Other => " ".into(),
    }
}

/// One line for each name of an option. A name excludes the others, and the options in conflict.
fn zsh_option(command: &Command, option: &Arg) -> String {
    let mut excluded = if repeats(option) { Vec::new() } else { names(option) };
    excluded.extend(command.get_arg_conflicts_with(option).into_iter().flat_map(names));
    excluded.dedup();
    let before = if repeats(option) { "*".into() } else { format!("({})", excluded.join(" ")) };
    let help = about(option).replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    let line = |name: &String| {
        let value = match (takes_value(option), is_optional(option)) {
            (false, _) => String::new(),
            (true, true) => format!("::{}:{}", value(option), zsh_action(option)),
            (true, false) => format!(":{}:{}", value(option), zsh_action(option)),
        };
        let sign = if name.starts_with("--") { "=" } else { "+" };
        let sign = if takes_value(option) { sign } else { "" };
        format!("            {} \\\n", quoted(&format!("{before}{name}{sign}[{help}]{value}")))
    };
    names(option).iter().map(line).collect()
}

fn zsh_positional(argument: &Arg) -> String {
    let action = zsh_action(argument);
    let spec = match (kind(argument), argument.is_required_set()) {
        // The options of the command are not those of rlock.
        (Kind::Command, _) => {
            let rest = format!("            {}", quoted("(-)*::ARG:_rlock_command"));
            let command = quoted(&format!("(-)2:{}:{action}", value(argument)));
            return format!("            {command} \\\n{rest}");
        }
        (_, true) => format!("1:{}:{action}", value(argument)),
        (Kind::Name, false) => format!("1::{}:{action}", value(argument)),
        (_, false) => format!("2::{}:{action}", value(argument)),
    };
    format!("            {}", quoted(&spec))
}

pub(super) fn fish(program: &Command) -> String {
    let mut script = String::from("# fish completion for rlock.\n");
    script += "# Generated from tests/generated/completion.fish and from the command line.\n\n";
    let with_values = all(program, |option| takes_value(option) && !is_optional(option));
    script += &format!("set -g __rlock_values {}\n", with_values.join(" "));
    script += &format!("set -g __rlock_optional {}\n", all(program, is_optional).join(" "));
    script += &format!("set -g __rlock_server {}\n\n", of_server(program));
    script += include_str!("completion.fish");
    script += "complete -c rlock -f\n";
    let condition = "-n 'test (count (commandline -opc)) = 1'";
    for subcommand in program.get_subcommands() {
        let about = quoted(&subcommand.get_about().unwrap().to_string());
        let name = subcommand.get_name();
        script += &format!("complete -c rlock {condition} -a {name} -d {about}\n");
    }
    for option in options(program) {
        script += &fish_option(condition, option);
    }
    for subcommand in program.get_subcommands() {
        let name = subcommand.get_name();
        let expects = |what: &str| format!("-n 'contains {what} (__rlock_expects {name})'");
        for option in options(subcommand) {
            script += &fish_option(&expects("options"), option);
        }
        for positional in subcommand.get_positionals() {
            let (what, function) = match kind(positional) {
                Kind::Name => ("NAME", "__rlock_names"),
                Kind::Command => ("COMMAND", "__rlock_command"),
                _ => continue,
            };
            script += &format!("complete -c rlock {} -a '({function})'\n", expects(what));
        }
    }
    script
}

fn fish_option(condition: &str, option: &Arg) -> String {
    let short = option.get_short().map(|name| format!(" -s {name}")).unwrap_or_default();
    let long = option.get_long_and_visible_aliases().unwrap_or_default();
    let long: String = long.iter().map(|name| format!(" -l {name}")).collect();
    let value = match takes_value(option).then(|| kind(option)) {
        None => String::new(),
        Some(_) if is_optional(option) => format!(" -a '{DURATIONS}'"),
        Some(Kind::Duration) => format!(" -x -a '{DURATIONS}'"),
        Some(Kind::File) => " -r -F".to_owned(),
        Some(Kind::Choice(choices)) => {
            let list = chosen(choices, |name, help| format!("{name}\\t{}", quoted(help)));
            format!(" -x -a \"{list}\"")
        }
        Some(_) => " -x".to_owned(),
    };
    format!("complete -c rlock {condition}{short}{long}{value} -d {}\n", quoted(&about(option)))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
