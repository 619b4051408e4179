//! What the pages point to exists: other pages, their sections, and the files of the project.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rlock::rules::{LossPolicy, Ttl};

use crate::support::side_key;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The Markdown files of the project with their texts.
fn pages() -> HashMap<PathBuf, String> {
    let folders = [Path::new(ROOT).to_owned(), Path::new(ROOT).join("docs")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines outside of blocks of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    page.split("\n```").step_by(2).flat_map(str::lines)
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let pages = pages();
    for (path, page) in &pages {
        let links = prose(page).flat_map(|line| line.split("](").skip(1));
        let links = links.map(|rest| rest.split(')').next().unwrap());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => {
                    let target = path.parent().unwrap().join(file).canonicalize();
                    target.unwrap_or_else(|_| panic!("{}: no file {link}", path.display()))
                }
            };
            let is_section = |line: &str| line.starts_with('#') && anchor(line) == section;
            let leads = section.is_empty() || prose(&pages[&target]).any(is_section);
            assert!(leads, "{}: no section {link}", path.display());
        }
    }
}

#[test]
fn every_file_that_a_page_names_exists() {
    const FOLDERS: [&str; 9] =
        ["src/", "lua/", "tests/", "docs/", "build/", "benches/", "fuzz/", "packaging/", ".ci/"];
    for (path, page) in pages() {
        let words = page.split(|c: char| c.is_whitespace() || "`()[],;:".contains(c));
        let words = words.map(|word| word.trim_start_matches("./").trim_end_matches(['.', '\'']));
        for word in words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder))) {
            let file = word.split('#').next().unwrap();
            let exists = Path::new(ROOT).join(file).exists();
            assert!(exists, "{} names {file}, which does not exist", path.display());
        }
    }
}

#[test]
fn a_key_on_a_page_has_the_number_of_the_stored_format() {
    let side = side_key("L", "");
    let (_, number) = side.split_once('}').unwrap();
    for (path, page) in pages() {
        for rest in page.split('}').filter(|rest| rest.starts_with('?')) {
            assert!(
                rest.starts_with(number),
                "{}: {}",
                path.display(),
                rest.lines().next().unwrap()
            );
        }
    }
}

/// The registry has an `rlock` of other authors.
#[test]
fn what_the_pages_install_from_the_registry_is_this_project() {
    let mut count = 0;
    for (path, page) in pages() {
        for line in page.lines().filter(|line| !line.contains("another project")) {
            for installer in ["cargo install ", "cargo binstall "] {
                for rest in line.split(installer).skip(1) {
                    let mut words = rest.split(['`', ' ', '.', ',']);
                    let name = words.find(|word| !word.is_empty() && !word.starts_with('-'));
                    assert_eq!(name, Some(env!("CARGO_PKG_NAME")), "{}: {line}", path.display());
                    count += 1;
                }
            }
        }
    }
    assert!(count > 0, "no page tells how to install it");
    // What cargo-binstall downloads is what packaging/pack makes.
    let manifest = include_str!("../Cargo.toml");
    let tarball = "/rlock-{ version }-{ target-arch }-linux.tar.gz\"";
    assert!(manifest.contains(tarball), "{manifest}");
    let pack = include_str!("../packaging/pack");
    assert!(pack.contains("name=rlock-$version-$machine-linux\n"), "{pack}");
    // The packages of distributions have the name of the program.
    assert_eq!(manifest.matches("\nname = \"rlock\"\n").count(), 4, "deb, rpm, program, library");
}

#[test]
fn figures_that_follow_from_the_defaults_are_current() {
    let (ttl, kill_after) =
        (Ttl::DEFAULT.get().as_secs(), LossPolicy::DEFAULT.kill_after.as_secs());
    let (renewal, stop) = (ttl / 3, ttl - kill_after);
    let heartbeat = renewal.min(10);
    for (page, figures) in [
        ("README.md", format!("(`--ttl`, {ttl} s by default)")),
        (
            "README.md",
            format!(
                "notices within {renewal} s and stops its command within another {kill_after} s"
            ),
        ),
        ("README.md", format!("until its lease expires (by default, at most {ttl} s)")),
        ("README.md", format!("`--kill-after`: {kill_after} s by default")),
        (
            "README.md",
            format!(
                "SIGTERM comes {stop} s after the last renewal and SIGKILL at {ttl} s (defaults)"
            ),
        ),
        ("README.md", format!("SIGTERM comes immediately, and SIGKILL {kill_after} s later")),
        ("docs/other-tools.md", format!("the lock is free after {ttl} s (`--ttl`) |")),
        ("docs/promises.md", format!("{} s with the default TTL", 4 + 3 * heartbeat)),
        ("docs/troubleshooting.md", format!("Otherwise, keep {ttl} s.")),
        (
            "docs/troubleshooting.md",
            // The drift takes the last second.
            format!(
                "an outage of {} s is harmless: SIGTERM comes {stop} s after the last renewal, which may \
                 be {renewal} s before the outage",
                stop - renewal - 1
            ),
        ),
    ] {
        let text = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
        assert!(text.contains(&figures), "{page} does not say: {figures}");
    }
}
