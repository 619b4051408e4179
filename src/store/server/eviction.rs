//! Whether a server may delete locks when its memory is full.

use super::node::Node;
use crate::store::wire;

/// A warning for the operator if the server evicts keys rather than refuse writes. `None` also if
/// this user may not run INFO.
pub(super) fn warning(node: &mut Node) -> Option<String> {
    let memory = node.ask(wire::cmd("INFO").arg("memory").to_owned(), None).ok()?;
    let memory: String = wire::from_redis_value(memory).ok()?;
    let field = |name| memory.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (limit, policy) = (field("maxmemory:")?, field("maxmemory_policy:")?);
    (limit != "0" && policy != "noeviction").then(|| {
        format!(
            "{} may evict locks when its memory is full (maxmemory-policy {policy}); set \
             maxmemory-policy noeviction",
            node.endpoint()
        )
    })
}
