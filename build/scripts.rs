//! Assembles each script from the parts that it needs, and computes its hash.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use crate::variable;

/// The parts of the scripts in `lua/`. Each uses only those before it, and all but `counts` and
/// `details` have a twin of the same name in `src/rules/model/`.
const PARTS: [&str; 16] = [
    "lock",
    "transaction",
    "details",
    "fence",
    "revocation",
    "counts",
    "slots",
    "holds",
    "owners",
    "history",
    "over",
    "reinstate",
    "reconcile",
    "queue",
    "admission",
    "view",
];

/// The part that reads the lock. Everything after it goes into an inner function.
const SHARED: &str = "transaction";

/// The beginning of the inner function. Each call of a script creates its functions anew. For each
/// variable that a function captures from the enclosing function, Lua searches all captured variables
/// of that function. Variables from farther out need no search, which saves a fifth of the time of a
/// call.
const INNER: &str = "return (function()\n";

/// The requests in `lua/requests/`. Each becomes a script.
const REQUESTS: [&str; 7] = ["acquire", "renew", "release", "leave", "revoke", "remove", "inspect"];

/// Names that must not be shortened, because the tests replace these functions or use these names.
const USED_BY_TESTS: [&str; 8] =
    ["clock", "micros", "read_guard", "write_guard", "guard_left", "GUARD", "BATCH", "BLOCK"];

/// Prepends to each request the parts that it needs, and computes the hash by which a server knows
/// the script.
pub(crate) fn assemble() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
    let mut parts = String::new();
    for part in PARTS {
        parts += &read_script(part)?;
        if part == SHARED {
            parts += INNER;
        }
    }
    let mut generated = String::new();
    for name in REQUESTS {
        let request = read_script(&format!("requests/{name}"))?;
        let source = with_short_names(&with_parts(&request, &parts));
        let lines: Vec<_> = source.lines().map(|line| without_spaces(line.trim())).collect();
        // A local name is shorter, and Lua finds it faster.
        let source = lines.join("\n").replace("redis.call(", "call(");
        let source = format!("local call=redis.call\n{source}");
        // These two undo a request that may still be under way. They are written right after it, and
        // then the connection is closed. A server reads 16 KiB at a time, and discards the rest if
        // it cannot answer the first request. The limit leaves room for the keys and arguments.
        let undoes = name == "leave" || name == "release";
        assert!(!undoes || source.len() < 14 * 1024, "{name} takes {} bytes", source.len());
        let hash = sha1_smol::Sha1::from(&source).hexdigest();
        let constant = name.to_uppercase();
        // Writing to a string cannot fail.
        let _ = writeln!(
            generated,
            "pub(super) const {constant}: Script = \
             Script {{ source: {source:?}, hash: {hash:?} }};",
        );
    }
    fs::write(Path::new(&variable("OUT_DIR")).join("scripts.rs"), generated)
}

/// A file in `lua/`, without comments and empty lines.
fn read_script(name: &str) -> io::Result<String> {
    let script = fs::read_to_string(format!("lua/{name}.lua"))?;
    let lines = script.lines().filter(|line| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with("--")
    });
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

/// A request with the parts that it needs. Each function after `SHARED` comes right before the first
/// statement of the request that needs it. A call that returns early thus does not create the others.
fn with_parts(request: &str, parts: &str) -> String {
    let (statements, functions): (Vec<_>, Vec<_>) =
        declarations(request).into_iter().partition(|it| !it.starts_with("local function "));
    let needed = needed_by(request, parts);
    let (mut script, inner) = match needed.split_once(INNER) {
        Some((shared, inner)) => (format!("{shared}{INNER}"), inner),
        None => (needed, ""),
    };
    let mut later = [declarations(inner), functions].concat();
    for statement in statements {
        let declared = later.concat();
        let now = declarations(&needed_by(&statement, &declared));
        later.retain(|declaration| !now.contains(declaration));
        script += &(now.concat() + &statement);
    }
    script + "end)()"
}

/// The parts without the functions and constants that a request does not use. Only `local function
/// NAME` and `local NAME =` can be left out.
fn needed_by(request: &str, parts: &str) -> String {
    let declarations = declarations(parts);
    // From the last to the first, because a declaration uses only those before it.
    let mut known: HashSet<&str> = words(request).collect();
    let mut needed: Vec<&str> = Vec::new();
    for declaration in declarations.iter().rev() {
        if declared_name(declaration).is_none_or(|name| known.contains(name)) {
            known.extend(words(declaration));
            needed.push(declaration);
        }
    }
    needed.into_iter().rev().collect()
}

/// The declarations and other statements of a script. Each is an unindented line with the indented
/// lines after it and its `end`.
fn declarations(script: &str) -> Vec<String> {
    let mut declarations: Vec<String> = Vec::new();
    for line in script.lines() {
        let continues =
            line.starts_with(' ') || ["end", "else"].contains(&line) || line.starts_with("elseif ");
        match declarations.last_mut() {
            Some(last) if continues => last.extend([line, "\n"]),
            _ => declarations.push(format!("{line}\n")),
        }
    }
    declarations
}

/// A script with short names for its functions and variables, because a server reads no more than
/// 16 KiB at once. A field that has the name of one of them changes with it.
fn with_short_names(script: &str) -> String {
    let is_library = |name: &&str| {
        ["math", "redis", "string", "table"]
            .iter()
            .any(|library| script.contains(&format!("{library}.{name}")))
    };
    let mut names: Vec<&str> = script.lines().flat_map(names_in).collect();
    names.retain(|name| name.len() > 3 && !USED_BY_TESTS.contains(name) && !is_library(name));
    names.sort_unstable();
    names.dedup();
    let shortened = |text: &str| -> String {
        let with_separator = text.split_inclusive(|c| !is_word(c));
        let short = with_separator.map(|text| {
            let word = text.trim_end_matches(|c| !is_word(c));
            match names.binary_search(&word) {
                Ok(index) => format!("_{index}{}", &text[word.len()..]),
                Err(_) => text.to_owned(),
            }
        });
        short.collect()
    };
    // Every second part is in quotes.
    let parts = script.split('\'').enumerate();
    let parts =
        parts.map(|(index, part)| if index % 2 == 0 { shortened(part) } else { part.into() });
    parts.collect::<Vec<String>>().join("'")
}

/// The names that a line declares: those of a function and its parameters, or of variables.
fn names_in(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim_start();
    let declared = match (line.strip_prefix("local function "), line.strip_prefix("local ")) {
        (Some(function), _) => function.split(')').next(),
        (None, Some(variables)) => variables.split(" =").next(),
        (None, None) => line
            .strip_prefix("for ")
            .and_then(|names| names.split(" =").next()?.split(" in ").next()),
    };
    words(declared.unwrap_or_default())
}

/// A line without the spaces that Lua does not need, because they count toward the 16 KiB too.
fn without_spaces(line: &str) -> String {
    let characters: Vec<char> = line.chars().collect();
    let mut quoted = false;
    let needed = |(index, &c): (usize, &char)| {
        quoted ^= c == '\'';
        if c != ' ' || quoted {
            return Some(c);
        }
        let (before, after) = (characters[index - 1], characters[index + 1]);
        // Two minus signs begin a comment, and a digit and a dot are one number.
        let joins = is_word(before) && is_word(after)
            || before == '-' && after == '-'
            || before.is_ascii_digit() && after == '.'
            || before == '.' && after.is_ascii_digit();
        joins.then_some(c)
    };
    characters.iter().enumerate().filter_map(needed).collect()
}

fn declared_name(declaration: &str) -> Option<&str> {
    let local = declaration.strip_prefix("local ")?;
    match local.strip_prefix("function ") {
        Some(function) => function.split('(').next(),
        None => Some(local.split_once(" = ")?.0).filter(|name| !name.contains(',')),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
