//! A shell completes the names of locks that are held, and says nothing if it cannot.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Finished, Server, acquire, rlock, run};

/// A shell that knows `rlock` by name and has its completions.
fn shell(program: &str, url: &str, script: &str) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_rlock"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(program);
    command.args(["-c", script]).env("PATH", path).env("RLOCK_URL", url);
    run(command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/completions")))
}

/// What `words` are completed to.
fn completed(program: &str, url: &str, words: &str) -> Vec<String> {
    let last = words.rsplit(' ').next().unwrap();
    let script = match program {
        "bash" => {
            // As bash takes words apart.
            let parts: Vec<&str> = words.split(' ').collect();
            let split = last.replace(':', " : ");
            let words_apart = format!("{} {split}", parts[..parts.len() - 1].join(" "));
            let apart: Vec<&str> = words_apart.split_whitespace().collect();
            let cur = if last.is_empty() { "" } else { last.rsplit(':').next().unwrap() };
            format!(
                "source ./rlock.bash; COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE='{words}'; \
                 COMP_POINT={}; COMP_WORDBREAKS=' :'; _rlock_and_names rlock '{cur}' '{}'; \
                 printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                apart.join(" "),
                apart.len() - usize::from(!last.is_empty()),
                words.len(),
                parts[parts.len() - 2]
            )
        }
        "zsh" => "compdef() { : }; compadd() { print -l -- $names }; source ./_rlock; _rlock_names"
            .into(),
        "fish" => format!("source ./rlock.fish; complete -C '{words}'"),
        _ => unreachable!("not a shell"),
    };
    let output = shell(program, url, &script);
    assert_eq!(output.err(), "", "{program}: {output:?}");
    let lines = output.out();
    lines
        .lines()
        .map(|line| line.split('\t').next().unwrap().to_owned())
        .filter(|l| !l.is_empty())
        .collect()
}

#[test]
fn the_names_of_locks_are_completed() {
    let server = Server::start();
    for name in ["deploy:prod", "deploy:test", "backup"] {
        acquire(&server, &[], name);
    }
    assert_eq!(
        run(&mut server.rlock(["inspect", "--names"])).out(),
        "backup\ndeploy:prod\ndeploy:test"
    );
    let url = &server.url();
    for subcommand in ["inspect", "release", "renew"] {
        let words = |word: &str| format!("rlock {subcommand} {word}");
        assert_eq!(completed("bash", url, &words("")), ["backup", "deploy:prod", "deploy:test"]);
        assert_eq!(completed("bash", url, &words("ba")), ["backup"]);
        // Bash replaces what comes after the colon only.
        assert_eq!(completed("bash", url, &words("deploy:p")), ["prod"]);
        assert_eq!(completed("fish", url, &words("dep")), ["deploy:prod", "deploy:test"]);
    }
    assert_eq!(completed("zsh", url, "rlock inspect "), ["backup", "deploy:prod", "deploy:test"]);
    let zsh = include_str!("../completions/_rlock");
    assert_eq!(zsh.matches(":_rlock_names'").count(), 3, "each of the three asks for them");
    assert_eq!(completed("bash", url, "rlock release --force ba"), ["backup"]);
    assert_eq!(completed("bash", url, "rlock inspect --json -v ba"), ["backup"]);
    assert!(!completed("bash", url, "rlock release deploy:prod ").contains(&"backup".into()));
    // Anybody may have chosen it.
    acquire(&server, &[], "x;reboot");
    assert_eq!(completed("bash", url, "rlock inspect x"), ["x\\;reboot"]);
    let options = completed("bash", url, "rlock inspect --js");
    assert_eq!(options, ["--json"]);
}

#[test]
fn a_server_that_is_not_there_is_no_completion_and_no_noise() {
    for program in ["bash", "zsh", "fish"] {
        assert!(completed(program, "unix:///nowhere", "rlock inspect x").is_empty(), "{program}");
    }
    assert_eq!(run(&mut rlock(["inspect", "--names", "--json"])).code(), 64);
}
