//! The words of other tools, and what means the same here.
//!
//! Each line of a table has a remedy, a colon, and the words that call for it. The tables are text,
//! because at each start the dynamic linker would have to relocate constants with pointers.

const SUBCOMMANDS: &str = "\
acquire: lock get take hold wait
release: unlock free delete rm break force-unlock unlink kill
renew: extend refresh keepalive touch
exec: run with do command
inspect: list ls status show info ps stat watch
rlock --version: version";

const OPTIONS: &str = "\
use --nonblock (-n): --nowait --no-wait --nb --non-blocking --nonblocking --no-block --try-once
use --wait (-w): --wait-timeout --acquire-timeout --lock-timeout --max-wait --block --blocking
use --ttl (-t): --expire --expires --expiry --expiration --lease --lease-time --px --ex
use --slots: --count --concurrency --max-concurrency --limit --parallel --permits --jobs -j
use --shared (-s): --read --reader --rlock -r
use --exclusive (-x): --write --writer -e
use --conflict-exit-code (-E): --exit-code --busy-exit-code --status
use --while-pid: --pid --watch-pid --parent-pid -p
use --force: --steal --break --kill --evict
use --json: --format --output -o
use --watch (-W): --interval --refresh --follow
use --tls-ca: --cacert --cafile --ca
use --tls-ca, which trusts your own authority: --insecure --skip-verify --no-verify -k
use --tls-cert: --cert
use --tls-key: --key
use --url redis://HOST:PORT/DB: --host --hostname --server --port --db --database --redis --address
use --url unix:///SOCKET: --socket
use --url rediss://HOST: --tls --ssl --secure
set RLOCK_PASSWORD: --password --pass --auth -a
set RLOCK_USERNAME: --user --username -u
use rlock exec NAME sh -c '…': -c --command
use timeout(1) before COMMAND: --max-time --max-runtime --run-timeout --time-limit --max-duration
use rlock --version: -V --version
remove it, because exec renews the lease itself: --renew --auto-renew --keepalive --heartbeat
remove it, because COMMAND does not inherit the lock: --close --no-fork -F
write TOKEN without an option: --token
write NAME without an option: --name --lock --lock-name --resource";

/// Options that other tools use for something else than `rlock` does, by subcommand.
const OPTIONS_OF: [(&str, &str); 3] = [
    ("exec", "use --foreground: -f"),
    ("release", "use --force: -f"),
    ("inspect", "use --watch (-W): -w -n"),
];

/// The subcommand that a word of another tool means.
pub(super) fn subcommand(word: &str) -> Option<&'static str> {
    find(SUBCOMMANDS, word)
}

/// The remedy for an option of another tool.
pub(super) fn option(option: &str) -> Option<&'static str> {
    find(OPTIONS, option)
}

/// The remedy for an option that this subcommand does not have, even if another one has it.
pub(super) fn option_of(subcommand: &str, option: &str) -> Option<&'static str> {
    let (_, table) = OPTIONS_OF.iter().find(|(name, _)| *name == subcommand)?;
    find(table, option)
}

fn find(table: &'static str, word: &str) -> Option<&'static str> {
    let rows = table.lines().filter_map(|line| line.rsplit_once(": "));
    let mut found = rows.filter(|(_, words)| words.split(' ').any(|other| other == word));
    found.next().map(|(remedy, _)| remedy)
}
