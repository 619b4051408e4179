//! What `rlock` needs on a client's host.

use crate::support::{self, Server, holder, waiter};

pub(crate) fn measure() {
    let server = Server::start();
    memory(&server);
    size();
}

fn memory(server: &Server) {
    let holder = holder(server, &[], "memory");
    let waiter = waiter(server, &[], "memory", "");
    println!(
        "resident memory: holder {:.1} MiB ({:.1} of it not shared), waiter {:.1} MiB ({:.1})",
        mebibytes(holder.pid(), "VmRSS"),
        mebibytes(holder.pid(), "RssAnon"),
        mebibytes(waiter.pid(), "VmRSS"),
        mebibytes(waiter.pid(), "RssAnon"),
    );
    holder.finish();
    waiter.finish();
}

/// A field of a process's status in `/proc`, in MiB.
pub(crate) fn mebibytes(pid: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes / 1024.0)
}

fn size() {
    let size = std::fs::metadata(support::binary()).map_or(0, |file| file.len());
    println!("binary: {:.2} MiB", size as f64 / 1024.0 / 1024.0);
}
