//! A host name with several addresses. Only the clients of one test know it.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;

use super::Client;
use super::proxy::Proxy;
use super::server::free_port;

/// Its addresses lead to proxies, which listen on the same port.
pub struct Name {
    directory: TempDir,
    pub port: u16,
    pub proxies: Vec<Proxy>,
}

impl Name {
    /// A name with an address for each of these servers, in this order. Behind one for port 0,
    /// nothing listens.
    pub fn of(servers: &[u16]) -> Self {
        let directory = tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap();
        fs::write(directory.path().join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
        let (port, delay) = (free_port(), Duration::ZERO);
        let listening = servers.iter().enumerate().filter(|(_, server)| **server != 0);
        let proxy = |(at, server): (usize, &u16)| Proxy::at((&*ip(at), port), *server, delay);
        let proxies = listening.map(proxy).collect();
        let name = Self { directory, port, proxies };
        name.leads_to(&(0..servers.len()).collect::<Vec<_>>());
        name
    }

    /// Gives the name these addresses instead.
    pub fn leads_to(&self, addresses: &[usize]) {
        let lines = addresses.iter().map(|&address| format!("{} name.test\n", ip(address)));
        fs::write(self.directory.path().join("hosts"), lines.collect::<String>()).unwrap();
    }

    /// Gives the name this address too.
    pub fn leads_to_also(&self, ip: &str) {
        let file = self.directory.path().join("hosts");
        let hosts = fs::read_to_string(&file).unwrap();
        fs::write(file, format!("{hosts}{ip} name.test\n")).unwrap();
    }

    pub fn address(&self, number: usize) -> SocketAddr {
        format!("{}:{}", ip(number), self.port).parse().unwrap()
    }

    /// A client that knows the name, with a URL that contains it.
    pub fn client(&self, scheme: &str, path: &str) -> Client {
        let script = "mount --bind $0/hosts /etc/hosts && exec \"$@\"";
        let script = format!("mount --bind $0/resolv.conf /etc/resolv.conf && {script}");
        let words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        words.push(self.directory.path().display().to_string());
        Client::of(format!("{scheme}://name.test:{}{path}", self.port)).by(words)
    }
}

/// The addresses that other tests do not use.
fn ip(number: usize) -> String {
    format!("127.0.0.{}", 2 + number)
}
