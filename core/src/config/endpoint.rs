//! One node of the client's list, parsed from the node's URL. `nodes.rs` calls this module; `transport`, `node` and
//! `doctor` connect to the [`Target`]. Parsing reads TLS files, and does no other IO.

use crate::config::credentials::Provider;
use crate::config::server::{Login, PORT, Server, ServerAddress};
use crate::config::tls::{self, Tls};
use crate::config::url::{Url, database, redacted};
use crate::error::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

const SCHEMES: &str = "redis://, rediss://, unix://, redis-sentinel://, rediss-sentinel://, \
                       redis-cluster://, rediss-cluster:// or memory://";

/// Whether a node's URL can have this scheme.
pub(crate) fn is_scheme(scheme: &str) -> bool {
    SCHEMES.split([',', ' ']).any(|known| known.strip_suffix("://") == Some(scheme))
}

/// Returns the parts of a text that begin with the scheme of a node's URL. Each part ends where the next part begins. A
/// valid URL is never split, because nothing after its scheme looks like a scheme.
pub(crate) fn urls_within(text: &str) -> Vec<String> {
    let schemes: Vec<_> =
        SCHEMES.split([',', ' ']).filter(|known| known.ends_with("://")).collect();
    let mut begins: Vec<usize> = Vec::new();
    for (at, _) in text.match_indices("://") {
        let before = &text[..at + 3];
        let found = schemes.iter().filter(|scheme| before.ends_with(**scheme));
        if let Some(longest) = found.map(|scheme| scheme.len()).max() {
            begins.push(before.len() - longest);
        }
    }
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    let ranges = begins.iter().copied().zip(ends);
    let trimmed =
        |(from, to)| text[from..to].trim_matches([' ', '\t', '\r', '\n', ',', ';', '|']).to_owned();
    ranges.map(trimmed).collect()
}

/// The URL parameters with the credentials for the sentinels.
const SENTINEL_PARAMETERS: [&str; 2] = ["sentinel_user", "sentinel_password"];

/// One node of the client's list.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// The URL without user, password and query, which is safe to show.
    pub(crate) address: String,
    pub(crate) target: Target,
    /// Strings that identify the node's servers, made from the addresses in the URL. Nodes that share an identity
    /// string are duplicate nodes.
    identities: Vec<String>,
}

#[derive(Clone)]
pub(crate) enum Target {
    Server(Arc<Server>),
    Sentinel(Arc<Sentinels>),
    Cluster(Arc<Cluster>),
    /// An in-memory node of this process, by name.
    Memory(String),
}

/// A node that is a Redis Cluster: how to find its masters, and how to connect to them.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// The servers that the URL names. The client queries all of them at once, so that a server that hangs causes no
    /// delay.
    pub(crate) seeds: Vec<ServerAddress>,
    pub(crate) login: Login,
    pub(crate) tls: Option<Tls>,
}

/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// A node that is found through sentinels: how to find its master, and how to connect to it.
#[derive(Clone)]
pub(crate) struct Sentinels {
    /// The sentinels. The client queries all of them at once, so that a sentinel that hangs causes no delay.
    pub(crate) sentinels: Vec<Server>,
    /// The name of the master in the sentinels' configuration.
    pub(crate) service: String,
    /// The client's credentials for the master.
    pub(crate) login: Login,
    pub(crate) tls: Option<Tls>,
}

impl Target {
    /// The beginning of the error message if an attempt to connect to the node times out.
    pub(crate) fn no_connection(&self) -> &'static str {
        let encrypts = match self {
            Self::Server(server) => server.tls.is_some(),
            Self::Sentinel(sentinels) => sentinels.tls.is_some(),
            Self::Cluster(cluster) => cluster.tls.is_some(),
            Self::Memory(_) => false,
        };
        match encrypts {
            true => "no connection (does the server run, and speak TLS on this port?)",
            false => "no connection",
        }
    }
}

impl Endpoint {
    /// Parses a node URL. `position` is the node's position in the client's list, from 1; errors contain the position.
    pub(crate) fn parse(position: usize, url: &str) -> Result<Self> {
        let url = url.trim();
        let parsed = match url.split_once("://") {
            Some((scheme, _)) if scheme.starts_with(['"', '\'']) => {
                Err("it begins with a quotation mark: remove it".to_owned())
            }
            Some((scheme, rest)) => Self::of(scheme, rest),
            None => Err(format!("a node is given by a URL that begins with {SCHEMES}")),
        };
        parsed.map_err(|why| Error::config(format!("node {position} ({}): {why}", redacted(url))))
    }

    fn of(scheme: &str, rest: &str) -> std::result::Result<Self, String> {
        match scheme {
            "memory" => Self::memory(rest),
            "unix" => Self::unix(Url::parse(rest)?),
            "redis" => Self::server(Url::parse(rest)?, false),
            "rediss" => Self::server(Url::parse(rest)?, true),
            "redis-sentinel" => Self::sentinel(Url::parse(rest)?, false),
            "rediss-sentinel" => Self::sentinel(Url::parse(rest)?, true),
            "redis-cluster" => Self::cluster(Url::parse(rest)?, false),
            "rediss-cluster" => Self::cluster(Url::parse(rest)?, true),
            _ => Err(format!("the scheme must be {SCHEMES}")),
        }
    }

    fn memory(name: &str) -> std::result::Result<Self, String> {
        if name.is_empty() {
            return Err("memory:// needs a name, such as memory://a".to_owned());
        }
        let (address, target) = (format!("memory://{name}"), Target::Memory(name.to_owned()));
        Ok(Self { identities: vec![address.clone()], address, target })
    }

    fn unix(mut url: Url) -> std::result::Result<Self, String> {
        if !url.hosts.is_empty() || url.path.is_empty() {
            return Err(
                "a socket has a path and no host, such as unix:///run/redis.sock".to_owned()
            );
        }
        let database = database(&url.take("db").unwrap_or_default())?;
        let login = Login::new(url.take("user"), url.take("pass"), database);
        url.is_used_up(&["db", "user", "pass"])?;
        let place = ServerAddress::Unix(PathBuf::from(format!("/{}", url.path)));
        Ok(Self::direct("unix", Server { place, login, tls: None, is_discovered: false }))
    }

    fn server(mut url: Url, encrypts: bool) -> std::result::Result<Self, String> {
        let tls = encryption(&mut url, encrypts, &[])?;
        let (host, port) = url.host()?.clone();
        let place = ServerAddress::tcp(host, port.unwrap_or(PORT));
        let login = Login::new(url.user.take(), url.password.take(), url.database()?);
        let scheme = if encrypts { "rediss" } else { "redis" };
        Ok(Self::direct(scheme, Server { place, login, tls, is_discovered: false }))
    }

    fn sentinel(mut url: Url, encrypts: bool) -> std::result::Result<Self, String> {
        let [user, password] = SENTINEL_PARAMETERS.map(|name| url.take(name));
        let tls = encryption(&mut url, encrypts, &SENTINEL_PARAMETERS)?;
        let (service, number) = url.path.split_once('/').unwrap_or((&url.path, ""));
        if service.is_empty() {
            return Err(
                "the name of the service is missing: it stands behind the sentinels, such \
                        as /mymaster"
                    .to_owned(),
            );
        }
        let login = Login::new(url.user, url.password, database(number)?);
        let sentinel_login = Login::new(user, password, 0);
        let places = places(&url.hosts, SENTINEL_PORT)?;
        let is_repeated = |(at, place): &(usize, &ServerAddress)| places[..*at].contains(place);
        if let Some((_, place)) = places.iter().enumerate().find(is_repeated) {
            // A sentinel that counts twice could make up a majority of the sentinels by itself.
            return Err(format!("the sentinel {place} is named twice"));
        }
        let sentinels = places.iter().map(|place| {
            let place = place.clone();
            let login = sentinel_login.clone();
            Server { place, login, tls: tls.clone(), is_discovered: false }
        });
        let sentinels = sentinels.collect();
        let scheme = if encrypts { "rediss-sentinel" } else { "redis-sentinel" };
        let address = format!("{scheme}://{}/{service}", joined(&places));
        let address = match login.database {
            0 => address,
            database => format!("{address}/{database}"),
        };
        let identity = |place: &ServerAddress| format!("{place}/{service}");
        let service = service.to_owned();
        let sentinels = Sentinels { sentinels, service, login, tls };
        Ok(Self {
            address,
            identities: places.iter().map(identity).collect(),
            target: Target::Sentinel(Arc::new(sentinels)),
        })
    }

    fn cluster(mut url: Url, encrypts: bool) -> std::result::Result<Self, String> {
        let tls = encryption(&mut url, encrypts, &[])?;
        if url.database()? != 0 {
            return Err("a cluster has no database but 0".to_owned());
        }
        let seeds = places(&url.hosts, PORT)?;
        let scheme = if encrypts { "rediss-cluster" } else { "redis-cluster" };
        let login = Login::new(url.user, url.password, 0);
        Ok(Self {
            address: format!("{scheme}://{}", joined(&seeds)),
            identities: seeds.iter().map(ServerAddress::to_string).collect(),
            target: Target::Cluster(Arc::new(Cluster { seeds, login, tls })),
        })
    }

    /// Creates an endpoint for one server of a cluster. `address` is the address of the whole cluster.
    pub(crate) fn of_cluster(address: &str, server: Server) -> Self {
        let target = Target::Server(Arc::new(server));
        Self { address: address.to_owned(), identities: Vec::new(), target }
    }

    fn direct(scheme: &str, server: Server) -> Self {
        let place = &server.place;
        let database = match server.login.database {
            0 => String::new(),
            database => format!("/{database}"),
        };
        Self {
            address: format!("{scheme}://{place}{database}"),
            identities: vec![place.to_string()],
            target: Target::Server(Arc::new(server)),
        }
    }

    /// Makes connections to the node's servers use the credentials that `provider` returns. Connections to sentinels
    /// still use the credentials in the URL. `position` is as in [`Endpoint::parse`].
    pub(crate) fn use_credentials(&mut self, position: usize, provider: &Provider) -> Result<()> {
        let login = match &mut self.target {
            Target::Server(server) => &mut Arc::make_mut(server).login,
            Target::Sentinel(sentinels) => &mut Arc::make_mut(sentinels).login,
            Target::Cluster(cluster) => &mut Arc::make_mut(cluster).login,
            Target::Memory(_) => return Ok(()),
        };
        if login.credentials().is_some() {
            return Err(Error::config(format!(
                "node {position} ({}): its URL has a user or a password, and the option \
                 credentials is given: use one of them",
                self.address,
            )));
        }
        login.provider = Some((provider.clone(), self.address.clone()));
        Ok(())
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.target, Target::Memory(_))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster(_))
    }

    /// Whether the URLs of both nodes name the same server, even if the database numbers differ.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        self.identities.iter().any(|identity| other.identities.contains(identity))
    }
}

/// Converts hosts to server addresses; `port` applies to hosts that have no port. Fails if there are no hosts.
fn places(
    hosts: &[(String, Option<u16>)],
    port: u16,
) -> std::result::Result<Vec<ServerAddress>, String> {
    let place = |(host, own): &(String, Option<u16>)| ServerAddress::tcp(host, own.unwrap_or(port));
    let places: Vec<_> = hosts.iter().map(place).collect();
    if places.is_empty() { Err("a host is missing".to_owned()) } else { Ok(places) }
}

fn joined(places: &[ServerAddress]) -> String {
    places.iter().map(ServerAddress::to_string).collect::<Vec<_>>().join(",")
}

/// Removes the TLS parameters from the URL, and returns the configuration that they describe. Returns `None` if
/// `encrypts` is `false`. Fails if parameters are left, or if there are TLS parameters although `encrypts` is `false`.
/// `others` are parameters that the caller has already removed; errors list them as accepted parameters.
fn encryption(
    url: &mut Url,
    encrypts: bool,
    others: &[&str],
) -> std::result::Result<Option<Tls>, String> {
    if !encrypts {
        let given = tls::PARAMETERS.iter().find(|name| url.take(name).is_some());
        if let Some(name) = given {
            return Err(format!("{name} is for URLs with TLS, which begin with rediss"));
        }
        url.is_used_up(others)?;
        return Ok(None);
    }
    let tls = Tls::new(|name| url.take(name))?;
    url.is_used_up(&[&tls::PARAMETERS, others].concat())?;
    Ok(Some(tls))
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}
