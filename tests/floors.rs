//! What the modules of `src` know of each other, and the files of `tests/proof`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules, from the lowest floor to the highest. Each may use those before it.
const FLOORS: [&str; 13] = [
    "text",
    "rules",
    "system",
    "exit",
    "report",
    "error",
    "store",
    "inspect",
    "cli",
    "config",
    "wait",
    "supervise",
    "commands",
];

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs"));
    files.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// Each file of the product with its text, without the tests at its end.
fn product() -> impl Iterator<Item = (PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    sources(&src).into_iter().filter_map(move |path| {
        let file = path.strip_prefix(&src).unwrap().to_owned();
        let is_test = file.iter().any(|part| part == "tests" || part == "tests.rs");
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        (!is_test).then_some((file, text))
    })
}

fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn every_import_points_down() {
    let floor = |module: &str| FLOORS.iter().position(|floor| *floor == module);
    for (file, text) in product() {
        let module = file.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if ["lib", "main"].contains(&module) {
            continue;
        }
        let own = floor(module).unwrap_or_else(|| panic!("{module} is on no floor"));
        for used in text.split("crate::").skip(1) {
            let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            let below = used == module || floor(used).is_some_and(|used| used < own);
            assert!(below, "{} uses {used}, which is not below it", file.display());
        }
    }
}

/// The modules of `rules`, from the lowest floor to the highest, whose names the others import from
/// `rules` itself.
const RULES: [&str; 23] = [
    "back_off",
    "instant",
    "policy",
    "user_message",
    "duration",
    "failure",
    "reminders",
    "lateness",
    "lease",
    "system_call",
    "server_time",
    "lock",
    "loss",
    "request",
    "standing",
    "ask",
    "retries",
    "supervisor",
    "waiter",
    "model",
    "renewals",
    "servers",
    "quorum",
];

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn every_import_within_the_rules_points_down() {
    let face = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/rules.rs")).unwrap();
    let exports = face.split(" use ").skip(1).filter_map(|line| line.split(';').next());
    let homes: BTreeMap<&str, &str> = exports
        .flat_map(|line| words(line).map(move |name| (name, words(line).next().unwrap())))
        .collect();
    let floor = |name: &str| RULES.iter().position(|room| room == homes.get(name).unwrap_or(&name));
    for (file, text) in product().filter(|(file, _)| file.starts_with("rules")) {
        let parts: Vec<&str> = file.iter().map(|part| part.to_str().unwrap()).collect();
        let room = parts[1].trim_end_matches(".rs");
        let own = floor(room).unwrap_or_else(|| panic!("{room} is on no floor"));
        let is_room = parts.len() == 2;
        let text = if is_room { text.replace("super::", "crate::rules::") } else { text };
        for used in text.split("crate::rules::").skip(1) {
            let names = match used.strip_prefix('{') {
                Some(names) => words(names.split('}').next().unwrap()).collect(),
                None => Vec::from_iter(words(used).next()),
            };
            let above = names.iter().find(|name| floor(name).is_some_and(|floor| floor > own));
            assert_eq!(above, None, "{} uses what is not below it", file.display());
        }
    }
}

#[test]
fn what_decides_takes_time_randomness_and_surroundings_as_values() {
    let surroundings = ["now()", "SystemTime", "std::env", "std::fs", "std::io", "std::thread"];
    // The order of a hash map is random, and so are UUIDs of these versions.
    let random = ["HashMap", "HashSet", "RandomState", "getrandom", "new_v4", "now_v"];
    let surroundings = [surroundings, random].concat();
    for (file, text) in product().filter(|(file, _)| file.starts_with("rules")) {
        let found = surroundings.iter().find(|name| code(&text).any(|line| line.contains(**name)));
        assert_eq!(found, None, "{}", file.display());
    }
}

#[test]
fn each_type_has_its_own_name() {
    let mut known: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (file, text) in product() {
        let words = code(&text).filter(|line| !line.starts_with("    type "));
        let words: Vec<_> = words.flat_map(str::split_whitespace).collect();
        for pair in words.windows(2) {
            let name = pair[1].split(|c: char| !c.is_alphanumeric()).next().unwrap();
            let is_type = ["struct", "enum", "trait", "type"].contains(&pair[0]);
            if is_type && name.starts_with(char::is_uppercase) {
                let other = known.insert(name.to_owned(), file.clone());
                assert!(other.is_none(), "{name} is in {} and {other:?}", file.display());
            }
        }
    }
}

#[test]
fn what_the_compiler_cannot_check_is_in_one_module() {
    // The C runtime calls `main`.
    for (file, text) in product().filter(|(file, _)| !file.starts_with("system")) {
        let found = code(&text).any(|line| {
            ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|it| line.contains(it))
        });
        assert!(!found || file == Path::new("main.rs"), "{}", file.display());
    }
}

/// The module of a file, such as `check::quorum`.
fn module_of(file: &Path) -> String {
    let path = file.with_extension("");
    let parts = path.iter().map(|part| part.to_str().unwrap());
    parts.filter(|part| !["mod", "main"].contains(part)).collect::<Vec<_>>().join("::")
}

/// The modules that the text of another one names.
fn used_by<'a>(module: &str, text: &str, all: &'a [String]) -> Vec<&'a String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let around =
        module.rsplit_once("::").map_or(String::new(), |(around, _)| format!("{around}::"));
    let names = text.split(|c: char| !is_path(c)).filter(|name| name.contains("::"));
    let names = names.map(|name| match name.split_once("::") {
        Some(("crate", rest)) => rest.to_owned(),
        Some(("super", rest)) => format!("{around}{rest}"),
        _ => format!("{module}::{name}"),
    });
    let longest = |name: String| {
        let is_in = |other: &&String| format!("{name}::").starts_with(&format!("{other}::"));
        all.iter().filter(is_in).max_by_key(|other| other.len())
    };
    names.filter_map(longest).filter(|used| *used != module).collect()
}

#[test]
fn no_files_of_the_proof_need_each_other() {
    let proof = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proof");
    let files = sources(&proof).into_iter().map(|path| {
        (module_of(path.strip_prefix(&proof).unwrap()), fs::read_to_string(&path).unwrap())
    });
    let mut files: BTreeMap<String, String> = files.filter(|(name, _)| !name.is_empty()).collect();
    loop {
        // What uses nothing that is left, or is not used by anything left, is in no circle.
        let left: Vec<String> = files.keys().cloned().collect();
        let uses = files.iter().map(|(name, text)| (name, used_by(name, text, &left)));
        let uses: Vec<_> = uses.filter(|(_, used)| !used.is_empty()).collect();
        let is_used = |name| uses.iter().any(|(_, used)| used.contains(&name));
        let both = uses.iter().map(|(name, _)| *name).filter(|name| is_used(*name));
        let both: Vec<String> = both.cloned().collect();
        if both.len() == left.len() {
            break;
        }
        files.retain(|name, _| both.contains(name));
    }
    assert!(files.is_empty(), "these need each other: {:?}", files.keys());
}
