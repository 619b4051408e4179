//! TLS: whom to trust and who we are, and a stream that is encrypted or not.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::Socket;

use crate::poll::Want;

/// Files that the user names instead of what the system has.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    /// Whom to trust instead of the system's roots.
    pub(crate) authority: Option<PathBuf>,
    /// Who we are, for a server that asks.
    pub(crate) identity: Option<Identity>,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// What it takes to talk to one server in secret.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the files; the system's roots only if no authority is named. The error is a line for
    /// the operator.
    pub(super) fn prepare(host: &str, files: &TlsFiles) -> Result<Self, String> {
        let name = name_of(host)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots(files.authority.as_deref())?);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let own =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, own)
                    .map_err(|error| format!("{}: {error}", certificate.display()))?
            }
        };
        Ok(Self { config: Arc::new(config), name })
    }

    /// The same for another server.
    pub(super) fn for_host(&self, host: &str) -> Result<Self, String> {
        Ok(Self { config: Arc::clone(&self.config), name: name_of(host)? })
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| format!("{host} is no name that a certificate could have"))
}

fn roots(authority: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = match authority {
        Some(file) => certificates(file)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    // The system may have some that are too old to be understood.
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err("no certificate authority to trust; name one with --tls-ca".into());
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(file).map_err(|error| unusable(file, &error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| unusable(file, &error))?;
    if all.is_empty() {
        return Err(format!("{}: there is no certificate in it", file.display()));
    }
    Ok(all)
}

fn unusable(file: &Path, error: &rustls::pki_types::pem::Error) -> String {
    format!("{}: {error}", file.display())
}

/// Why the other end was refused, for somebody who has to mend it.
pub(super) fn reason(error: &io::Error) -> String {
    use rustls::CertificateError as Bad;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(bad)) = inner else { return error.to_string() };
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
        other => format!("its certificate is not valid: {other}"),
    }
}

/// A connected, non-blocking socket, in plain text or not.
pub(super) enum Stream {
    Plain(Socket),
    // Boxed, since it is large and rare.
    Secret(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Stream {
    /// The handshake takes place with the first bytes.
    pub(super) fn new(socket: Socket, tls: Option<&Tls>) -> io::Result<Self> {
        let Some(Tls { config, name }) = tls else { return Ok(Self::Plain(socket)) };
        let connection = ClientConnection::new(Arc::clone(config), name.clone());
        let connection = connection.map_err(io::Error::other)?;
        Ok(Self::Secret(Box::new(StreamOwned::new(connection, socket))))
    }

    /// Has the other end not shown yet that it speaks TLS, though it should?
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Secret(stream) => stream.conn.is_handshaking(),
        }
    }

    /// What to wait for when it would block, where plain text would wait for `plainly`: a handshake
    /// reads in order to write.
    pub(super) fn waits_for(&self, plainly: Want) -> Want {
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
