//! Reads an ordinary command line without clap, which would first build its whole command tree, with
//! all help texts.
//!
//! `read` returns only what clap would return too. It leaves everything else to clap: all errors,
//! all help, and each form that this file does not know. The arguments are declared only once, for
//! clap. The tables in `quick/` are generated from that declaration, and the compiler checks the
//! lists in `fields` against it. `agreement` compares `read` with clap on random command lines.

#[cfg(test)]
mod agreement;
mod fields;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::{Cli, Command};
use fields::Field;

/// Reads a command line, which begins with the name of the program. `None` leaves it to clap.
pub(super) fn read(words: &[OsString]) -> Option<Cli> {
    let [_, subcommand, words @ ..] = words else { return None };
    let command = match subcommand.to_str()? {
        "exec" => Command::Exec(fields(include_str!("quick/exec.txt"), words)?),
        "acquire" => Command::Acquire(fields(include_str!("quick/acquire.txt"), words)?),
        "renew" => Command::Renew(fields(include_str!("quick/renew.txt"), words)?),
        "release" => Command::Release(fields(include_str!("quick/release.txt"), words)?),
        "inspect" => Command::Inspect(fields(include_str!("quick/inspect.txt"), words)?),
        _ => return None,
    };
    Some(Cli { command })
}

/// Reads the words after the subcommand into its fields.
fn fields<T: Field>(table: &'static str, words: &[OsString]) -> Option<T> {
    let mut given = Given::read(table, words)?;
    let fields = T::read(&mut given, "")?;
    given.is_used_up().then_some(fields)
}

/// What the reader knows about an argument: a line of a table, with one space between its parts.
/// The tables are text, because the dynamic linker would have to relocate constants with pointers.
#[derive(Clone, Copy)]
struct Argument {
    /// The field of the declaration.
    field: &'static str,
    form: Form,
    /// The other parts, if any:
    ///
    /// - `-w`, `--wait`: the names of an option. An option without names is left to clap.
    /// - `required`: clap rejects a command line without this argument.
    /// - `=75`: the default.
    /// - `!wait`: the field of an argument that conflicts with this one. An argument conflicts
    ///   with itself unless it can be repeated.
    rest: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// An option without a value.
    Flag,
    /// An option with a value.
    Value,
    /// A positional argument.
    Word,
    /// A positional argument that takes the rest of the command line, options included.
    Rest,
}

impl Argument {
    fn of_line(line: &'static str) -> Option<Self> {
        let mut parts = line.splitn(3, ' ');
        let field = parts.next()?;
        let form = match parts.next()? {
            "flag" => Form::Flag,
            "value" => Form::Value,
            "word" => Form::Word,
            "rest" => Form::Rest,
            _ => return None,
        };
        Some(Self { field, form, rest: parts.next().unwrap_or_default() })
    }

    fn has(self, part: &[u8]) -> bool {
        self.rest.split(' ').any(|it| it.as_bytes() == part)
    }

    /// The parts that begin with this mark, without the mark.
    fn marked(self, mark: char) -> impl Iterator<Item = &'static str> {
        self.rest.split(' ').filter_map(move |part| part.strip_prefix(mark))
    }
}

/// Each argument of a subcommand, with its values.
struct Given<'a>(Vec<(Argument, Vec<&'a OsStr>)>);

impl<'a> Given<'a> {
    /// Reads the words after the subcommand, and adds defaults.
    fn read(table: &'static str, words: &'a [OsString]) -> Option<Self> {
        let given = table.lines().map(|line| Some((Argument::of_line(line)?, Vec::new())));
        let mut given = Self(given.collect::<Option<_>>()?);
        let positionals = given.arguments().filter(|it| matches!(it.form, Form::Word | Form::Rest));
        let mut positionals = positionals.collect::<Vec<_>>().into_iter();
        let mut words = words.iter().map(OsString::as_os_str);
        let mut escaped = false;
        while let Some(word) = words.next() {
            match word.as_bytes() {
                b"--" if !escaped => escaped = true,
                [b'-', b'-', ..] if !escaped => given.add_long(word, &mut words)?,
                [b'-', letters @ ..] if !escaped => given.add_short(letters, &mut words)?,
                _ => {
                    let argument = positionals.next()?;
                    given.add(argument, word)?;
                    if argument.form == Form::Rest {
                        given.values(argument.field)?.extend(&mut words);
                    }
                }
            }
        }
        for (argument, values) in given.0.iter_mut().filter(|(_, values)| values.is_empty()) {
            if argument.has(b"required") {
                return None;
            }
            for default in argument.marked('=') {
                values.push(OsStr::new(default));
            }
        }
        Some(given)
    }

    /// Adds `--name`, `--name=value` or `--name value`.
    fn add_long(&mut self, word: &'a OsStr, words: &mut impl Words<'a>) -> Option<()> {
        let mut parts = word.as_bytes().splitn(2, |&byte| byte == b'=');
        let argument = self.named(parts.next()?)?;
        match (argument.form, parts.next()) {
            (Form::Flag, None) => self.add(argument, OsStr::new("")),
            (Form::Value, attached) => self.add_value(argument, attached, words),
            _ => None,
        }
    }

    /// Adds `-a`, `-avalue`, `-a=value`, `-a value`, or several flags in one word, such as `-ab`.
    fn add_short(&mut self, mut letters: &'a [u8], words: &mut impl Words<'a>) -> Option<()> {
        loop {
            let (letter, rest) = letters.split_first()?;
            let argument = self.named(&[b'-', *letter])?;
            match argument.form {
                Form::Flag => self.add(argument, OsStr::new(""))?,
                _ => {
                    let attached = (!rest.is_empty()).then_some(rest);
                    let attached = attached.map(|rest| rest.strip_prefix(b"=").unwrap_or(rest));
                    return self.add_value(argument, attached, words);
                }
            }
            if rest.is_empty() {
                return Some(());
            }
            letters = rest;
        }
    }

    /// Adds the value of an option: the attached value, or else the next word.
    fn add_value(
        &mut self,
        argument: Argument,
        attached: Option<&'a [u8]>,
        words: &mut impl Words<'a>,
    ) -> Option<()> {
        let value = match attached {
            Some(value) => OsStr::from_bytes(value),
            None => words.next().filter(|word| !word.as_bytes().starts_with(b"-"))?,
        };
        // Only some types accept an empty value, so clap decides.
        if value.is_empty() { None } else { self.add(argument, value) }
    }

    fn add(&mut self, argument: Argument, value: &'a OsStr) -> Option<()> {
        for field in argument.marked('!') {
            if !self.values(field)?.is_empty() {
                return None;
            }
        }
        self.values(argument.field)?.push(value);
        Some(())
    }

    fn named(&self, name: &[u8]) -> Option<Argument> {
        self.arguments().find(|argument| argument.has(name))
    }

    fn arguments(&self) -> impl Iterator<Item = Argument> {
        self.0.iter().map(|(argument, _)| *argument)
    }

    /// The values of an argument. A flag that is set has one empty value.
    fn values(&mut self, field: &str) -> Option<&mut Vec<&'a OsStr>> {
        let mut arguments = self.0.iter_mut();
        arguments.find(|(argument, _)| argument.field == field).map(|(_, values)| values)
    }

    /// Whether the fields have taken all values. If not, the declaration has a field whose name or
    /// type this file does not know.
    fn is_used_up(&self) -> bool {
        self.0.iter().all(|(_, values)| values.is_empty())
    }
}

/// The words that have not been read yet.
trait Words<'a>: Iterator<Item = &'a OsStr> {}

impl<'a, T: Iterator<Item = &'a OsStr>> Words<'a> for T {}
