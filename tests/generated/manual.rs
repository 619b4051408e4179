//! What the man pages say beside the command line.

use rlock::exit::Subcommands;

/// The date on the pages, that of the release.
pub(crate) const DATE: &str = "2026-11-23";

/// Describes the variables that set the default of an option. The help of the option names its
/// variable.
pub(crate) const DEFAULTS: &str =
    "Defaults for the options with these names. An empty value counts as unset.";

/// The section of the pages of subcommands.
pub(crate) const ELSEWHERE: &str = "See ENVIRONMENT, and also FILES and SECURITY, in rlock(1).";

/// All other variables that rlock reads or sets.
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "RLOCK_URL",
        "Default for --url. Separate the servers of a quorum with spaces. Unlike --url, it does not \
         show a password to other users.",
    ),
    ("RLOCK_PREFIX", "Default for --prefix. An empty value means an empty prefix."),
    (
        "RLOCK_USERNAME, RLOCK_PASSWORD",
        "Username and password for the server, unless the URL or --password-file contains them.",
    ),
    (
        "RLOCK_SENTINEL_USERNAME, RLOCK_SENTINEL_PASSWORD, RLOCK_SENTINEL_PASSWORD_FILE",
        "Username, and password or password file, for the sentinels of a redis+sentinel:// URL.",
    ),
    ("RLOCK_NAME", "Set by exec for its command, and by acquire --shell: the name of the lock."),
    (
        "RLOCK_TOKEN",
        "Set by exec for its command, and by acquire --shell; read by renew and release: the token of \
         the hold.",
    ),
    (
        "RLOCK_FENCE",
        "Set by exec for its command, and by acquire --shell: the fencing token. It is larger than \
         that of every earlier hold of the lock, so a resource can reject a holder that has lost \
         the lock. After the server lost its data, or a day without use, it can be smaller if the \
         clock of the server was set back meanwhile.",
    ),
    (
        "RLOCK_SLOT",
        "Set by exec for its command, and by acquire --shell, with --slots N: the slot number of the \
         holder, from 1 to N. Otherwise, it is unset.",
    ),
    (
        "RLOCK_HELD",
        "Set by exec for its command, and by acquire --shell: this hold and those of enclosing \
         commands as KEY=TOKEN, separated by spaces, the innermost last. KEY is PREFIX plus NAME. exec \
         and acquire read it to detect a lock that an enclosing command holds.",
    ),
    ("LOGNAME, USER", "Name of the user that inspect shows. rlock uses the first one that is set."),
    ("PATH", "Directories in which exec searches for the command."),
    (
        "SSL_CERT_FILE, SSL_CERT_DIR",
        "Certificate authorities to trust instead of those of the system, unless --tls-ca is given.",
    ),
    ("XDG_STATE_HOME, HOME", "Determine the default directory of local:; see FILES."),
    ("COLUMNS", "Width of the list of inspect at a terminal, instead of the terminal's own."),
    (
        "NO_COLOR, TERM",
        "If NO_COLOR is set to a non-empty value, or TERM is unset or dumb, inspect does not use \
         color.",
    ),
];

/// Each file that rlock uses.
pub(crate) const FILES: &[(&str, &str)] = &[
    (
        "$XDG_STATE_HOME/rlock, ~/.local/state/rlock",
        "Locks of RLOCK_URL=local:. With local:/DIRECTORY, they are in DIRECTORY. Deleting the file of a \
     lock revokes the lock.",
    ),
    (
        "/usr/local/share/doc/rlock/docs, /usr/share/doc/rlock/docs",
        "The pages that these manuals call docs/..., as installed by make install or by a package.",
    ),
];

/// Each field of the JSON documents, as a path. A test compares them with what rlock prints.
pub(crate) const JSON: &[(Subcommands, &str, &str)] = &[
    (&["acquire", "renew", "release", "inspect"], "format", "1. Later versions only add fields."),
    (
        &["acquire"],
        "status",
        "acquired. On failure: busy, superseded, removed, lost, stopped, unreachable, config, usage \
         or internal.",
    ),
    (
        &["renew"],
        "status",
        "renewed. On failure: not-held, unreachable, config, usage or internal.",
    ),
    (
        &["release"],
        "status",
        "released, or removed. On failure: busy, not-held, unreachable, config, usage or internal.",
    ),
    (
        &["inspect"],
        "status",
        "On failure, even if only some locks are missing: unreachable, config, usage or internal. \
         Absent if locks is complete.",
    ),
    (
        &["acquire", "renew", "release"],
        "name",
        "Name of the lock. Null if the command line could not be parsed.",
    ),
    (&["inspect"], "name", "On failure: NAME, or null."),
    (
        &["acquire"],
        "token, fence, ttl_ms, slot",
        "The hold: its token, its fencing token, the milliseconds until its lease expires, and its \
         slot number.",
    ),
    (
        &["renew"],
        "fence, ttl_ms",
        "The hold: its fencing token, and the milliseconds until its lease expires.",
    ),
    (
        &["release"],
        "revoked[]",
        "The holders that --force has revoked, as they were before: see holders in \
         rlock-inspect(1).",
    ),
    (
        &["release"],
        "revoked[].ended",
        "Without --now, how the hold ended: released; expired, if the holder did not release it; or \
         revoked, if --now freed it meanwhile.",
    ),
    (&["release"], "removed", "The waiter that --id has removed: see waiters in rlock-inspect(1)."),
    (
        &["acquire", "renew", "release", "inspect"],
        "exit, message",
        "On failure: the exit status and the message.",
    ),
    (&["acquire"], "holders[]", "If the lock is busy: its holders, as in rlock-inspect(1)."),
    (&["release"], "holders[]", "If --id fails: the holders, as in rlock-inspect(1)."),
    (
        &["acquire"],
        "superseded_by",
        "If a newer client with --supersede canceled the request: its host, user, pid, command, kind \
         and label.",
    ),
    (
        &["acquire"],
        "by, reason",
        "If an operator removed the request: the operator, and the text of --reason.",
    ),
];

/// Each field of the locks in `inspect --json`, and of what it prints with `--servers` instead.
pub(crate) const LOCKS: &[(&str, &str)] = &[
    ("locks[].name, .key", "Name of the lock, and its key on the server: the prefix and the name."),
    (
        "locks[].state",
        "held; free: only with NAME or --all; cooling: released, but kept for --at-least; \
         revoked: ended by an operator, a deletion or a loss of data, but not released yet; foreign: \
         held by another tool.",
    ),
    ("locks[].mode", "exclusive, shared or slots."),
    ("locks[].slots", "Maximum number of holders, if the mode is slots."),
    ("locks[].fence", "Last fencing token of the lock."),
    (
        "locks[].ttl_ms",
        "Milliseconds until the lock becomes free unless it is renewed. Null if another tool holds \
         the lock without an expiry.",
    ),
    (
        "locks[].holders[].id",
        "First 8 characters of the token; or the word closed if the server, having lost its data, \
         keeps the lock closed until earlier holds have ended. This hold has no client.",
    ),
    (
        "locks[].holder_count, .waiter_count",
        "Numbers of holders and waiters. Of each, a list of locks shows only the first 100, and NAME \
         the first 1,000. Some of the waiters beyond these may be dead.",
    ),
    ("locks[].holders[].state", "held, revoked or cooling, as for the lock."),
    (
        "locks[].holders[].owner",
        "Owner, for --reentrant: in full if --owner or RLOCK_OWNER set it, otherwise its first 8 \
         characters. Null if unknown.",
    ),
    (
        "locks[].holders[].host, .user, .pid, .command, .label",
        "The holder. command is the name of the program, without arguments.",
    ),
    ("locks[].holders[].fence", "Fencing token of this hold."),
    ("locks[].holders[].acquired_at, .renewed_at", "Times of the grant and of the last renewal."),
    (
        "locks[].holders[].waited_ms",
        "Milliseconds from the first request to the grant. Null if unknown, for example after the \
         server lost its data.",
    ),
    ("locks[].holders[].ttl_ms", "Milliseconds until the lease expires."),
    ("locks[].holders[].slot", "Slot number of the holder, from 1 to slots, if the mode is slots."),
    (
        "locks[].holders[].kind",
        "exec or while-pid, which renew the lease, or acquire, which does not.",
    ),
    ("locks[].waiters[].position", "Position in the queue, from 1."),
    ("locks[].waiters[].mode", "exclusive, shared or slots."),
    ("locks[].waiters[].id, .host, .user, .pid, .command, .label, .kind", "As for holders."),
    ("locks[].waiters[].waiting_ms", "Milliseconds in the queue."),
    ("locks[].waiters[].next", "Whether it uses --next."),
    (
        "locks[].attention[]",
        "A text for each reason why the lock needs attention; with --attention and \
         --older-than also that it has been held for too long.",
    ),
    (
        "locks[].skipped.count, .last_at, .last_by",
        "Number of clients that found the lock busy since the last hold began, and the time and \
         identity of the last one.",
    ),
    (
        "locks[].history[]",
        "Up to 16 ended holds, the latest first; those that ended well are dropped first. Present \
         only with NAME; with --all, only the latest one.",
    ),
    (
        "locks[].history[].ended",
        "released; expired: not renewed or released in time; revoked: by release --force; deleted: \
         its key or file was deleted; overwritten: another tool wrote its key; lost: its command was \
         stopped because the lease was not renewed in time.",
    ),
    (
        "locks[].history[].ended_at, .acquired_at, .held_ms",
        "Times of the end and of the grant, and the milliseconds between them.",
    ),
    ("locks[].history[].waited_ms", "As for holders."),
    ("locks[].history[].mode", "As for waiters."),
    (
        "locks[].history[].outcome",
        "How the command of exec ended, if known: exit N, signal N, lost if rlock stopped it, or \
         not started.",
    ),
    (
        "locks[].history[].by, .reason",
        "Operator that revoked the hold, as user@host, and the text of --reason.",
    ),
    (
        "locks[].history[].id, .host, .user, .pid, .command, .label, .kind, .fence",
        "As for holders.",
    ),
    ("servers[].server", "Address of the server, or directory of local:."),
    ("servers[].role", "master, replica, sentinel or directory. Null if unknown."),
    ("servers[].answers", "Whether it answers. If none does, status is unreachable."),
    (
        "servers[].version, .uptime_s, .round_trip_ms, .append_only, .replicas",
        "Its program and version, seconds since its start, the fastest round trip in milliseconds (not \
         an integer), whether it has an append-only file, and the number of replicas.",
    ),
    ("servers[].unknown[]", "What is not known of it, and why, without being a finding."),
    (
        "findings[].server, .problem, .remedy",
        "The server, or null for all together; what may break a promise; and the remedy.",
    ),
    ("findings[].finding", "A word for the problem, such as evicts; see FINDINGS."),
    (
        "findings[].assumption",
        "Number of the assumption in docs/promises.md that does not hold. Null if none.",
    ),
];

/// The section about what --servers finds.
pub(crate) const FINDINGS: &str = "What inspect --servers finds, the worst first: how it is found, and the remedy unless the \
     message, which describes the problem, has another.";

/// The section about messages that need more than a line, one paragraph per item. `{KEY}?` begins the
/// name of a key beside KEY.
pub(crate) const DIAGNOSTICS: &[&str] = &[
    "last fencing token is DURATION ahead of the server's clock: the clock of the server is wrong now, or it \
     was wrong when the token was issued. Correct the clock. If it is right, and no process holds or \
     waits for the lock, on each server, delete KEY (PREFIX plus NAME), {KEY}?state, {KEY}?holds \
     and {KEY}?queue, without these braces if PREFIX has its own. Fencing tokens then restart from the server's clock, so \
     also reset the one that your resource remembers.",
];

/// The section about secrets, one paragraph per item.
pub(crate) const SECURITY: &[&str] = &[
    "All users of a host can see a password in --url. Put it in RLOCK_PASSWORD, in RLOCK_URL, or \
     on the first line of a file for --password-file. The command of exec inherits RLOCK_PASSWORD, \
     RLOCK_SENTINEL_PASSWORD and RLOCK_URL. Without TLS, the password crosses the network \
     unencrypted.",
    "A token is a secret: anyone who has it can release the lock. It is in the environment of the \
     command, on the standard output of acquire, in the memory of the keeper of --while-pid, and \
     in the data of the server. No message shows it. Pass it to renew and release in RLOCK_TOKEN, \
     because all users of the host can see arguments.",
    "Any client that can access the keys on the server can revoke a lock. docs/authentication.md has \
     an ACL rule with the permissions that rlock needs. rlock replaces control characters in text that \
     comes from other users.",
    "A lock is advisory: it excludes only processes that request it. A resource that checks \
     RLOCK_FENCE also rejects holders that have lost the lock.",
];
