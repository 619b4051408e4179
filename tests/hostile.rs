//! A hostile server cannot hold up rlock, use up the memory, or put words into its mouth.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use rustls::crypto::cipher::OutboundPlainMessage;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ConnectionTrafficSecrets, ContentType, ProtocolVersion, ServerConfig, ServerConnection,
    SupportedCipherSuite,
};

use crate::support::{Finished, rlock, run};
use crate::tls::{Authority, trusting};

/// A server that does this with every connection. Returns its port.
fn serve(act: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(act));
    port
}

/// Repeats the bytes until the client hangs up.
fn repeat(client: &mut impl Write, bytes: &[u8]) {
    let many = bytes.repeat(10_000);
    while client.write_all(&many).is_ok() {}
}

#[test]
fn an_endless_reply_of_tiny_elements_takes_bounded_memory() {
    let port = serve(|mut client| {
        let _ = client.write_all(b"*9000000000000000\r\n");
        repeat(&mut client, b":1\r\n");
    });
    // In KiB. The elements take 64 MiB, and twice that while their array grows.
    let limited = format!("ulimit -v 350000; exec {}", crate::support::binary());
    let mut command = Command::new("sh");
    command.args(["-c", &(limited + r#" "$@""#), "sh"]);
    command.args(["inspect", "--io-timeout", "1m", "L"]);
    let told = run(command.env("RLOCK_URL", format!("redis://127.0.0.1:{port}")));
    assert!(told.code() == 78 && told.err().contains("exceeds 64 MiB"), "{told:?}");
}

#[test]
fn a_server_cannot_give_an_invalid_host_name() {
    for (scheme, reply, arguments) in [
        ("redis+cluster", "-MOVED 5 x\u{9b}2J\u{202e}:7\r\n", ["acquire", "L"]),
        ("redis+cluster", "-ASK 5 x y:7\r\n", ["acquire", "L"]),
        ("redis+cluster", "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$3\r\nx\ny\r\n:7\r\n", ["inspect", "-v"]),
        ("redis+sentinel", "*2\r\n$3\r\nx\ny\r\n$1\r\n7\r\n", ["acquire", "L"]),
    ] {
        let port = serve(|mut client| {
            let _ = client.write_all(reply.as_bytes());
            let _ = client.read(&mut [0; 100_000]);
        });
        let service = if scheme == "redis+sentinel" { "/svc" } else { "" };
        let mut command = rlock(arguments);
        run(command.env("RLOCK_URL", format!("{scheme}://127.0.0.1:{port}{service}")))
            .exits(78)
            .says("names a server with an invalid host name; ");
    }
}

/// Completes a TLS handshake. Then it sends session tickets, which contain no reply, until the client
/// hangs up.
fn serve_tickets(authority: &Authority) -> String {
    authority.signs("server", "DNS:localhost", "-days 2");
    let certificate = CertificateDer::from_pem_file(authority.file("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(authority.file("server.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.enable_secret_extraction = true;
    config.send_tls13_tickets = 0;
    let config = Arc::new(config);
    let port = serve(move |mut client| {
        let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut client).unwrap();
        }
        let SupportedCipherSuite::Tls13(suite) = tls.negotiated_cipher_suite().unwrap() else {
            panic!("TLS 1.3 is the only version")
        };
        let (mut sequence, secrets) = tls.dangerous_extract_secrets().unwrap().tx;
        let (ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets
        else {
            panic!("ring prefers AES")
        };
        let mut encrypter = suite.aead_alg.encrypter(key, iv);
        // Its kind and length, lifetime, age, nonce, the ticket itself, and no extensions.
        let ticket = [4, 0, 0, 14, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, b't', 0, 0];
        loop {
            let plain = OutboundPlainMessage {
                typ: ContentType::Handshake,
                version: ProtocolVersion::TLSv1_3,
                payload: ticket[..].into(),
            };
            let record = encrypter.encrypt(plain, sequence).unwrap().encode();
            if client.write_all(&record).is_err() {
                break;
            }
            sequence += 1;
        }
    });
    format!("rediss://localhost:{port}")
}

#[test]
fn a_server_that_sends_session_tickets_without_end_gets_no_more_time_than_any_other() {
    let authority = Authority::new();
    let url = serve_tickets(&authority);
    run(&mut trusting(&authority, &url, &["acquire", "--io-timeout", "300ms", "L"]))
        .exits(69)
        .says("did not answer within 300ms");
}
