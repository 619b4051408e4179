//! A shell completes the names of held locks, and prints nothing if it cannot.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Finished, Server, acquire, binary, rlock, run};

/// A shell that knows `rlock` by name and has its completions.
fn shell(program: &str, url: &str, script: &str) -> Output {
    let binary = Path::new(binary());
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(program);
    command.args(["-c", script]).env("PATH", path).env("RLOCK_URL", url);
    run(command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/completions")))
}

/// The completions of `words`.
fn completed(program: &str, url: &str, words: &str) -> Vec<String> {
    let last = words.rsplit(' ').next().unwrap();
    let script = match program {
        "bash" => {
            // As bash splits words.
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
    // Any client may have chosen this name.
    acquire(&server, &[], "x;reboot");
    assert_eq!(completed("bash", url, "rlock inspect x"), ["x\\;reboot"]);
    let options = completed("bash", url, "rlock inspect --js");
    assert_eq!(options, ["--json"]);
}

#[test]
fn without_a_server_completion_is_empty_and_silent() {
    for program in ["bash", "zsh", "fish"] {
        assert!(completed(program, "unix:///nowhere", "rlock inspect x").is_empty(), "{program}");
    }
    assert_eq!(run(&mut rlock(["inspect", "--names", "--json"])).code(), 64);
}
