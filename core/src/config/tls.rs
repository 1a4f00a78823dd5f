//! TLS configuration, the TLS handshake, and readable messages for TLS errors.
//!
//! This module owns all code that depends on rustls. `endpoint.rs` makes a [`Tls`] from a URL; `transport/socket.rs`
//! encrypts connections with the [`Tls`]. This module does not open connections.

use crate::runtime::fork::PerProcess;
use crate::runtime::threads::{Common, SharedWork};
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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The time limit of the TLS handshake, which begins when the server has accepted the connection.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The URL parameters for encryption, named as in redis-cli.
pub(crate) const PARAMETERS: [&str; 4] = ["cacert", "cert", "key", "insecure"];

/// How connections are encrypted. Creating a `Tls` checks all files; each new connection reads the files again, since
/// certificates are renewed while programs run.
#[derive(Clone)]
pub(crate) struct Tls {
    files: Arc<Files>,
}

/// The configuration that was read from the files, or the reason why reading failed.
type Read = Result<Arc<ClientConfig>, String>;

/// The names of the files with certificates and the private key.
struct Files {
    /// The file with the root certificates. `None`: the certificates that the system trusts.
    cacert: Option<String>,
    /// The files with the client's certificate and its private key; `None` if the client has no certificate.
    client: Option<(String, String)>,
    is_insecure: bool,
    /// The read in progress, if any. The files are read on a separate thread, because a file system may hang.
    reading: PerProcess<Mutex<SharedWork<Read>>>,
}

impl Tls {
    /// Checks the TLS parameters of a URL, and reads the files that they name. `take` returns the value of a parameter,
    /// or `None` if the URL does not have it. Fails with the reason.
    pub(crate) fn new(mut take: impl FnMut(&str) -> Option<String>) -> Result<Self, String> {
        let [cacert, cert, key, insecure] = PARAMETERS.map(&mut take);
        let is_insecure = match insecure.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err("insecure must be true or false".to_owned()),
        };
        if cacert.is_some() && is_insecure {
            return Err("cacert and insecure=true contradict each other".to_owned());
        }
        let client = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err("cert and key belong together: give both or neither".to_owned()),
        };
        let files = Files { cacert, client, is_insecure, reading: PerProcess::new() };
        files.read()?;
        Ok(Self { files: Arc::new(files) })
    }

    /// Whether the server's certificate is verified.
    pub(crate) fn is_verified(&self) -> bool {
        !self.files.is_insecure
    }

    /// Reads the files again, and then performs the TLS handshake on a connection to this host.
    pub(crate) async fn connect<S>(&self, host: &str, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // Certificates do not contain the zone of an IPv6 address.
        let host = host.split('%').next().unwrap_or(host);
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| io::Error::other(format!("{host} is no name of a host")))?;
        let config = self.files.newest().map_err(|error| {
            io::Error::other(format!("the files for TLS cannot be read without a thread: {error}"))
        })?;
        let config =
            config.await.unwrap_or_else(|| Err("reading the files for TLS panicked".to_owned()));
        let connector = TlsConnector::from(config.map_err(io::Error::other)?);
        let no_answer = "TLS: no answer to the handshake: see that the server runs, and that it \
                         speaks TLS on this port";
        match timeout(HANDSHAKE, connector.connect(name, socket)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(io::Error::new(error.kind(), no_answer))
            }
            Ok(connected) => connected.map_err(|error| explained(error, host)),
            // A server without TLS takes the handshake for the start of a command and waits for the rest of the
            // command, so the handshake times out.
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, no_answer)),
        }
    }
}

impl Files {
    /// Starts to read the files on a separate thread, and returns a future for the configuration. Connections that are
    /// opened at the same time share one read.
    fn newest(self: &Arc<Self>) -> io::Result<Common<Read>> {
        let files = Arc::clone(self);
        let newest = self.reading.get_or_init(Mutex::default);
        let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.run("quorlock-tls", move || files.read().map(Arc::new))
    }

    /// Builds the configuration of a connection from the files. Fails with the reason, which names the file.
    fn read(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let config = match &self.cacert {
            _ if self.is_insecure => {
                let any_certificate = Arc::new(AnyCertificate(provider));
                config.dangerous().with_custom_certificate_verifier(any_certificate)
            }
            Some(path) => config.with_root_certificates(trusted(path)?),
            None => config.with_root_certificates(system_roots()?),
        };
        let mut config = match &self.client {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates("cert", cert)?;
                let secret = PrivateKeyDer::from_pem_file(key);
                let secret = secret.map_err(|error| match error {
                    PemError::NoItemsFound => {
                        format!("key={key}: no private key is in it (PEM, without a passphrase)")
                    }
                    error => unreadable("key", key, &error),
                })?;
                config.with_client_auth_cert(chain, secret).map_err(|error| match error {
                    Error::InconsistentKeys(_) => {
                        format!("key={key} is not the key of the certificate in cert={cert}")
                    }
                    error => format!("cert={cert} and key={key} cannot be used: {error}"),
                })?
            }
        };
        // Connections are few and long-lived, so session resumption gains little. The session cache also has a mutex,
        // and a child process could never lock this mutex if another thread held it during the fork.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Adds advice to an error of an encrypted connection to this host.
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
        Error::InvalidCertificate(CertificateError::Other(cause))
            if cause.to_string().contains("CaUsedAsEndEntity") =>
        {
            "its certificate is that of an authority: give the server a certificate with \
             basicConstraints=CA:FALSE"
                .to_owned()
        }
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

/// The certificates in a file. Fails if there is none.
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

/// The root certificates that the operating system trusts.
fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read or parsed are skipped; the handshake then reports an
    // unknown issuer.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("no root certificates of this system were found: name the file with the \
                    certificate of the server's authority by cacert=…"
            .to_owned());
    }
    Ok(roots)
}

/// Accepts any certificate. Verifies only that the server has the private key of its certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
