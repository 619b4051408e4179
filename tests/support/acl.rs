//! Users with exactly the permissions that docs/authentication.md lists.

use super::{Client, Server};

const PAGE: &str = include_str!("../../docs/authentication.md");

/// The rule of the page for `ci` or for `viewer`, who only inspects, with additional permissions that
/// it names elsewhere.
#[track_caller]
pub fn rule(user: &str, more: &[&'static str]) -> Vec<&'static str> {
    let begin = format!("ACL SETUSER {user} on >secret");
    let line = PAGE.lines().find(|line| line.starts_with(&begin)).unwrap();
    for permission in more {
        let is_named = PAGE.contains(&format!("`{permission}`"));
        assert!(is_named, "docs/authentication.md does not name {permission}");
    }
    line.split(' ').chain(more.iter().copied()).collect()
}

/// Creates the user of a rule on a server.
pub fn set_up(server: &Server, rule: &[&str]) {
    assert_eq!(server.cli(rule), "OK");
}

impl Client {
    /// As the user of a rule.
    #[must_use]
    pub fn with_user(self, user: &str) -> Self {
        self.with("RLOCK_USERNAME", user).with("RLOCK_PASSWORD", "secret")
    }
}
