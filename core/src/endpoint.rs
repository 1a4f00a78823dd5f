//! Node URLs.

use crate::error::{Error, Result};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use std::fmt;
use std::time::Duration;

/// When a connection is silent, ask the peer's machine every so often whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

const SCHEMES: &str = "redis://, unix:// or memory://";

/// One node of the client's list.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// The URL without user, password and query: what may be shown.
    pub(crate) address: String,
    pub(crate) target: Target,
    /// What tells servers apart as far as a URL can: two of the same are one server.
    identity: String,
}

#[derive(Clone)]
pub(crate) enum Target {
    Redis(Box<ConnectionInfo>),
    /// A node in this process, by name.
    Memory(String),
}

impl Endpoint {
    /// Parses the node URL at `position` (from 1) in the client's list.
    pub(crate) fn parse(position: usize, url: &str) -> Result<Self> {
        let url = url.trim();
        let fail =
            |why: &str| Err(Error::config(format!("node {position} ({}): {why}", redacted(url))));
        let Some((scheme, rest)) = url.split_once("://") else {
            return fail(&format!("a node is given by a URL that begins with {SCHEMES}"));
        };
        match scheme {
            "memory" => match rest {
                "" => fail("memory:// needs a name, such as memory://a"),
                name => Ok(Self {
                    address: url.to_owned(),
                    identity: url.to_owned(),
                    target: Target::Memory(name.to_owned()),
                }),
            },
            // The URL would be taken to end, or its host to begin, within the password.
            "redis" if rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@')) => {
                fail("the characters @ / ? # in a name or password must be percent-encoded")
            }
            "redis" | "unix" => match url.into_connection_info() {
                Ok(info) if info.redis_settings().db() < 0 => {
                    fail("the database number must not be negative")
                }
                Ok(info) => Ok(Self::redis(info)),
                Err(error) => fail(&reason(&error)),
            },
            _ => fail(&format!("the scheme must be {SCHEMES}")),
        }
    }

    fn redis(info: ConnectionInfo) -> Self {
        let settings = info
            .redis_settings()
            .clone()
            // Since RESP3 tells of a closed connection at once, also of an idle one.
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("quorlock", env!("CARGO_PKG_VERSION"));
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(KEEPALIVE);
        let identity = match info.addr() {
            ConnectionAddr::Unix(path) => format!("unix://{}", path.display()),
            // An IPv6 address.
            ConnectionAddr::Tcp(host, port) if host.contains(':') => {
                format!("redis://[{host}]:{port}")
            }
            addr => format!("redis://{}", addr.to_string().to_lowercase()),
        };
        let address = match settings.db() {
            0 => identity.clone(),
            db => format!("{identity}/{db}"),
        };
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        Self { address, identity, target: Target::Redis(Box::new(info)) }
    }

    /// Whether both certainly are the same server, be it by two of its databases.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

/// What is wrong with two nodes that are one server, by their positions (from 0) and addresses.
pub(crate) fn same_server(one: (usize, &str), other: (usize, &str)) -> String {
    let ((first, first_address), (second, second_address)) = (one.min(other), one.max(other));
    format!(
        "nodes {} ({first_address}) and {} ({second_address}) are the same server, whose vote \
         would count twice",
        first + 1,
        second + 1,
    )
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// What may be shown of a URL that cannot be used. A password can stand before the last `@` or
/// behind the first `?`; where these overlap, nothing but the scheme is shown.
fn redacted(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let scheme = match scheme {
        "" => String::new(),
        scheme if scheme.bytes().all(known) => format!("{scheme}://"),
        _ => return "***".to_owned(),
    };
    let (rest, query) = match rest.find(['?', '#']) {
        Some(at) if rest[at..].contains('@') => return format!("{scheme}***"),
        Some(at) => (&rest[..at], "?***"),
        None => (rest, ""),
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}***@{host}{query}"),
        None => format!("{scheme}{rest}{query}"),
    }
}

/// redis-rs's reason for refusing a URL. Its detail is left out: it may quote the URL.
fn reason(error: &redis::RedisError) -> String {
    let text = error.to_string();
    let text = match error.detail() {
        Some(detail) => text.replace(detail, ""),
        None => text,
    };
    // Behind the dash stands the kind of error, which says nothing here.
    let text = text.split(" - ").next().unwrap_or_default();
    text.trim_end_matches([':', ' ', '"']).to_owned()
}
