//! Users with exactly the permissions that the README lists.

use std::process::{Command, Output};

use super::{Server, run};

/// The ACL SETUSER rule of the README, with additional permissions that the README names elsewhere.
#[track_caller]
pub fn rule(more: &[&str]) -> Vec<String> {
    let readme = include_str!("../../README.md");
    let line = readme.lines().find(|line| line.starts_with("ACL SETUSER ci on >secret")).unwrap();
    for permission in more {
        assert!(
            readme.contains(&format!("`{permission}`")),
            "the README does not name {permission}"
        );
    }
    line.split(' ').chain(more.iter().copied()).map(str::to_owned).collect()
}

/// The permissions that the README adds for `inspect`.
pub const TO_INSPECT: [&str; 2] = ["+zrevrangebyscore", "+scan"];

/// The rule of the README for a user that only inspects.
#[track_caller]
pub fn rule_to_inspect() -> Vec<String> {
    let mut lines = include_str!("../../README.md").lines();
    let line = lines.find(|line| line.starts_with("ACL SETUSER viewer on >secret")).unwrap();
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
