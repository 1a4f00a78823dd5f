//! Encrypted connections: what is trusted, and what a failed handshake means.

use crate::runtime::fork::PerProcess;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// For how long a server that can be reached may leave the handshake without an answer.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The parameters of a URL that are about encryption. They are named as redis-cli names them.
pub(crate) const PARAMETERS: [&str; 4] = ["cacert", "cert", "key", "insecure"];

/// How connections are encrypted. All files are read when this is made.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    /// Whether the server has to prove who it is.
    pub(crate) is_verified: bool,
}

impl Tls {
    /// From parameters by their names; fails with the reason.
    pub(crate) fn new(mut take: impl FnMut(&str) -> Option<String>) -> Result<Self, String> {
        let [cacert, cert, key, insecure] = PARAMETERS.map(&mut take);
        let is_insecure = match insecure.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err("insecure must be true or false".to_owned()),
        };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let config = match (cacert, is_insecure) {
            (Some(_), true) => {
                return Err("cacert and insecure=true contradict each other".to_owned());
            }
            (None, true) => {
                let anything = Arc::new(Anything(provider));
                config.dangerous().with_custom_certificate_verifier(anything)
            }
            (Some(path), false) => config.with_root_certificates(trusted(&path)?),
            (None, false) => config.with_root_certificates(systems_roots()?),
        };
        let mut config = match (cert, key) {
            (None, None) => config.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates("cert", &cert)?;
                let secret = PrivateKeyDer::from_pem_file(&key);
                let secret = secret.map_err(|error| match error {
                    PemError::NoItemsFound => {
                        format!("key={key}: no private key is in it (PEM, without a passphrase)")
                    }
                    error => unreadable("key", &key, &error),
                })?;
                config.with_client_auth_cert(chain, secret).map_err(|error| match error {
                    Error::InconsistentKeys(_) => {
                        format!("key={key} is not the key of the certificate in cert={cert}")
                    }
                    error => format!("cert={cert} and key={key} cannot be used: {error}"),
                })?
            }
            _ => return Err("cert and key belong together: give both or neither".to_owned()),
        };
        // Connections are few and long; and a lock on what they share might be held during a fork.
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), is_verified: !is_insecure })
    }

    /// Encrypts a connection to this host.
    pub(crate) async fn connect<S>(&self, host: &str, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| io::Error::other(format!("{host} is no name of a host")))?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let silent = "TLS: no answer to the handshake: does the server speak TLS on this port?";
        match timeout(HANDSHAKE, connector.connect(name, socket)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(io::Error::new(error.kind(), silent))
            }
            Ok(connected) => connected.map_err(|error| explained(error, host)),
            // A server without TLS waits for the end of what it takes for a command.
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, silent)),
        }
    }
}

/// The error of an encrypted connection to this host, with what to do about it.
pub(crate) fn explained(error: io::Error, host: &str) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    let Some(cause) = cause else { return error };
    let advice = match cause {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is signed by nobody who is trusted: name the file with the \
             certificate of its authority by cacert=…"
                .to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("its certificate is for another name than {host}: use a name that is in it"),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired".to_owned(),
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it wants a certificate of the client: give one by cert=… and key=…".to_owned()
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError,
        ) => "it refuses the certificate of the client: see cert=… and key=…".to_owned(),
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            "it refuses the handshake: does it want a certificate of the client (cert=… and key=…)?"
                .to_owned()
        }
        Error::InvalidMessage(_) => {
            "it does not speak TLS on this port: use its TLS port, or a URL without TLS".to_owned()
        }
        _ => return io::Error::new(error.kind(), format!("TLS: {cause}")),
    };
    io::Error::new(error.kind(), format!("TLS: {advice} ({cause})"))
}

fn unreadable(parameter: &str, path: &str, error: &PemError) -> String {
    let why: &dyn Display = match error {
        PemError::Io(error) => error,
        error => error,
    };
    format!("{parameter}={path} cannot be read: {why}")
}

/// The certificates in a file, which are at least one.
fn certificates(parameter: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
    let found = found.map_err(|error| unreadable(parameter, path, &error))?;
    if found.is_empty() {
        return Err(format!("{parameter}={path}: no certificate is in it (PEM)"));
    }
    Ok(found)
}

fn trusted(path: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("cacert", path)? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("cacert={path}: a certificate cannot be used: {error}"))?;
    }
    Ok(roots)
}

/// What the operating system trusts.
fn systems_roots() -> Result<RootCertStore, String> {
    static ROOTS: PerProcess<RootCertStore> = PerProcess::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // What cannot be read or used is missing, and then said to be of an unknown issuer.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    if roots.is_empty() {
        return Err("no root certificates of this system were found: name the file with the \
                    certificate of the server's authority by cacert=…"
            .to_owned());
    }
    Ok(roots.clone())
}

/// Takes any certificate, and proves nothing but that the server has its key.
#[derive(Debug)]
struct Anything(Arc<CryptoProvider>);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
