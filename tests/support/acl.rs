//! Users with exactly the permissions that docs/authentication.md lists.

use std::process::{Command, Output};

use super::{Server, run};

const PAGE: &str = include_str!("../../docs/authentication.md");

/// The ACL SETUSER rule of the page, with additional permissions that it names elsewhere.
#[track_caller]
pub fn rule(more: &[&str]) -> Vec<String> {
    let line = PAGE.lines().find(|line| line.starts_with("ACL SETUSER ci on >secret")).unwrap();
    for permission in more {
        let is_named = PAGE.contains(&format!("`{permission}`"));
        assert!(is_named, "docs/authentication.md does not name {permission}");
    }
    line.split(' ').chain(more.iter().copied()).map(str::to_owned).collect()
}

/// The permissions that the page adds for `inspect`.
pub const TO_INSPECT: [&str; 1] = ["+scan"];

/// The rule of the page for a user that only inspects.
#[track_caller]
pub fn rule_to_inspect() -> Vec<String> {
    let line = PAGE.lines().find(|line| line.starts_with("ACL SETUSER viewer on >secret")).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

/// As the user of that rule.
pub fn as_inspector(command: &mut Command) -> Output {
    run(command.env("RLOCK_USERNAME", "viewer").env("RLOCK_PASSWORD", "secret"))
}

/// Creates the user on a server.
pub fn set_up(server: &Server, rule: &[String]) {
    let rule: Vec<&str> = rule.iter().map(String::as_str).collect();
    assert_eq!(server.cli(&rule), "OK");
}

/// As the user of that rule.
pub fn as_ci(command: &mut Command) -> Output {
    run(command.env("RLOCK_USERNAME", "ci").env("RLOCK_PASSWORD", "secret"))
}
