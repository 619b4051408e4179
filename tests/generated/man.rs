//! The man pages: what clap knows about the command line, and the sections of `manual.txt`.

use std::collections::HashSet;

use clap::{Arg, Command};
use rlock::exit;
use rlock::rules::Key;
use rlock::rules::servers::table as findings;

use super::arguments::{is_optional, names, options, repeats, takes_value, value};

/// The lines of a section of `manual.txt`.
fn section(name: &str) -> Vec<&'static str> {
    let (_, rest) = include_str!("manual.txt").split_once(&format!("\n[{name}]\n")).unwrap();
    rest.lines().take_while(|line| !line.is_empty()).collect()
}

/// The terms of a section, and their texts.
fn terms(name: &str) -> Vec<(&'static str, &'static str)> {
    section(name).iter().map(|line| line.split_once(": ").unwrap()).collect()
}

/// The name of each page, and the page.
pub(super) fn pages(program: &Command) -> Vec<(String, String)> {
    let subcommands = program.get_subcommands();
    let names = subcommands.map(|subcommand| format!("rlock-{}", subcommand.get_name()));
    let names: Vec<String> = ["rlock".to_owned()].into_iter().chain(names).collect();
    let commands = [program].into_iter().chain(program.get_subcommands());
    let pages = commands.zip(&names).map(|(command, name)| {
        (name.clone(), Page { command, name, program, all: &names }.render())
    });
    pages.collect()
}

struct Page<'a> {
    command: &'a Command,
    name: &'a str,
    program: &'a Command,
    /// The names of all pages.
    all: &'a [String],
}

impl Page<'_> {
    fn render(&self) -> String {
        let program = self.program.get_version().unwrap();
        let mut page = format!(
            ".TH {} 1 {} \"rlock {program}\" \"User Commands\"\n",
            escaped(&self.name.to_uppercase()),
            section("DATE")[0]
        );
        let about = self.command.get_about().unwrap().to_string();
        page += &format!(".SH NAME\n{} \\- {}\n", escaped(self.name), escaped(&about));
        page += &format!(".SH SYNOPSIS\n{}", self.synopsis());
        page += &format!(".SH DESCRIPTION\n{}", self.description());
        page += &self.options();
        page += &self.documents();
        if self.subcommand() == Some("inspect") {
            let findings = Vec::from_iter(findings().map(|[id, source, remedy]| {
                (id, format!("From {source}: {}.", remedy.replace('%', "HOST:PORT")))
            }));
            page +=
                &format!(".SH FINDINGS\n{}{}", paragraphs(&section("FINDINGS")), list(&findings));
        }
        page += &format!(".SH \"EXIT STATUS\"\n{}", list(&self.statuses()));
        let examples = escaped(&self.after_options().1);
        let examples = format!(".SH EXAMPLES\n.EX\n{examples}\n.EE\n");
        // What concerns all subcommands is on one page.
        let side_key = Key::new(&"".parse().unwrap(), &"KEY".parse().unwrap()).side("");
        page += &match self.subcommand() {
            None => format!(
                ".SH ENVIRONMENT\n{}.SH FILES\n{}{examples}.SH DIAGNOSTICS\n{}.SH SECURITY\n{}",
                list(&self.environment()),
                list(&terms("FILES")),
                paragraphs(&section("DIAGNOSTICS")).replace("{KEY}?", &side_key),
                paragraphs(&section("SECURITY")),
            ),
            Some(_) => format!("{examples}.SH ENVIRONMENT\n{}", paragraphs(&section("ELSEWHERE"))),
        };
        page + &format!(".SH \"SEE ALSO\"\n{}\n", self.see_also())
    }

    /// The subcommand that the page is about. `None` for the page of the whole program.
    fn subcommand(&self) -> Option<&str> {
        (!self.command.has_subcommands()).then(|| self.command.get_name())
    }

    /// All ways to call the command. The page of the program leaves the options to the other pages.
    fn synopsis(&self) -> String {
        let form = |command: &Command, options: &[String]| {
            let words = command.get_positionals().map(in_synopsis);
            let words: Vec<String> = options.iter().cloned().chain(words).collect();
            format!(".SY \"rlock {}\"\n{}\n.YS\n", command.get_name(), words.join("\n"))
        };
        if self.subcommand().is_some() {
            return form(self.command, &alternatives(self.command));
        }
        let options = [format!("[\\fIOPTION\\fR]{DOTS}")];
        self.program.get_subcommands().map(|subcommand| form(subcommand, &options)).collect()
    }

    /// The description without its first line, which is in NAME.
    fn description(&self) -> String {
        let text = self.command.get_long_about().unwrap().to_string();
        let description: Vec<&str> = text.split("\n\n").skip(1).collect();
        paragraphs(&description)
    }

    fn options(&self) -> String {
        if self.subcommand().is_none() {
            let about = |it: &Command| {
                (format!("rlock-{}(1)", it.get_name()), it.get_about().unwrap().to_string())
            };
            let subcommands: Vec<_> = self.program.get_subcommands().map(about).collect();
            return format!(".SH SUBCOMMANDS\n{}", list(&subcommands));
        }
        let of = |heading: Option<&str>| {
            let options = options(self.command).filter(|it| it.get_help_heading() == heading);
            options.map(|it| entry(self.command, it)).collect::<String>()
        };
        let mut headings: Vec<&str> =
            options(self.command).filter_map(|it| it.get_help_heading()).collect();
        let mut seen = HashSet::new();
        headings.retain(|heading| seen.insert(*heading));
        // The program shows it last too.
        headings.sort_by_key(|heading| *heading == "Server");
        let section = |heading| format!(".SS {heading}\n{}", of(Some(heading)));
        let sections: String = headings.into_iter().map(section).collect();
        let positionals = self.command.get_positionals().map(|it| entry(self.command, it));
        let positionals: String = positionals.collect();
        let durations = paragraphs(&[&self.after_options().0]);
        format!(".SH OPTIONS\n{positionals}{}{sections}.SS Durations\n{durations}", of(None))
    }

    /// The JSON documents that the command prints.
    fn documents(&self) -> String {
        let fields = terms("JSON").into_iter().filter_map(|(term, text)| {
            let (subcommands, field) = term.split_once(" | ").unwrap();
            let is_here =
                self.subcommand().is_none_or(|own| subcommands.split(' ').any(|it| it == own));
            is_here.then_some((field, text))
        });
        let mut fields = Vec::from_iter(fields);
        let introduction = match self.subcommand() {
            Some("inspect") => {
                fields.extend(terms("LOCKS"));
                "With --json, one object. locks has all locks that are not free, or NAME even if it is free. \
                 With --servers, servers and findings replace locks. Numbers are integers; times are RFC \
                 3339, in UTC; a value that does not apply is null."
            }
            Some("acquire" | "renew" | "release") => {
                "With --json, one object. A field that does not apply is left out, or null."
            }
            _ => return String::new(),
        };
        format!(".SH JSON\n{}{}", filled(introduction), list(&fields))
    }

    fn statuses(&self) -> Vec<(&'static str, String)> {
        let statuses = exit::statuses(self.subcommand(), false).into_iter();
        statuses.map(|(status, meanings)| (status, meanings.join("; ").replace('`', ""))).collect()
    }

    fn environment(&self) -> Vec<(String, &'static str)> {
        let entries = terms("ENVIRONMENT");
        let is_there =
            |variable: &String| entries.iter().any(|(names, _)| names.contains(variable));
        let mut defaults = self.defaults();
        defaults.retain(|variable| !is_there(variable));
        let defaults = defaults.join(", ");
        entries
            .iter()
            .map(|(names, text)| (names.replace("{DEFAULTS}", &defaults), *text))
            .collect()
    }

    /// The variables that the help of an option names as its default.
    fn defaults(&self) -> Vec<String> {
        let help = self
            .command
            .get_subcommands()
            .flat_map(Command::get_arguments)
            .filter_map(Arg::get_help);
        let mut variables = Vec::new();
        for help in help.map(ToString::to_string) {
            let Some((_, rest)) = help.split_once("[env: ") else { continue };
            let variable = rest.split(']').next().unwrap().to_owned();
            if !variables.contains(&variable) {
                variables.push(variable);
            }
        }
        variables
    }

    /// From the end of `--help`: how to write a duration, and the examples without indentation.
    fn after_options(&self) -> (String, String) {
        let help = self.command.get_after_long_help().unwrap().to_string();
        let (durations, examples) = help.split_once("Examples:\n").unwrap();
        let examples = examples.split("\n\nExit status:").next().unwrap();
        let lines = examples.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
        (durations.trim_end().to_owned(), lines.collect::<Vec<_>>().join("\n"))
    }

    fn see_also(&self) -> String {
        let pages = self.all.iter().map(String::as_str).chain(["flock", "redis-cli"]);
        let pages = pages.filter(|page| *page != self.name);
        let pages: Vec<String> =
            pages.map(|page| format!("\\fB{}\\fR(1)", escaped(page))).collect();
        pages.join(",\n")
    }
}

/// The options for the synopsis, those of the server last. Options in one group, and options that all
/// conflict with each other, are alternatives.
fn alternatives(command: &Command) -> Vec<String> {
    let in_one_group = |one: &Arg, other: &Arg| {
        let mut groups = command.get_groups().filter(|group| !(*group).clone().is_multiple());
        groups
            .any(|group| [one, other].iter().all(|it| group.get_args().any(|id| id == it.get_id())))
    };
    let conflict = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|it| it.get_id() == other.get_id())
    };
    let excludes = |one: &Arg, other: &Arg| {
        in_one_group(one, other) || conflict(one, other) || conflict(other, one)
    };
    let (server, own): (Vec<&Arg>, Vec<&Arg>) =
        options(command).partition(|option| option.get_help_heading() == Some("Server"));
    let mut groups: Vec<Vec<&Arg>> = Vec::new();
    for option in own.into_iter().chain(server) {
        match groups.iter_mut().find(|group| group.iter().all(|other| excludes(option, other))) {
            Some(group) => group.push(option),
            None => groups.push(vec![option]),
        }
    }
    let group = |group: &Vec<&Arg>| {
        let repeats = group.iter().any(|it| repeats(it));
        let forms: Vec<String> = group.iter().map(|it| in_synopsis(it)).collect();
        format!("[{}]{}", forms.join("\\ |\\ "), if repeats { DOTS } else { "" })
    };
    groups.iter().map(group).collect()
}

/// An ellipsis that roff does not take for the end of a sentence.
const DOTS: &str = "...\\&";

/// An option by its shortest name, or a positional argument, with their values.
fn in_synopsis(argument: &Arg) -> String {
    if argument.is_positional() {
        let name = format!("\\fI{}\\fR", value(argument));
        return match (argument.is_trailing_var_arg_set(), argument.is_required_set()) {
            (true, _) => format!("[\\fB\\-\\-\\fR]\n{name}\n[\\fIARG\\fR]{DOTS}"),
            (_, true) => name,
            (_, false) => format!("[{name}]"),
        };
    }
    let name = names(argument).swap_remove(0);
    with_value(argument, &name).replace(' ', "\\ ")
}

/// The entry of an argument in the list of options.
fn entry(command: &Command, argument: &Arg) -> String {
    let mut forms = Vec::from_iter(names(argument).iter().map(|name| with_value(argument, name)));
    if argument.is_positional() {
        forms.push(format!("\\fI{}\\fR", value(argument)));
    }
    let short = argument.get_help().unwrap().to_string();
    let long = argument.get_long_help().map_or(short.clone(), ToString::to_string);
    let mut lines = long.split("\n\n");
    let mut text = filled(lines.next().unwrap());
    for line in lines {
        text += &format!(".IP\n{}", filled(line));
    }
    let values = argument.get_possible_values();
    if takes_value(argument) && !values.is_empty() {
        let value = |it: &clap::builder::PossibleValue| match it.get_help() {
            Some(help) => format!("{} ({})", it.get_name(), lower(&help.to_string())),
            None => it.get_name().to_owned(),
        };
        let values: Vec<String> = values.iter().map(value).collect();
        text += &format!(".IP\n{}", filled(&format!("Values: {}.", values.join(", "))));
    }
    let others = command.get_arg_conflicts_with(argument);
    let long = |other: &&Arg| names(other).into_iter().find(|name| name.starts_with("--"));
    let name = |other: &&Arg| long(other).unwrap_or_else(|| value(other).to_owned());
    let others: Vec<String> = others.iter().map(name).collect();
    if !argument.is_positional() && !others.is_empty() {
        text += &format!(".IP\n{}", filled(&format!("Conflicts with {}.", others.join(", "))));
    }
    format!(".TP\n{}\n{text}", forms.join(", "))
}

/// An option with its value in this form, in roff.
fn with_value(option: &Arg, name: &str) -> String {
    let name = format!("\\fB{}\\fR", escaped(name));
    if !takes_value(option) {
        return name;
    }
    let value = format!("\\fI{}\\fR", value(option));
    if is_optional(option) { format!("{name} [{value}]") } else { format!("{name} {value}") }
}

fn list<T: AsRef<str>, U: AsRef<str>>(entries: &[(T, U)]) -> String {
    let entry = |(term, text): &(T, U)| {
        format!(".TP\n\\fB{}\\fR\n{}", escaped(term.as_ref()), filled(text.as_ref()))
    };
    entries.iter().map(entry).collect()
}

fn paragraphs<T: AsRef<str>>(texts: &[T]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| filled(text.as_ref())).collect();
    texts.join(".PP\n")
}

/// Text in lines of at most 78 characters, as `mandoc -T lint` wants.
fn filled(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace().map(escaped) {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= 78 => *line += &format!(" {word}"),
            // A line must not begin like a roff request.
            _ if word.starts_with('.') => lines.push(format!("\\&{word}")),
            _ => lines.push(word),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn lower(text: &str) -> String {
    text.chars().take(1).flat_map(char::to_lowercase).chain(text.chars().skip(1)).collect()
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace("\n.", "\n\\&.")
}
