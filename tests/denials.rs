//! What this user, this sandbox or this host lacks is not a server that is unreachable: no command
//! runs unlocked because of it, and it is told what is missing.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::errno::Errno::{self, *};
use nix::libc;
use nix::unistd::geteuid;

use crate::support::quorum::servers;
use crate::support::*;
use crate::tls::Authority;

/// The status without --on-unreachable, and what is said.
type Meaning = (i32, &'static str);

const AWAY: Meaning = (69, "");
const NETWORK: Meaning = (69, "check the network and the firewalls");
const CALL: Meaning = (78, "allow this system call in the sandbox");
const FAMILY: Meaning = (78, "use an address of a family that this host and its sandbox allow");
const ACCESS: Meaning = (78, "allow access to it in the sandbox or security policy");
const PATH: Meaning = (78, "correct the path in the URL");
const DESCRIPTORS: Meaning = (69, "raise ulimit -n");
const FILES: Meaning = (69, "raise fs.file-max");
const MEMORY: Meaning = (69, "free memory");
const THREADS: Meaning = (69, "raise ulimit -u or pids.max");
const PORTS: Meaning = (69, "widen net.ipv4.ip_local_port_range");
const FLOCK: Meaning = (78, "use a file system that supports flock");
const FULL: Meaning = (69, "free space on its file system");

const SOCKET: Refused = Refused::Call(libc::SYS_socket);
const CONNECT: Refused = Refused::Call(libc::SYS_connect);

/// Kinds of URLs, what a sandbox answers to a system call, and what that means.
const ROWS: &[(&[&str], Refused, &[Errno], Meaning)] = &[
    (&["tcp", "unix", "name", "quorum", "sentinel", "cluster"], SOCKET, &[EPERM, EACCES], CALL),
    (&["tcp", "name", "quorum", "sentinel", "cluster"], SOCKET, &[EAFNOSUPPORT], FAMILY),
    (&["tcp", "unix", "name", "quorum", "sentinel", "cluster"], SOCKET, &[EMFILE], DESCRIPTORS),
    (&["tcp", "name", "sentinel"], SOCKET, &[ENFILE], FILES),
    (&["tcp", "unix", "cluster"], SOCKET, &[ENOMEM, ENOBUFS], MEMORY),
    (&["tcp"], CONNECT, &[EACCES, EPERM, EINVAL, ENETUNREACH, EHOSTUNREACH], NETWORK),
    (&["tcp"], CONNECT, &[ETIMEDOUT], AWAY),
    (&["quorum", "sentinel", "cluster"], CONNECT, &[EACCES, EHOSTUNREACH], AWAY),
    (&["tcp", "quorum", "sentinel", "cluster"], CONNECT, &[EADDRNOTAVAIL], PORTS),
    (&["tcp", "unix"], CONNECT, &[ENOSYS], CALL),
    (&["tcp", "unix"], CONNECT, &[ENOBUFS], MEMORY),
    (&["unix"], CONNECT, &[EACCES, EPERM], ACCESS),
    (&["unix"], CONNECT, &[ENOENT, ECONNREFUSED], AWAY),
    (&["unix"], CONNECT, &[ENOTDIR, ELOOP, EPROTOTYPE], PATH),
    (&["tcp", "unix"], Refused::Call(libc::SYS_sendto), &[EPERM, ENOSYS], CALL),
    (&["tcp", "unix"], Refused::Call(libc::SYS_sendto), &[ENOBUFS], MEMORY),
    (&["tcp", "unix"], Refused::Call(libc::SYS_recvfrom), &[EACCES], CALL),
    (&["name", "quorum", "sentinel", "cluster"], Refused::Thread, &[EAGAIN], THREADS),
    (&["name", "quorum", "sentinel"], Refused::Call(libc::SYS_eventfd2), &[EMFILE], DESCRIPTORS),
    (&["local"], Refused::Call(libc::SYS_flock), &[ENOSYS, ENOLCK], FLOCK),
    (&["local"], Refused::Call(libc::SYS_flock), &[ENOMEM], MEMORY),
    (&["local"], WRITE, &[ENOSPC], FULL),
];

const WRITE: Refused = Refused::Call(libc::SYS_pwrite64);

/// A URL of this kind that leads to the server, and otherwise to ports where nothing listens.
fn url(kind: &str, server: &Server) -> String {
    let port = server.port();
    match kind {
        "tcp" => server.tcp_url(),
        "unix" => server.url(),
        "name" => format!("redis://localhost:{port}"),
        "quorum" => format!("{} redis://127.0.0.1:1 redis://127.0.0.1:2", server.tcp_url()),
        "sentinel" => "redis+sentinel://127.0.0.1:1,127.0.0.1:2/service".into(),
        "cluster" => format!("redis+cluster://127.0.0.1:1,127.0.0.1:{port}"),
        _ => format!("local:{}", server.directory().display()),
    }
}

#[test]
fn what_an_error_of_the_system_means_depends_on_its_call() {
    let server = Server::on_tcp(&[]);
    let held = holder(&server, &[], "L");
    for (kinds, refused, errors, (status, told)) in ROWS {
        for (kind, errno) in kinds.iter().flat_map(|kind| errors.iter().map(move |it| (kind, *it)))
        {
            let what = format!("{kind}, {refused:?}: {errno}");
            let limited = |line: &str| {
                let refused = [*refused, Refused::Call(libc::SYS_clone3)];
                let mut command = at(&url(kind, &server), line);
                let refused =
                    if refused[0] == Refused::Thread { &refused[..] } else { &refused[..1] };
                run(refuse(&mut command, refused, errno))
            };
            let output = limited("exec -n --on-unreachable run L echo RUNS");
            let is_away = [AWAY, NETWORK].contains(&(*status, *told));
            assert_eq!(output.out().contains("RUNS"), is_away, "{what}: {output:?}");
            assert_eq!(output.code(), if is_away { 0 } else { *status }, "{what}: {output:?}");
            let wait = if *status == 78 { "1h" } else { "100ms" };
            let output = limited(&format!("exec -w {wait} L echo RUNS"));
            assert_eq!((output.code(), &*output.out()), (*status, ""), "{what}: {output:?}");
            assert!(output.err().contains(&format!("; {told}")), "{what}: {output:?}");
            assert!(is_away || !output.err().contains("is running"), "{what}: {output:?}");
        }
    }
    held.finish();
}

/// An rlock of a user to whom no file belongs that others may not use.
fn by_another_user(url: &str) -> Client {
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let words = if geteuid().is_root() { &words[..] } else { &[] };
    Client::of(url).by(words.iter().map(|word| (*word).to_owned()).collect())
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_user_who_may_not_open_a_socket_is_told_what_is_missing_and_never_runs_unlocked() {
    let (server, held) = held(&[]);
    let (socket, folder) = (server.socket(), server.socket().parent().unwrap().to_owned());
    let other = by_another_user(&server.url());
    let token = "01234567-89ab-4cde-8f01-23456789abcd";
    let lines = [
        "exec -n --on-unreachable run L echo RUNS",
        "exec -w 1h L echo RUNS",
        "acquire L",
        &format!("renew L {token}"),
        &format!("release L {token}"),
        "release --force L",
        "inspect L",
        "inspect --attention",
    ];
    for (mode, what) in [(0o755, "write (w) permission on"), (0o600, "search (x) permission on")] {
        set_mode(&socket, 0);
        set_mode(&folder, mode);
        let lacks = if mode == 0o755 { &socket } else { &folder };
        for line in lines {
            let remedy = format!("; grant this user {what} {}", lacks.display());
            let output = other.run(line).exits(78).prints("");
            assert!(output.err().trim_end().ends_with(&remedy), "{line}: {output:?}");
        }
        let told = format!("grant this user {what} {}", lacks.display());
        other.run("inspect --servers -q").exits(78).shows(&told);
    }
    set_mode(&folder, 0o755);
    set_mode(&socket, 0o777);
    other.run("exec -n L echo RUNS").exits(75);
    held.finish();
}

#[test]
fn once_served_a_client_that_is_denied_goes_on_until_the_lease_or_the_wait_ends() {
    let server = Server::start();
    set_mode(server.directory(), 0o755);
    set_mode(&server.socket(), 0o777);
    let way = tempfile::tempdir().unwrap();
    set_mode(way.path(), 0o755);
    symlink(server.socket(), way.path().join("socket")).unwrap();
    let other = by_another_user(&format!("unix://{}/socket", way.path().display()));
    let mut holder = other.holder("--ttl 6s L");
    let mut waiter = other.waiter("-w 1m --ttl 6s L");
    let mut loser = other.waiter("-w 3s --ttl 6s L");
    set_mode(way.path(), 0);
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    for client in [&mut holder, &mut waiter, &mut loser] {
        client.told("permission denied");
    }
    loser.end().exits(69).says("search (x) permission");
    set_mode(way.path(), 0o755);
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
}

#[test]
fn a_directory_of_locks_that_closes_while_a_client_waits_is_waited_for() {
    let way = tempfile::tempdir().unwrap();
    let locks = way.path().join("locks");
    std::fs::create_dir(&locks).unwrap();
    set_mode(&locks, 0o777);
    set_mode(way.path(), 0o755);
    let other = by_another_user(&format!("local:{}", locks.display()));
    let token = other.acquire("--ttl 1m L");
    let mut waiter = other.waiter("-w 1m --ttl 1s L");
    set_mode(way.path(), 0);
    other.run("exec -w 1h L true").exits(78);
    waiter.told("permission denied");
    set_mode(way.path(), 0o755);
    other.run(&format!("release L {token}")).exits(0);
    waiter.end().exits(0).prints("ENTERED");
}

#[test]
fn an_address_of_a_family_that_this_host_lacks_does_not_hide_the_others() {
    let server = Server::on_tcp(&[]);
    let [six, four] = [libc::AF_INET6, libc::AF_INET].map(Refused::Socket);
    for errno in [EAFNOSUPPORT, EPERM] {
        for (behind, refused, status, prints) in [
            (server.port(), &[six][..], 0, "L"),
            // Without a lock, there is no such variable.
            (0, &[six], 1, ""),
            (server.port(), &[six, four], 78, ""),
        ] {
            let name = Name::of(&[behind]);
            name.leads_to_also("::1");
            let client = name.client("redis", "");
            let mut exec = client.rlock("exec -n --on-unreachable run L printenv RLOCK_NAME");
            let output = run(refuse(&mut exec, refused, errno)).prints(prints);
            assert_eq!(output.code(), status, "{errno}, {refused:?}: {output:?}");
        }
    }
}

#[test]
fn a_file_that_this_host_cannot_open_now_is_not_a_wrong_one() {
    let authority = Authority::new();
    let [file, url] =
        [authority.file("ca.crt").display().to_string(), "rediss://127.0.0.1:1".into()];
    let client = |opened: &str| {
        let strace = format!("strace -f -qq -o /dev/null -e trace=openat -P {file}");
        let strace = format!("{strace} -e inject=openat:error={opened}");
        let client = Client::of(url.clone()).by(strace.split(' ').map(str::to_owned).collect());
        client.with("RLOCK_TLS_CA", &*file)
    };
    let exec = "exec -w 300ms L true";
    for (opened, status, told) in [
        ("EMFILE", 69, "; raise ulimit -n"),
        ("EMFILE:when=2+", 69, "; raise ulimit -n"),
        ("EIO", 69, "; check the disk"),
        ("EACCES", 78, "; allow access to it"),
        ("EACCES:when=2+", 78, "; allow access to it"),
    ] {
        client(opened).run(exec).exits(status).says(told);
    }
}

#[test]
fn a_member_that_denies_this_client_leaves_the_others_their_majority() {
    let servers = servers(3);
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(" ");
    servers.iter().for_each(|server| set_mode(server.directory(), 0o755));
    servers.iter().for_each(|server| set_mode(&server.socket(), 0o777));
    let other = by_another_user(&urls).with("RLOCK_TTL", "3s");
    set_mode(&servers[0].socket(), 0);
    let told = "(continuing without this server); grant this user write (w) permission on";
    other.run("exec -n L true").exits(0).says(told);
    set_mode(&servers[1].socket(), 0);
    let unlocked = "exec -w 1h --on-unreachable run L echo RUNS";
    other.run(unlocked).exits(78).prints("").says("grant this user write (w) permission on");
}
