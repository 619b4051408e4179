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
const WIDTH: usize = 100;

/// The height of a line and the width of a character, in pixels.
const LINE: usize = 20;
const COLUMN: usize = 9;

/// What one terminal shows: a line with a prompt is what the user types.
struct Pane {
    title: &'static str,
    lines: Vec<String>,
}

impl Pane {
    fn new(title: &'static str) -> Self {
        Self { title, lines: Vec::new() }
    }

    fn types(&mut self, command: &str) {
        if !self.lines.is_empty() {
            self.lines.push(String::new());
        }
        self.lines.push(format!("$ {command}"));
    }

    fn shows(&mut self, text: &str, replaced: &[(String, String)]) {
        for line in text.lines() {
            let mut line = line.to_owned();
            for (own, fixed) in replaced {
                line = line.replace(own, fixed);
            }
            self.lines.extend(wrapped(&line));
        }
    }

    /// Draws the pane below `top`, and returns where it ends.
    fn draw(&self, svg: &mut String, top: usize) -> usize {
        let height = (self.lines.len() + 2) * LINE;
        let _ = writeln!(
            svg,
            "<rect y=\"{top}\" width=\"100%\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>"
        );
        let title = std::iter::once((self.title, "#8b949e"));
        let lines = self
            .lines
            .iter()
            .map(|line| (line.as_str(), if line.starts_with('$') { "#7ee787" } else { "#c9d1d9" }));
        for (number, (line, color)) in title.chain(lines).enumerate() {
            let text = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let y = top + (number + 1) * LINE + 4;
            let _ = writeln!(
                svg,
                "<text x=\"20\" y=\"{y}\" fill=\"{color}\" xml:space=\"preserve\">{text}</text>"
            );
        }
        top + height
    }
}

fn drawn(panes: &[Pane]) -> String {
    let mut body = String::new();
    let bottom = panes.iter().fold(0, |top, pane| pane.draw(&mut body, top) + LINE / 2);
    let (width, height) = (WIDTH * COLUMN + 40, bottom - LINE / 2);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" \
         font-size=\"14\">\n<title>An operator revokes a lock, and the deployment that waits for it \
         runs</title>\n{body}</svg>\n"
    )
}

/// Breaks a line between words, as a reader would, and indents what follows.
fn wrapped(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let last = lines.last_mut().unwrap();
        if last.chars().count() + word.trim_end().chars().count() > WIDTH {
            lines.push(format!("    {word}"));
        } else {
            last.push_str(word);
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
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
    fs::write(&make, "#!/bin/sh\necho 'Deploying to production'\nread _ || :\n").unwrap();
    fs::set_permissions(&make, fs::Permissions::from_mode(0o755)).unwrap();
    let rlock = |label: &str, arguments: &[&str]| -> Command {
        let mut command = server.rlock(arguments);
        let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("RLOCK_TTL", "3s").env("RLOCK_LABEL", label);
        command
    };
    let (old, new) = ("https://ci.example/812", "https://ci.example/813");
    let mut stuck = Running::start(&mut rlock(old, &["exec", "deploy:prod", "make", "deploy"]))
        .prints_first("Deploying to production");
    let wait = ["exec", "-w", "30m", "deploy:prod", "make", "deploy"];
    let mut deployment = Running::start(&mut rlock(new, &wait));
    let waits = deployment.told("waiting at position 1");
    let page = run(&mut rlock("", &["inspect", "deploy:prod"])).out();
    let revoked = run(&mut rlock("", &["release", "--force", "deploy:prod"]));
    stuck.told("; stopping the command");
    stuck.end();
    let deploys = deployment.line();
    assert_eq!(deployment.finish().code(), 0);

    let line = |key: &str| page.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
    let holder = |text: &str, before: &str| format!("{} (make)", between(text, before, " (make)"));
    let (ana, bob) = (holder(&page, "held by "), holder(line("waiting"), "1. "));
    let mut replaced: Vec<(String, String)> = [
        (between(&page, "id       ", "\n"), "5f0c21aa"),
        (between(&page, ", id ", ","), "fea74c26"),
        (line("since"), "  since    2026-11-21T06:31:07.123Z, exclusive"),
        (line("fence"), "  fence    1795242667123456"),
        (line("lease"), "  lease    29s left, renewed 1s ago"),
    ]
    .map(|(own, fixed)| (own.to_owned(), fixed.to_owned()))
    .into();
    for text in [&page, &revoked.out(), &revoked.err()] {
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
    // 41 s before the page was shown.
    let arrived = between(&waits, "(make) for ", ",");
    let waits = waits.replace(&format!(" for {arrived},"), " for 1m32s,");
    let up_to = between(&revoked.err(), "waiting up to ", " for").to_owned();
    replaced.push((format!("waiting up to {up_to} for"), "waiting up to 22s for".into()));
    replaced.push((ana, "ana@ci-3 pid 4242 (make)".into()));
    replaced.push((bob, "bob@ci-1 pid 77 (make)".into()));

    let mut waiter = Pane::new("Terminal 2: the next deployment waits, and then runs");
    waiter.types("rlock exec -w 30m --label \"$JOB_URL\" deploy:prod -- make deploy");
    waiter.shows(&waits, &replaced);
    waiter.shows(&deploys, &[]);
    let mut operator = Pane::new("Terminal 1: an operator sees who holds the lock, and revokes it");
    operator.types("rlock inspect deploy:prod");
    operator.shows(&page, &replaced);
    operator.types("rlock release --force deploy:prod");
    operator.shows(&revoked.out(), &replaced);
    operator.shows(&revoked.err(), &replaced);
    let drawn = drawn(&[operator, waiter]);
    if std::env::var("UPDATE").is_ok() {
        fs::write(PICTURE, &drawn).unwrap();
    }
    let shown = fs::read_to_string(PICTURE).unwrap_or_default();
    assert_eq!(shown, drawn, "draw it again: UPDATE=1 cargo test --test promises picture::");
    assert!(include_str!("../README.md").contains("docs/session.svg"));
}
