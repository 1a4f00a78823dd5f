//! Where a server listens, and how a client introduces itself there.

use crate::config::tls::Tls;
use std::fmt;
use std::path::PathBuf;

/// The port of a server, unless another one is given.
pub(crate) const PORT: u16 = 6379;

/// One server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) place: Place,
    pub(crate) login: Login,
    /// `None` if nothing is encrypted.
    pub(crate) tls: Option<Tls>,
    /// Whether others named the place, and not the URL: then errors tell it.
    pub(crate) is_found: bool,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Who the client is, and which database it uses.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

impl Login {
    /// The user and the password, if the client is to tell either.
    pub(crate) fn credentials(&self) -> Option<(&str, &str)> {
        let (user, password) = (self.user.as_deref(), self.password.as_deref());
        let is_told = user.is_some() || password.is_some();
        is_told.then(|| (user.unwrap_or("default"), password.unwrap_or_default()))
    }
}

impl Place {
    pub(crate) fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }

    /// Whether it is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => {
                let address = host.parse::<std::net::IpAddr>();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
