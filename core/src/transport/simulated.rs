//! Unit tests only: the network of the simulation, which replaces connections to servers.

use crate::runtime::machine;
use crate::transport::handshake::ServerInfo;
use crate::wire::answer::{Answered, Failure};
use crate::wire::request::Request;
use futures_util::future::BoxFuture;
use std::sync::{Arc, OnceLock, Weak};

/// The recipient of the answer to one request. It gets `None` if the request was part of a batch, and the node did
/// nothing for the request.
pub(crate) type OnAnswer = Box<dyn FnOnce(Option<Answered>) + Send>;

/// A callback that gets each message on one channel.
pub(crate) type OnMessage = Box<dyn Fn(&str) + Send + Sync>;

/// Connects the current simulated process to the node with this name. The last argument is a callback for the end of
/// the connection.
pub(crate) type Connect =
    fn(String, Use, Box<dyn Fn() + Send + Sync>) -> BoxFuture<'static, Connected>;

type Connected = Result<Arc<dyn Connection>, Failure>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Requests,
    Notifications,
}

/// A simulated connection. Dropping it closes the connection.
pub(crate) trait Connection: Send + Sync {
    /// Sends a request, which may become part of a batch if `may_batch` is `true`. `on_answer` is called once, unless
    /// the process ends.
    fn ask(&self, request: &Arc<Request>, may_batch: bool, on_answer: OnAnswer);

    fn fetch_info(&self) -> BoxFuture<'_, Result<ServerInfo, Failure>>;

    /// Subscribes to a channel, until the owner of `alive` is dropped. `on_message` is called with each message.
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

/// Returns the function that connects simulated processes; `None` outside the simulation.
pub(crate) fn network() -> Option<Connect> {
    machine::current()?;
    CONNECT.get().copied()
}
