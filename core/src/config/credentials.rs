//! Credentials that a function of the program returns, such as tokens that expire. `client` receives the function,
//! `endpoint.rs` stores it with each node, and `transport/login.rs` calls it. No error or log text may contain a
//! credential.

use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A user and a password for a connection. The `Debug` text shows neither of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user; `None` for the server's default user.
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Credentials {
    /// Creates the credentials of this user.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// Creates the credentials of the server's default user.
    pub fn of_default_user(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// A request for credentials that a language binding may answer later, from any thread. If the request is dropped
/// without an answer, the attempt to connect fails.
#[derive(Debug)]
pub struct CredentialsRequest {
    address: String,
    answer: oneshot::Sender<Result<Credentials, String>>,
}

impl CredentialsRequest {
    /// Returns the address of the node that the credentials are for.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether the attempt to connect still waits for the answer.
    pub fn is_needed(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Answers with credentials, or with the reason why there are none.
    pub fn answer(self, answer: Result<Credentials, String>) {
        // Sending fails if the attempt to connect has ended.
        let _ = self.answer.send(answer);
    }
}

/// A function that takes the address of a node. It returns credentials for a connection to that node, or the reason why
/// there are none.
type Ask = dyn Fn(&str) -> BoxFuture<'static, Result<Credentials, String>> + Send + Sync;

/// The function that the option `credentials` sets.
#[derive(Clone)]
pub(crate) struct Provider(Arc<Ask>);

impl Provider {
    pub(crate) fn new<F>(ask: impl Fn(&str) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, String>> + Send + 'static,
    {
        Self(Arc::new(move |address| Box::pin(ask(address))))
    }

    /// Creates a provider from a function that takes a request, and that may answer the request later.
    pub(crate) fn by_request(ask: impl Fn(CredentialsRequest) + Send + Sync + 'static) -> Self {
        Self::new(move |address| {
            let (answer, answered) = oneshot::channel();
            ask(CredentialsRequest { address: address.to_owned(), answer });
            async move { answered.await.unwrap_or_else(|_| Err("it gave no answer".to_owned())) }
        })
    }

    /// Calls the function with the address of a node. Both the call and polling the returned future may panic.
    pub(crate) fn ask(&self, address: &str) -> BoxFuture<'static, Result<Credentials, String>> {
        (self.0)(address)
    }
}
