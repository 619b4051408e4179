//! What `rlock` needs on a client's host.

use crate::support::{self, Server, holder, waiter};

pub(crate) fn measure() {
    let server = Server::start();
    let holder = holder(&server, &[], "memory");
    let waiter = waiter(&server, &[], "memory", "");
    for (name, client) in [("holder", &holder), ("waiter", &waiter)] {
        let [resident, own] = ["VmRSS", "RssAnon"].map(|field| mebibytes(client.pid(), field));
        println!("  memory of a {name}: {resident:.1} MiB, of which {own:.1} MiB are not shared");
    }
    holder.finish();
    waiter.finish();
    let size = std::fs::metadata(support::binary()).map_or(0, |file| file.len());
    println!("  binary: {:.1} MiB", size as f64 / 1024.0 / 1024.0);
}

/// A field of a process's status in `/proc`, in MiB.
fn mebibytes(pid: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes / 1024.0)
}
