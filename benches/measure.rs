//! Measures the speed and size that the README states, next to other tools: `cargo bench`. Tools
//! that are not installed are skipped, with a message.

#![allow(clippy::expect_used, reason = "a failed measurement has no result to print")]

#[path = "../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "the tests in main.rs use the rest")]
mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::proxy::Proxy;
use support::{Server, holder, waiter};

const RUNS: usize = 300;
const WARM_UP: usize = 20;

fn main() {
    let server = Server::on_tcp(&[]);
    uncontended(&server);
    round_trips(&server);
    memory(&server);
    size();
    server_time(&server);
    inspection();
}

/// The time that the scripts take on the server, including all that they keep for inspect.
fn server_time(server: &Server) {
    server.cli(&["CONFIG", "RESETSTAT"]);
    for _ in 0..RUNS {
        let mut command = support::rlock(["exec", "-n", "bench", "--", "true"]);
        command.env("RLOCK_URL", server.tcp_url());
        assert!(command.status().is_ok_and(|status| status.success()));
    }
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
    let cost = line.split(',').find_map(|field| field.strip_prefix("usec_per_call="));
    println!("each of the two scripts of an exec takes {} µs on the server", cost.unwrap_or("?"));
}

/// The time to list many locks.
fn inspection() {
    const LOCKS: usize = 10_000;
    let server = Server::on_tcp(&[]);
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let url = server.tcp_url();
            std::thread::spawn(move || {
                for lock in (worker..LOCKS).step_by(4) {
                    let name = format!("deploy:job-{lock}");
                    let mut command = support::rlock(["acquire", "-q", "-t", "1h", &name]);
                    command.env("RLOCK_URL", &url).stdout(Stdio::null());
                    assert!(command.status().is_ok_and(|status| status.success()));
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().expect("all are acquired"));
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let mut command = support::rlock(["inspect"]);
            command.env("RLOCK_URL", server.tcp_url()).stdout(Stdio::null());
            let start = Instant::now();
            assert!(command.status().is_ok_and(|status| status.success()));
            start.elapsed()
        })
        .collect();
    println!("inspect of {LOCKS} locks: {:.0} ms", median(&mut times).as_secs_f64() * 1000.0);
}

/// Alternates each contender with flock, so that a change in the machine's speed affects both
/// alike.
fn uncontended(server: &Server) {
    println!("a free lock around `true`, medians of {RUNS} runs, alternating with flock(1):");
    let url = server.tcp_url();
    let file = server.directory().join("flock").display().to_string();
    let port = server.port().to_string();
    let script = server.directory().join("lock.sh").display().to_string();
    std::fs::write(&script, SCRIPT).expect("the script can be written");
    let flock = move || command("flock", &["-n", &file, "true"]);
    if !works(&flock) {
        println!("  (skipped, because flock is not installed)");
        return;
    }
    compare("rlock exec -n NAME -- true", &flock, &|| {
        let mut command = support::rlock(["exec", "-n", "bench", "--", "true"]);
        command.env("RLOCK_URL", &url);
        command
    });
    compare("redis-cli SET and EVAL in sh", &flock, &|| {
        let mut command = command("sh", &[&script]);
        command.env("PORT", &port);
        command
    });
    match Etcd::start(server.directory()) {
        Some(etcd) => compare("etcdctl lock NAME true", &flock, &|| etcd.lock()),
        None => println!("  (etcdctl lock: skipped, because etcd or etcdctl is not installed)"),
    }
}

fn works(command: &dyn Fn() -> Command) -> bool {
    command().stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn compare(name: &str, flock: &dyn Fn() -> Command, contender: &dyn Fn() -> Command) {
    if !works(contender) {
        println!("  ({name}: skipped, because it does not run here)");
        return;
    }
    let mut times = [Vec::new(), Vec::new()];
    for run in 0..WARM_UP + RUNS {
        for (command, times) in [flock, contender].into_iter().zip(&mut times) {
            let mut command = command();
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let start = Instant::now();
            let status = command.status().expect("it has started before");
            let time = start.elapsed();
            assert!(status.success(), "{name}");
            if run >= WARM_UP {
                times.push(time);
            }
        }
    }
    let [flock, contender] = times.each_mut().map(|times| median(times));
    let ratio = contender.as_secs_f64() / flock.as_secs_f64();
    let (flock, contender) = (millis(flock), millis(contender));
    println!("  {name:<30} {contender:>6.2} ms   flock {flock:>5.2} ms   ratio {ratio:>5.2}");
}

/// What many scripts do by hand. Nothing renews the lock.
const SCRIPT: &str = r#"
token=$(cat /proc/sys/kernel/random/uuid)
[ "$(redis-cli -p "$PORT" SET by-hand "$token" NX PX 30000)" = OK ] || exit 75
true
redis-cli -p "$PORT" EVAL 'if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1]) end' 1 by-hand "$token" >/dev/null
"#;

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

struct Etcd {
    process: Child,
    endpoint: String,
}

impl Etcd {
    fn start(directory: &Path) -> Option<Self> {
        let (client, peer) = (support::server::free_port(), support::server::free_port());
        let endpoint = format!("http://127.0.0.1:{client}");
        let peers = format!("http://127.0.0.1:{peer}");
        Command::new("etcdctl").arg("version").stdout(Stdio::null()).status().ok()?;
        let process = Command::new("etcd")
            .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}"), "--data-dir"])
            .arg(directory.join("etcd"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let etcd = Self { process, endpoint };
        support::until("etcd answers", || works(&|| etcd.lock()));
        Some(etcd)
    }

    fn lock(&self) -> Command {
        let mut command =
            command("etcdctl", &["--endpoints", &self.endpoint, "lock", "bench", "true"]);
        command.env("ETCDCTL_API", "3").stderr(Stdio::null());
        command
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn round_trips(server: &Server) {
    const DELAY: Duration = Duration::from_millis(25);
    let proxy = Proxy::to(server.port(), DELAY);
    let mut times = Vec::new();
    let mut flights = 0;
    for _ in 0..10 {
        let before = proxy.flights();
        let mut command = support::rlock(["exec", "-n", "far", "--", "true"]);
        let start = Instant::now();
        let status = command.env("RLOCK_URL", proxy.url()).status().expect("rlock runs");
        assert!(status.success());
        times.push(start.elapsed());
        flights = proxy.flights() - before;
    }
    println!(
        "the same through a proxy with 50 ms of round-trip time: {flights} round trips after the \
         handshake (which the proxy does not delay), {:.1} ms",
        millis(median(&mut times)),
    );
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

fn mebibytes(pid: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes / 1024.0)
}

fn size() {
    let size = std::fs::metadata(env!("CARGO_BIN_EXE_rlock")).map_or(0, |file| file.len());
    println!("binary: {:.2} MiB", size as f64 / 1024.0 / 1024.0);
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
