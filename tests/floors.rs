//! What the modules of `src` know of each other.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules, from the lowest floor to the highest. Each may use those before it.
const FLOORS: [&str; 13] = [
    "text",
    "rules",
    "exit",
    "system",
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

#[test]
fn every_import_points_down() {
    let floor = |module: &str| FLOORS.iter().position(|floor| *floor == module);
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in sources(&src) {
        let file = path.strip_prefix(&src).unwrap();
        let module = file.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if ["lib", "main", "allocator"].contains(&module) {
            continue;
        }
        let own = floor(module).unwrap_or_else(|| panic!("{module} is on no floor"));
        let text = fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap();
        for used in product.split("crate::").skip(1) {
            let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            let below = used == module || floor(used).is_some_and(|used| used < own);
            assert!(below, "{} uses {used}, which is not below it", file.display());
        }
    }
}
