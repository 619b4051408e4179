//! The picture in the README is that of a real run, and shows what the program says.
//! `UPDATE=1 cargo test --test promises picture::` makes it again.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::*;
use tempfile::TempDir;

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/session.svg");

/// What the command does that the lock protects.
const DEPLOY: &str = "#!/bin/sh
echo Deploying $1
[ $1 = 812 ] && sleep 60
sleep 1; echo Deployed\n";

/// The host and the user of each terminal, and the title above it.
const TERMINALS: [(&str, &str, &str); 3] = [
    ("h1", "ana", "Host h1: a deployment holds the lock"),
    ("h2", "bob", "Host h2: the next one waits, and then runs"),
    ("pc", "al", "An operator looks, and revokes the lock"),
];

/// Its size in a terminal, and that of a character.
const COLUMNS: usize = 73;
const WIDTH: usize = 8;
const HEIGHT: usize = 20;

/// How long the picture stays after the last line.
const REST: f32 = 3.0;

const STYLE: &str = "
rect{fill:#f6f8fa;stroke:#d1d9e0}text{fill:#1f2328;white-space:pre}.title{fill:#59636e}.typed{fill:#116329}
.said{fill:#0550ae}@media(prefers-color-scheme:dark){rect{fill:#0d1117;stroke:#3d444d}text{fill:#f0f6fc}
.title{fill:#9198a1}.typed{fill:#7ee787}.said{fill:#79c0ff}}@media(prefers-reduced-motion){*{animation:none!important}}
";

struct Line {
    terminal: usize,
    at: Duration,
    text: String,
}

/// Runs the session and returns its lines; with pauses, at a pace that one can read.
fn session(pauses: bool) -> Vec<Line> {
    let server = Server::start();
    let programs = TempDir::new().unwrap();
    let deploy = programs.path().join("deploy");
    fs::write(&deploy, DEPLOY).unwrap();
    fs::set_permissions(&deploy, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(binary(), programs.path().join("rlock")).unwrap();

    let start = Instant::now();
    let mut lines = Vec::new();
    let mut show = |terminal, text| lines.push(Line { terminal, at: start.elapsed(), text });
    let typed = |terminal: usize, line: &str| {
        let (host, user, _) = TERMINALS[terminal];
        let path = programs.path().display();
        let script = format!("hostname {host}; exec 2>&1; PATH={path}:$PATH LOGNAME={user} {line}");
        Running::start(&mut server.contained("--uts --pid --fork --mount-proc", &script))
    };
    let pause = |seconds| sleep(Duration::from_secs_f32(if pauses { seconds } else { 0.0 }));

    let mut shown = |terminal, line: &str, count: usize| {
        show(terminal, format!("$ {line}"));
        let mut running = typed(terminal, line);
        (0..count).for_each(|_| show(terminal, running.line()));
        running
    };
    let mut first = shown(0, "rlock exec app -- deploy 812", 1);
    pause(2.0);
    let mut second = shown(1, "rlock exec app -- deploy 813", 1);
    pause(2.0);
    shown(2, "rlock inspect app", 7).finish().exits(0);
    pause(4.0);
    let operator = shown(2, "rlock release --force -q app", 1);
    (0..2).for_each(|_| show(0, first.line()));
    (0..3).for_each(|_| show(1, second.line()));
    first.finish().exits(76);
    second.finish().exits(0);
    operator.finish().exits(0);
    lines.sort_by_key(|line| line.terminal);
    lines
}

/// What does not change from run to run: all but numbers and ids.
fn lasting(text: &str) -> String {
    let is_id = |word: &str| word.len() == 8 && word.chars().all(|c| c.is_ascii_hexdigit());
    let changes = |word: &str| is_id(word) || word.contains(|c: char| c.is_ascii_digit());
    let words = text.trim_end().split(' ').map(|word| if changes(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The lines of a picture, without its titles.
fn texts(picture: &str) -> Vec<String> {
    let lines = picture.lines().filter(|line| line.starts_with("<text") && !line.contains("title"));
    lines.map(|line| line.split(['<', '>']).nth(2).unwrap().to_owned()).collect()
}

fn picture(lines: &[Line]) -> String {
    let end = lines.iter().map(|line| line.at).max().unwrap().as_secs_f32() + REST;
    let (mut style, mut body, mut y) = (STYLE.to_owned(), String::new(), 0);
    for (terminal, (.., title)) in TERMINALS.iter().enumerate() {
        let own = lines.iter().filter(|line| line.terminal == terminal);
        let height = (own.clone().count() + 1) * HEIGHT + 14;
        let width = COLUMNS * WIDTH + 23;
        writeln!(body, r#"<rect x=".5" y="{y}.5" width="{width}" height="{height}" rx="6"/>"#)
            .unwrap();
        let mut text = |class: &str, text: &str, y, style: String| {
            let length = text.chars().count() * WIDTH;
            let place =
                format!(r#"x="12" y="{y}" textLength="{length}" lengthAdjust="spacingAndGlyphs""#);
            writeln!(body, r#"<text class="{class}" {place}{style}>{text}</text>"#).unwrap();
        };
        text("title", title, y + 22, String::new());
        for (number, line) in own.enumerate() {
            assert!(line.text.chars().count() <= COLUMNS, "{} is too long", line.text);
            assert!(!line.text.contains(['&', '<', '>']), "escape {}", line.text);
            let name = format!("k{terminal}{number}");
            let part = line.at.as_secs_f32() / end * 100.0;
            writeln!(style, "@keyframes {name}{{0%{{opacity:0}}{part:.2}%,to{{opacity:1}}}}")
                .unwrap();
            let class = match &line.text {
                text if text.starts_with('$') => "typed",
                text if text.starts_with("rlock:") => "said",
                _ => "",
            };
            let animated = format!(r#" style="animation:{name} {end:.1}s step-end infinite""#);
            text(class, &line.text, y + 22 + (number + 1) * HEIGHT, animated);
        }
        y += height + 8;
    }
    let size = format!(r#"viewBox="0 0 {} {}""#, COLUMNS * WIDTH + 24, y - 7);
    let font =
        "font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,monospace\" font-size=\"15\"";
    let title = "An operator revokes a lock, and the deployment that waits for it runs";
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} {font} xml:space=\"preserve\">\n\
         <title>{title}</title>\n<style>{style}</style>\n{body}</svg>\n"
    )
}

#[test]
fn the_picture_shows_what_the_program_says() {
    let update = std::env::var_os("UPDATE").is_some();
    let lines = session(update);
    if update {
        fs::write(PICTURE, picture(&lines)).unwrap();
    }
    let there = texts(&fs::read_to_string(PICTURE).unwrap());
    let there = Vec::from_iter(there.iter().map(|text| lasting(text)));
    let said = Vec::from_iter(lines.iter().map(|line| lasting(&line.text)));
    assert_eq!(there, said, "run UPDATE=1 cargo test --test promises picture::");
}
