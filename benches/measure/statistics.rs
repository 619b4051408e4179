//! What a server reports about itself.

use crate::support::Server;

/// A field of INFO.
fn info(server: &Server, section: &str, field: &str) -> f64 {
    let told = server.cli(&["INFO", section]);
    let value = told.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(f64::NAN)
}

pub(crate) fn version(server: &Server) -> String {
    let told = server.cli(&["INFO", "server"]);
    let field = |name| told.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    match field("valkey_version:") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", field("redis_version:").unwrap_or("?")),
    }
}

/// The CPU time that the server has used, in seconds.
pub(crate) fn cpu_seconds(server: &Server) -> f64 {
    info(server, "cpu", "used_cpu_user") + info(server, "cpu", "used_cpu_sys")
}

/// The memory that the server has allocated, in bytes.
pub(crate) fn memory(server: &Server) -> f64 {
    info(server, "memory", "used_memory")
}

/// How many clients are connected, apart from the one that asks.
pub(crate) fn connections(server: &Server) -> f64 {
    info(server, "clients", "connected_clients") - 1.0
}

/// How many scripts ran since the last reset of the statistics.
pub(crate) fn scripts(server: &Server) -> u64 {
    server.calls_of("evalsha")
}

/// The mean time of a script since the last reset of the statistics, in microseconds.
pub(crate) fn micros_per_script(server: &Server) -> f64 {
    let told = server.cli(&["INFO", "commandstats"]);
    let line = told.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
    let cost = line.split(',').find_map(|field| field.strip_prefix("usec_per_call="));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(f64::NAN)
}
