//! Detaches a lease: the holder gives the lease up, and gets a text with which another client can adopt the lease.
//!
//! The lease ends for its holder before anyone sees the text, and no repair begins after this end. From then on, the
//! token can be on two kinds of nodes only: nodes that have the token already, and nodes to which a request for the
//! lease is still under way. The text names the nodes of the second kind, because these nodes must not vote on the
//! adoption. `lease.rs` and `election.rs` call [`detach`].

use crate::error::Result;
use crate::lock::claim::extend::extend;
use crate::lock::claim::held::HeldLease;
use crate::runtime::fork::Owned;
use quorlock_protocol::Term;
use std::fmt;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A lease that its holder has given up, so that another client can adopt it: see
/// [`Lease::detach`](crate::Lease::detach).
///
/// Dropping this value without taking the text releases the lock, because nobody could adopt the lease.
/// [`release_all`](crate::release_all) also releases the lock if the text was not taken and the [`Lease`](crate::Lease)
/// still exists.
#[must_use = "dropping it releases the lock; `into_text` returns the text for the adopter"]
pub struct Detached {
    text: String,
    held: Owned<Arc<HeldLease>>,
}

impl Detached {
    /// Returns the text to pass to [`Client::adopt`](crate::Client::adopt): ASCII letters, digits, `-` and `:`. The
    /// text is a secret: anyone who has the text, and access to the nodes, can adopt the lease.
    pub fn into_text(mut self) -> String {
        if let Some(held) = self.held.get() {
            held.take_text();
        }
        std::mem::take(&mut self.text)
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(held) = self.held.get() {
            held.release_untaken();
        }
    }
}

impl fmt::Debug for Detached {
    /// Omits the text, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").finish_non_exhaustive()
    }
}

/// Detaches the lease: extends it to the ttl of `term`, and takes it from its holder. If the extension fails, or this
/// future is dropped before that, the holder keeps the lease.
pub(crate) async fn detach(held: Arc<HeldLease>, term: Term) -> Result<Detached> {
    let (sender, extended) = oneshot::channel();
    held.driver.detach(extend(Arc::clone(&held), term, sender));
    extended.await.expect("the extension sends a result, unless it panics")?;
    // Give the nodes time to answer: a node that has not answered a request for the lease must not vote on the adoption.
    held.wait_a_moment_until(|state| state.claim.silent().is_empty()).await;
    let text = held.detach(term.ttl)?;
    Ok(Detached { text, held: Owned::new(held) })
}
