//! TLS is verified in both directions, and refused with a reason.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::*;
use tempfile::TempDir;

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// A certificate authority and the certificates that it has signed.
pub(crate) struct Authority(TempDir);

impl Authority {
    pub(crate) fn new() -> Self {
        Self::valid_for(30)
    }

    pub(crate) fn valid_for(days: u32) -> Self {
        let authority = Self(tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap());
        authority.openssl(&format!(
            "req -x509 {NEW_KEY} -keyout ca.key -out ca.crt -days {days} -subj /CN=ca{days}"
        ));
        authority
    }

    fn openssl(&self, arguments: &str) {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(self.0.path()).args(arguments.split(' '));
        let output = run(&mut openssl);
        assert!(output.status.success(), "{arguments}: {output:?}");
    }

    /// A certificate and a key for this name.
    pub(crate) fn signs(&self, name: &str, alternative: &str, valid: &str) {
        self.openssl(&format!("req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        std::fs::write(self.file("extensions"), format!("subjectAltName={alternative}")).unwrap();
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt \
             -extfile extensions {valid}"
        ));
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// A server with that certificate. Returns its TLS port too.
    pub(crate) fn serves(&self, name: &str, clients: &str) -> (Server, String) {
        let port = free_port().to_string();
        let [certificate, key, ca] =
            [&format!("{name}.crt"), &format!("{name}.key"), "ca.crt"].map(|file| self.path(file));
        let server = Server::with(
            &[
                &["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key][..],
                &["--tls-ca-cert-file", &ca, "--tls-auth-clients", clients],
            ]
            .concat(),
        );
        (server, format!("rediss://localhost:{port}"))
    }
}

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

/// An rlock that trusts this authority.
pub(crate) fn trusting(authority: &Authority, url: &str) -> Client {
    Client::of(url).with("RLOCK_TLS_CA", authority.path("ca.crt"))
}

/// An authority, and a server with its certificate, which requires one of its `clients` ("yes" or
/// "no"). The authority has signed one for a client.
fn serving(clients: &str) -> (Authority, Server, String) {
    let authority = Authority::new();
    authority.signs("server", "DNS:localhost,IP:127.0.0.1", "-days 2");
    authority.signs("client", "DNS:client", "-days 2");
    let (server, url) = authority.serves("server", clients);
    (authority, server, url)
}

/// An rlock that trusts this authority and has its certificate for a client.
fn certified(authority: &Authority, url: &str) -> Client {
    let client = trusting(authority, url).with("RLOCK_TLS_CERT", authority.path("client.crt"));
    client.with("RLOCK_TLS_KEY", authority.path("client.key"))
}

const EXEC: &str = "exec L true";

#[test]
fn a_lock_over_tls_works_like_any_other() {
    let (authority, server, url) = serving("no");
    let client = trusting(&authority, &url);
    let first = client.holder("--ttl 2s L");
    let second = client.waiter("L");
    until("it is renewed", || server.calls_of("evalsha") >= 4);
    first.finish().exits(0);
    second.end().exits(0).prints("ENTERED");
    // An answer that needs more than one TLS record; and the server by its address.
    server.cli(&["EVAL", "for i = 1, 2000 do redis.call('SET', 'rlock:' .. i, 'theirs') end", "0"]);
    let by_address = trusting(&authority, &url.replace("localhost", "127.0.0.1"));
    assert_eq!(by_address.run("inspect --json").out().matches("\"foreign\"").count(), 2000);
    let plain = Client::of(url.replace("rediss://", "redis://"));
    plain.run(EXEC).exits(69).says("use rediss:// if it uses TLS");
}

#[test]
fn an_untrusted_server_is_rejected_with_78_and_receives_no_password() {
    let (authority, server, url) = serving("no");
    let fails = |client: Client, part: &str| {
        client.with("RLOCK_PASSWORD", "secret").run(EXEC).exits(78).says(part);
    };
    authority.signs("other", "DNS:elsewhere.example", "-days 2");
    authority.signs("old", "DNS:localhost", "-days -1");
    for (name, part) in [("other", "is for another host"), ("old", "has expired")] {
        let (_server, url) = authority.serves(name, "no");
        fails(trusting(&authority, &url), part);
    }
    fails(trusting(&Authority::new(), &url), "not signed by a trusted authority");
    // The system does not trust it either.
    fails(Client::of(&url), "");
    assert_eq!(server.calls_of("auth"), 0);
    // A server without TLS, and files that are not certificates.
    let plain = Server::on_tcp(&[]);
    let url_of_plain = plain.tcp_url().replace("redis://", "rediss://");
    let output = trusting(&authority, &url_of_plain).run(EXEC);
    // It may take the TLS greeting for a bad command and answer, or for an unfinished one and wait.
    assert!(matches!(output.code(), 69 | 78) && output.err().contains("TLS"), "{output:?}");
    for (variable, file, part) in [
        ("RLOCK_TLS_CA", "/nonexistent", "/nonexistent"),
        ("RLOCK_TLS_CA", "/dev/null", "no certificate"),
        ("RLOCK_TLS_CERT", "/dev/null", "needed together"),
    ] {
        fails(trusting(&authority, &url).with(variable, file), part);
    }
    fails(trusting(&authority, "redis://localhost:1"), "use a rediss:// URL");
}

#[test]
fn a_silent_address_does_not_delay_tls_and_each_address_must_have_the_certificate_of_the_name() {
    let authority = Authority::new();
    authority.signs("right", "DNS:name.test", "-days 2");
    authority.signs("wrong", "DNS:elsewhere.example,IP:127.0.0.2", "-days 2");
    let [right, wrong] = ["right", "wrong"].map(|name| authority.serves(name, "no"));
    let [right_port, wrong_port] = [&right, &wrong].map(|(_, url)| port_of(url));
    let name = Name::of(&[right_port, wrong_port, right_port]);
    let client = name.client("rediss", "").with("RLOCK_TLS_CA", authority.path("ca.crt"));
    name.proxies[0].part(true);
    let mut longer = LongerWait::of("9s");
    client.run("exec -n --ttl 2m --io-timeout 30s L true").exits(0);
    longer.is_not_over();
    name.leads_to(&[1]);
    client.run(EXEC).exits(78).says("is for another host");
}

#[test]
fn certificates_and_keys_that_are_replaced_are_read_again_for_the_next_connection() {
    let (authority, server, url) = serving("yes");
    let proxy = Proxy::to(port_of(&url), Duration::ZERO);
    let client = certified(&authority, &proxy.url().replace("redis", "rediss"));
    let mut holder = client.holder("-v --ttl 15s L");
    let mut waiter = client.waiter("-w 1h L");
    // First those of the server are replaced, by another authority.
    let new = Authority::new();
    new.signs("server", "DNS:localhost,IP:127.0.0.1", "-days 2");
    new.signs("client", "DNS:client", "-days 2");
    let replace = |file: &&str| {
        std::fs::copy(new.file(file), authority.file(file)).unwrap();
    };
    ["server.crt", "server.key"].iter().for_each(replace);
    server.cli(&["CONFIG", "SET", "tls-ca-cert-file", &new.path("ca.crt")]);
    proxy.cut();
    waiter.told("not signed by a trusted authority");
    holder.told("not signed by a trusted authority; retrying");
    std::fs::remove_file(authority.file("client.key")).unwrap();
    holder.told("client.key: no such file or directory; retrying");
    // A client that has not been served yet does not wait for it.
    client.run("exec -w 1h L true").exits(78).says("client.key");
    ["ca.crt", "client.crt", "client.key"].iter().for_each(replace);
    holder.told("renewed for 15s");
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
}

#[test]
fn without_root_certificates_tls_exits_with_78_unless_ssl_cert_file_names_one() {
    let (authority, _server, url) = serving("no");
    let client = Client::of(&url).with("SSL_CERT_DIR", "/nonexistent");
    let with = |file: &str| client.clone().with("SSL_CERT_FILE", file).run(EXEC);
    with("/nonexistent").exits(78).says("; set --tls-ca, or install ca-certificates");
    with(&authority.path("ca.crt")).exits(0);
}

#[test]
fn a_server_that_requires_a_client_certificate_receives_it() {
    let (authority, server, url) = serving("yes");
    certified(&authority, &url).run(EXEC).exits(0);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o604);
    std::fs::set_permissions(authority.file("client.key"), open).unwrap();
    let warning = "--tls-key: readable by every user";
    certified(&authority, &url).run(EXEC).exits(0).says(warning);
    // The server does not trust this one.
    let other = Authority::new();
    other.signs("client", "DNS:client", "-days 2");
    let stranger = certified(&other, &url).with("RLOCK_TLS_CA", authority.path("ca.crt"));
    stranger.run(EXEC).exits(78).says("rejected the client certificate");
    // The older version has no message for a missing certificate.
    for version in ["TLSv1.3", "TLSv1.2"] {
        server.cli(&["CONFIG", "SET", "tls-protocols", version]);
        trusting(&authority, &url).run(EXEC).exits(78).says("; set --tls-cert and --tls-key");
    }
    // Editors on Windows begin a file with a byte order mark.
    for file in ["ca.crt", "client.crt", "client.key"].map(|name| authority.file(name)) {
        let text = std::fs::read(&file).unwrap();
        std::fs::write(&file, [b"\xef\xbb\xbf", &*text].concat()).unwrap();
    }
    certified(&authority, &url).run(EXEC).exits(0);
}

#[test]
fn an_unusable_certificate_exits_with_78_and_a_plain_explanation() {
    let authority = Authority::new();
    // Without extensions it is of version 1.
    authority.openssl("req -new -key ca.key -out old.csr -subj /CN=localhost");
    authority
        .openssl("x509 -req -in old.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out old.crt");
    std::fs::write(authority.file("v3"), "subjectAltName=DNS:localhost").unwrap();
    for name in ["old.key", "by_p521.key"] {
        std::fs::copy(authority.file("ca.key"), authority.file(name)).unwrap();
    }
    let p521 = "-newkey ec -pkeyopt ec_paramgen_curve:secp521r1 -nodes -days 2 -subj /CN=p521";
    authority.openssl(&format!("req -x509 {p521} -keyout p521.key -out p521.crt"));
    authority.openssl(
        "x509 -req -in old.csr -CA p521.crt -CAkey p521.key -CAcreateserial -out by_p521.crt \
         -extfile v3",
    );
    let trusted = ["ca.crt", "p521.crt"].map(|name| std::fs::read(authority.file(name)).unwrap());
    std::fs::write(authority.file("ca.crt"), trusted.concat()).unwrap();
    for (certificate, problem, remedy) in [
        ("old", "version 1", "version 3 certificate"),
        ("ca", "is a CA certificate", "CA:FALSE"),
        ("p521", "no algorithm in common", "use RSA, P-256"),
        ("by_p521", "signed with an unsupported kind of key", "use RSA, P-256"),
    ] {
        let (_server, url) = authority.serves(certificate, "no");
        trusting(&authority, &url).run(EXEC).exits(78).says(problem).says(remedy);
    }
    let client = certified(&authority, "rediss://localhost:1");
    let [file, key] = ["old.crt", "old.key"].map(|name| authority.path(name));
    let client = client.with("RLOCK_TLS_CERT", &file).with("RLOCK_TLS_KEY", key);
    client.run(EXEC).exits(78).says(&format!("{file}: not a valid certificate of X.509 version 3"));
}

#[test]
fn an_unusable_key_exits_with_78_and_states_the_remedy() {
    let authority = Authority::new();
    authority.signs("client", "DNS:client", "-days 2");
    authority.openssl("ec -aes128 -passout pass:x -in client.key -out older.key");
    authority.openssl("pkey -aes128 -passout pass:x -in client.key -out encrypted.key");
    authority.openssl("ecparam -name secp521r1 -genkey -noout -out p521.key");
    for (key, part) in [
        ("encrypted.key", "decrypt it with openssl pkey -in "),
        ("older.key", "decrypt it with openssl pkey -in "),
        ("client.crt", "no private key"),
        ("ca.key", "do not match"),
        ("p521.key", "p521.key: unsupported kind of key; use RSA, P-256"),
    ] {
        let client = certified(&authority, "rediss://localhost:1");
        client.with("RLOCK_TLS_KEY", authority.path(key)).run(EXEC).exits(78).says(part);
    }
}

#[test]
fn a_key_and_a_password_from_pipes_that_are_empty_afterwards_reach_a_keeper_too() {
    let (authority, server, url) = serving("yes");
    server.cli(&["CONFIG", "SET", "requirepass", "s3cret"]);
    // Nothing in the environment takes their place.
    let script = "export RLOCK_KEEPER_PASSWORD=wrong RLOCK_KEEPER_TOKEN=wrong
        tls='--tls-ca ca.crt --tls-cert client.crt'
        t=$($rlock acquire --ttl 3s --while-pid $$ $tls --tls-key <(cat client.key) \
            --password-file <(echo s3cret) L) || exit
        export RLOCK_PASSWORD=s3cret
        tls=\"$tls --tls-key client.key\"
        until $rlock inspect $tls L | grep -q 'renewed [1-9]'; do :; done
        $rlock release $tls L $t && $rlock inspect $tls L";
    let mut bash = Command::new("bash");
    bash.env("RLOCK_URL", &url).env("rlock", binary());
    run(bash.current_dir(authority.0.path()).args(["-c", script])).exits(1).shows("L: free");
}
