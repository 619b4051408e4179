//! Assembles each script from the parts that it needs, and computes its hash.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use crate::variable;

/// The parts of the scripts in `lua/`. Each uses only those before it, and all but `details`
/// have a twin of the same name in `src/rules/model/`.
const PARTS: [&str; 18] = [
    "lock",
    "transaction",
    "details",
    "fence",
    "revocation",
    "slots",
    "holds",
    "owners",
    "history",
    "tombstones",
    "closing",
    "reconcile",
    "queue",
    "nomination",
    "admission",
    "view",
    "asking",
    "member",
];

/// The part that reads the lock. Everything after it goes into an inner function.
const SHARED: &str = "transaction";

/// The beginning of the inner function. Each call of a script creates its functions anew. For each
/// variable that a function captures from the enclosing function, Lua searches all captured variables
/// of that function. Variables from farther out need no search, which saves a fifth of the time of a
/// call.
const INNER: &str = "return (function()\n";

/// The requests in `lua/requests/`. Each becomes a script.
const REQUESTS: [&str; 9] =
    ["acquire", "renew", "release", "leave", "revoke", "remove", "inspect", "propose", "commit"];

/// Prepends to each request the parts that it needs, and computes the hash by which a server knows
/// the script.
pub(crate) fn assemble() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
    let out = variable("OUT_DIR");
    let out = Path::new(&out);
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
        let source = with_parts(&request, &parts);
        let lines: Vec<_> = source.lines().map(str::trim).collect();
        // Lua finds a local name faster.
        let source = lines.join("\n").replace("redis.call(", "call(");
        let source = format!("local call = redis.call\n{source}");
        // It undoes a request that may still be under way. It is written right after that, and then
        // the connection is closed. A server reads 16 KiB at a time, and discards the rest if it
        // cannot answer the first request. The limit leaves room for the keys and arguments.
        let is_small = source.len() < 14 * 1024;
        assert!(is_small || name != "leave", "{name} takes {} bytes", source.len());
        let hash = sha1_smol::Sha1::from(&source).hexdigest();
        let constant = name.to_uppercase();
        fs::write(out.join(format!("{name}.lua")), source)?;
        // Writing to a string cannot fail.
        let _ = writeln!(
            generated,
            "pub const {constant}: Script = \
             Script {{ source: include_str!(\"{name}.lua\"), hash: {hash:?} }};",
        );
    }
    fs::write(out.join("scripts.rs"), generated)
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
/// NAME` and `local NAME, … =` can be left out.
fn needed_by(request: &str, parts: &str) -> String {
    let declarations = declarations(parts);
    // From the last to the first, because a declaration uses only those before it.
    let mut known: HashSet<&str> = words(request).collect();
    let mut needed: Vec<&str> = Vec::new();
    for declaration in declarations.iter().rev() {
        if declared(declaration)
            .is_none_or(|names| names.split(", ").any(|name| known.contains(name)))
        {
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

/// The names that a declaration declares.
fn declared(declaration: &str) -> Option<&str> {
    let local = declaration.strip_prefix("local ")?;
    match local.strip_prefix("function ") {
        Some(function) => function.split('(').next(),
        None => Some(local.split_once(" = ")?.0),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}
