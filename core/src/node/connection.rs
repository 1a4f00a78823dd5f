//! One connection to a node: a server, an in-memory node, or a simulated one.
//!
//! This module turns requests into commands and errors into failures. `connect.rs` and `link.rs` decide when to
//! connect and how to react to a failure.

use crate::config::endpoint::{Sentinels, Target};
use crate::config::server::Server;
use crate::memory::node::{MemoryConnection, MemoryNode};
use crate::node::exchange::{PackedRequest, ReplySink};
use crate::transport::connection::{Connection, Room};
use crate::transport::handshake::{
    ServerInfo, failure, hello, info_commands, introduction_failure, server_info,
};
use crate::transport::login::located;
use crate::transport::sentinel::Master;
#[cfg(test)]
use crate::transport::simulated::{self, OnAnswer, Use};
use crate::wire::answer::Failure;
use crate::wire::batch::{self, Batchable};
use crate::wire::commands::By;
use crate::wire::request::Request;
use crate::wire::script;
use futures_util::future::FutureExt;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

/// The connection of a node. Any thread may send requests on the connection.
pub(crate) enum NodeConnection {
    Redis(Box<Redis>),
    Memory(MemoryConnection),
    #[cfg(test)]
    Simulated(Arc<dyn simulated::Connection>),
}

/// A connection to a Redis or Valkey server.
pub(crate) struct Redis {
    connection: Connection<ReplySink>,
    server: Arc<Server>,
    /// The sentinels that reported the server; `None` if the URL names the server or its cluster.
    named: Option<Named>,
    /// Whether the server has refused a batch. The client then sends no more batches, because they would only delay
    /// their requests.
    refuses_batches: AtomicBool,
}

struct Named {
    by: Arc<Sentinels>,
    /// How long a majority of the sentinels had already reported this master when the connection
    /// was opened.
    age: Duration,
}

impl NodeConnection {
    /// Opens a connection, without a time limit. Calls `on_broken` when the connection breaks.
    pub(crate) async fn open(
        target: &Target,
        on_broken: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        match target {
            Target::Memory(name) => {
                #[cfg(test)]
                if let Some(connect) = simulated::network() {
                    let opened = connect(name.clone(), Use::Requests, Box::new(on_broken)).await;
                    return opened.map(Self::Simulated);
                }
                MemoryNode::named(name).connect(on_broken).map(Self::Memory)
            }
            Target::Server(server) => {
                let connection = Connection::connect(server).boxed().await;
                let connection =
                    connection.map_err(|error| introduction_failure(&error, server))?;
                connection.on_broken(on_broken);
                let server = Arc::clone(server);
                Ok(Self::Redis(Box::new(Redis::new(connection, server, None))))
            }
            // A cluster has no connection: each of its masters is a node with its own connection.
            Target::Cluster(_) => Err(Failure::unreachable("a cluster has several servers")),
            Target::Sentinel(sentinels) => {
                let Master { connection, server, age } = sentinels.open().boxed().await?;
                connection.on_broken(on_broken);
                let named = Some(Named { by: Arc::clone(sentinels), age });
                Ok(Self::Redis(Box::new(Redis::new(connection, server, named))))
            }
        }
    }

    /// Authenticates, loads the scripts that are used often, and queries information about the server. Returns `None`
    /// if INFO is not permitted.
    ///
    /// A request whose script is not loaded has to be sent again with the source of the script (EVAL). Sending it
    /// again costs a round trip and changes the order of requests.
    pub(crate) async fn prepare(&self) -> Result<Option<ServerInfo>, Failure> {
        let Self::Redis(redis) = self else { return self.fetch_info().await };
        let mut commands = Vec::new();
        for source in script::sources() {
            commands.push(redis::cmd("SCRIPT").arg("LOAD").arg(source).to_owned());
        }
        // Redis before 7.2 does not know CLIENT SETINFO, so errors are ignored.
        for (item, value) in [("LIB-NAME", "quorlock"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
            commands.push(redis::cmd("CLIENT").arg("SETINFO").arg(item).arg(value).to_owned());
        }
        // If the server was found through sentinels, the connection is authenticated already.
        let hello = match redis.named {
            None => hello(&redis.server.login)
                .await
                .map_err(|failure| located(failure, &redis.server))?,
            Some(_) => Vec::new(),
        };
        let introduced = hello.len();
        let hello = hello.into_iter();
        let behind = introduced + commands.len();
        // TIME is last, so that the time in its reply is as recent as possible.
        let all: Vec<_> = hello.chain(commands).chain(info_commands()).collect();
        let replied = redis.connection.query(&all).await;
        let mut replies = replied.map_err(|error| introduction_failure(&error, &redis.server))?;
        let infos = replies.split_off(behind);
        replies.truncate(introduced);
        for reply in replies {
            reply.extract_error().map_err(|error| introduction_failure(&error, &redis.server))?;
        }
        let Some(mut info) = server_info(infos) else { return Ok(None) };
        if let Some(Named { age, .. }) = redis.named {
            // The server may have missed writes before it became the master, so only its time as the master
            // counts.
            info.uptime = info.uptime.min(age);
        }
        Ok(Some(info))
    }

    /// Gives up the requests in flight. Requests that may create keys can still be answered late, so the
    /// connection stays open for them. All other requests fail, or are sent again on the node's next
    /// connection.
    pub(crate) fn give_up(&self) {
        if let Self::Redis(redis) = self {
            let mut wakers = Vec::new();
            redis.connection.give_up(|sink| {
                let given_up = sink.give_up();
                let is_needed = given_up.is_some();
                wakers.extend(given_up.flatten());
                is_needed
            });
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the node's URL still leads to this server; `None` if that cannot be determined now.
    pub(crate) async fn is_current(&self) -> Option<bool> {
        match self {
            Self::Redis(redis) => match &redis.named {
                Some(named) => named.by.still_name(&redis.server.place).await,
                None => Some(true),
            },
            _ => Some(true),
        }
    }

    /// Whether the server was found through sentinels, which may later report another server.
    pub(crate) fn uses_sentinels(&self) -> bool {
        matches!(self, Self::Redis(redis) if redis.named.is_some())
    }

    /// Queries information about the server; `None` if INFO is not permitted.
    pub(crate) async fn fetch_info(&self) -> Result<Option<ServerInfo>, Failure> {
        match self {
            Self::Redis(redis) => {
                let replies = redis.connection.query(&info_commands()).await;
                replies.map(server_info).map_err(|error| failure(&error, false))
            }
            Self::Memory(connection) => connection.info().await.map(|info| {
                Some(ServerInfo {
                    memory: info.run_id.clone(),
                    run_id: info.run_id,
                    uptime: info.uptime,
                    is_replica: false,
                    clock: Some(info.clock),
                })
            }),
            #[cfg(test)]
            Self::Simulated(connection) => connection.fetch_info().await.map(Some),
        }
    }

    /// Sends a request. If the request has to wait for earlier requests, and `may_batch` is `true`, the request may
    /// become part of a batch. Returns the sink if the connection has no room for the request now.
    pub(crate) fn send(
        &self,
        packed_request: &PackedRequest,
        may_batch: bool,
        sink: ReplySink,
    ) -> Result<(), ReplySink> {
        match self {
            Self::Redis(redis) => {
                let may_batch = may_batch && redis.connection.is_busy();
                match may_batch.then(|| redis.batchable(&packed_request.request)).flatten() {
                    Some(request) => redis.connection.send_batchable(request, sink),
                    None if packed_request.is_renewal => {
                        redis.send(packed_request, Room::None, sink)
                    }
                    None => redis.send(packed_request, Room::Needed, sink),
                }
            }
            Self::Memory(connection) => {
                connection.ask(&packed_request.request, |answered| sink.take(answered));
                Ok(())
            }
            #[cfg(test)]
            Self::Simulated(connection) => {
                let request = Arc::clone(&packed_request.request);
                let weak = Arc::downgrade(connection);
                let on_answer: OnAnswer = Box::new(move |answered| match answered {
                    Some(answered) => sink.take(answered),
                    None => {
                        let is_needed = sink.send_alone(&request, None).is_some();
                        if let Some(connection) = weak.upgrade().filter(|_| is_needed) {
                            connection.ask(&request.again(), false, Box::new(drop));
                        }
                    }
                });
                connection.ask(&packed_request.request, may_batch, on_answer);
                Ok(())
            }
        }
    }

    /// Sends a request with ASKING, for keys that are being migrated to this server. Returns the sink if the connection
    /// has no room for the request now, or is not to a Redis server.
    pub(crate) fn send_asking(&self, request: &Request, sink: ReplySink) -> Result<(), ReplySink> {
        let Self::Redis(redis) = self else { return Err(sink) };
        let packed = request.command(By::Source).get_packed_command();
        let asking = redis::cmd("ASKING").get_packed_command();
        redis.connection.send_behind(&asking, &packed, request.limit(), sink);
        Ok(())
    }

    /// Sends a request alone, because the server did not run it as part of a batch. `refusal`: the server's error if
    /// the server refused the whole batch. Returns the sink if the connection has no room for the request now.
    pub(crate) fn send_alone(
        &self,
        request: &Arc<Request>,
        refusal: Option<RedisError>,
        sink: ReplySink,
    ) -> Result<(), ReplySink> {
        let packed_request = PackedRequest::from(Arc::clone(request));
        let Self::Redis(redis) = self else { return self.send(&packed_request, false, sink) };
        match refusal.map(|error| error.kind()) {
            // Also send the batch script, so that the server knows it for the next batch.
            Some(ErrorKind::Server(ServerErrorKind::NoScript)) => {
                let first = batch::load(request).get_packed_command();
                let packed = packed_request.bytes();
                redis.connection.send_behind(&first, packed, request.limit(), sink);
                return Ok(());
            }
            // The server would also refuse most other batches, so send no more batches on this connection.
            Some(ErrorKind::Server(
                ServerErrorKind::NoPerm
                | ServerErrorKind::CrossSlot
                | ServerErrorKind::ResponseError,
            )) => redis.refuses_batches.store(true, Ordering::Relaxed),
            _ => {}
        }
        redis.send(&packed_request, Room::Kept, sink)
    }

    /// Sends a request again with the source of its script, because the server does not know the
    /// script. Returns the sink if the connection has no room for the request now.
    pub(crate) fn send_source(&self, request: &Request, sink: ReplySink) -> Result<(), ReplySink> {
        let Self::Redis(redis) = self else { return Err(sink) };
        let packed = request.command(By::Source).get_packed_command();
        redis.connection.send(&packed, request.limit(), Room::Kept, sink)
    }

    /// Returns a number that changes whenever the server answers; always 0 if the node is not a server.
    pub(crate) fn received(&self) -> u64 {
        match self {
            Self::Redis(redis) => redis.connection.received(),
            _ => 0,
        }
    }

    /// Returns why the connection broke, if the server sent nonsense or a reply that answers no request;
    /// else `None`.
    pub(crate) fn nonsense(&self) -> Option<Failure> {
        let Self::Redis(redis) = self else { return None };
        let error = redis.connection.garbage()?;
        Some(located(failure(error, false), &redis.server))
    }

    pub(crate) fn failure(&self, error: &RedisError) -> Failure {
        match self {
            Self::Redis(redis) => redis.failure(error),
            _ => failure(error, true),
        }
    }

    /// Waits until the connection may have room for another request.
    pub(crate) async fn room(&self) {
        if let Self::Redis(redis) = self {
            redis.connection.room().await;
        }
    }
}

impl Redis {
    fn new(connection: Connection<ReplySink>, server: Arc<Server>, named: Option<Named>) -> Self {
        Self { connection, server, named, refuses_batches: AtomicBool::new(false) }
    }

    fn send(
        &self,
        packed_request: &PackedRequest,
        room: Room,
        sink: ReplySink,
    ) -> Result<(), ReplySink> {
        self.connection.send(packed_request.bytes(), packed_request.request.limit(), room, sink)
    }

    /// Returns the request as a part of a batch; `None` if the request must be sent alone.
    fn batchable(&self, request: &Arc<Request>) -> Option<Batchable> {
        let is_clustered = self.server.is_discovered && self.named.is_none();
        let is_refused = self.refuses_batches.load(Ordering::Relaxed);
        Batchable::new(request, is_clustered).filter(|_| !is_refused)
    }

    /// Converts an error of this connection to a failure.
    fn failure(&self, error: &RedisError) -> Failure {
        let mut failure = failure(error, true);
        let is_elsewhere = matches!(error.code(), Some("MOVED" | "ASK"));
        if is_elsewhere && !self.server.is_discovered {
            failure.detail += ": the server is part of a cluster, use redis-cluster://";
        }
        located(failure, &self.server)
    }
}

impl fmt::Debug for NodeConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis(_) => "Redis",
            Self::Memory(_) => "Memory",
            #[cfg(test)]
            Self::Simulated(_) => "Simulated",
        })
    }
}
