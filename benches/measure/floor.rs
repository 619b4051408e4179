//! A free lock around `true`, next to a program that does nothing else. The ratio to it says less of
//! the machine than one to flock(1) does.

use std::path::{Path, PathBuf};

use crate::hyperfine::compare;
use crate::recording::{self, NAME, Request};
use crate::support::compiled::compiled;
use crate::support::{self, Server};

pub(crate) fn measure() {
    let server = Server::on_tcp(&[]);
    let three: Vec<Server> = (0..3).map(|_| Server::on_tcp(&[])).collect();
    three.iter().for_each(|server| server.await_uptime(4));
    let directory = server.directory().display();
    let exec = |binary: &str, urls: &str| format!("{binary} exec {urls} -t 3s -n {NAME} -- true");
    let one = format!("--url {}", server.tcp_url());
    let quorum = three.iter().map(|it| format!("--url {} ", it.tcp_url())).collect::<String>();
    let mut commands = vec![
        ("the floor", floor(&server).display().to_string()),
        ("flock -n FILE true", format!("flock -n {directory}/flock true")),
        ("rlock exec -n NAME -- true", exec(support::binary(), &one)),
        ("the same on local:", exec(support::binary(), &format!("--url local:{directory}/locks"))),
        ("the same on a quorum of three", exec(support::binary(), &quorum)),
    ];
    if let Some(binary) = static_build() {
        commands.insert(3, ("the same, built by make static", exec(&binary, &one)));
    }
    compare(80, &commands);
}

/// Compiles the program with the requests of rlock in it.
fn floor(server: &Server) -> PathBuf {
    let [acquire, release] = recording::of_exec(server, &["-t", "3s", "-n"], "");
    let [acquire, release] = [acquire, release].map(|request: Request| request.as_text());
    let (port, token) = (server.port(), recording::token(0));
    let requests = format!(
        "#define PORT {port}\n#define TOKEN \"{token}\"\n#define ACQUIRE \"{acquire}\"\n#define RELEASE \"{release}\"\n"
    );
    std::fs::write(server.directory().join("requests.h"), requests).expect("it can be written");
    let include = format!("-I{}", server.directory().display());
    compiled("floor.c", "floor", &["-O2", "-static", &include])
}

/// The static binary, if it has been built.
fn static_build() -> Option<String> {
    let target = format!("target/{}-unknown-linux-musl/release/rlock", std::env::consts::ARCH);
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
    binary.exists().then(|| binary.display().to_string())
}
