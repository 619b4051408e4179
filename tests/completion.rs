//! A real shell completes the command line of rlock, and no lock name can make it run a command.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::*;

const COMPLETIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/completions");

/// A key binding makes these shells print the current line.
const BASH: &str = r#"
stty cols 400
PS1='$ '
bind -x '"\C-g": printf "<<%s>>" "$READLINE_LINE"'
"#;
const BASH_COMPLETION: &str = "source /usr/share/bash-completion/bash_completion\n";
const ZSH: &str = r#"
stty cols 400
PS1='$ '
bindkey -e
autoload -Uz compinit
compinit -u -D
show() { print -rn -- "<<$BUFFER>>" }
zle -N show
bindkey '^G' show
"#;

const TAB: &str = "\t";
const SHOW_LINE: &str = "\x07";
const KILL_LINE: &str = "\x15";

/// How to start each shell. Only fish prints its completions without a terminal.
const SHELLS: [&str; 4] = [
    "bash --noprofile --rcfile bashrc -i",
    // With the package bash-completion.
    "bash --noprofile --rcfile bashrc-of-package -i",
    "zsh -d -i",
    "fish",
];

/// A shell that knows `rlock` by name and has its completions, in a directory with two files.
struct Shell {
    program: &'static str,
    directory: TempDir,
    url: String,
    terminal: Option<Terminal>,
}

impl Shell {
    fn start(line: &'static str, url: &str) -> Self {
        let directory = TempDir::new().unwrap();
        for (file, text) in [
            ("file one", String::new()),
            ("other", String::new()),
            ("bashrc", format!("{BASH}source {COMPLETIONS}/rlock.bash\n")),
            ("bashrc-of-package", format!("{BASH_COMPLETION}. ./bashrc\n")),
            (".zshrc", format!("fpath=({COMPLETIONS} $fpath)\n{ZSH}")),
        ] {
            fs::write(directory.path().join(file), text).unwrap();
        }
        let mut words = line.split(' ');
        let program = words.next().unwrap();
        let mut shell = Self { program, directory, url: url.to_owned(), terminal: None };
        if program != "fish" {
            let mut command = shell.command();
            command.args(words).env("ZDOTDIR", shell.directory.path());
            shell.terminal = Some(Terminal::of(command));
        }
        shell
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        let binary = Path::new(binary()).parent().unwrap().display();
        let path = format!("{binary}:{}", std::env::var("PATH").unwrap());
        command.env("PATH", path).env("RLOCK_URL", &self.url).env("LC_ALL", "C.UTF-8");
        command.current_dir(self.directory.path()).env("HOME", self.directory.path());
        command
    }

    /// The line after a completion. It stays as it is if there is nothing to complete, or a choice.
    fn completes(&mut self, line: &str) -> String {
        let Some(terminal) = &mut self.terminal else {
            let script = format!("source {COMPLETIONS}/rlock.fish; complete --escape -C $line");
            let output = run(self.command().args(["-c", &script]).env("line", line));
            assert_eq!(output.err(), "", "{output:?}");
            // What fish offers instead of the last word, quoted as needed, with a description.
            return match &output.out().lines().collect::<Vec<_>>()[..] {
                [only] => {
                    let (before, _) = line.rsplit_once(' ').unwrap();
                    format!("{before} {}", only.split('\t').next().unwrap())
                }
                _ => line.to_owned(),
            };
        };
        terminal.types(&format!("{line}{TAB}{SHOW_LINE}"));
        let shown = terminal.sees(">>");
        terminal.types(KILL_LINE);
        let line = shown.rsplit("<<").next().unwrap();
        line.strip_suffix(">>").unwrap().trim_end().to_owned()
    }

    /// The value of a word, as this shell reads it.
    fn value(&self, word: &str) -> String {
        run(self.command().args(["-c", &format!("printf %s {word}")])).out()
    }
}

/// Checks what each shell makes of these lines.
#[track_caller]
fn complete(url: &str, lines: &[(&str, &str)]) {
    for shell in SHELLS {
        let mut started = Shell::start(shell, url);
        for (line, completed) in lines {
            assert_eq!(started.completes(line), *completed, "{shell}");
        }
    }
}

#[test]
fn subcommands_options_their_values_and_the_names_of_locks_are_completed() {
    let server = Server::start();
    for name in ["deploy:prod", "deploy:test", "backup", "user@host", "größe"] {
        acquire(&server, &[], name);
    }
    let lines = [
        ("rlock acq", "rlock acquire"),
        ("rlock --vers", "rlock --version"),
        ("rlock inspect --att", "rlock inspect --attention"),
        ("rlock exec --att", "rlock exec --att"),
        ("rlock exec L --nonb", "rlock exec L --nonblock"),
        ("rlock exec -t 5", "rlock exec -t 5m"),
        ("rlock renew --ttl=3", "rlock renew --ttl=30s"),
        ("rlock inspect --watch=3", "rlock inspect --watch=30s"),
        ("rlock exec --on-lost c", "rlock exec --on-lost continue"),
        ("rlock exec --on-unreachable=r", "rlock exec --on-unreachable=run"),
        ("rlock inspect --tls-ca oth", "rlock inspect --tls-ca other"),
        ("rlock inspect --password-file fil", "rlock inspect --password-file file\\ one"),
        ("rlock exec --label oth", "rlock exec --label oth"),
        ("rlock inspect deploy:p", "rlock inspect deploy:prod"),
        ("rlock acquire user@", "rlock acquire user@host"),
        ("rlock renew g", "rlock renew größe"),
        ("rlock release --force --reason x b", "rlock release --force --reason x backup"),
        ("rlock exec -n -t 5m --label=x -- b", "rlock exec -n -t 5m --label=x -- backup"),
        ("rlock exec -nqt 5m b", "rlock exec -nqt 5m backup"),
        ("rlock inspect -W b", "rlock inspect -W backup"),
        ("rlock inspect -W 5s b", "rlock inspect -W 5s backup"),
        ("rlock exec --prefix rlock:user @", "rlock exec --prefix rlock:user @host"),
        // This shell's directory has such a file.
        ("rlock inspect oth", "rlock inspect oth"),
        // After the name.
        ("rlock release backup b", "rlock release backup b"),
        // A command is completed as without rlock, whose options have ended.
        ("rlock exec -- L mkfif", "rlock exec -- L mkfifo"),
        ("rlock exec L -t 5m -- mkfif", "rlock exec L -t 5m -- mkfifo"),
        ("rlock exec -t 5m L cat oth", "rlock exec -t 5m L cat other"),
        ("rlock exec L cat --nonb", "rlock exec L cat --nonb"),
    ];
    complete(&server.url(), &lines);
    for line in &SHELLS[1..] {
        // The completions of the command itself: here, those of rlock.
        let completed = Shell::start(line, &server.url()).completes("rlock exec L rlock exec -n b");
        assert_eq!(completed, "rlock exec L rlock exec -n backup", "{line}");
    }
}

#[test]
fn completed_names_are_quoted_for_the_shell() {
    let server = Server::start();
    let names = ["a;touch$IFS", "b$(touch$IFS", "c`touch`", "d'x", "e\"x", "f&&x", "h!x", "i#~x"];
    for name in names {
        acquire(&server, &[], name);
    }
    // Other tools may have chosen keys that rlock would reject.
    for key in ["rlock:j k", "rlock:j\nk", "rlock:j\\k", "rlock:j$(touch hacked)"] {
        server.cli(&["SET", key, "another tool"]);
    }
    for line in SHELLS {
        let shell = &mut Shell::start(line, &server.url());
        for (name, quote) in names.iter().flat_map(|name| ["", "'", "\""].map(|it| (*name, it))) {
            // In this case, bash would replace it from its history.
            if (name, quote) != ("h!x", "\"") {
                let completed = shell.completes(&format!("rlock inspect {quote}{}", &name[..1]));
                let word = completed.strip_prefix("rlock inspect ").unwrap();
                assert_eq!(shell.value(word), name, "{line}: {word}");
            }
        }
        assert_eq!(shell.completes("rlock inspect j"), "rlock inspect j", "{line}");
        // Another program of this name does not run before the user says so.
        let other = shell.directory.path().join("rlock");
        fs::write(&other, "#!/bin/sh\n>hacked\n").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
        shell.completes("./rlock inspect a");
        for file in ["hacked", "x"] {
            assert!(!shell.directory.path().join(file).exists(), "{line}");
        }
    }
}

#[test]
fn without_a_server_completion_is_empty_and_silent() {
    let server = Server::start();
    acquire(&server, &[], "backup");
    let line = format!("rlock inspect --url {} b", server.url());
    let elsewhere = ("rlock inspect b", "rlock inspect b");
    complete("unix:///nowhere", &[elsewhere, (&line, &format!("{line}ackup"))]);
    // A frozen server does not keep the user from typing.
    server.signal("STOP");
    complete("unix:///nowhere", &[(&line, &line)]);
    server.signal("CONT");
}
