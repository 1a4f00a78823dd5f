//! One connection to a node: how it is opened, what is asked on it, and what its errors mean.

use crate::answer::Failure;
use crate::asking::{Parcel, Sink};
use crate::clock;
use crate::cluster::Elsewhere;
use crate::endpoint::Target;
use crate::error::NodeOutcome;
use crate::memory::MemoryNode;
use crate::pipe::Pipe;
use crate::request::Request;
use crate::script::{self, By};
use crate::sentinel::{Master, Sentinels};
use crate::server::{Login, Place, Server};
use futures_util::future::FutureExt;
use redis::{Cmd, ErrorKind, InfoDict, RedisError, ServerErrorKind, Value, from_redis_value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A connection, for requests from any thread.
pub(crate) enum Wire {
    Redis(Box<Redis>),
    Memory(Arc<MemoryNode>),
    #[cfg(test)]
    Simulated(crate::simulation::Connection),
}

/// A connection to a server.
pub(crate) struct Redis {
    pipe: Pipe,
    server: Arc<Server>,
    /// If sentinels named it.
    named: Option<Named>,
}

struct Named {
    by: Arc<Sentinels>,
    /// For how long a majority of them had named it.
    age: Duration,
}

/// What a server tells of itself.
pub(crate) struct Sight {
    /// Names the server process.
    pub(crate) run_id: String,
    /// Names its memory. That of a process is exchanged when it becomes the replica of another.
    pub(crate) memory: String,
    pub(crate) uptime: Duration,
    pub(crate) is_replica: bool,
    /// The time by its clock, in microseconds since the Unix epoch; `None` if it may not be read.
    pub(crate) clock: Option<u64>,
}

impl Wire {
    /// Connects; `on_broken` is called when the connection is closed from the other side.
    pub(crate) async fn open(
        target: &Target,
        on_broken: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        match target {
            #[cfg(test)]
            Target::Memory(name) if crate::simulation::process().is_some() => {
                crate::simulation::connect(name, false, on_broken).await.map(Self::Simulated)
            }
            Target::Memory(name) => Ok(Self::Memory(MemoryNode::named(name))),
            Target::Server(server) => {
                let pipe = Pipe::connect(server).boxed().await;
                let pipe = pipe.map_err(|error| unheard(&error, server))?;
                pipe.on_broken(on_broken);
                let server = Arc::clone(server);
                Ok(Self::Redis(Box::new(Redis { pipe, server, named: None })))
            }
            // Its masters are nodes of their own.
            Target::Cluster(_) => Err(Failure::unreachable("a cluster has several servers")),
            Target::Sentinel(sentinels) => {
                let Master { pipe, server, age } = sentinels.open().boxed().await?;
                pipe.on_broken(on_broken);
                let named = Some(Named { by: Arc::clone(sentinels), age });
                Ok(Self::Redis(Box::new(Redis { pipe, server, named })))
            }
        }
    }

    /// Introduces itself, looks at the server, and loads the scripts, so that none is missing later,
    /// which would cost a round trip, and the order of requests. A server that does not permit it gets
    /// them by EVAL.
    pub(crate) async fn prepare(&self) -> Result<Option<Sight>, Failure> {
        let Self::Redis(redis) = self else { return self.look().await };
        let mut commands = Vec::new();
        for source in script::sources() {
            commands.push(redis::cmd("SCRIPT").arg("LOAD").arg(source).to_owned());
        }
        // Only servers since Redis 7.2 know it.
        for (item, value) in [("LIB-NAME", "quorlock"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
            commands.push(redis::cmd("CLIENT").arg("SETINFO").arg(item).arg(value).to_owned());
        }
        // Who was found by sentinels was met before.
        let hello = if redis.named.is_none() { hello(&redis.server.login) } else { Vec::new() };
        let introduced = hello.len();
        let (hello, behind) = (hello.into_iter(), introduced + commands.len());
        // Last, so that nothing comes between what the server's clock shows and when it is heard.
        let all: Vec<_> = hello.chain(commands).chain(sight_commands()).collect();
        let asked = redis.pipe.ask_all(&all).await;
        let mut replies = asked.map_err(|error| unheard(&error, &redis.server))?;
        let sights = replies.split_off(behind);
        replies.truncate(introduced);
        for reply in replies {
            reply.extract_error().map_err(|error| unheard(&error, &redis.server))?;
        }
        let Some(mut sight) = sight(sights) else { return Ok(None) };
        if let Some(Named { age, .. }) = redis.named {
            // What it did not know when it became the master, nobody knows.
            sight.uptime = sight.uptime.min(age);
        }
        Ok(Some(sight))
    }

    /// Whether it still is the server that the node's URL means; `None` if that cannot be found out now.
    pub(crate) async fn is_current(&self) -> Option<bool> {
        match self {
            Self::Redis(redis) => match &redis.named {
                Some(named) => named.by.still_name(&redis.server.place).await,
                None => Some(true),
            },
            _ => Some(true),
        }
    }

    /// Whether the URL leaves open which server it is.
    pub(crate) fn is_named_by_others(&self) -> bool {
        matches!(self, Self::Redis(redis) if redis.named.is_some())
    }

    /// Looks at the server; `None` if it does not tell, for want of permission.
    pub(crate) async fn look(&self) -> Result<Option<Sight>, Failure> {
        match self {
            Self::Redis(redis) => {
                let replies = redis.pipe.ask_all(&sight_commands()).await;
                replies.map(sight).map_err(|error| failure(&error, false))
            }
            // A node in this process lives as long as the process.
            Self::Memory(node) => Ok(Some(Sight {
                run_id: format!("{:p}", Arc::as_ptr(node)),
                memory: String::new(),
                uptime: Duration::MAX,
                is_replica: false,
                clock: Some(clock::wall_clock_micros()),
            })),
            #[cfg(test)]
            Self::Simulated(connection) => connection.look().await.map(Some),
        }
    }

    /// Puts a request on the connection. Returns the sink if there is no room for it now.
    pub(crate) fn send(&self, parcel: &Parcel, sink: Sink) -> Result<(), Sink> {
        match self {
            Self::Redis(redis) => redis.pipe.send(parcel.packed(), sink),
            Self::Memory(node) => {
                sink.answer(node.answer(&parcel.request).map_err(Failure::refused));
                Ok(())
            }
            #[cfg(test)]
            Self::Simulated(connection) => {
                connection.ask(&parcel.request, sink);
                Ok(())
            }
        }
    }

    /// Puts a request on the connection that the server takes for keys that are on their way to it.
    /// Returns the sink if there is no room for it now.
    pub(crate) fn send_asking(&self, request: &Request, sink: Sink) -> Result<(), Sink> {
        let Self::Redis(redis) = self else { return Err(sink) };
        let packed = request.command(By::Source).get_packed_command();
        redis.pipe.send_behind(&redis::cmd("ASKING").get_packed_command(), &packed, sink)
    }

    /// Waits until there may be room for another request.
    pub(crate) async fn room(&self) {
        if let Self::Redis(redis) = self {
            redis.pipe.room().await;
        }
    }
}

/// Takes in what a server answered to a request. If it does not know the script, it gets it by EVAL.
pub(crate) fn receive(sink: Sink, reply: Result<Value, RedisError>) {
    match reply.and_then(Value::extract_error) {
        Ok(value) => sink.answer_to(|request| {
            request.understand(&value).ok_or_else(|| Failure {
                outcome: NodeOutcome::Disconnected,
                detail: "the answer makes no sense".to_owned(),
                sent: true,
            })
        }),
        Err(error) => {
            // Else the connection is given up already.
            let asked = sink.asked();
            let Some((link, request)) = &asked else {
                return sink.answer(Err(failure(&error, true)));
            };
            let Wire::Redis(redis) = &link.wire else { return };
            let is_unknown = error.kind() == ErrorKind::Server(ServerErrorKind::NoScript);
            let unsent = match Elsewhere::of(&error) {
                // What was sent meanwhile is before it.
                _ if is_unknown && sink.goes_on(link) => {
                    let packed = request.command(By::Source).get_packed_command();
                    redis.pipe.send(&packed, sink).err()
                }
                // Of keys on their way, none can be created yet.
                Some(elsewhere) if elsewhere.is_settled() || !request.creates() => {
                    link.redirect(elsewhere, request, sink)
                }
                _ => Some(sink),
            };
            if let Some(sink) = unsent {
                sink.answer(Err(redis.failure(&error)));
            }
        }
    }
}

impl Redis {
    /// What became of a request.
    fn failure(&self, error: &RedisError) -> Failure {
        let mut failure = failure(error, true);
        let is_elsewhere = matches!(error.code(), Some("MOVED" | "ASK"));
        if is_elsewhere && !self.server.is_found {
            failure.detail += ": the server is part of a cluster, use redis-cluster://";
        }
        if self.server.is_found { failure.at(&self.server.place) } else { failure }
    }
}

/// Why the introduction failed.
fn unheard(error: &RedisError, server: &Server) -> Failure {
    let mut failure = failure(error, false);
    let is_plain = server.tls.is_none() && matches!(server.place, Place::Tcp { .. });
    // It was there, and went away, or talked nonsense.
    let has_gone = error.is_connection_dropped() && !error.is_connection_refusal();
    let is_strange = has_gone || error.kind() == ErrorKind::Parse;
    if is_plain && is_strange {
        failure.detail += ": if the server speaks TLS on this port, use a URL with TLS (rediss)";
    }
    if server.is_found { failure.at(&server.place) } else { failure }
}

/// What a connection begins with.
fn hello(login: &Login) -> Vec<Cmd> {
    // It introduces and authenticates at once. RESP3 tells of calls, and of a closed connection at once.
    let mut hello = redis::cmd("HELLO");
    hello.arg(3);
    if let Some((user, password)) = login.credentials() {
        hello.arg("AUTH").arg(user).arg(password);
    }
    let mut commands = vec![hello];
    if login.database != 0 {
        commands.push(redis::cmd("SELECT").arg(login.database).to_owned());
    }
    commands
}

/// Opens a connection to a server, and introduces the client.
pub(crate) async fn open(server: &Server) -> Result<Pipe, Failure> {
    let opened = async {
        let pipe = Pipe::connect(server).await?;
        for reply in pipe.ask_all(&hello(&server.login)).await? {
            reply.extract_error()?;
        }
        Ok(pipe)
    };
    opened.boxed().await.map_err(|error| unheard(&error, server))
}

/// Opens a connection to whatever one server a target means now, and introduces the client.
pub(crate) async fn reach(target: &Target) -> Result<(Pipe, Arc<Server>), Failure> {
    match target {
        Target::Server(server) => Ok((open(server).await?, Arc::clone(server))),
        Target::Sentinel(sentinels) => {
            let master = sentinels.open().boxed().await?;
            Ok((master.pipe, master.server))
        }
        Target::Cluster(_) => Err(Failure::unreachable("it is more than one server")),
        Target::Memory(_) => Err(Failure::unreachable("it is in this process")),
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis(_) => "Redis",
            Self::Memory(_) => "Memory",
            #[cfg(test)]
            Self::Simulated(_) => "Simulated",
        })
    }
}

// INFO twice: servers before Redis 7 take but one section in each.
fn sight_commands() -> Vec<Cmd> {
    let info = |section| redis::cmd("INFO").arg(section).to_owned();
    vec![info("server"), info("replication"), redis::cmd("TIME")]
}

pub(crate) fn sight(replies: Vec<Value>) -> Option<Sight> {
    let mut replies = replies.into_iter();
    let mut section = || from_redis_value::<InfoDict>(replies.next()?).ok();
    let (server, replication) = (section()?, section()?);
    let time = replies.next().and_then(|reply| from_redis_value::<(u64, u64)>(reply).ok());
    let micros =
        |(seconds, micros): (u64, u64)| seconds.checked_mul(1_000_000)?.checked_add(micros);
    let run_id: String = server.get("run_id")?;
    let replication_id: String = replication.get("master_replid").unwrap_or_default();
    let role: String = replication.get("role").unwrap_or_default();
    Some(Sight {
        memory: format!("{run_id} {replication_id}"),
        uptime: Duration::from_secs(server.get("uptime_in_seconds")?),
        is_replica: role == "slave",
        clock: time.and_then(micros),
        run_id,
    })
}

/// `sent`: whether a request was under way when the connection failed.
pub(crate) fn failure(error: &RedisError, sent: bool) -> Failure {
    let detail = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    };
    // A server's error has a code; what fails on the way to it has none.
    let refused = error.code().is_some()
        || matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::RESP3NotSupported);
    let outcome = match (refused, sent) {
        (true, _) => refusal(&detail),
        (false, true) => NodeOutcome::Disconnected,
        (false, false) => NodeOutcome::Unreachable,
    };
    Failure { outcome, detail, sent }
}

/// The name of a server's error. Before Redis 7, that of a command in a script stands in the text.
fn refusal(text: &str) -> NodeOutcome {
    let named = |code: &str| text.starts_with(code) || text.contains(&format!("-{code} "));
    match text {
        _ if named("LOADING") => NodeOutcome::Loading,
        _ if named("READONLY") => NodeOutcome::Readonly,
        _ if named("MASTERDOWN") => NodeOutcome::Masterdown,
        _ if named("OOM") => NodeOutcome::Oom,
        _ if named("MISCONF") => NodeOutcome::Misconf,
        // Of a command in a script, Redis 7 says it in words.
        _ if named("NOPERM") || text.contains("user executing the script can't") => {
            NodeOutcome::Noperm
        }
        _ => NodeOutcome::Refused,
    }
}
