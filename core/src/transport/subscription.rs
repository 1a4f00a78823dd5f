//! Subscriptions: connections on which nodes notify waiters.
//!
//! This module opens them and parses notifications. `lock/subscriber.rs` decides when to subscribe,
//! and which waiter a notification is for.

use crate::command::answer::Failure;
use crate::command::keys::slot;
use crate::command::memory_node::{MemoryConnection, MemoryNode};
use crate::config::endpoint::Target;
use crate::config::server::Server;
use crate::transport::connection::{Connection, Nobody};
use crate::transport::handshake::{failure, open};
#[cfg(test)]
use crate::transport::simulated::{self, Use};
use futures_util::future::{FutureExt, try_join_all};
use redis::{PushKind, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// A subscription to one node's notifications. Dropping it ends it.
pub(crate) enum Subscription {
    /// The connections are kept open to receive notifications; no requests are sent on them.
    Redis { _connections: Vec<Connection<Nobody>> },
    /// The node removes the listener after `_alive` is dropped.
    Memory { _alive: Arc<()>, _connection: MemoryConnection },
    #[cfg(test)]
    Simulated { _connection: Box<dyn crate::transport::simulated::Connection> },
}

impl Subscription {
    /// Connects and subscribes to a channel. `on_notification` is called with the number of the
    /// notified waiter and the lock key that is free; `on_broken` when the connection breaks. Has
    /// no time limit.
    pub(crate) async fn open(
        target: &Target,
        channel: &str,
        on_notification: impl Fn(u64, &str) + Send + Sync + 'static,
        on_broken: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        match target {
            Target::Memory(name) => {
                #[cfg(test)]
                if let Some(connect) = simulated::network() {
                    let on_broken = Box::new(on_broken);
                    let connection = connect(name.clone(), Use::Notifications, on_broken).await?;
                    connection.listen(channel.to_owned(), Box::new(on_notification)).await?;
                    return Ok(Self::Simulated { _connection: connection });
                }
                let alive = Arc::new(());
                let listener = Arc::downgrade(&alive);
                let notify = move |number: u64, lock: &str| {
                    let listens = listener.strong_count() > 0;
                    if listens {
                        on_notification(number, lock);
                    }
                    listens
                };
                let connection = MemoryNode::named(name).connect(on_broken)?;
                connection.listen(channel, Box::new(notify)).await?;
                Ok(Self::Memory { _alive: alive, _connection: connection })
            }
            Target::Server(_) | Target::Sentinel(_) => {
                let (connection, ..) = reach(target).await?;
                listen(&connection, channel, on_notification, on_broken).boxed().await?;
                Ok(Self::Redis { _connections: vec![connection] })
            }
            // A script notifies the subscribers of the server that runs it. The other servers of
            // the cluster forward the message, and those copies are ignored.
            Target::Cluster(cluster) => {
                let shards = cluster.masters(&[]).boxed().await?;
                let (on_notification, on_broken) = (Arc::new(on_notification), Arc::new(on_broken));
                let listening = shards.into_iter().map(async |shard| {
                    let connection = open(&cluster.server(shard.place.clone())).await?;
                    let (on_notification, on_broken) =
                        (Arc::clone(&on_notification), Arc::clone(&on_broken));
                    let on_notification = move |number: u64, lock: &str| {
                        if shard.has(slot(lock)) {
                            on_notification(number, lock);
                        }
                    };
                    listen(&connection, channel, on_notification, move || on_broken()).await?;
                    Ok::<_, Failure>(connection)
                });
                let connections = try_join_all(listening).boxed().await?;
                Ok(Self::Redis { _connections: connections })
            }
        }
    }
}

/// Opens a connection to the current server of a target, and authenticates. Also returns that
/// server, and with sentinels how long a majority of them has named it. Has no time limit.
pub(crate) async fn reach(
    target: &Target,
) -> Result<(Connection<Nobody>, Arc<Server>, Option<Duration>), Failure> {
    match target {
        Target::Server(server) => Ok((open(server).await?, Arc::clone(server), None)),
        Target::Sentinel(sentinels) => {
            let master = sentinels.open().boxed().await?;
            Ok((master.connection, master.server, Some(master.age)))
        }
        Target::Cluster(_) => Err(Failure::unreachable("it is more than one server")),
        Target::Memory(_) => Err(Failure::unreachable("it is in this process")),
    }
}

/// Subscribes a connection to the notifications on a channel.
async fn listen(
    connection: &Connection<Nobody>,
    channel: &str,
    on_notification: impl Fn(u64, &str) + Send + Sync + 'static,
    on_broken: impl FnOnce() + Send + 'static,
) -> Result<(), Failure> {
    connection.on_push(move |kind, message| {
        if kind == PushKind::Message
            && let Some((number, lock)) = parse_notification(message)
        {
            on_notification(number, lock);
        }
    });
    connection.on_broken(on_broken);
    subscribe(connection, channel).await.map_err(|error| failure(&error, false))
}

/// Subscribes a connection to a channel.
pub(crate) async fn subscribe(
    connection: &Connection<Nobody>,
    channel: &str,
) -> Result<(), RedisError> {
    let command = redis::cmd("SUBSCRIBE").arg(channel).to_owned();
    for reply in connection.query(&[command]).await? {
        reply.extract_error()?;
    }
    Ok(())
}

/// Parses a notification: the number of the waiter, and the lock key that is free.
fn parse_notification(message: &[Value]) -> Option<(u64, &str)> {
    let [_channel, Value::BulkString(payload)] = message else { return None };
    let (number, lock) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    Some((number.parse().ok()?, lock))
}
