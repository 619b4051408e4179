//! A real shell completes the command line of rlock, and no lock name can make it run a command.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::pty::Terminal;
use crate::support::{Finished, Server, acquire, binary, run};

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
all() { _complete; compstate[insert]=all compstate[list]= }
zle -C all complete-word all
bindkey '^[*' all
"#;

const TAB: &str = "\t";
/// Inserts all completions.
const ALL: &str = "\x1b*";
const SHOW_LINE: &str = "\x07";
const KILL_LINE: &str = "\x15";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Bash,
    /// With the package bash-completion.
    BashCompletion,
    Zsh,
    Fish,
}

const KINDS: [Kind; 4] = [Kind::Bash, Kind::BashCompletion, Kind::Zsh, Kind::Fish];

/// A shell that knows `rlock` by name and has its completions, in a directory with two files.
struct Shell {
    kind: Kind,
    directory: TempDir,
    url: String,
    /// `None` for fish, which prints its completions without a terminal.
    terminal: Option<Terminal>,
}

impl Shell {
    fn start(kind: Kind, url: &str) -> Self {
        let directory = TempDir::new().unwrap();
        for file in ["file one", "other"] {
            fs::write(directory.path().join(file), "").unwrap();
        }
        let mut shell = Self { kind, directory, url: url.to_owned(), terminal: None };
        let rc = |name: &str, text: &str| {
            let rc = shell.directory.path().join(name);
            fs::write(&rc, text).unwrap();
            rc
        };
        let terminal = match kind {
            Kind::Bash | Kind::BashCompletion => {
                let more = if kind == Kind::BashCompletion { BASH_COMPLETION } else { "" };
                let rc = rc(".rc", &format!("{BASH}{more}source {COMPLETIONS}/rlock.bash\n"));
                let mut bash = shell.command();
                bash.args(["--noprofile", "--rcfile"]).arg(rc).arg("-i");
                Some(bash)
            }
            Kind::Zsh => {
                rc(".zshrc", &format!("fpath=({COMPLETIONS} $fpath)\n{ZSH}"));
                let mut zsh = shell.command();
                zsh.args(["-d", "-i"]).env("ZDOTDIR", shell.directory.path());
                Some(zsh)
            }
            Kind::Fish => None,
        };
        shell.terminal = terminal.map(Terminal::of);
        shell
    }

    fn command(&self) -> Command {
        let mut command = Command::new(match self.kind {
            Kind::Bash | Kind::BashCompletion => "bash",
            Kind::Zsh => "zsh",
            Kind::Fish => "fish",
        });
        let binary = Path::new(binary()).parent().unwrap().display();
        let path = format!("{binary}:{}", std::env::var("PATH").unwrap());
        command.env("PATH", path).env("RLOCK_URL", &self.url).env("LC_ALL", "C.UTF-8");
        command.current_dir(self.directory.path()).env("HOME", self.directory.path());
        command
    }

    /// Types keys, and returns the line as it then is.
    fn line(&mut self, keys: &str) -> String {
        let terminal = self.terminal.as_mut().unwrap();
        terminal.types(&format!("{keys}{SHOW_LINE}"));
        let shown = terminal.sees(">>");
        terminal.types(KILL_LINE);
        let line = shown.rsplit("<<").next().unwrap();
        line.strip_suffix(">>").unwrap().trim_end().to_owned()
    }

    /// What fish offers instead of the last word, quoted as needed.
    fn offers(&self, line: &str) -> Vec<String> {
        let script = format!("source {COMPLETIONS}/rlock.fish; complete --escape -C $line");
        let output = run(self.command().args(["-c", &script]).env("line", line));
        assert_eq!(output.err(), "", "{output:?}");
        let output = output.out();
        let words = output.lines().map(|line| line.split('\t').next().unwrap().to_owned());
        words.collect()
    }

    /// The line after a completion. It stays as it is if there is nothing to complete, or a choice.
    fn completes(&mut self, line: &str) -> String {
        if self.terminal.is_some() {
            return self.line(&format!("{line}{TAB}"));
        }
        let offers = self.offers(line);
        match &offers[..] {
            [only] => format!("{} {only}", line.rsplit_once(' ').unwrap().0),
            _ => line.to_owned(),
        }
    }

    /// All completions after a line that ends with a space.
    fn lists(&mut self, line: &str) -> Vec<String> {
        let mut words = match self.terminal {
            Some(_) => {
                let all = self.line(&format!("{line}{ALL}"));
                all[line.trim_end().len()..].split_whitespace().map(str::to_owned).collect()
            }
            None => self.offers(line),
        };
        words.sort();
        words
    }

    /// The value of a word, as this shell reads it.
    fn value(&self, word: &str) -> String {
        run(self.command().args(["-c", &format!("printf %s {word}")])).out()
    }
}

fn sorted<const N: usize>(mut words: [&str; N]) -> Vec<String> {
    words.sort_unstable();
    words.map(str::to_owned).to_vec()
}

#[track_caller]
fn expect(shell: &mut Shell, line: &str, completed: &str) {
    assert_eq!(shell.completes(line), completed, "{:?}", shell.kind);
}

#[test]
fn the_names_of_locks_are_completed() {
    let server = Server::start();
    for name in ["deploy:prod", "deploy:test", "backup", "user@host", "größe"] {
        acquire(&server, &[], name);
    }
    for kind in KINDS {
        let shell = &mut Shell::start(kind, &server.url());
        let names = sorted(["backup", "deploy:prod", "deploy:test", "größe", "user@host"]);
        for subcommand in ["exec", "acquire", "renew", "release", "inspect"] {
            assert_eq!(shell.lists(&format!("rlock {subcommand} ")), names, "{kind:?}");
        }
        for (line, completed) in [
            ("rlock inspect deploy:p", "rlock inspect deploy:prod"),
            ("rlock inspect user@", "rlock inspect user@host"),
            ("rlock inspect g", "rlock inspect größe"),
            ("rlock release --force --reason x b", "rlock release --force --reason x backup"),
            ("rlock exec -n -t 5m --label=x -- b", "rlock exec -n -t 5m --label=x -- backup"),
            ("rlock exec -nqt 5m b", "rlock exec -nqt 5m backup"),
            ("rlock inspect -W b", "rlock inspect -W backup"),
            ("rlock inspect -W 5s b", "rlock inspect -W 5s backup"),
            ("rlock exec --prefix rlock:user @", "rlock exec --prefix rlock:user @host"),
            // This shell's directory has such files.
            ("rlock inspect fil", "rlock inspect fil"),
            ("rlock inspect oth", "rlock inspect oth"),
            // After the name.
            ("rlock release backup b", "rlock release backup b"),
            ("rlock inspect backup oth", "rlock inspect backup oth"),
        ] {
            expect(shell, line, completed);
        }
    }
}

#[test]
fn completed_names_are_quoted_for_the_shell() {
    let server = Server::start();
    let names =
        ["a;touch$IFS", "b$(touch$IFS", "c`touch`", "d'x", "e\"x", "f&&x", "g|x", "h!x", "i#~x"];
    for name in names {
        acquire(&server, &[], name);
    }
    // Other tools may have chosen keys that rlock would reject.
    for key in ["rlock:j k", "rlock:j\nk", "rlock:j\\k", "rlock:j$(touch hacked)"] {
        server.cli(&["SET", key, "another tool"]);
    }
    for kind in KINDS {
        let shell = &mut Shell::start(kind, &server.url());
        for name in names {
            let first = &name[..1];
            for quote in ["", "'", "\""] {
                if name == "h!x" && quote == "\"" {
                    // Bash would replace it from its history.
                    continue;
                }
                let line = format!("rlock inspect {quote}{first}");
                let completed = shell.completes(&line);
                let word = completed.strip_prefix("rlock inspect ").unwrap();
                assert_eq!(shell.value(word), name, "{kind:?}: {word}");
            }
        }
        expect(shell, "rlock inspect j", "rlock inspect j");
        assert!(!shell.directory.path().join("hacked").exists());
        assert!(!shell.directory.path().join("x").exists());
    }
}

#[test]
fn option_values_are_completed_by_type() {
    for kind in KINDS {
        let shell = &mut Shell::start(kind, "unix:///nowhere");
        let durations = sorted(["10s", "30s", "1m", "5m", "1h"]);
        for line in ["rlock exec -t ", "rlock exec --wait ", "rlock inspect --older-than "] {
            assert_eq!(shell.lists(line), durations, "{kind:?}: {line}");
        }
        assert_eq!(shell.lists("rlock exec --on-lost "), ["continue", "kill"], "{kind:?}");
        let orders = sorted(["age", "name", "waiting", "lease"]);
        assert_eq!(shell.lists("rlock inspect --sort "), orders, "{kind:?}");
        for (line, completed) in [
            ("rlock renew --ttl=3", "rlock renew --ttl=30s"),
            ("rlock exec --on-unreachable=r", "rlock exec --on-unreachable=run"),
            ("rlock inspect --tls-ca oth", "rlock inspect --tls-ca other"),
            ("rlock inspect --tls-ca=oth", "rlock inspect --tls-ca=other"),
            ("rlock inspect --password-file fil", "rlock inspect --password-file file\\ one"),
            ("rlock exec --label oth", "rlock exec --label oth"),
            ("rlock inspect --watch=3", "rlock inspect --watch=30s"),
            ("rlock exec --slots oth", "rlock exec --slots oth"),
            ("rlock exec --att", "rlock exec --att"),
            ("rlock inspect --att", "rlock inspect --attention"),
            ("rlock exec L --nonb", "rlock exec L --nonblock"),
            ("rlock acq", "rlock acquire"),
            ("rlock --vers", "rlock --version"),
            ("rlock oth", "rlock oth"),
        ] {
            expect(shell, line, completed);
        }
    }
}

#[test]
fn a_command_is_completed_as_without_rlock() {
    let server = Server::start();
    acquire(&server, &[], "backup");
    for kind in KINDS {
        let shell = &mut Shell::start(kind, &server.url());
        for before in ["exec L", "exec L --", "exec -- L", "exec -t 5m L", "exec L -t 5m --"] {
            for (line, completed) in [("mkfif", "mkfifo"), ("cat oth", "cat other")] {
                let line = format!("rlock {before} {line}");
                let (start, _) = line.rsplit_once(' ').unwrap();
                let last = completed.rsplit(' ').next().unwrap();
                expect(shell, &line, &format!("{start} {last}"));
            }
            // The options of rlock have ended.
            let line = format!("rlock {before} cat --nonb");
            expect(shell, &line, &line);
        }
        if kind != Kind::Bash {
            // The completions of the command itself: here, those of rlock.
            expect(shell, "rlock exec L -- rlock rel", "rlock exec L -- rlock release");
            let line = "rlock exec L rlock exec -n b";
            expect(shell, line, "rlock exec L rlock exec -n backup");
        }
    }
}

#[test]
fn without_a_server_completion_is_empty_and_silent() {
    let server = Server::start();
    acquire(&server, &[], "backup");
    for kind in KINDS {
        let shell = &mut Shell::start(kind, "unix:///nowhere");
        expect(shell, "rlock inspect b", "rlock inspect b");
        let line = format!("rlock inspect --url {} b", server.url());
        expect(shell, &line, &format!("{line}ackup"));
        // A frozen server does not keep the user from typing.
        server.signal("STOP");
        expect(shell, &line, &line);
        server.signal("CONT");
    }
}
