//! What a server's error replies mean for somebody who wants a lock.

use redis::ServerError;

use super::Failure;
use super::scripts::Call;

/// Codes that Redis 6.2 buries in the text of the error when a script raised it.
const BURIED: &[&str] = &["OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "NOPERM"];

/// Sorts an error reply into what passes by itself and what somebody must mend.
pub(super) fn failure(error: &ServerError, peer: &str) -> Failure {
    let text = error.details().unwrap_or_default();
    let code = match error.code() {
        // Strangers may not even send as many arguments as a script takes.
        "ERR" if text.contains("unauthenticated") => "NOAUTH",
        "ERR" => BURIED.iter().find(|code| text.contains(*code)).copied().unwrap_or("ERR"),
        code => code,
    };
    let passing = |what: &str| Failure::Unavailable(format!("{peer} {what}"));
    let lasting =
        |what: String| Failure::Misconfigured { what: format!("{peer} {what}"), executed: false };
    match code {
        "LOADING" => passing("is still loading its data; try again shortly"),
        "BUSY" => passing("is busy with a script of somebody else's; see SCRIPT KILL"),
        "MASTERDOWN" => passing("has lost its master and refuses to answer"),
        "CLUSTERDOWN" => passing("says that its cluster is down"),
        "UNBLOCKED" => passing("ended the wait: it is not a master any more, or was told to"),
        "TRYAGAIN" => passing("is moving the key; try again shortly"),
        "OOM" => passing("is out of memory and refuses writes; raise maxmemory or free some"),
        "MISCONF" => passing("cannot save to disk and refuses writes; see its log"),
        "NOREPLICAS" => passing("has too few replicas and refuses writes"),
        "NOAUTH" => lasting("wants a password; set RLOCK_PASSWORD or --password-file".into()),
        "WRONGPASS" => lasting("refuses the user or the password".into()),
        "NOPERM" => lasting(format!("denies this user a right: {}", first_line(text))),
        "READONLY" => lasting("is a replica; give the master's address".into()),
        "WRONGTYPE" => lasting(
            "keeps something else than a lock under this key; choose another name or --prefix"
                .into(),
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => {
            lasting("is a node of a cluster, which this rlock cannot use yet".into())
        }
        "ERR" if text.contains("AUTH") => {
            lasting("has no password set, but one was given; see requirepass or ACL SETUSER".into())
        }
        "ERR" if text.contains("DB index") => lasting("does not have that database".into()),
        "ERR" if text.contains("max number of clients") => passing("has too many clients"),
        "ERR" if text.contains("unknown command") => {
            lasting(format!("lacks a command; Redis 6.2 or later is needed: {}", first_line(text)))
        }
        code => lasting(format!("answered {code} {}", first_line(text))),
    }
}

/// Sorts the error reply to a script: what it was denied, the server names by a line at best.
pub(super) fn of_script(error: &ServerError, peer: &str, call: &Call) -> Failure {
    let text = error.details().unwrap_or_default();
    let lasting = |what: String| Failure::Misconfigured {
        what: format!("{peer} denies this user {what}"),
        executed: false,
    };
    let denied = text.contains("user executing the script") || text.contains("NOPERM");
    // Only the guard is read in a way that hides the line.
    match line_in(text).map_or(Some("GET"), |line| call.command_at(line)) {
        _ if (denied || error.code() == "NOPERM") && text.contains("keys") => {
            let [guard, side] = call.key_patterns();
            lasting(format!("the lock's keys; allow ~{guard} and ~{side}"))
        }
        Some(command) if denied => {
            lasting(format!("the command {command}; allow +{}", command.to_lowercase()))
        }
        _ if denied => lasting("a command that a script needs; see ACL LOG there".into()),
        _ => failure(error, peer),
    }
}

/// The number in `on @user_script:12.`, or `@user_script: 12:` as Redis 6.2 writes it.
fn line_in(text: &str) -> Option<usize> {
    let (_, rest) = text.rsplit_once("user_script:")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn first_line(text: &str) -> String {
    text.chars().take_while(|c| !c.is_control()).take(200).collect()
}
