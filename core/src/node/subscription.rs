//! Subscriptions: connections on which nodes deliver notifications for waiters and the messages of elections.
//!
//! This module opens subscriptions and parses notifications. `lock/waiting/subscriber.rs` decides when to
//! subscribe to which channels, and which recipient gets a message.

use crate::config::endpoint::Target;
use crate::config::server::Server;
use crate::memory::node::{MemoryConnection, MemoryNode};
use crate::runtime;
use crate::transport::connection::{Connection, Nobody};
use crate::transport::handshake::{failure, open};
#[cfg(test)]
use crate::transport::simulated::{self, Use};
use crate::wire::answer::Failure;
use crate::wire::keys::slot;
use futures_util::future::{FutureExt, try_join_all};
use redis::{PushKind, RedisError, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A callback for messages: gets the channel and the text of each message.
type OnMessage = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// A subscription to messages of one node. Dropping it ends the subscription.
pub(crate) enum Subscription {
    /// The connections are kept open to receive messages; only the commands that change the channels are sent on them.
    Redis {
        connections: Vec<Connection<Nobody>>,
    },
    Local(Local),
}

/// A subscription to an in-memory node or to a simulated one.
pub(crate) struct Local {
    connection: LocalConnection,
    on_message: OnMessage,
    /// The subscribed channels. If a channel is removed from this map, the next call of the channel's listener
    /// makes the node drop the listener.
    channels: Mutex<HashMap<String, Arc<()>>>,
}

enum LocalConnection {
    Memory(MemoryConnection),
    #[cfg(test)]
    Simulated(Arc<dyn crate::transport::simulated::Connection>),
}

impl Subscription {
    /// Connects, and subscribes to the channel on which the node notifies waiters. `on_message` is called with
    /// each message on this channel and on channels that are added later. `on_broken` is called when the
    /// connection breaks. Has no time limit.
    pub(crate) async fn open(
        target: &Target,
        channel: &str,
        on_message: impl Fn(&str, &str) + Send + Sync + 'static,
        on_broken: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        match target {
            Target::Memory(name) => {
                let connection = LocalConnection::open(name, on_broken).await?;
                let local = Local {
                    connection,
                    on_message: Arc::new(on_message),
                    channels: Mutex::default(),
                };
                local.subscribe(channel).await?;
                Ok(Self::Local(local))
            }
            Target::Server(_) | Target::Sentinel(_) => {
                let (connection, ..) = reach(target).await?;
                listen(&connection, channel, on_message, on_broken).boxed().await?;
                Ok(Self::Redis { connections: vec![connection] })
            }
            // Each server of a cluster passes every message on to all other servers, so every connection
            // receives every message. A notification must count only once. It counts on the connection to the
            // master that has the lock's slot, because that master sent the notification.
            Target::Cluster(cluster) => {
                let shards = cluster.masters(&[]).boxed().await?;
                let on_message = Arc::new(on_message);
                let on_broken = Arc::new(on_broken);
                let listening = shards.into_iter().map(async |shard| {
                    let connection = open(&cluster.server(shard.place.clone())).await?;
                    let on_message = Arc::clone(&on_message);
                    let on_broken = Arc::clone(&on_broken);
                    let notifications = channel.to_owned();
                    let on_message = move |channel: &str, message: &str| {
                        let lock = notification(message).filter(|_| channel == notifications);
                        if lock.is_none_or(|(_, lock)| shard.has(slot(lock))) {
                            on_message(channel, message);
                        }
                    };
                    listen(&connection, channel, on_message, move || on_broken()).await?;
                    Ok::<_, Failure>(connection)
                });
                let connections = try_join_all(listening).boxed().await?;
                Ok(Self::Redis { connections })
            }
        }
    }

    /// Subscribes to one more channel. Has no time limit.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<(), Failure> {
        match self {
            Self::Redis { connections } => {
                let adding = connections.iter().map(|connection| subscribe(connection, channel));
                let added = try_join_all(adding).boxed().await;
                added.map(drop).map_err(|error| failure(&error, false))
            }
            Self::Local(local) => local.subscribe(channel).await,
        }
    }

    /// Unsubscribes from a channel. Has no time limit.
    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<(), Failure> {
        match self {
            Self::Redis { connections } => {
                let removing = connections
                    .iter()
                    .map(async |connection| change(connection, "UNSUBSCRIBE", channel).await);
                let removed = try_join_all(removing).boxed().await;
                removed.map(drop).map_err(|error| failure(&error, false))
            }
            Self::Local(local) => {
                local.channels().remove(channel);
                Ok(())
            }
        }
    }
}

impl Local {
    fn channels(&self) -> MutexGuard<'_, HashMap<String, Arc<()>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn subscribe(&self, channel: &str) -> Result<(), Failure> {
        let alive = Arc::new(());
        let listener = Arc::downgrade(&alive);
        let on_message = Arc::clone(&self.on_message);
        let own = channel.to_owned();
        match &self.connection {
            LocalConnection::Memory(connection) => {
                let listen = move |message: &str| {
                    let listens = listener.strong_count() > 0;
                    if listens && !message.is_empty() {
                        // The in-memory node's mutex is locked during this call, and the recipient locks other
                        // mutexes. To avoid a deadlock, another task delivers the message.
                        let on_message = Arc::clone(&on_message);
                        let own = own.clone();
                        let message = message.to_owned();
                        runtime::detach(async move { on_message(&own, &message) });
                    }
                    listens
                };
                connection.listen(channel, Box::new(listen)).await?;
            }
            #[cfg(test)]
            LocalConnection::Simulated(connection) => {
                let on_message = Box::new(move |message: &str| on_message(&own, message));
                connection.listen(channel.to_owned(), on_message, listener).await?;
            }
        }
        self.channels().insert(channel.to_owned(), alive);
        Ok(())
    }
}

impl LocalConnection {
    async fn open(
        name: &str,
        on_broken: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        #[cfg(test)]
        if let Some(connect) = simulated::network() {
            let connection = connect(name.to_owned(), Use::Notifications, Box::new(on_broken));
            return connection.await.map(Self::Simulated);
        }
        MemoryNode::named(name).connect(on_broken).map(Self::Memory)
    }
}

/// Opens a connection to the current server of a target, and authenticates. Returns the connection and the server. If
/// sentinels name the server, also returns the time for which a majority of the sentinels has named this server. Has no
/// time limit.
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

/// Subscribes a connection to a first channel, and passes the messages on all its channels to `on_message`.
async fn listen(
    connection: &Connection<Nobody>,
    channel: &str,
    on_message: impl Fn(&str, &str) + Send + Sync + 'static,
    on_broken: impl FnOnce() + Send + 'static,
) -> Result<(), Failure> {
    connection.on_push(move |kind, message| {
        if kind == PushKind::Message
            && let [Value::BulkString(channel), Value::BulkString(text)] = message
            && let (Ok(channel), Ok(text)) = (str::from_utf8(channel), str::from_utf8(text))
        {
            on_message(channel, text);
        }
    });
    connection.on_broken(on_broken);
    subscribe(connection, channel).await.map_err(|error| failure(&error, false))
}

/// Subscribes a connection to a channel, and waits for the server's answer.
pub(crate) async fn subscribe(
    connection: &Connection<Nobody>,
    channel: &str,
) -> Result<(), RedisError> {
    change(connection, "SUBSCRIBE", channel).await
}

async fn change(
    connection: &Connection<Nobody>,
    command: &str,
    channel: &str,
) -> Result<(), RedisError> {
    let command = redis::cmd(command).arg(channel).to_owned();
    for reply in connection.query(&[command]).await? {
        reply.extract_error()?;
    }
    Ok(())
}

/// Parses a notification. Returns the number of the waiter, and the lock key that is free; `None` if the message is not
/// a notification.
pub(crate) fn notification(message: &str) -> Option<(u64, &str)> {
    let (number, lock) = message.split_once(' ')?;
    Some((number.parse().ok()?, lock))
}
