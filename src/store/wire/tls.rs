//! TLS: whom to trust and who we are, and a stream that is encrypted or not.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::Socket;

use crate::system::poll::Want;
use crate::text::quoted;

/// Files that the user names instead of what the system has.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    /// Whom to trust instead of the system's roots.
    pub(crate) authority: Option<Pem>,
    /// Who we are, for a server that asks.
    pub(crate) identity: Option<Identity>,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: Pem,
    pub(crate) key: Pem,
}

/// What a file has in it, and its path for messages.
#[derive(Clone)]
pub(crate) struct Pem {
    text: Arc<[u8]>,
    path: PathBuf,
}

/// What it takes to talk to one server in secret.
#[derive(Clone)]
pub(in crate::store) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the files; the system's roots only if no authority is named. The error is a line for
    /// the operator.
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

    /// The same for another server.
    pub(in crate::store) fn for_host(&self, host: &str) -> Result<Self, String> {
        Ok(Self { config: Arc::clone(&self.config), name: name_of(host)? })
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| format!("{host} is no name that a certificate could have"))
}

fn roots(authority: Option<&Pem>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = match authority {
        Some(file) => file.certificates()?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    // The system may have some that are too old to be understood.
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err("no certificate authority to trust; name one with --tls-ca".into());
    }
    Ok(roots)
}

impl Pem {
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
        // The first is how PKCS #8 says it, the second what OpenSSL wrote before that.
        let signs = [&b"-----BEGIN ENCRYPTED PRIVATE KEY-----"[..], b"Proc-Type: 4,ENCRYPTED"];
        if signs.iter().any(|sign| self.text.windows(sign.len()).any(|part| part == *sign)) {
            return Err(format!(
                "{}: encrypted key is not supported; decrypt it with openssl pkey -in {} -out FILE",
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
        format!("{}: not PEM: {error}", self.path.display())
    }
}

/// Why the other end was refused, for somebody who has to mend it.
pub(in crate::store) fn reason(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => reason_of(error),
        None => error.to_string(),
    }
}

fn reason_of(error: &rustls::Error) -> String {
    use rustls::CertificateError as Bad;
    let bad = match error {
        rustls::Error::InvalidCertificate(bad) => bad,
        rustls::Error::InconsistentKeys(_) => {
            return "certificate and key do not match; change --tls-key".into();
        }
        other => return other.to_string(),
    };
    match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => "its certificate has expired".into(),
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "its certificate is not valid yet; is the clock right?".into()
        }
        Bad::UnknownIssuer | Bad::BadSignature => {
            "nobody we trust has signed its certificate; name the authority with --tls-ca".into()
        }
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            "its certificate is for another name; use the name that is in it".into()
        }
        // What rustls passes on from webpki, whose types it does not show.
        Bad::Other(other) => match other.0.to_string().as_str() {
            "UnsupportedCertVersion" => {
                "server certificate is X.509 version 1; issue version 3 with a subjectAltName"
                    .into()
            }
            "CaUsedAsEndEntity" => "server certificate is a CA certificate; issue one with \
                                    basicConstraints=CA:FALSE"
                .into(),
            other => format!("its certificate is not valid: {other}"),
        },
        other => format!("its certificate is not valid: {other}"),
    }
}

/// A connected, non-blocking socket, in plain text or not.
pub(in crate::store) enum Stream {
    Plain(Socket),
    // Boxed, since it is large and rare.
    Secret(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Stream {
    /// The handshake takes place with the first bytes.
    pub(in crate::store) fn new(socket: Socket, tls: Option<&Tls>) -> io::Result<Self> {
        let Some(Tls { config, name }) = tls else { return Ok(Self::Plain(socket)) };
        let connection = ClientConnection::new(Arc::clone(config), name.clone());
        let connection = connection.map_err(io::Error::other)?;
        Ok(Self::Secret(Box::new(StreamOwned::new(connection, socket))))
    }

    /// Has the other end not shown yet that it speaks TLS, though it should?
    pub(in crate::store) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Secret(stream) => stream.conn.is_handshaking(),
        }
    }

    /// What to wait for when it would block, where plain text would wait for `plainly`: a handshake
    /// reads in order to write.
    pub(in crate::store) fn waits_for(&self, plainly: Want) -> Want {
        match self {
            Self::Plain(_) => plainly,
            Self::Secret(stream) if stream.conn.wants_write() => Want::Write,
            Self::Secret(_) => Want::Read,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Secret(stream) => stream.sock.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Secret(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // Not write(2), which would kill us by SIGPIPE if that were not ignored.
            Self::Plain(socket) => socket.send(bytes),
            Self::Secret(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Secret(stream) => stream.flush(),
        }
    }
}
