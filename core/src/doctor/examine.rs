//! Queries one node for everything that the doctor judges. For a cluster, queries each master that the client's keys
//! may be on. This module opens its own connections, and changes no key on the servers. `judge.rs` draws the
//! conclusions.

use super::diagnosis::{NodeDiagnosis, Permission};
use crate::config::endpoint::{Cluster, Endpoint, Target};
use crate::config::options::Options;
use crate::config::server::Server;
use crate::error::NodeOutcome;
use crate::memory::node::MemoryNode;
use crate::node::subscription::{reach, subscribe};
use crate::runtime::clock;
use crate::runtime::random;
use crate::runtime::timer::timeout;
use crate::transport::cluster::{Shard, no_master};
use crate::transport::connection::{Connection, Nobody};
use crate::transport::handshake::{failure, is_unknown_command};
use crate::transport::login::within;
use crate::wire::answer::{Failure, NONSENSE};
use crate::wire::keys::{Keys, SLOTS, tag};
use crate::wire::limits::shortened;
use crate::wire::script;
use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, InfoDict, RedisError, Value, from_redis_value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest number of round trips that are timed.
const ROUND_TRIPS: usize = 7;

/// Among this many random keys, at least one is almost certainly in any given slot of a cluster.
const ENOUGH_KEYS: usize = 100_000;

/// Which queries an examination sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// All queries, for the doctor.
    Everything,
    /// Only the queries that show whether the node can vote, in a single round trip.
    Vote,
}

/// What an examination found at one server: the public diagnosis, and details that `judge.rs` and `together.rs` need.
#[derive(Default)]
pub(super) struct Examined {
    pub(super) diagnosis: NodeDiagnosis,
    /// Why the server could not be reached, or could not be examined completely.
    pub(super) trouble: Option<Failure>,
    /// Why the server would refuse a write, for a reason other than missing permissions.
    pub(super) refusal: Option<Failure>,
    /// Whether the server refuses a script that accesses a key without declaring it.
    pub(super) is_strict: bool,
    /// The read-only commands that failed, and why they failed.
    pub(super) failed: BTreeMap<&'static str, Failure>,
    /// Whether the server's address is known. The address is unknown if the sentinels or the cluster did not report
    /// one.
    pub(super) is_known: bool,
    pub(super) is_local: bool,
    /// Whether the server's certificate is not verified.
    pub(super) skips_verification: bool,
    /// Whether the server was found through sentinels, which may later report another server.
    pub(super) has_sentinels: bool,
    /// The master and its cluster if the node is a cluster; else `None`.
    pub(super) membership: Option<Membership>,
    /// The maximum error of the clock offset in milliseconds: half a round trip.
    pub(super) clock_error_ms: f64,
    /// How long a majority of the sentinels has named this server. Zero if this time is unknown; `None` if the server
    /// was not found through sentinels.
    pub(super) named_for: Option<Duration>,
    /// Whether the server syncs no writes to disk while it saves or rewrites a file (`no-appendfsync-on-rewrite`).
    pub(super) pauses_sync: bool,
}

/// A master of a cluster, and what is known about the whole cluster.
pub(super) struct Membership {
    pub(super) place: String,
    /// The number of masters in the cluster.
    pub(super) masters: usize,
    /// The number of slots without a master.
    pub(super) lost_slots: usize,
}

/// Examines one node. Returns one entry for each of the node's servers, and at least one entry.
///
/// Finding the masters of a cluster takes at most `connect_timeout`. Connecting to a server takes at most
/// `connect_timeout`. Querying the server takes at most `connect_timeout`, or `node_timeout` if `scope` is
/// [`Depth::Vote`].
pub(super) async fn examine(endpoint: &Endpoint, options: &Options, scope: Depth) -> Vec<Examined> {
    let mut examined = Examined::of(endpoint);
    match &endpoint.target {
        Target::Memory(name) => {
            examined.diagnosis.kind = Some("memory".to_owned());
            examined.is_local = true;
            let asking = async { MemoryNode::named(name).connect(|| ())?.info().await };
            let limit = options.connect_timeout;
            match within(limit, &endpoint.target, asking).await {
                Ok(info) => {
                    examined.diagnosis.reachable = true;
                    let has_restarted = info.uptime < Duration::MAX;
                    examined.diagnosis.uptime_seconds =
                        has_restarted.then_some(info.uptime.as_secs());
                }
                Err(failure) => examined.trouble = Some(failure),
            }
        }
        Target::Cluster(cluster) => {
            return examine_cluster(endpoint, cluster, options, scope).await;
        }
        Target::Server(_) | Target::Sentinel(_) => {
            examined.has_sentinels = matches!(endpoint.target, Target::Sentinel(_));
            examined.examine(&endpoint.target, options, &any_keys(options), scope).await;
        }
    }
    vec![examined]
}

/// Examines the masters that this client's keys may be on.
async fn examine_cluster(
    endpoint: &Endpoint,
    cluster: &Cluster,
    options: &Options,
    scope: Depth,
) -> Vec<Examined> {
    let limit = options.connect_timeout;
    let unknown = match within(limit, &endpoint.target, cluster.masters(&[])).await {
        Ok(shards) => {
            let masters = shards.len();
            let had = shards.iter().map(Shard::size).sum();
            let lost_slots = usize::from(SLOTS).saturating_sub(had);
            let keys = keys_on(&shards, options);
            let examining = shards.into_iter().zip(keys).filter_map(|(shard, keys)| {
                let keys = keys?;
                let place = shard.place.to_string();
                let target = Target::Server(Arc::new(cluster.server(shard.place)));
                let mut examined = Examined::of(endpoint);
                examined.membership = Some(Membership { place, masters, lost_slots });
                Some(async move {
                    examined.examine(&target, options, &keys, scope).await;
                    examined
                })
            });
            let seen = join_all(examining).await;
            if !seen.is_empty() {
                return seen;
            }
            no_master(any_keys(options).slot())
        }
        Err(failure) => failure,
    };
    vec![Examined { trouble: Some(unknown), ..Examined::of(endpoint) }]
}

/// Returns the keys of a random resource that nobody uses.
fn any_keys(options: &Options) -> Keys {
    Keys::new(&options.key_prefix, &format!("quorlock-doctor-{:08x}", random::random()))
}

/// Returns the keys of an unused resource for each of these masters, chosen so that the keys are in one of the master's
/// slots. The entry is `None` if the client's key prefix puts all keys in a slot of another master.
fn keys_on(shards: &[Shard], options: &Options) -> Vec<Option<Keys>> {
    let tries = if tag(&options.key_prefix).is_some() { 1 } else { ENOUGH_KEYS };
    let mut found = vec![None; shards.len()];
    for _ in 0..tries {
        let keys = any_keys(options);
        let slot = keys.slot();
        for (shard, found) in shards.iter().zip(&mut found) {
            if found.is_none() && shard.has(slot) {
                *found = Some(keys.clone());
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found
}

impl Examined {
    /// Creates the entry for a node whose examination did not end within `limit`.
    pub(super) fn late(endpoint: &Endpoint, limit: Duration) -> Self {
        let trouble = Failure::timeout("no answer", limit, true);
        Self { trouble: Some(trouble), ..Self::of(endpoint) }
    }

    /// Creates the entry for a node that has not been examined yet.
    fn of(endpoint: &Endpoint) -> Self {
        let mut examined = Self::default();
        examined.diagnosis.address.clone_from(&endpoint.address);
        examined
    }

    /// Returns the time for which the server has certainly kept its data: its uptime, or the time for which the
    /// sentinels have named it, whichever is shorter. `None` if the server does not report its uptime.
    pub(super) fn age(&self) -> Option<Duration> {
        // An in-memory node has no uptime if it has never restarted.
        let unknown = self.is_memory().then_some(Duration::MAX);
        let uptime = self.diagnosis.uptime_seconds.map(Duration::from_secs).or(unknown)?;
        Some(uptime.min(self.named_for.unwrap_or(Duration::MAX)))
    }

    pub(super) fn is_memory(&self) -> bool {
        self.diagnosis.kind.as_deref() == Some("memory")
    }

    /// Parses the reply to a command that only reads. If the command failed or the reply is invalid, records the
    /// failure and returns `None`.
    pub(super) fn read<T: FromRedisValue>(
        &mut self,
        name: &'static str,
        reply: Value,
    ) -> Option<T> {
        let failure = match reply.extract_error() {
            Ok(value) => match from_redis_value(value) {
                Ok(value) => return Some(value),
                Err(_) => Failure::refused(NONSENSE),
            },
            Err(error) => failure(&error, true),
        };
        self.failed.entry(name).or_insert(failure);
        None
    }

    fn is_at(&mut self, server: &Server) {
        self.is_known = true;
        self.is_local = server.place.is_local();
        self.skips_verification = server.tls.as_ref().is_some_and(|tls| !tls.is_verified());
        self.diagnosis.tls = server.tls.is_some();
        self.diagnosis.database = i64::from(server.login.database);
    }

    /// Examines one server, and stores the results in `self`.
    async fn examine(&mut self, target: &Target, options: &Options, keys: &Keys, scope: Depth) {
        if let Target::Server(server) = target {
            // Record the address now, because it is known even if the server cannot be reached.
            self.is_at(server);
        }
        let limit = options.connect_timeout;
        let (connection, server, named_for) = match within(limit, target, reach(target)).await {
            Ok(reached) => reached,
            Err(failure) => {
                self.trouble = Some(failure);
                return;
            }
        };
        self.is_at(&server);
        self.diagnosis.reachable = true;
        self.named_for = named_for;
        let (limit, queried) = match scope {
            Depth::Everything => {
                (limit, timeout(limit, query(&connection, options, keys, self)).await)
            }
            Depth::Vote => {
                let limit = options.node_timeout(options.ttl);
                (limit, timeout(limit, query_vote(&connection, options, keys, self)).await)
            }
        };
        self.trouble = match queried {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(failure(&error, true)),
            Err(_) => Some(Failure::timeout("no answer", limit, true)),
        };
    }
}

/// Runs all queries on a connection, and stores the results in `examined`.
async fn query(
    connection: &Connection<Nobody>,
    options: &Options,
    keys: &Keys,
    examined: &mut Examined,
) -> Result<(), RedisError> {
    let began = Instant::now();
    let mut trips = Vec::new();
    measure(connection, began, &mut trips, examined).await?;
    try_commands(connection, options, keys, examined).await?;
    let sections = ["server", "replication", "memory", "persistence", "cluster"];
    let mut commands: Vec<Cmd> =
        sections.iter().map(|section| redis::cmd("INFO").arg(*section).to_owned()).collect();
    // One command for each parameter: Redis 6.2 takes only one.
    let parameters = ["appendfsync", "no-appendfsync-on-rewrite"];
    commands.extend(parameters.map(|name| redis::cmd("CONFIG").arg("GET").arg(name).to_owned()));
    let mut replies = connection.query(&commands).await?.into_iter();
    // No field name occurs in two sections, so the sections can be joined.
    let sections = replies.by_ref().take(sections.len());
    let info: String =
        sections.filter_map(|reply| examined.read::<String>("INFO", reply)).collect();
    let config = replies
        .filter_map(|reply| examined.read::<HashMap<String, String>>("CONFIG GET", reply))
        .flatten();
    let config: HashMap<String, String> = config.collect();
    examined.pauses_sync =
        config.get("no-appendfsync-on-rewrite").is_some_and(|value| value == "yes");
    let info_failure = examined.failed.get("INFO");
    let is_denied = info_failure.is_some_and(|failure| failure.outcome == NodeOutcome::Noperm);
    let permission = if is_denied { Permission::Denied } else { Permission::Allowed };
    let node = &mut examined.diagnosis;
    node.permissions.insert("INFO", permission);
    node.appendfsync = config.get("appendfsync").cloned().map(shortened);
    fill(node, &InfoDict::new(&info));
    // More round trips give better values, but a server that answers slowly must be examined in time.
    measure(connection, began + options.connect_timeout / 2, &mut trips, examined).await
}

/// Runs only the queries that decide whether the server can vote, and stores the results in `examined`.
async fn query_vote(
    connection: &Connection<Nobody>,
    options: &Options,
    keys: &Keys,
    examined: &mut Examined,
) -> Result<(), RedisError> {
    let (names, mut commands) = tries(keys, &channel(options));
    commands.push(redis::cmd("INFO").arg("server").to_owned());
    let mut replies = connection.query(&commands).await?;
    let info = replies.pop().and_then(|reply| examined.read::<String>("INFO", reply));
    fill(&mut examined.diagnosis, &InfoDict::new(&info.unwrap_or_default()));
    record(examined, names, replies);
    Ok(())
}

pub(super) fn fill(node: &mut NodeDiagnosis, info: &InfoDict) {
    let text = |name: &str| info.get(name).map(shortened);
    let capitalized = |name: &str| name[..1].to_uppercase() + &name[1..];
    // Look for the versions of these servers first: for compatibility with old clients, they also report a Redis
    // version.
    let others = ["valkey", "redict", "keydb", "dragonfly", "garnet", "kvrocks"];
    let other =
        others.iter().find_map(|kind| Some((capitalized(kind), text(&format!("{kind}_version"))?)));
    // KeyDB reports only a Redis version, so recognize it by the name of its executable.
    let is_keydb = || text("executable").is_some_and(|path| path.contains("keydb"));
    let kind = if is_keydb() { "KeyDB" } else { "Redis" };
    let redis = || Some((kind.to_owned(), text("redis_version")?));
    if let Some((kind, version)) = other.or_else(redis) {
        (node.kind, node.version) = (Some(kind), Some(version));
    }
    node.run_id = text("run_id");
    node.uptime_seconds = info.get("uptime_in_seconds");
    node.role = text("role");
    node.replicas = info.get("connected_slaves");
    node.cluster = info.get("cluster_enabled");
    node.maxmemory = info.get("maxmemory");
    node.used_memory = info.get("used_memory");
    node.maxmemory_policy = text("maxmemory_policy");
    node.appendonly = info.get("aof_enabled");
}

/// Measures the latency, and reads the clock offset from the fastest round trip. `trips` are the round trips so far, each
/// with the clock offset. After `enough`, begins no round trip except the first one.
async fn measure(
    connection: &Connection<Nobody>,
    enough: Instant,
    trips: &mut Vec<(f64, f64)>,
    examined: &mut Examined,
) -> Result<(), RedisError> {
    while trips.is_empty() || (trips.len() < ROUND_TRIPS && Instant::now() < enough) {
        let sent = clock::wall_clock_micros();
        let began = Instant::now();
        let replies = connection.query(&[redis::cmd("TIME")]).await?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let reply = replies.into_iter().next().and_then(|reply| from_redis_value(reply).ok());
        let Some((seconds, micros)): Option<(u64, u64)> = reply else { return Ok(()) };
        let node_ms = seconds as f64 * 1e3 + micros as f64 / 1e3;
        trips.push((took, node_ms - (sent as f64 / 1e3 + took / 2.0)));
    }
    trips.sort_by(|first, second| first.0.total_cmp(&second.0));
    examined.diagnosis.latency_ms = Some(trips[trips.len() / 2].0);
    examined.diagnosis.clock_offset_ms = Some(trips[0].1);
    examined.clock_error_ms = trips[0].0 / 2.0;
    Ok(())
}

/// Tries every command that quorlock uses. The commands run on keys that do not exist, so they change no key.
async fn try_commands(
    connection: &Connection<Nobody>,
    options: &Options,
    keys: &Keys,
    examined: &mut Examined,
) -> Result<(), RedisError> {
    let channel = channel(options);
    let (names, mut commands) = tries(keys, &channel);
    let mut undeclared = redis::cmd("EVAL");
    undeclared.arg("return redis.call('EXISTS', ARGV[1])").arg(0).arg(&keys.lock);
    commands.push(undeclared);
    let mut replies = connection.query(&commands).await?;
    let is_refused = replies.pop().is_some_and(|reply| reply.extract_error().is_err());
    record(examined, names, replies);
    let may = |name| examined.diagnosis.permissions.get(name) == Some(&Permission::Allowed);
    examined.is_strict = is_refused && may("EVAL") && may("EXISTS");
    // SUBSCRIBE is tried separately from the other commands, because its answer is a push message.
    let permission = match subscribe(connection, &channel).await {
        Ok(()) => Permission::Allowed,
        Err(error) if is_denied(&failure(&error, true)) => Permission::Denied,
        Err(error) => return Err(error),
    };
    examined.diagnosis.permissions.insert("SUBSCRIBE", permission);
    Ok(())
}

/// Returns the name of a channel that nobody uses.
fn channel(options: &Options) -> String {
    format!("{}quorlock:doctor:{:08x}", options.key_prefix, random::random())
}

/// Returns the names of the commands to try, and the commands themselves.
fn tries(keys: &Keys, channel: &str) -> (Vec<&'static str>, Vec<Cmd>) {
    let (source, hash, harmless) = script::harmless(keys);
    let mut tries: Vec<(&'static str, Cmd)> = Vec::new();
    let mut add = |name: &'static str, arguments: &[&str]| {
        let mut words = name.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap_or_default());
        words.for_each(|word| {
            cmd.arg(word);
        });
        cmd.arg(arguments);
        tries.push((name, cmd));
    };
    add("SCRIPT LOAD", &[source]);
    add("EVALSHA", &[&[hash], &harmless[..]].concat());
    add("EVAL", &[&[source], &harmless[..]].concat());
    add("TIME", &[]);
    for key in [&keys.lock, &keys.fence] {
        add("GET", &[key]);
        // With XX, SET changes a key only if it exists, and these keys do not exist.
        add("SET", &[key, "x", "XX", "PX", "1"]);
        add("PEXPIRE", &[key, "1"]);
    }
    add("DEL", &[&keys.lock]);
    add("PTTL", &[&keys.lock]);
    add("EXISTS", &[&keys.lock]);
    add("ZADD", &[&keys.queue, "XX", "1", "x"]);
    add("ZREM", &[&keys.queue, "x"]);
    add("ZRANGE", &[&keys.queue, "0", "0"]);
    add("ZRANK", &[&keys.queue, "x"]);
    add("PEXPIREAT", &[&keys.queue, "1"]);
    add("ZCOUNT", &[&keys.queue, "0", "0"]);
    add("ZRANGEBYSCORE", &[&keys.queue, "0", "0"]);
    add("ZREMRANGEBYSCORE", &[&keys.queue, "0", "0"]);
    add("ZREVRANK", &[&keys.queue, "x"]);
    add("ZSCORE", &[&keys.queue, "x"]);
    add("PUBLISH", &[channel, "x"]);
    tries.into_iter().unzip()
}

/// Whether the command failed because the user is not permitted to run the command, or because the server does not know
/// the command. If an operator has disabled a command, the server answers as if it did not know the command.
fn is_denied(failure: &Failure) -> bool {
    failure.outcome == NodeOutcome::Noperm || is_unknown_command(failure)
}

/// Stores in `examined` whether each command of [`tries`] is permitted, and the first error that is not a missing
/// permission.
fn record(examined: &mut Examined, names: Vec<&'static str>, replies: Vec<Value>) {
    for (name, reply) in names.into_iter().zip(replies) {
        let permissions = &mut examined.diagnosis.permissions;
        let permission = permissions.entry(name).or_insert(Permission::Allowed);
        let Err(error) = reply.extract_error() else { continue };
        let failure = failure(&error, true);
        if is_denied(&failure) {
            *permission = Permission::Denied;
        } else if error.code() != Some("NOSCRIPT") {
            // If the user is not permitted to load scripts, EVALSHA returns NOSCRIPT. This error is not a problem,
            // because EVAL still works.
            examined.refusal.get_or_insert(failure);
        }
    }
}
