//! Looks at a node, of a cluster at each of its masters: on a connection of its own, and without changing
//! anything.

use super::diagnosis::{NodeDiagnosis, Permission};
use crate::command::answer::Failure;
use crate::command::keys::{Keys, SLOTS, tag};
use crate::command::script;
use crate::config::endpoint::{Cluster, Endpoint, Target};
use crate::config::options::Options;
use crate::config::server::Server;
use crate::error::NodeOutcome;
use crate::runtime::clock;
use crate::runtime::random;
use crate::transport::cluster::{Shard, no_master};
use crate::transport::connection::{Connection, Nobody};
use crate::transport::handshake::failure;
use crate::transport::subscription::{reach, subscribe};
use futures_util::future::join_all;
use redis::{Cmd, InfoDict, RedisError, from_redis_value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::timeout;

/// Round trips that are timed. An odd number, so that one is in the middle.
const ROUND_TRIPS: usize = 7;

/// Of so many keys, one at least has any given slot of a cluster, if their slots differ.
const ENOUGH_KEYS: usize = 100_000;

/// What was seen at one server, also beside what is shown.
#[derive(Default)]
pub(super) struct Examined {
    pub(super) diagnosis: NodeDiagnosis,
    /// Why the server could not be reached, or not be looked at to the end.
    pub(super) trouble: Option<Failure>,
    /// Why the server would not take a write, other than for want of permission.
    pub(super) refusal: Option<Failure>,
    /// Whether it is known which server it is: not while sentinels or a cluster don't tell.
    pub(super) is_known: bool,
    pub(super) is_local: bool,
    /// Whether it does not have to prove who it is.
    pub(super) trusts_anybody: bool,
    /// Whether sentinels named it, who may name another one tomorrow.
    pub(super) has_sentinels: bool,
    /// The cluster of which it is one master, if that is the node.
    pub(super) membership: Option<Membership>,
    /// By how much the clock's offset may be wrong, at most: half a round trip.
    pub(super) clock_error_ms: f64,
}

/// A master's place in its cluster.
pub(super) struct Membership {
    pub(super) place: String,
    /// How many masters the cluster has.
    pub(super) masters: usize,
    /// How many slots no master has.
    pub(super) lost_slots: usize,
}

/// Looks at one node: at all servers that it consists of, at least one. Each has `connect_timeout` to be
/// connected, and as long to answer.
pub(super) async fn examine(endpoint: &Endpoint, options: &Options) -> Vec<Examined> {
    let mut examined = Examined::of(endpoint);
    match &endpoint.target {
        Target::Memory(_) => {
            examined.diagnosis.reachable = true;
            examined.diagnosis.kind = Some("memory".to_owned());
            examined.is_local = true;
        }
        Target::Cluster(cluster) => return examine_cluster(endpoint, cluster, options).await,
        Target::Server(_) | Target::Sentinel(_) => {
            examined.has_sentinels = matches!(endpoint.target, Target::Sentinel(_));
            examined.examine(&endpoint.target, options, &any_keys(options)).await;
        }
    }
    vec![examined]
}

/// Looks at the masters of a cluster that this client has keys on.
async fn examine_cluster(
    endpoint: &Endpoint,
    cluster: &Cluster,
    options: &Options,
) -> Vec<Examined> {
    let limit = options.connect_timeout;
    let unknown = match timeout(limit, cluster.masters(&[])).await {
        Ok(Ok(shards)) => {
            let (masters, had) = (shards.len(), shards.iter().map(Shard::size).sum());
            let lost_slots = usize::from(SLOTS).saturating_sub(had);
            let looking = shards.into_iter().filter_map(|shard| {
                let keys = keys_on(&shard, options)?;
                let place = shard.place.to_string();
                let target = Target::Server(Arc::new(cluster.server(shard.place)));
                let mut examined = Examined::of(endpoint);
                examined.membership = Some(Membership { place, masters, lost_slots });
                Some(async move {
                    examined.examine(&target, options, &keys).await;
                    examined
                })
            });
            let seen = join_all(looking).await;
            if !seen.is_empty() {
                return seen;
            }
            no_master(any_keys(options).slot())
        }
        Ok(Err(failure)) => failure,
        Err(_) => Failure::timeout(endpoint.target.no_connection(), limit, false),
    };
    vec![Examined { trouble: Some(unknown), ..Examined::of(endpoint) }]
}

/// Keys of a resource that nobody has.
fn any_keys(options: &Options) -> Keys {
    Keys::new(&options.key_prefix, &format!("quorlock-doctor-{:08x}", random::random()))
}

/// The same on this master; `None` if all keys of this client share a slot that another one has.
fn keys_on(shard: &Shard, options: &Options) -> Option<Keys> {
    let tries = if tag(&options.key_prefix).is_some() { 1 } else { ENOUGH_KEYS };
    let mut keys = (0..tries).map(|_| any_keys(options));
    keys.find(|keys| shard.has(keys.slot()))
}

impl Examined {
    /// Of this node nothing is seen yet.
    fn of(endpoint: &Endpoint) -> Self {
        let mut examined = Self::default();
        examined.diagnosis.address.clone_from(&endpoint.address);
        examined
    }

    fn is_at(&mut self, server: &Server) {
        self.is_known = true;
        self.is_local = server.place.is_local();
        self.trusts_anybody = server.tls.as_ref().is_some_and(|tls| !tls.is_verified);
        self.diagnosis.tls = server.tls.is_some();
        self.diagnosis.database = i64::from(server.login.database);
    }

    /// Looks at one server.
    async fn examine(&mut self, target: &Target, options: &Options, keys: &Keys) {
        if let Target::Server(server) = target {
            // It is known, also if it cannot be reached.
            self.is_at(server);
        }
        let limit = options.connect_timeout;
        let (connection, server) = match timeout(limit, reach(target)).await {
            Ok(Ok(reached)) => reached,
            Ok(Err(failure)) => {
                self.trouble = Some(failure);
                return;
            }
            Err(_) => {
                self.trouble = Some(Failure::timeout(target.no_connection(), limit, false));
                return;
            }
        };
        self.is_at(&server);
        self.diagnosis.reachable = true;
        let looked = timeout(limit, look(&connection, options, keys, self)).await;
        self.trouble = match looked {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(failure(&error, true)),
            Err(_) => Some(Failure::timeout("no answer", limit, true)),
        };
    }
}

async fn look(
    connection: &Connection<Nobody>,
    options: &Options,
    keys: &Keys,
    examined: &mut Examined,
) -> Result<(), RedisError> {
    measure(connection, examined).await?;
    try_commands(connection, options, keys, examined).await?;
    let sections = ["server", "replication", "memory", "persistence", "cluster"];
    let mut commands: Vec<Cmd> =
        sections.iter().map(|section| redis::cmd("INFO").arg(*section).to_owned()).collect();
    commands.push(redis::cmd("CONFIG").arg("GET").arg("appendfsync").to_owned());
    let mut replies = connection.query(&commands).await?.into_iter();
    // No name is in two sections.
    let told = replies.by_ref().take(sections.len());
    let info: String = told.filter_map(|reply| from_redis_value::<String>(reply).ok()).collect();
    let config = replies.next().and_then(|reply| from_redis_value(reply).ok());
    let config: HashMap<String, String> = config.unwrap_or_default();
    let allowed = if info.is_empty() { Permission::Denied } else { Permission::Allowed };
    let node = &mut examined.diagnosis;
    node.permissions.insert("INFO", allowed);
    node.appendfsync = config.get("appendfsync").cloned();
    fill(node, &InfoDict::new(&info));
    Ok(())
}

fn fill(node: &mut NodeDiagnosis, info: &InfoDict) {
    // Others say that they are some version of Redis, for the sake of old clients.
    let others = ["valkey", "dragonfly", "garnet", "kvrocks"];
    let other = others.iter().find_map(|kind| {
        let version: String = info.get(&format!("{kind}_version"))?;
        Some((kind[..1].to_uppercase() + &kind[1..], version))
    });
    let redis = || Some(("Redis".to_owned(), info.get("redis_version")?));
    if let Some((kind, version)) = other.or_else(redis) {
        (node.kind, node.version) = (Some(kind), Some(version));
    }
    node.run_id = info.get("run_id");
    node.uptime_seconds = info.get("uptime_in_seconds");
    node.role = info.get("role");
    node.replicas = info.get("connected_slaves");
    node.cluster = info.get("cluster_enabled");
    node.maxmemory = info.get("maxmemory");
    node.used_memory = info.get("used_memory");
    node.maxmemory_policy = info.get("maxmemory_policy");
    node.appendonly = info.get("aof_enabled");
}

/// Times round trips, and reads the node's clock in the quickest one.
async fn measure(
    connection: &Connection<Nobody>,
    examined: &mut Examined,
) -> Result<(), RedisError> {
    let mut trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let (sent, began) = (clock::wall_clock_micros(), Instant::now());
        let replies = connection.query(&[redis::cmd("TIME")]).await?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let reply = replies.into_iter().next().and_then(|reply| from_redis_value(reply).ok());
        let Some((seconds, micros)): Option<(u64, u64)> = reply else { return Ok(()) };
        let node_ms = seconds as f64 * 1e3 + micros as f64 / 1e3;
        trips.push((took, node_ms - (sent as f64 / 1e3 + took / 2.0)));
    }
    trips.sort_by(|first, second| first.0.total_cmp(&second.0));
    examined.diagnosis.latency_ms = Some(trips[ROUND_TRIPS / 2].0);
    examined.diagnosis.clock_offset_ms = Some(trips[0].1);
    examined.clock_error_ms = trips[0].0 / 2.0;
    Ok(())
}

/// Tries every command that quorlock uses, on keys that do not exist, so that nothing comes of it.
async fn try_commands(
    connection: &Connection<Nobody>,
    options: &Options,
    keys: &Keys,
    examined: &mut Examined,
) -> Result<(), RedisError> {
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
        // XX: only if it exists.
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
    let channel = format!("{}quorlock:doctor:{:08x}", options.key_prefix, random::random());
    add("PUBLISH", &[&channel, "x"]);
    let (names, commands): (Vec<_>, Vec<_>) = tries.into_iter().unzip();
    let replies = connection.query(&commands).await?;
    for (name, reply) in names.into_iter().zip(replies) {
        let permissions = &mut examined.diagnosis.permissions;
        let permission = permissions.entry(name).or_insert(Permission::Allowed);
        let Err(error) = reply.extract_error() else { continue };
        let failure = failure(&error, true);
        match failure.outcome {
            NodeOutcome::Noperm => *permission = Permission::Denied,
            // Where scripts may not be loaded, they are not known.
            _ if error.code() == Some("NOSCRIPT") => {}
            _ if examined.refusal.is_none() => examined.refusal = Some(failure),
            _ => {}
        }
    }
    // Not with the others: what it is answered with is no reply.
    let permission = match subscribe(connection, &channel).await {
        Ok(()) => Permission::Allowed,
        Err(error) if failure(&error, true).outcome == NodeOutcome::Noperm => Permission::Denied,
        Err(error) => return Err(error),
    };
    examined.diagnosis.permissions.insert("SUBSCRIBE", permission);
    Ok(())
}
