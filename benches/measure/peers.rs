//! A free lock around `true`, next to other tools.

use crate::hyperfine::compare;
use crate::support::{self, Server};

/// What many scripts do by hand. Nothing renews the lock.
const BY_HAND: &str = r#"
token=$(cat /proc/sys/kernel/random/uuid)
[ "$(redis-cli -p "$1" SET by-hand "$token" NX PX 30000)" = OK ] || exit 75
true
redis-cli -p "$1" EVAL 'if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1]) end' 1 by-hand "$token" >/dev/null
"#;

pub(crate) fn measure() {
    let server = Server::on_tcp(&[]);
    let directory = server.directory().display();
    let script = format!("{directory}/lock.sh");
    std::fs::write(&script, BY_HAND).expect("the script can be written");
    let rlock = |url: String| format!("{} exec --url {url} -n bench -- true", support::binary());
    let commands = [
        ("flock -n FILE true", format!("flock -n {directory}/flock true")),
        ("rlock exec -n NAME -- true", rlock(server.tcp_url())),
        ("the same on local:", rlock(format!("local:{directory}/locks"))),
        ("redis-cli SET and EVAL in sh", format!("sh {script} {}", server.port())),
    ];
    compare(60, &commands);
}
