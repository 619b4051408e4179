//! The picture in the README: a real session, drawn as a terminal would show it. UPDATE=1 draws it
//! again after a message has changed.
//!
//! Names, numbers and times differ from run to run, so the picture has fixed ones.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{Finished, Running, Server, run};
use tempfile::TempDir;

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/session.svg");

/// The longest line of the picture, in characters.
const WIDTH: usize = 80;

/// What a terminal shows: a line with a prompt is what the user types.
#[derive(Default)]
struct Session(Vec<String>);

impl Session {
    fn types(&mut self, command: &str) {
        if !self.0.is_empty() {
            self.0.push(String::new());
        }
        self.0.push(format!("$ {command}"));
    }

    fn shows(&mut self, text: &str, replaced: &[(String, String)]) {
        for line in text.lines() {
            let mut line = line.to_owned();
            for (own, fixed) in replaced {
                line = line.replace(own, fixed);
            }
            self.0.extend(wrapped(&line));
        }
    }

    fn drawn(&self) -> String {
        const LINE: usize = 20;
        let (width, height) = (WIDTH * 9 + 40, self.0.len() * LINE + 40);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" \
             font-size=\"14\">\n<title>A deployment waits, is inspected, and the lock is \
             revoked</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
        );
        for (number, line) in self.0.iter().enumerate() {
            let color = if line.starts_with('$') { "#7ee787" } else { "#c9d1d9" };
            let text = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let y = (number + 1) * LINE + 14;
            let _ = writeln!(
                svg,
                "<text x=\"20\" y=\"{y}\" fill=\"{color}\" xml:space=\"preserve\">{text}</text>"
            );
        }
        svg + "</svg>\n"
    }
}

/// Breaks a line as a terminal of this width does.
fn wrapped(line: &str) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    characters.chunks(WIDTH).map(|chunk| chunk.iter().collect()).collect()
}

/// What stands between two texts in a line.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}")).1;
    rest.split_once(after).map_or(rest, |(found, _)| found)
}

#[test]
fn the_picture_in_the_readme_shows_a_real_session() {
    let server = Server::with(&[]);
    let directory = TempDir::new().unwrap();
    let make = directory.path().join("make");
    fs::write(&make, "#!/bin/sh\necho READY\nread _ || :\n").unwrap();
    fs::set_permissions(&make, fs::Permissions::from_mode(0o755)).unwrap();
    let rlock = |label: &str, arguments: &[&str]| -> Command {
        let mut command = server.rlock(arguments);
        let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("RLOCK_TTL", "3s").env("RLOCK_LABEL", label);
        command
    };
    let (old, new) = ("https://ci.example/812", "https://ci.example/813");
    let mut stuck = Running::start(&mut rlock(old, &["exec", "deploy:prod", "make", "deploy"]));
    assert_eq!(stuck.line(), "READY");
    let wait = ["exec", "-w", "30m", "deploy:prod", "make", "deploy"];
    let mut deployment = Running::start(&mut rlock(new, &wait));
    let waits = deployment.told("waiting at position 1");
    let page = run(&mut rlock("", &["inspect", "deploy:prod"])).out();
    let revoked = run(&mut rlock("", &["release", "--force", "deploy:prod"]));
    stuck.told("; stopping the command");
    stuck.end();
    assert_eq!(deployment.line(), "READY");
    assert_eq!(deployment.finish().code(), 0);

    let line = |key: &str| page.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
    let holder = |text: &str, before: &str| format!("{} (make)", between(text, before, " (make)"));
    let (ana, bob) = (holder(&page, "held by "), holder(line("waiting"), "1. "));
    let mut replaced: Vec<(String, String)> = [
        (between(&page, "id       ", "\n"), "5f0c21aa"),
        (between(&page, ", id ", ","), "fea74c26"),
        (line("since"), "  since    2026-11-21T06:31:07.123Z, exclusive"),
        (line("fence"), "  fence    1795242667123456"),
        (line("lease"), "  lease    21s left, renewed 9s ago"),
    ]
    .map(|(own, fixed)| (own.to_owned(), fixed.to_owned()))
    .into();
    for text in [&waits, &page, &revoked.out(), &revoked.err()] {
        for (who, since, now) in
            [(&ana, " for ", "2m13s"), (&ana, ", held for ", "2m20s"), (&bob, " for ", "41s")]
        {
            let told = format!("{who}{since}");
            if let Some((_, rest)) = text.split_once(&told) {
                let time = rest.split([',', '\n']).next().unwrap();
                replaced.push((format!("{told}{time}"), format!("{told}{now}")));
            }
        }
    }
    let up_to = between(&revoked.err(), "waiting up to ", " for").to_owned();
    replaced.push((format!("waiting up to {up_to} for"), "waiting up to 14s for".into()));
    replaced.push((ana, "ana@ci-3 pid 4242 (make)".into()));
    replaced.push((bob, "bob@ci-1 pid 77 (make)".into()));

    let mut session = Session::default();
    session.types("rlock exec -w 30m --label \"$JOB_URL\" deploy:prod -- make deploy");
    session.shows(&waits, &replaced);
    session.types("rlock inspect deploy:prod");
    session.shows(&page, &replaced);
    session.types("rlock release --force deploy:prod");
    session.shows(&revoked.out(), &replaced);
    session.shows(&revoked.err(), &replaced);
    let drawn = session.drawn();
    if std::env::var("UPDATE").is_ok() {
        fs::write(PICTURE, &drawn).unwrap();
    }
    let shown = fs::read_to_string(PICTURE).unwrap_or_default();
    assert_eq!(shown, drawn, "draw it again: UPDATE=1 cargo test --test promises picture::");
    assert!(include_str!("../README.md").contains("docs/session.svg"));
}
