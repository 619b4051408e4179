//! What a server's error replies mean for a lock.

use socket2::SockAddr;

use super::scripts::Call;
use crate::rules::FailureKind::{Misconfigured, NotHere, Unavailable};
use crate::rules::{Failure, Instant, Token, UserMessage, show};
use crate::store::wire::{Endpoint, Peer, ServerError};

/// Why a server does not serve a request, with or without a reply, and what only the place that chose
/// the server needs to know.
pub struct Refusal {
    /// What it means unless the redirection is followed.
    pub(super) failure: Failure,
    pub(super) redirection: Option<Redirection>,
    /// `None` if it is not an error reply.
    rejects: Option<Rejects>,
    /// Whether the location has served, and this is the sign of an old master or of a replica.
    is_failover: bool,
}

/// What an error reply rejects, and so how long to go on asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rejects {
    /// The server does not accept this client. The user must fix that, unless the server has
    /// accepted it before: then it may be changing.
    Client,
    /// This server does not have the locks. During a failover, the name of the master may soon lead
    /// to another server.
    Place,
    /// The server cannot serve locks now. The name may lead to another server soon, too.
    Moment,
    /// The request itself is at fault, so repeating it does not help.
    Lock,
}

/// Where a request may be served instead.
pub(super) enum Redirection {
    /// By another node of the cluster, which may be as `Node::is_importing` says.
    Elsewhere { node: Endpoint, is_importing: bool },
    /// The lock's keys are divided between this node of a cluster and another one.
    Moving,
}

use Rejects::{Client, Lock, Moment, Place};

/// Each error code, with what it means and what to do about it. `%` stands for a detail: see
/// `detail`.
const CODES: [(&str, Rejects, &str, &str); 27] = [
    ("NOAUTH", Client, "requires a password", "set %"),
    ("WRONGPASS", Client, "rejected the username or password%", "correct the credentials"),
    ("UNUSED-PASSWORD", Client, "does not use a password", "remove it from %"),
    ("NOPERM", Client, "denies a permission: %", "grant it with ACL SETUSER there"),
    ("NOPERM-COMMAND", Client, "denies permission for the command %", "allow +%"),
    ("NOPERM-KEYS", Client, "denies permission for the lock's keys", "allow %"),
    ("NO-DATABASE", Client, "has no such database", "correct the database number"),
    ("ONE-DATABASE", Client, "has only database 0, as in a cluster", "use a redis+cluster:// URL"),
    ("MOVED", Client, "is a cluster node", "use a redis+cluster:// URL"),
    ("ASK", Client, "is a cluster node", "use a redis+cluster:// URL"),
    ("NO-COMMAND", Client, "does not support the command %", "%"),
    ("DISABLED", Client, "has disabled the command %", "enable it there"),
    ("NO-CLUSTER", Client, "is not a cluster node", "use a redis:// URL"),
    ("DENIED", Client, "accepts only clients on its own host", "set a password there"),
    ("READONLY", Place, "is a replica", "use the address of the master"),
    (
        "MASTERDOWN",
        Place,
        "is a replica that has lost its master",
        "restore the master, or use its address",
    ),
    ("UNBLOCKED", Place, "is not a master any more", "check where its name leads to"),
    ("LOADING", Moment, "is loading its data", "try again shortly"),
    ("BUSY", Moment, "is busy running a script", "if it does not end, run SCRIPT KILL there"),
    ("CLUSTERDOWN", Moment, "reports that its cluster is down", "check CLUSTER INFO there"),
    ("TRYAGAIN", Moment, "is moving the lock to another node", "try again shortly"),
    ("OOM", Moment, "is out of memory and refuses writes", "raise maxmemory or free memory there"),
    ("MISCONF", Moment, "cannot save to disk and refuses writes", "check its log"),
    ("NOREPLICAS", Moment, "has too few replicas and refuses writes", "restore its replicas"),
    ("MAXCLIENTS", Moment, "has too many clients", "raise maxclients there"),
    (
        "WRONGTYPE",
        Lock,
        "has something other than a lock under this key",
        "use another name or --prefix",
    ),
    ("CROSSSLOT", Lock, "has the keys of a lock in several slots", "use another --prefix"),
];

/// Error codes that Redis 6.2 moves into the text of the error if a script raised it.
const CODES_IN_TEXT: &[&str] = &["OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "NOPERM"];

/// For errors that share the code ERR: a part of the text, and the code that stands for it here.
const TEXTS: &[(&str, &str)] = &[
    // Clients that are not logged in may not send as many arguments as a script takes.
    ("unauthenticated", "NOAUTH"),
    ("unknown command", "NO-COMMAND"),
    ("command called from", "DISABLED"),
    ("cluster support disabled", "NO-CLUSTER"),
    ("SELECT is not allowed", "ONE-DATABASE"),
    ("DB index", "NO-DATABASE"),
    ("max number of clients", "MAXCLIENTS"),
    ("AUTH", "UNUSED-PASSWORD"),
    // The script before it has run.
    ("WAIT cannot be used with replica", "READONLY"),
];

/// What to do without a command that a server does not have. `%` stands for the URL of a sentinel
/// there.
const WITHOUT: &[(&str, &str)] = &[
    ("WAIT", "omit --min-replicas"),
    ("SCAN", "name the lock to inspect, or use % if this is a sentinel"),
    ("SELECT", "use database 0"),
    ("SENTINEL", "use the addresses of the sentinels (usually port 26379)"),
];

const NO_COMMAND: &str = "use Redis 6.2 or later, or % if this is a sentinel";

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { failure, redirection: None, rejects: None, is_failover: false }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        refusal.failure
    }
}

impl Refusal {
    /// For a question that no hold and no wait depends on: the user must fix what this client lacks,
    /// even if the server has served other requests.
    pub(super) fn of_question(self) -> Failure {
        match self.failure.kind {
            Unavailable if self.rejects == Some(Client) => {
                Failure { kind: Misconfigured, ..self.failure }
            }
            _ => self.failure,
        }
    }

    /// The same, with the address to which the name of the server led, and whether that was a master.
    pub(super) fn at(mut self, socket: &SockAddr, server: &Peer) -> Self {
        let (address, name) = (socket.as_socket().map(|it| it.to_string()), server.to_string());
        if let Some(address) = address.filter(|address| *address != name) {
            let led = format!("{name} ({address})");
            self.failure = self.failure.reworded(|what| what.replacen(&name, &led, 1));
        }
        if self.is_failover {
            let was_master = server.route.was_master(socket).map_or_else(String::new, |last| {
                let ago = show(Instant::now().since(last));
                format!(", but served as a master {ago} ago")
            });
            let reword = |what: &str| format!("{what}{was_master}; a failover may be under way");
            self.failure = self.failure.reworded(reword);
        }
        self
    }

    /// Whether the server does not accept this client, or what it may do.
    pub(super) fn is_of_client(&self) -> bool {
        self.rejects == Some(Client)
    }

    /// Whether the server is not the one that has the locks.
    pub(super) fn is_not_here(&self) -> bool {
        self.rejects == Some(Place)
    }

    /// Whether another connection may lead to a server that serves the request.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self.rejects, Some(Place | Moment)) && self.redirection.is_none()
    }
}

/// The server is not a master.
pub(super) fn demoted(peer: &Peer) -> Refusal {
    refusal("READONLY", peer, "")
}

/// The server is a replica without its master, whatever it replies then.
pub(super) fn without_master(peer: &Peer) -> Refusal {
    refusal("MASTERDOWN", peer, "")
}

/// A refusal with this code, and a detail for its message.
fn refusal(code: &str, peer: &Peer, detail: &str) -> Refusal {
    let row = CODES.iter().find(|(known, ..)| *known == code);
    let (_, rejects, what, remedy) = row.copied().unwrap_or(("", Lock, "replied with %", ""));
    let mut fault = UserMessage::new(format!("{peer} {}", what.replace('%', detail)));
    if !remedy.is_empty() {
        let by_command = || WITHOUT.iter().find(|(command, _)| *command == detail);
        let detail = match code {
            "NO-COMMAND" => &by_command()
                .map_or(NO_COMMAND, |(_, remedy)| remedy)
                .replace('%', &sentinel_url(peer)),
            "NOPERM-COMMAND" => &detail.to_lowercase(),
            "NOAUTH" | "UNUSED-PASSWORD" => peer.password_setting,
            _ => detail,
        };
        fault = fault.with_remedy(remedy.replace('%', detail));
    }
    let kind = match rejects {
        Place if !peer.has_served() => NotHere,
        Client if !peer.has_served() => Misconfigured,
        Lock => Misconfigured,
        Client | Place | Moment => Unavailable,
    };
    let failure = Failure::new(kind, fault);
    let redirection = (code == "TRYAGAIN").then_some(Redirection::Moving);
    // The old master may lack its replicas.
    let is_failover = peer.has_served() && (rejects == Place || code == "NOREPLICAS");
    Refusal { failure, redirection, rejects: Some(rejects), is_failover }
}

/// The URL of the master of a sentinel at this address.
fn sentinel_url(peer: &Peer) -> String {
    let scheme = if peer.tls.is_some() { "rediss" } else { "redis" };
    match &peer.endpoint {
        Endpoint::Unix(_) => format!("{scheme}+sentinel://HOST:PORT/SERVICE"),
        endpoint => format!("{scheme}+sentinel://{endpoint}/SERVICE"),
    }
}

/// A password of one or two letters is hidden only where it is a word: it is a part of many other
/// words, and hiding it there would tell it.
fn without(text: &str, password: &str) -> String {
    let continues = |next: Option<char>| next.is_some_and(char::is_alphanumeric);
    let (mut shown, mut end) = (String::new(), 0);
    for (at, found) in text.match_indices(password) {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        let is_part = continues(before.chars().next_back()) || continues(after.chars().next());
        shown += &before[end..];
        shown += if is_part && password.len() < 3 { found } else { "***" };
        end = at + found.len();
    }
    shown + &text[end..]
}

/// A server or a proxy may quote what it was sent: the password, and tokens.
fn without_secrets(text: &str, peer: &Peer) -> String {
    let hidden = match peer.password.as_deref() {
        None | Some("") => text.to_owned(),
        Some(password) => without(text, password),
    };
    let is_between = |c: char| !c.is_ascii_hexdigit() && c != '-';
    hidden.split_inclusive(is_between).fold(String::new(), |shown, part| {
        let word = part.trim_end_matches(is_between);
        match word.parse::<Token>() {
            Ok(token) => shown + &part.replace(word, &token.id()),
            Err(_) => shown + part,
        }
    })
}

/// Classifies an error reply.
pub fn of(error: &ServerError, peer: &Peer) -> Refusal {
    let text = error.details().unwrap_or_default();
    let code = match error.code() {
        // Check this before looking for codes: the text contains the user name, which may look like
        // one.
        "ERR" if is_denial(text) => "NOPERM",
        "ERR" => {
            let in_text = CODES_IN_TEXT.iter().find(|code| text.contains(*code)).copied();
            let by_text = || TEXTS.iter().find(|(part, _)| text.contains(part)).map(|it| it.1);
            in_text.or_else(by_text).unwrap_or("ERR")
        }
        code => code,
    };
    let detail = match code {
        "WRONGPASS" => peer.unread.as_ref().map_or(String::new(), |why| format!(" ({why})")),
        "NOPERM" | "NO-COMMAND" => match quoted_in(text) {
            Some(command) => without_secrets(command, peer).to_uppercase(),
            None => first_line(&without_secrets(text, peer)),
        },
        code => {
            let shown = |text| first_line(&without_secrets(text, peer));
            format!("{} {}", shown(code), shown(text))
        }
    };
    match code {
        "NOPERM" if quoted_in(text).is_some() => refusal("NOPERM-COMMAND", peer, &detail),
        "MOVED" | "ASK" => match other_node(text).map(|(host, port)| peer.named(host, port)) {
            Some(Ok(node)) => {
                let is_importing = code == "ASK";
                let redirection = Some(Redirection::Elsewhere { node, is_importing });
                Refusal { redirection, ..refusal(code, peer, &detail) }
            }
            Some(Err(failure)) => failure.into(),
            None => refusal("ERR", peer, &detail),
        },
        code => refusal(code, peer, &detail),
    }
}

/// The command that a text names in quotes, with its subcommand.
fn quoted_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(['\'', '`'])?;
    let (command, _) = rest.split_once(['\'', '`'])?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '|' | '_' | '-');
    (!command.is_empty() && command.chars().all(is_name)).then_some(command)
}

/// Classifies the error reply to a script. If an ACL denied a command, the server names at best the
/// line of the script, from which the command is found.
pub fn of_script(error: &ServerError, peer: &Peer, call: &Call) -> Refusal {
    let text = error.details().unwrap_or_default();
    let denied = is_denial(text);
    let of_keys = text.contains("of the keys") || text.contains("to access a key");
    // The error does not name a line if `pcall` raised it, and only the GET of the guard uses that.
    match line_in(text).map_or(Some("GET"), |line| call.command_at(line)) {
        _ if (denied || error.code() == "NOPERM") && of_keys => {
            let [guard, side] = call.key_patterns();
            refusal("NOPERM-KEYS", peer, &format!("~{guard} and ~{side}"))
        }
        Some(command) if denied => refusal("NOPERM-COMMAND", peer, command),
        Some(command) if text.contains("command called from") => refusal("DISABLED", peer, command),
        _ if denied => refusal("NOPERM", peer, "a command in a script"),
        _ => of(error, peer),
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

    /// What an error reply to an acquire means.
    fn refused(reply: &str) -> Refusal {
        let peer = Peer::parse("redis://h:1").unwrap();
        let key = crate::rules::Key::new(&"p:".parse().unwrap(), &"L".parse().unwrap());
        let call = Call::new(scripts::ACQUIRE, &key, None, 0);
        let reply = format!("-{reply}\r\n");
        let mut reader = Reader::default();
        reader.read_from(&mut reply.as_bytes()).unwrap();
        let Ok(Some(Value::ServerError(error))) = reader.reply(&mut { usize::MAX }) else {
            panic!("no error: {reply}")
        };
        of_script(&error, &peer, &call)
    }

    /// Whether the user must fix the cause of an error reply to an acquire, and the message.
    fn classified(reply: &str) -> (bool, String) {
        let failure = Failure::from(refused(reply));
        (failure.kind == Misconfigured, failure.to_string())
    }

    #[test]
    fn the_replies_in_the_tests_are_those_of_the_table() {
        let replies = include_str!("../../../tests/refusals.txt").lines();
        for (line, (code, rejects, what, _)) in replies.zip(CODES) {
            let (row, reply) = line.split_once(": ").unwrap();
            let refusal = refused(reply.split(" => ").next().unwrap());
            assert_eq!((row, refusal.rejects), (&*format!("{code} {rejects:?}"), Some(rejects)));
            let what = format!("h:1 {}", what.split('%').next().unwrap());
            assert!(refusal.failure.problem().starts_with(&what), "{line}");
        }
        let replies = include_str!("../../../tests/refusals.txt").lines();
        assert_eq!(replies.count(), CODES.len());
    }

    #[test]
    fn a_missing_permission_is_named_for_every_server_version() {
        let source = scripts::ACQUIRE.source;
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
        let (_, text) = classified("DENIED Redis is running in protected mode because");
        assert_eq!(text, "h:1 accepts only clients on its own host; set a password there");
        let demoted = "ERR WAIT cannot be used with replica instances.";
        assert_eq!(classified(demoted), classified("READONLY"));
        assert!(!classified("OOM command not allowed when used memory > 'maxmemory'").0);
    }

    #[test]
    fn a_short_password_is_hidden_only_where_it_is_a_word() {
        for (text, password, shown) in [
            ("user 's' may not 'scan'", "s", "user '***' may not 'scan'"),
            ("as scan an", "an", "as scan ***"),
            ("xs3cretx s3cret", "s3cret", "x***x ***"),
        ] {
            assert_eq!(without(text, password), shown);
        }
    }

    #[test]
    fn every_form_of_a_redirection_names_the_other_node() {
        let here = Peer::parse("redis://h:1").unwrap();
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
