//! The user and the password for a new connection, and the time limit for an attempt to connect.
//!
//! This module calls the program's function for credentials, if there is one. The errors of this module
//! contain no secrets. `handshake.rs` and `node` call this module; `node` and `doctor` set the time limits.

use crate::config::endpoint::Target;
use crate::config::server::{Login, Server};
use crate::error::duration::HumanDuration;
use crate::runtime::panics;
use crate::runtime::timer::timeout;
use crate::wire::answer::{Failure, NAMED};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How error messages name the program's function for credentials.
const FUNCTION: &str = "the function in the option credentials";

tokio::task_local! {
    /// The number of unanswered calls of the program's function for which this attempt to connect waits.
    static UNANSWERED: Arc<AtomicUsize>;
}

/// Returns the user and the password; `None` if the node needs none.
pub(crate) async fn authentication(login: &Login) -> Result<Option<(String, String)>, Failure> {
    let Some((provider, address)) = &login.provider else {
        let given = login.credentials();
        return Ok(given.map(|(user, password)| (user.to_owned(), password.to_owned())));
    };
    // A connection for notifications reports no errors, so its attempt to connect has no counter.
    let unanswered = UNANSWERED.try_with(Arc::clone).unwrap_or_default();
    unanswered.fetch_add(1, Ordering::Relaxed);
    // `ask` is called within the async block, so that `contained` also catches a panic before `ask` returns its future.
    let answer = panics::contained(async { provider.ask(address).await }).await;
    unanswered.fetch_sub(1, Ordering::Relaxed);
    match answer {
        Some(Ok(given)) => {
            Ok(Some((given.user.unwrap_or_else(|| "default".to_owned()), given.password)))
        }
        Some(Err(reason)) => Err(Failure::unreachable(format!("{FUNCTION} failed: {reason}"))),
        None => Err(Failure::unreachable(format!("{FUNCTION} panicked"))),
    }
}

/// Returns the end of the error for a login that the server rejected. It says that the login came from the program's
/// function; it is empty if the login came from the URL.
pub(crate) fn rejected(login: &Login) -> String {
    let is_asked = login.provider.is_some();
    if is_asked { format!(": {FUNCTION} returned this login") } else { String::new() }
}

/// Adds the address of the server to a failure, unless the node's URL contains this address.
pub(crate) fn located(failure: Failure, server: &Server) -> Failure {
    if server.is_discovered { failure.at(&server.place) } else { failure }
}

/// Converts the failure to reach a server. Unless the node's URL contains the server's address, adds the address and
/// advice to the failure.
pub(crate) fn unreached(failure: Failure, server: &Server) -> Failure {
    let mut failure = located(failure, server);
    if server.is_discovered {
        failure.detail += NAMED;
    }
    failure
}

/// Runs an attempt to connect to a target. Fails if the attempt takes longer than `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    target: &Target,
    attempt: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let unanswered: Arc<AtomicUsize> = Arc::default();
    let attempt = UNANSWERED.scope(Arc::clone(&unanswered), attempt);
    timeout(limit, attempt).await.unwrap_or_else(|_| {
        Err(match unanswered.load(Ordering::Relaxed) {
            0 => {
                let failure = Failure::timeout(target.no_connection(), limit, false);
                match target {
                    Target::Server(server) => unreached(failure, server),
                    _ => failure,
                }
            }
            _ => {
                let limit = HumanDuration(limit);
                Failure::unreachable(format!("{FUNCTION} returned nothing within {limit}"))
            }
        })
    })
}
