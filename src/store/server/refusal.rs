//! What a server's error replies mean for a lock.

use super::scripts::Call;
use crate::rules::{Failure, UserMessage};
use crate::store::wire::{Address, Endpoint, ServerError};

/// Why a server does not serve a request.
pub struct Refusal {
    /// What it means unless the redirection is followed.
    pub(super) failure: Failure,
    pub(super) redirection: Option<Redirection>,
}

/// Where a request may be served instead.
pub(super) enum Redirection {
    /// By another node of the cluster. With `asking`, that node is still importing the lock's keys,
    /// and serves them only after ASKING.
    Elsewhere { node: Endpoint, asking: bool },
    /// The lock's keys are divided between this node of a cluster and another one.
    Moving,
    /// By the master: this server is not one, or no longer.
    Master,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { failure, redirection: None }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        refusal.failure
    }
}

impl Refusal {
    /// For a wait: none if another node of the cluster has the lock, as the next request finds it.
    pub(super) fn ends_wait<T>(self) -> Result<Option<T>, Failure> {
        match self.redirection {
            Some(Redirection::Elsewhere { .. } | Redirection::Moving) => Ok(None),
            _ => Err(self.failure),
        }
    }
}

/// The server is not a master.
pub(super) fn demoted(address: &Address) -> Refusal {
    let what = format!("{address} is a replica");
    let failure = Failure::misconfigured(what, "use the address of the master");
    Refusal { failure, redirection: Some(Redirection::Master) }
}

/// Error codes that Redis 6.2 moves into the text of the error if a script raised it.
const CODES_IN_TEXT: &[&str] = &["OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "NOPERM"];

/// Describes a server that does not have a command; `sentinel` recognizes it.
pub(super) const UNSUPPORTED_COMMAND: &str = "does not support a command";

/// Classifies an error reply: the cause may pass without any action, or the user must fix it.
pub fn of(error: &ServerError, address: &Address) -> Refusal {
    let peer = address.to_string();
    let text = error.details().unwrap_or_default();
    let code = match error.code() {
        // Clients that are not logged in may not send as many arguments as a script takes.
        "ERR" if text.contains("unauthenticated") => "NOAUTH",
        // Check this before looking for codes: the text contains the user name, which may look like
        // one.
        "ERR" if is_denial(text) => "NOPERM",
        "ERR" => CODES_IN_TEXT.iter().find(|code| text.contains(*code)).copied().unwrap_or("ERR"),
        code => code,
    };
    let passing = |what: &str, remedy: &str| {
        Refusal::from(Failure::unavailable(format!("{peer} {what}"), remedy))
    };
    let lasting = |what: &str, remedy: &str| {
        Refusal::from(Failure::misconfigured(format!("{peer} {what}"), remedy))
    };
    let login = |what: &str, remedy: &str| match address.is_accepted {
        true => passing(what, remedy),
        false => lasting(what, remedy),
    };
    let unknown = || {
        let what = format!("{peer} replied with {} {}", first_line(code), first_line(text));
        Failure::Misconfigured { fault: UserMessage::new(what), executed: false }.into()
    };
    match code {
        "LOADING" => passing("is loading its data", "try again shortly"),
        "BUSY" => passing("is busy running a script", "if it does not end, run SCRIPT KILL there"),
        "MASTERDOWN" => passing("has lost its master", "restore the master"),
        "CLUSTERDOWN" => passing("reports that its cluster is down", "check CLUSTER INFO there"),
        "UNBLOCKED" => passing("ended the wait", "check whether it is still a master"),
        "TRYAGAIN" => Refusal {
            redirection: Some(Redirection::Moving),
            ..passing("is moving the lock to another node", "try again shortly")
        },
        "OOM" => {
            passing("is out of memory and refuses writes", "raise maxmemory or free memory there")
        }
        "MISCONF" => passing("cannot save to disk and refuses writes", "check its log"),
        "NOREPLICAS" => passing("has too few replicas and refuses writes", "restore its replicas"),
        "NOAUTH" => login("requires a password", &format!("set {}", address.password_setting)),
        "WRONGPASS" => {
            let unread = address.unread.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            let what = format!("rejected the username or password{unread}");
            login(&what, "correct the credentials")
        }
        "NOPERM" => {
            let what = format!("{peer}: permission denied: {}", first_line(text));
            Failure::misconfigured(what, "grant the permission with ACL SETUSER there").into()
        }
        "READONLY" => demoted(address),
        "WRONGTYPE" => {
            let what = format!("{peer}: this key holds something other than a lock");
            Failure::misconfigured(what, "use another name or --prefix").into()
        }
        "MOVED" | "ASK" => match other_node(text).map(|(host, port)| address.named(host, port)) {
            Some(Ok(node)) => Refusal {
                redirection: Some(Redirection::Elsewhere { node, asking: code == "ASK" }),
                ..lasting("is a cluster node", "use a redis+cluster:// URL")
            },
            Some(Err(failure)) => failure.into(),
            None => unknown(),
        },
        "ERR" if text.contains("AUTH") => {
            let remedy = format!("remove it from {}", address.password_setting);
            login("does not use a password", &remedy)
        }
        "ERR" if text.contains("DB index") => {
            lasting("has no such database", "correct the database number")
        }
        "ERR" if text.contains("max number of clients") => {
            passing("has too many clients", "raise maxclients there")
        }
        "ERR" if text.contains("unknown command") => {
            let what = format!("{UNSUPPORTED_COMMAND}: {}", first_line(text));
            lasting(&what, "use Redis 6.2 or later")
        }
        _ => unknown(),
    }
}

/// Classifies the error reply to a script. If an ACL denied a command, the server names at best the
/// line of the script, from which the command is found.
pub fn of_script(error: &ServerError, address: &Address, call: &Call) -> Refusal {
    let text = error.details().unwrap_or_default();
    let denied_for = |what: &str, remedy: &str| {
        Failure::misconfigured(format!("{address}: permission denied for {what}"), remedy).into()
    };
    let denied = is_denial(text);
    let of_keys = text.contains("of the keys") || text.contains("to access a key");
    // The error does not name a line if `pcall` raised it, and only the GET of the guard uses that.
    match line_in(text).map_or(Some("GET"), |line| call.command_at(line)) {
        _ if (denied || error.code() == "NOPERM") && of_keys => {
            let [guard, side] = call.key_patterns();
            denied_for("the lock's keys", &format!("allow ~{guard} and ~{side}"))
        }
        Some(command) if denied => denied_for(
            &format!("the {command} command"),
            &format!("allow +{}", command.to_lowercase()),
        ),
        _ if denied => denied_for("a command in a script", "check ACL LOG there"),
        _ => of(error, address),
    }
}

/// Whether the server does not have the command, or an ACL denies it.
pub fn lacks_a_command(error: &ServerError) -> bool {
    let text = error.details().unwrap_or_default();
    error.code() == "NOPERM" && text.contains("command") || text.contains("unknown command")
}

/// Whether an ACL denied something to a script. Redis up to 7.0 and later versions, like Valkey,
/// use different texts.
fn is_denial(text: &str) -> bool {
    text.contains("user executing the script")
        || text.contains("ACL failure in script")
        || text.contains("NOPERM")
}

/// The line number in `on @user_script:12.`, which Redis 6.2 writes `@user_script: 12:`.
fn line_in(text: &str) -> Option<usize> {
    let (_, rest) = text.rsplit_once("user_script:")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The node that `SLOT HOST:PORT` names.
fn other_node(text: &str) -> Option<(&str, u16)> {
    let (_, node) = text.split_once(' ')?;
    let (host, port) = node.trim().rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

fn first_line(text: &str) -> String {
    text.chars().take_while(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use crate::store::wire::{Reader, Value};

    use super::*;
    use crate::store::server::scripts;

    /// Whether the user must fix the cause of an error reply to an acquire, and the message.
    fn classified(reply: &str) -> (bool, String) {
        let address = Address::parse("redis://h:1").unwrap();
        let key = crate::rules::lock::Key::new(&"p:".parse().unwrap(), &"L".parse().unwrap());
        let call = Call::new(scripts::ACQUIRE, &key, None, 0);
        let reply = format!("-{reply}\r\n");
        let mut reader = Reader::default();
        reader.read_from(&mut reply.as_bytes()).unwrap();
        let Ok(Some(Value::ServerError(error))) = reader.reply(&mut { usize::MAX }) else {
            panic!("no error: {reply}")
        };
        let failure = Failure::from(of_script(&error, &address, &call));
        (matches!(failure, Failure::Misconfigured { .. }), failure.to_string())
    }

    #[test]
    fn a_missing_permission_is_named_for_every_server_version() {
        let source = scripts::ACQUIRE.source();
        let line = 1 + source.lines().position(|line| line.contains("call('TIME'")).unwrap();
        for user in ["ci", "ROOM", "AUTHOR", "monkeys"] {
            for (reply, part) in [
                (format!("ERR The user executing the script can't run this command or subcommand script: 5f, on @user_script:{line}."), "allow +time"),
                (format!("ERR ACL failure in script: User {user} has no permissions to run the 'time' command script: 5f, on @user_script:{line}."), "allow +time"),
                ("NOPERM this user has no permissions to access one of the keys used as arguments".into(), "allow ~p:L and ~{p:L}?*"),
                ("NOPERM No permissions to access a key".into(), "allow ~p:L"),
                (format!("ERR ACL failure in script: No permissions to access a key script: 5f, on @user_script:{line}."), "allow ~p:L"),
                (format!("NOPERM User {user} has no permissions to run the 'evalsha' command"), "evalsha"),
            ] {
                let (lasting, text) = classified(&reply);
                assert!(lasting && text.contains(part), "{reply} -> {text}");
            }
        }
        assert!(!classified("OOM command not allowed when used memory > 'maxmemory'").0);
    }

    #[test]
    fn every_form_of_a_redirection_names_the_other_node() {
        let here = Address::parse("redis://h:1").unwrap();
        let found = |text: &str| {
            let (host, port) = other_node(text)?;
            here.named(host, port).ok().map(|node| node.to_string())
        };
        assert_eq!(found("5 10.0.0.1:7").as_deref(), Some("10.0.0.1:7"));
        assert_eq!(found("5 ::1:7").as_deref(), Some("[::1]:7"));
        assert_eq!(found("5 :7").as_deref(), Some("h:7"));
        assert_eq!(found("5 ?:7").as_deref(), Some("h:7"));
        for invalid in ["a b", "h\u{9b}", "h\u{202e}", "h/x", "h\u{e9}"] {
            assert_eq!(found(&format!("5 {invalid}:7")), None);
        }
        assert_eq!(found("5 h"), None);
        assert_eq!(found("invalid"), None);
        assert_eq!(found("5 h:99999"), None);
    }
}
