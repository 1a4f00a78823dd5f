//! The address of a server, and the credentials for it. No IO: `transport` connects.

use crate::config::credentials::Provider;
use crate::config::tls::Tls;
use std::fmt;
use std::path::PathBuf;

/// The default port of a server.
pub(crate) const PORT: u16 = 6379;

/// A server, and how to connect to it: the credentials and the encryption.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) place: ServerAddress,
    pub(crate) login: Login,
    /// How connections are encrypted; `None` if they are not.
    pub(crate) tls: Option<Tls>,
    /// Whether a sentinel or a cluster reported `place`. In that case, the URL does not contain `place`, so errors
    /// show `place`.
    pub(crate) is_discovered: bool,
}

/// The network address or socket path of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The credentials of the client, and the number of the database that the client uses.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    /// The function that returns the credentials, and the argument for this function: the node's address. `None`: the
    /// client uses the credentials in the URL, if any.
    pub(crate) provider: Option<(Provider, String)>,
}

impl Login {
    pub(crate) fn new(user: Option<String>, password: Option<String>, database: u32) -> Self {
        Self { user, password, database, provider: None }
    }

    /// The user and the password from the URL; `None` if the URL has neither.
    pub(crate) fn credentials(&self) -> Option<(&str, &str)> {
        let user = self.user.as_deref();
        let password = self.password.as_deref();
        let has_either = user.is_some() || password.is_some();
        has_either.then(|| (user.unwrap_or("default"), password.unwrap_or_default()))
    }
}

impl ServerAddress {
    pub(crate) fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => {
                let address = host.split('%').next().unwrap_or(host).parse::<std::net::IpAddr>();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
