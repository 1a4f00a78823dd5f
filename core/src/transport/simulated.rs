//! Unit tests only: the network of the simulation, which replaces connections to servers.

use crate::runtime::machine;
use crate::transport::handshake::ServerInfo;
use crate::wire::answer::{Answered, Failure};
use crate::wire::request::Request;
use futures_util::future::BoxFuture;
use std::sync::{Arc, OnceLock, Weak};

/// Receives the answer to one request; `None` if the request was part of a batch that did nothing for it.
pub(crate) type OnAnswer = Box<dyn FnOnce(Option<Answered>) + Send>;

/// Receives the messages on one channel.
pub(crate) type OnMessage = Box<dyn Fn(&str) + Send + Sync>;

/// Connects the current simulated process to the node with this name. The last argument is called
/// when the connection breaks.
pub(crate) type Connect =
    fn(String, Use, Box<dyn Fn() + Send + Sync>) -> BoxFuture<'static, Connected>;

type Connected = Result<Arc<dyn Connection>, Failure>;

/// What a connection is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Requests,
    Notifications,
}

/// A simulated connection, which is closed when it is dropped.
pub(crate) trait Connection: Send + Sync {
    /// Sends a request, which may become part of a batch if `may_batch` is `true`. `on_answer` is called once, unless
    /// the process ends.
    fn ask(&self, request: &Arc<Request>, may_batch: bool, on_answer: OnAnswer);

    /// Queries information about the server.
    fn fetch_info(&self) -> BoxFuture<'_, Result<ServerInfo, Failure>>;

    /// Subscribes to a channel, until the owner of `alive` is dropped.
    fn listen(
        &self,
        channel: String,
        on_message: OnMessage,
        alive: Weak<()>,
    ) -> BoxFuture<'_, Result<(), Failure>>;
}

/// The function that connects simulated processes. The simulation sets it before its first process
/// connects.
pub(crate) static CONNECT: OnceLock<Connect> = OnceLock::new();

/// Returns the function that connects, if the running code belongs to a simulated process.
pub(crate) fn network() -> Option<Connect> {
    machine::current()?;
    CONNECT.get().copied()
}
