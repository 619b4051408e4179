//! TLS: which certificates to trust, the client certificate, and why a handshake fails.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, Reader, SliceReader};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::{AlertDescription, ClientConfig, RootCertStore};

use crate::rules::{Failure, FailureKind, UserMessage};
use crate::text::quoted;

/// Reads a file again, because it may have changed. An error says why that failed.
pub type Reread<T> = Arc<dyn Fn() -> Result<T, Failure> + Send + Sync>;

/// The TLS files that the user names, if any.
#[derive(Clone, Default)]
pub struct TlsFiles {
    reread: Option<Reread<PemFiles>>,
    /// For the next connection. Clones share it.
    prepared: Arc<Mutex<Option<Tls>>>,
}

/// The certificate authorities to trust instead of the system's, and for servers that ask for one,
/// the client certificate and its key.
pub type PemFiles = [Option<Pem>; 3];

/// The content of a PEM file, and its path for messages.
pub struct Pem {
    pub(crate) text: Vec<u8>,
    pub(crate) path: PathBuf,
}

/// What all encrypted connections with the same files share.
pub(super) type Tls = Arc<ClientConfig>;

impl TlsFiles {
    /// The caller has read the files once. An error means that one cannot be used.
    pub(crate) fn new(files: &PemFiles, reread: Reread<PemFiles>) -> Result<Self, Failure> {
        let prepared = Arc::new(Mutex::new(Some(prepare(files)?)));
        Ok(Self { reread: Some(reread), prepared })
    }

    /// For a new connection. From the second one on, the files are read again.
    pub(super) fn present(&self) -> Result<Tls, Failure> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let tls = match (prepared.take(), &self.reread) {
            (Some(tls), _) => tls,
            (None, None) => prepare(&PemFiles::default())?,
            (None, Some(reread)) => prepare(&reread()?)?,
        };
        *prepared = self.reread.is_none().then(|| Arc::clone(&tls));
        Ok(tls)
    }

    /// Which of the server's certificates, of its authority's in the file of the user, and of the
    /// client's end sooner than this, and how long they remain valid.
    pub(super) fn ending(
        &self,
        chain: &[CertificateDer<'_>],
        within: Duration,
    ) -> Vec<(&'static str, Duration)> {
        let files = self.reread.as_ref().and_then(|reread| reread().ok()).unwrap_or_default();
        let of_file = |pem: &Option<Pem>| {
            pem.as_ref().and_then(|pem| pem.certificates().ok()).unwrap_or_default()
        };
        let read = |all: &[CertificateDer<'_>]| {
            Vec::from_iter(all.iter().filter_map(|it| Certificate::read(it).ok()))
        };
        let [authorities, clients, _] = files.each_ref().map(of_file);
        let servers = read(chain);
        let signs = |it: &Certificate| servers.iter().any(|server| server.issuer == it.subject);
        let authorities = read(&authorities).into_iter().filter(signs);
        // A server may send the certificate of its authority, too.
        let is_signed = |it: &&Certificate| it.issuer != it.subject;
        let all = [
            ("its certificate", servers.iter().filter(is_signed).cloned().collect()),
            ("the certificate of its authority in --tls-ca", authorities.collect()),
            ("the client certificate", read(&clients)),
        ];
        let now = Duration::from_secs(UnixTime::now().as_secs());
        let ending = |(what, certificates): (_, Vec<Certificate>)| {
            let first = certificates.into_iter().map(|it| it.ends).min()?.saturating_sub(now);
            (first < within).then_some((what, first))
        };
        all.into_iter().filter_map(ending).collect()
    }

    /// Fails if the user names files for a URL that does not use TLS.
    pub(in crate::store) fn must_be_unused(&self) -> Result<(), String> {
        match self.reread {
            None => Ok(()),
            _ => Err("--tls-ca, --tls-cert and --tls-key require TLS; use a rediss:// URL".into()),
        }
    }
}

/// The parts of a certificate that tell whose it is, and how long it is valid.
#[derive(Clone)]
struct Certificate {
    issuer: Vec<u8>,
    subject: Vec<u8>,
    /// Since the epoch.
    ends: Duration,
}

impl Certificate {
    /// Reads the TBSCertificate of RFC 5280, section 4.1.
    fn read(certificate: &[u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(certificate)?;
        let mut body = enter(&mut reader)?;
        let mut fields = enter(&mut body)?;
        if fields.peek_byte() == Some(VERSION) {
            fields.tlv_bytes()?;
        }
        let (_serial, _algorithm) = (fields.tlv_bytes()?, fields.tlv_bytes()?);
        let issuer = fields.tlv_bytes()?.to_vec();
        let mut validity = enter(&mut fields)?;
        let _begins = validity.tlv_bytes()?;
        let ends = match validity.peek_byte() {
            Some(UTC_TIME) => UtcTime::decode(&mut validity)?.to_unix_duration(),
            _ => GeneralizedTime::decode(&mut validity)?.to_unix_duration(),
        };
        Ok(Self { issuer, subject: fields.tlv_bytes()?.to_vec(), ends })
    }
}

/// The tags of fields that may be missing, or have another type.
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;

/// Enters a sequence, of which the rest need not be read.
fn enter<'a>(reader: &mut SliceReader<'a>) -> der::Result<SliceReader<'a>> {
    SliceReader::new(AnyRef::decode(reader)?.value())
}

/// Reads the system's certificate authorities only if the user names none.
fn prepare(files: &PemFiles) -> Result<Tls, Failure> {
    configuration(files).map_err(|fault| Failure::new(FailureKind::Misconfigured, fault))
}

fn configuration([authority, certificate, key]: &PemFiles) -> Result<Tls, UserMessage> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| reason_of(&error))?
        .with_root_certificates(roots(authority.as_ref())?);
    let mut config = match (certificate, key) {
        (Some(certificate), Some(key)) => builder
            .with_client_auth_cert(certificate.certificates()?, key.private_key()?)
            .map_err(|error| match error {
                // Any key that ring does not support.
                rustls::Error::General(_) => key.fault("unsupported kind of key", USE_KEYS),
                rustls::Error::InvalidCertificate(_) => {
                    certificate.fault("not a valid certificate of X.509 version 3", "replace it")
                }
                error => reason_of(&error),
            })?,
        _ => builder.with_no_client_auth(),
    };
    // A run connects once, so it has no use for session tickets.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn roots(authority: Option<&Pem>) -> Result<RootCertStore, UserMessage> {
    let mut roots = RootCertStore::empty();
    let found = match authority {
        Some(file) => file.certificates()?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    // Skip those that cannot be parsed: systems may have very old ones.
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err(UserMessage::new("no trusted certificate authority found")
            .with_remedy("set --tls-ca, or install ca-certificates"));
    }
    Ok(roots)
}

impl Pem {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, UserMessage> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        match all {
            Ok(all) if all.is_empty() => Err(self.lacks("certificate")),
            all => all.map_err(|error| self.unusable(&error)),
        }
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, UserMessage> {
        // PKCS #8 has the first marker, OpenSSL's older format the second.
        let signs = [&b"-----BEGIN ENCRYPTED PRIVATE KEY-----"[..], b"Proc-Type: 4,ENCRYPTED"];
        if signs.iter().any(|sign| self.text.windows(sign.len()).any(|part| part == *sign)) {
            let path = quoted(&self.path.to_string_lossy());
            let remedy = format!("decrypt it with openssl pkey -in {path} -out FILE");
            return Err(self.fault("encrypted keys are not supported", &remedy));
        }
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| match error {
            pem::Error::NoItemsFound => self.lacks("private key"),
            error => self.unusable(&error),
        })
    }

    fn lacks(&self, what: &str) -> UserMessage {
        self.fault(&format!("no {what} in PEM format"), "use a PEM file")
    }

    fn unusable(&self, error: &pem::Error) -> UserMessage {
        self.fault(&format!("invalid PEM: {error}"), "use a PEM file")
    }

    fn fault(&self, what: &str, remedy: &str) -> UserMessage {
        UserMessage::new(format!("{}: {what}", self.path.display())).with_remedy(remedy)
    }
}

/// What ring supports.
const USE_KEYS: &str = "use RSA, P-256, P-384 or Ed25519 keys";

/// An error of rustls, from which `reason` recovers it.
pub(super) fn io_error(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Why TLS failed, and how to fix it.
pub(super) fn reason(error: &io::Error) -> UserMessage {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => reason_of(error),
        None => UserMessage::new(error.to_string()),
    }
}

fn reason_of(error: &rustls::Error) -> UserMessage {
    use AlertDescription as Alert;
    use rustls::CertificateError as Bad;
    use rustls::Error::{AlertReceived, InconsistentKeys, InvalidCertificate, PeerIncompatible};
    let fault = |problem: &str, remedy: &str| UserMessage::new(problem).with_remedy(remedy);
    let invalid =
        |why: &dyn Display| fault(&format!("server certificate is not valid: {why}"), "replace it");
    match error {
        InconsistentKeys(_) => fault("certificate and key do not match", "correct --tls-key"),
        AlertReceived(Alert::CertificateRequired) => {
            fault("server requires a client certificate", "set --tls-cert and --tls-key")
        }
        // Only a server that checks a client certificate sends these.
        AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA),
        ) => {
            let problem = format!("server rejected the client certificate ({alert:?})");
            fault(&problem, "correct --tls-cert")
        }
        PeerIncompatible(_) => fault("server has no algorithm in common with rlock", USE_KEYS),
        // TLS 1.2 has no alert for a missing certificate alone.
        AlertReceived(Alert::HandshakeFailure) => fault(
            "server refused the handshake",
            "set --tls-cert and --tls-key if it requires a client certificate",
        ),
        InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            fault("server certificate has expired", "renew it")
        }
        InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            fault("server certificate is not valid yet", "check the clock")
        }
        InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => fault(
            "server certificate is not signed by a trusted authority",
            "set --tls-ca to the authority's certificate",
        ),
        InvalidCertificate(
            Bad::UnsupportedSignatureAlgorithmContext { .. }
            | Bad::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ) => fault("server certificate is signed with an unsupported kind of key", USE_KEYS),
        InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            fault("server certificate is for another host", "use the host name in the certificate")
        }
        // rustls wraps these errors of webpki without exposing their types.
        InvalidCertificate(Bad::Other(other)) => match other.0.to_string().as_str() {
            "UnsupportedCertVersion" => fault(
                "server certificate is X.509 version 1",
                "issue a version 3 certificate with a subjectAltName",
            ),
            "CaUsedAsEndEntity" => fault(
                "server certificate is a CA certificate",
                "issue a certificate with basicConstraints=CA:FALSE",
            ),
            other => invalid(&other),
        },
        InvalidCertificate(other) => invalid(other),
        other => UserMessage::new(other.to_string()),
    }
}
