//! TLS: which certificates to trust, the client certificate, and why a handshake fails.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, ClientConfig, RootCertStore};

use crate::rules::UserMessage;
use crate::text::quoted;

/// The TLS files that the user names.
#[derive(Clone, Default)]
pub struct TlsFiles {
    /// The certificate authorities to trust instead of the system's.
    pub authority: Option<Pem>,
    /// The client certificate, for servers that ask for one.
    pub identity: Option<Identity>,
}

/// A client certificate and its private key.
#[derive(Clone)]
pub struct Identity {
    pub certificate: Pem,
    pub key: Pem,
}

/// The content of a PEM file, and its path for messages.
#[derive(Clone)]
pub struct Pem {
    text: Arc<[u8]>,
    path: PathBuf,
}

/// What all encrypted connections with the same files share.
pub(in crate::store) type Tls = Arc<ClientConfig>;

impl TlsFiles {
    /// Reads the system's certificate authorities only if the user names none.
    ///
    /// # Errors
    ///
    /// One line: a file cannot be used.
    pub(in crate::store) fn prepare(&self) -> Result<Tls, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots(self.authority.as_ref())?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let made =
                    builder.with_client_auth_cert(certificate.certificates()?, key.private_key()?);
                made.map_err(|error| match error {
                    // Any key that ring does not support.
                    rustls::Error::General(_) => {
                        format!("{}: unsupported kind of key; {USE_KEYS}", key.path.display())
                    }
                    error => reason_of(&error).to_string(),
                })?
            }
        };
        // A run connects once, so it has no use for session tickets.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// Fails if the user names files for a URL that does not use TLS.
    pub(in crate::store) fn must_be_unused(&self) -> Result<(), String> {
        match (&self.authority, &self.identity) {
            (None, None) => Ok(()),
            _ => Err("--tls-ca, --tls-cert and --tls-key require TLS; use a rediss:// URL".into()),
        }
    }
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

/// What ring supports.
const USE_KEYS: &str = "use RSA, P-256, P-384 or Ed25519 keys";

/// Why TLS failed, and how to fix it.
pub(in crate::store) fn reason(error: &io::Error) -> UserMessage {
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
