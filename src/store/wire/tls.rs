//! TLS: which certificates to trust, the client certificate, and a stream that is encrypted or not.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::Socket;

use crate::report::Fault;
use crate::system::poll::Want;
use crate::text::quoted;

/// The TLS files that the user names.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    /// The certificate authorities to trust instead of the system's.
    pub(crate) authority: Option<Pem>,
    /// The client certificate, for servers that ask for one.
    pub(crate) identity: Option<Identity>,
}

impl TlsFiles {
    /// Fails if the user names files for a URL that does not use TLS.
    pub(in crate::store) fn must_be_unused(&self) -> Result<(), String> {
        match (&self.authority, &self.identity) {
            (None, None) => Ok(()),
            _ => Err("--tls-ca, --tls-cert and --tls-key require TLS; use a rediss:// URL".into()),
        }
    }
}

/// A client certificate and its private key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: Pem,
    pub(crate) key: Pem,
}

/// The content of a PEM file, and its path for messages.
#[derive(Clone)]
pub(crate) struct Pem {
    text: Arc<[u8]>,
    path: PathBuf,
}

/// Everything that an encrypted connection to one server needs.
#[derive(Clone)]
pub(in crate::store) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Prepares TLS for a host. Reads the system's certificate authorities only if the user names
    /// none.
    ///
    /// # Errors
    ///
    /// One line: a file cannot be used, or no certificate could be valid for the host.
    pub(in crate::store) fn prepare(host: &str, files: &TlsFiles) -> Result<Self, String> {
        let name = name_of(host)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots(files.authority.as_ref())?);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let shown = certificate.path.display();
                builder
                    .with_client_auth_cert(certificate.certificates()?, key.private_key()?)
                    .map_err(|error| format!("{shown}: {}", reason_of(&error)))?
            }
        };
        Ok(Self { config: Arc::new(config), name })
    }

    /// The same for another host. An error means that no certificate could be valid for it.
    pub(in crate::store) fn for_host(&self, host: &str) -> Result<Self, String> {
        Ok(Self { config: Arc::clone(&self.config), name: name_of(host)? })
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned()).map_err(|_| {
        format!("'{host}' is not a valid host name for TLS; correct the host in the URL")
    })
}

fn roots(authority: Option<&Pem>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = match authority {
        Some(file) => file.certificates()?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    // Skip those that cannot be parsed: systems may have very old ones.
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err(
            "no trusted certificate authority found; set --tls-ca, or install ca-certificates"
                .into(),
        );
    }
    Ok(roots)
}

impl Pem {
    /// `path` is only for messages: the caller has read the file.
    pub(crate) fn new(text: Vec<u8>, path: PathBuf) -> Self {
        Self { text: text.into(), path }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        match all {
            Ok(all) if all.is_empty() => Err(self.lacks("certificate")),
            all => all.map_err(|error| self.unusable(&error)),
        }
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        // PKCS #8 has the first marker, OpenSSL's older format the second.
        let signs = [&b"-----BEGIN ENCRYPTED PRIVATE KEY-----"[..], b"Proc-Type: 4,ENCRYPTED"];
        if signs.iter().any(|sign| self.text.windows(sign.len()).any(|part| part == *sign)) {
            return Err(format!(
                "{}: encrypted keys are not supported; decrypt it with openssl pkey -in {} -out FILE",
                self.path.display(),
                quoted(&self.path.to_string_lossy())
            ));
        }
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| match error {
            pem::Error::NoItemsFound => self.lacks("private key"),
            error => self.unusable(&error),
        })
    }

    fn lacks(&self, what: &str) -> String {
        format!("{}: no {what} in PEM format; use a PEM file", self.path.display())
    }

    fn unusable(&self, error: &pem::Error) -> String {
        format!("{}: invalid PEM: {error}; use a PEM file", self.path.display())
    }
}

/// Why TLS failed, and how to fix it.
pub(in crate::store) fn reason(error: &io::Error) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => reason_of(error),
        None => Fault::new(error.to_string()),
    }
}

fn reason_of(error: &rustls::Error) -> Fault {
    use rustls::CertificateError as Bad;
    let fault = |problem: &str, remedy: &str| Fault::new(problem).with_remedy(remedy);
    let bad = match error {
        rustls::Error::InvalidCertificate(bad) => bad,
        rustls::Error::InconsistentKeys(_) => {
            return fault("certificate and key do not match", "correct --tls-key");
        }
        other => return Fault::new(other.to_string()),
    };
    match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => {
            fault("server certificate has expired", "renew it")
        }
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            fault("server certificate is not valid yet", "check the clock")
        }
        Bad::UnknownIssuer | Bad::BadSignature => fault(
            "server certificate is not signed by a trusted authority",
            "set --tls-ca to the authority's certificate",
        ),
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            fault("server certificate is for another host", "use the host name in the certificate")
        }
        // rustls wraps these errors of webpki without exposing their types.
        Bad::Other(other) => match other.0.to_string().as_str() {
            "UnsupportedCertVersion" => fault(
                "server certificate is X.509 version 1",
                "issue a version 3 certificate with a subjectAltName",
            ),
            "CaUsedAsEndEntity" => fault(
                "server certificate is a CA certificate",
                "issue a certificate with basicConstraints=CA:FALSE",
            ),
            other => fault(&format!("server certificate is not valid: {other}"), "replace it"),
        },
        other => fault(&format!("server certificate is not valid: {other}"), "replace it"),
    }
}

/// A connected, non-blocking socket, plain or encrypted.
pub(in crate::store) enum Stream {
    Plain(Socket),
    // Boxed because it is large and rarely used.
    Encrypted(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Stream {
    /// With `tls`, the handshake takes place with the first read or write.
    pub(in crate::store) fn new(socket: Socket, tls: Option<&Tls>) -> io::Result<Self> {
        let Some(Tls { config, name }) = tls else { return Ok(Self::Plain(socket)) };
        let connection = ClientConnection::new(Arc::clone(config), name.clone());
        let connection = connection.map_err(io::Error::other)?;
        Ok(Self::Encrypted(Box::new(StreamOwned::new(connection, socket))))
    }

    /// Whether a TLS handshake is not complete yet.
    pub(in crate::store) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Encrypted(stream) => stream.conn.is_handshaking(),
        }
    }

    /// What to wait for when an operation that needs `want` on a plain socket would block. TLS may
    /// need to read in order to write, and vice versa.
    pub(in crate::store) fn waits_for(&self, want: Want) -> Want {
        match self {
            Self::Plain(_) => want,
            Self::Encrypted(stream) if stream.conn.wants_write() => Want::Write,
            Self::Encrypted(_) => Want::Read,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Encrypted(stream) => stream.sock.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}
