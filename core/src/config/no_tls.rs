//! Takes the place of `tls.rs` in a build without the feature `tls`: refuses URLs with TLS.

use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

/// The URL parameters for encryption, as in `tls.rs`.
pub(crate) const PARAMETERS: [&str; 4] = ["cacert", "cert", "key", "insecure"];

/// A TLS configuration. No value of this type exists.
#[derive(Clone)]
pub(crate) enum Tls {}

impl Tls {
    /// Always fails, with the reason.
    pub(crate) fn new(_take: impl FnMut(&str) -> Option<String>) -> Result<Self, String> {
        Err("a URL with TLS needs the feature `tls` of the crate quorlock, which is on by default \
             and off in this build"
            .to_owned())
    }

    pub(crate) fn is_verified(&self) -> bool {
        match *self {}
    }

    pub(crate) async fn connect<S>(&self, _host: &str, _socket: S) -> io::Result<S>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match *self {}
    }
}

/// Returns the error unchanged: no connection is encrypted in this build.
pub(crate) fn explained(error: io::Error, _host: &str) -> io::Error {
    error
}

#[cfg(test)]
mod tests {
    use crate::config::endpoint::Endpoint;
    use crate::error::ErrorCode;

    #[test]
    fn url_with_tls_is_refused_and_the_error_names_the_feature() {
        for scheme in ["rediss", "rediss-sentinel", "rediss-cluster"] {
            let url = format!("{scheme}://:s3cret@localhost/service?cacert=ca.pem");
            let error = Endpoint::parse(1, &url).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Config);
            let text = error.to_string();
            assert!(text.contains("feature `tls`") && !text.contains("s3cret"), "{text}");
        }
    }
}
