//! TLS is verified in both directions, and refused with a reason.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::server::free_port;
use crate::support::{self, Finished, READY, Running, Server, binary, rlock, run};
use tempfile::TempDir;

/// A certificate authority and the certificates that it has signed.
pub(crate) struct Authority(TempDir);

impl Authority {
    pub(crate) fn new() -> Self {
        let authority = Self(tempfile::Builder::new().prefix("rlock-test-").tempdir().unwrap());
        authority.openssl(
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca",
        );
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
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
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
    fn serves(&self, name: &str, clients: &str) -> (Server, String) {
        let port = free_port().to_string();
        let (certificate, key) =
            (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        let server = Server::with(&[
            "--tls-port",
            &port,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &self.path("ca.crt"),
            "--tls-auth-clients",
            clients,
        ]);
        (server, format!("rediss://localhost:{port}"))
    }
}

/// An rlock that trusts this authority.
pub(crate) fn trusting(authority: &Authority, url: &str, arguments: &[&str]) -> Command {
    let mut command = rlock(arguments);
    command.env("RLOCK_URL", url).env("RLOCK_TLS_CA", authority.file("ca.crt"));
    command
}

#[test]
fn a_lock_over_tls_works_like_any_other() {
    let authority = Authority::new();
    authority.signs("server", "DNS:localhost,IP:127.0.0.1", "-days 2");
    let (server, url) = authority.serves("server", "no");
    let hold = ["exec", "--ttl", "2s", "L", "sh", "-c", READY];
    let first = Running::start(&mut trusting(&authority, &url, &hold)).prints_first("READY");
    let mut second = Running::start(&mut trusting(&authority, &url, &["exec", "L", "echo", "in"]));
    second.told("waiting at position 1");
    support::until("it is renewed", || server.calls_of("evalsha") >= 4);
    assert_eq!(first.finish().code(), 0);
    assert_eq!(second.end().out(), "in");
    // By address too, and with a file of certificates.
    let by_address = url.replace("localhost", "127.0.0.1");
    let mut command = rlock(["inspect", "--tls-ca", &authority.path("ca.crt")]);
    assert_eq!(run(command.env("RLOCK_URL", by_address)).code(), 0);
    // An answer that needs more than one TLS record.
    let mut wide = trusting(&authority, &url, &["inspect", "--json"]);
    server.cli(&["EVAL", "for i = 1, 2000 do redis.call('SET', 'rlock:' .. i, 'theirs') end", "0"]);
    let output = run(&mut wide);
    assert_eq!(output.out().matches("\"foreign\"").count(), 2000);
}

#[test]
fn an_untrusted_server_is_rejected_with_78_and_receives_no_password() {
    let authority = Authority::new();
    let other = Authority::new();
    authority.signs("other", "DNS:elsewhere.example", "-days 2");
    authority.signs("old", "DNS:localhost", "-days -1");
    authority.signs("server", "DNS:localhost", "-days 2");
    let fails = |command: &mut Command, part: &str| {
        run(command.env("RLOCK_PASSWORD", "secret")).exits(78).says(part);
    };
    let exec = ["exec", "L", "true"];
    let (_server, url) = authority.serves("other", "no");
    fails(&mut trusting(&authority, &url, &exec), "is for another host");
    let (_server, url) = authority.serves("old", "no");
    fails(&mut trusting(&authority, &url, &exec), "has expired");
    let (server, url) = authority.serves("server", "no");
    fails(&mut trusting(&other, &url, &exec), "not signed by a trusted authority");
    // The system does not trust it either.
    fails(rlock(exec).env("RLOCK_URL", &url), "");
    assert_eq!(server.calls_of("auth"), 0);
    // A server without TLS, and files that are not certificates.
    let plain = Server::on_tcp(&[]);
    let plain = plain.tcp_url().replace("redis://", "rediss://");
    let output = run(&mut trusting(&authority, &plain, &exec));
    // It may take the TLS greeting for a bad command and answer, or for an unfinished one and wait.
    assert!(matches!(output.code(), 69 | 78) && output.err().contains("TLS"), "{output:?}");
    fails(trusting(&authority, &url, &exec).env("RLOCK_TLS_CA", "/nonexistent"), "/nonexistent");
    fails(trusting(&authority, &url, &exec).env("RLOCK_TLS_CA", "/dev/null"), "no certificate");
    fails(trusting(&authority, &url, &exec).env("RLOCK_TLS_CERT", "/dev/null"), "needed together");
    let mut unused = trusting(&authority, "redis://localhost:1", &exec);
    fails(&mut unused, "use a rediss:// URL");
}

#[test]
fn without_root_certificates_tls_exits_with_78_unless_ssl_cert_file_names_one() {
    let authority = Authority::new();
    authority.signs("server", "DNS:localhost", "-days 2");
    let (_server, url) = authority.serves("server", "no");
    let mut command = rlock(["exec", "L", "true"]);
    command.env("RLOCK_URL", url).env("SSL_CERT_DIR", "/nonexistent");
    run(command.env("SSL_CERT_FILE", "/nonexistent"))
        .exits(78)
        .says("; set --tls-ca, or install ca-certificates");
    run(command.env("SSL_CERT_FILE", authority.file("ca.crt"))).exits(0);
}

#[test]
fn a_server_that_requires_a_client_certificate_receives_it() {
    let authority = Authority::new();
    authority.signs("server", "DNS:localhost", "-days 2");
    let other = Authority::new();
    let ca = authority.file("ca.crt");
    for authority in [&authority, &other] {
        authority.signs("client", "DNS:client", "-days 2");
    }
    let (server, url) = authority.serves("server", "yes");
    let exec = ["exec", "L", "true"];
    let with_certificate_of = |authority: &Authority| {
        let mut command = trusting(authority, &url, &exec);
        command.env("RLOCK_TLS_CA", ca.clone());
        command.env("RLOCK_TLS_CERT", authority.file("client.crt"));
        run(command.env("RLOCK_TLS_KEY", authority.file("client.key")))
    };
    let output = with_certificate_of(&authority);
    assert_eq!(output.code(), 0, "{output:?}");
    let fails = |output: Output, part: &str| {
        assert_eq!(output.code(), 78, "{output:?}");
        assert!(output.err().contains(part), "{part}: {output:?}");
    };
    let missing = "; set --tls-cert and --tls-key";
    fails(run(&mut trusting(&authority, &url, &exec)), missing);
    // The server does not trust this one.
    fails(with_certificate_of(&other), "rejected the client certificate");
    // The oldest version has no message for a missing certificate.
    server.cli(&["CONFIG", "SET", "tls-protocols", "TLSv1.2"]);
    fails(run(&mut trusting(&authority, &url, &exec)), missing);
}

#[test]
fn an_unusable_certificate_exits_with_78_and_a_plain_explanation() {
    let authority = Authority::new();
    // Without extensions it is of version 1.
    authority
        .openssl("req -newkey rsa:2048 -nodes -keyout old.key -out old.csr -subj /CN=localhost");
    authority
        .openssl("x509 -req -in old.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out old.crt");
    let exec = ["exec", "L", "true"];
    for (certificate, parts) in [
        ("old", ["version 1", "version 3 certificate"]),
        ("ca", ["is a CA certificate", "CA:FALSE"]),
    ] {
        let (_server, url) = authority.serves(certificate, "no");
        let output = run(&mut trusting(&authority, &url, &exec)).exits(78);
        assert!(parts.iter().all(|part| output.err().contains(part)), "{output:?}");
        assert!(!output.err().contains("Other"), "{output:?}");
    }
}

#[test]
fn an_unusable_key_exits_with_78_and_states_the_remedy() {
    let authority = Authority::new();
    authority.signs("client", "DNS:client", "-days 2");
    authority.openssl("rsa -aes128 -passout pass:x -in client.key -out encrypted.key");
    authority.openssl("rsa -traditional -aes128 -passout pass:x -in client.key -out older.key");
    let fails = |key: &str, part: &str| {
        let mut command = trusting(&authority, "rediss://localhost:1", &["exec", "L", "true"]);
        command.env("RLOCK_TLS_CERT", authority.file("client.crt"));
        let output = run(command.env("RLOCK_TLS_KEY", authority.file(key))).exits(78);
        assert!(output.err().contains(part) && output.err().contains(key), "{part}: {output:?}");
    };
    for encrypted in ["encrypted.key", "older.key"] {
        let decrypt = format!(
            "encrypted keys are not supported; decrypt it with openssl pkey -in {}",
            authority.path(encrypted)
        );
        fails(encrypted, &decrypt);
    }
    fails("client.crt", "no private key");
    let mut command = trusting(&authority, "rediss://localhost:1", &["exec", "L", "true"]);
    command.env("RLOCK_TLS_CERT", authority.file("client.crt"));
    run(command.env("RLOCK_TLS_KEY", authority.file("ca.key"))).exits(78).says("do not match");
}

#[test]
fn the_files_can_be_pipes_and_have_any_name() {
    let authority = Authority::new();
    authority.signs("server", "DNS:localhost", "-days 2");
    authority.signs("client", "DNS:client", "-days 2");
    let (server, url) = authority.serves("server", "yes");
    let script = "tls='--tls-ca ca.crt --tls-cert client.crt'
        $rlock exec $tls --tls-key <(cat client.key) L echo in
        t=$($rlock acquire --ttl 3s --while-pid $$ $tls --tls-key <(cat client.key) L) || exit
        until $rlock inspect $tls --tls-key client.key L | grep -q 'renewed [1-9]'; do :; done
        $rlock release $tls --tls-key client.key L $t";
    let mut bash = Command::new("bash");
    bash.env("RLOCK_URL", &url).env("rlock", binary());
    run(bash.current_dir(authority.0.path()).args(["-c", script])).exits(0).prints("in");
    assert_eq!(server.cli(&["EXISTS", "rlock:L"]), "0");
    // A path is not text.
    let odd = authority.0.path().join(std::ffi::OsStr::from_bytes(b"c\xffa.crt"));
    std::fs::copy(authority.file("ca.crt"), &odd).unwrap();
    let mut command = trusting(&authority, &url, &["inspect", "--tls-cert"]);
    command.arg(authority.file("client.crt")).arg("--tls-key").arg(authority.file("client.key"));
    assert_eq!(run(command.env("RLOCK_TLS_CA", odd)).code(), 0);
}

#[test]
fn a_key_that_every_user_can_read_causes_a_warning() {
    let authority = Authority::new();
    authority.signs("server", "DNS:localhost", "-days 2");
    authority.signs("client", "DNS:client", "-days 2");
    let (_server, url) = authority.serves("server", "yes");
    for (mode, warnings) in [(0o604, 1), (0o640, 0), (0o600, 0)] {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(authority.file("client.key"), permissions).unwrap();
        let mut command = trusting(&authority, &url, &["inspect"]);
        command.env("RLOCK_TLS_CERT", authority.file("client.crt"));
        let output = run(command.env("RLOCK_TLS_KEY", authority.file("client.key"))).exits(0);
        assert_eq!(
            output.err().matches("--tls-key: readable by every user").count(),
            warnings,
            "{output:?}"
        );
    }
}

#[test]
fn a_redis_url_for_a_tls_server_suggests_rediss() {
    let authority = Authority::new();
    authority.signs("server", "IP:127.0.0.1", "-days 2");
    let (_server, url) = authority.serves("server", "no");
    let url = url.replace("rediss://", "redis://");
    run(rlock(["exec", "-n", "L", "true"]).env("RLOCK_URL", url))
        .exits(69)
        .says("use rediss:// if it uses TLS");
}
