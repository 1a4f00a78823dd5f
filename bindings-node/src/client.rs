//! The native parts of `Client`, and of the mailbox that creates it.
//!
//! This module starts the operations of a client. It must not convert their results, which `outcome` does. Called by
//! `index.js` and `operations.js`.

use crate::convert::{Failure, settle, value, values};
use crate::credentials;
use crate::election::Watch;
use crate::mailbox::Deliver;
use crate::outcome::{self, Outcome, begin};
use crate::scope::{NO_OWNER, block};
use crate::semaphore::Semaphore;
use napi::Result;
use napi::bindgen_prelude::{Either, Function, Object, Unknown};
use napi_derive::napi;
use quorlock::Dialect;
use std::sync::{Arc, Weak};

/// Collects the results of all operations of one environment: the main thread, or a worker thread. A method
/// that starts an operation returns its number, which identifies the operation.
#[napi]
pub struct Mailbox(Arc<outcome::Mailbox>);

#[napi]
impl Mailbox {
    /// `deliver` is called on the event loop with two arrays: the numbers that identify the finished
    /// operations, and their results.
    #[napi(constructor, catch_unwind)]
    pub fn new(deliver: Deliver<'_, Outcome>) -> Result<Self> {
        outcome::Mailbox::new(&deliver).map(Self)
    }

    /// Creates a client. Returns a failure if the nodes or the options are invalid. `ask` is called on the event
    /// loop with each request for credentials.
    #[napi(catch_unwind)]
    pub fn open(
        &self,
        nodes: Unknown<'_>,
        options: Object<'_>,
        ask: Option<Function<'_, credentials::Request, ()>>,
    ) -> Result<Either<Client, Failure>> {
        let nodes = value(nodes)?;
        let builder = quorlock::Client::builder().option(Dialect::JavaScript, "nodes", &nodes);
        let mut builder = builder.options(Dialect::JavaScript, values(Some(options))?);
        if let Some(ask) = ask {
            builder = builder.credentials_by_request(credentials::provider(&ask)?);
        }
        let mailbox = Arc::downgrade(&self.0);
        Ok(settle(builder.build().map(|client| Client { client, mailbox })))
    }

    /// Cancels an operation. Does nothing if its result was already delivered.
    #[napi(catch_unwind)]
    pub fn cancel(&self, operation: f64) {
        self.0.cancel(operation);
    }
}

/// The native part of `Client`.
#[napi]
pub struct Client {
    client: quorlock::Client,
    mailbox: Weak<outcome::Mailbox>,
}

#[napi]
impl Client {
    /// Starts an acquire. `blocks` are the numbers of the blocks that the caller is in: see `Lease::enter_block`. The
    /// result is a lease.
    #[napi(catch_unwind)]
    pub fn acquire(
        &self,
        resources: Vec<String>,
        options: Option<Object<'_>>,
        blocks: Vec<f64>,
    ) -> Result<f64> {
        let blocks = blocks.into_iter().filter_map(block).collect();
        let lock = self.lock_of(resources, options)?.within(blocks);
        begin(&self.mailbox, lock.acquire_as(NO_OWNER))
    }

    /// Starts a single attempt to acquire. The result is a lease, or `null` if others hold the lock.
    #[napi(catch_unwind)]
    pub fn try_acquire(&self, resources: Vec<String>, options: Option<Object<'_>>) -> Result<f64> {
        let lock = self.lock_of(resources, options)?;
        begin(&self.mailbox, lock.try_acquire_as(NO_OWNER))
    }

    /// Starts to adopt a detached lease. The result is a lease.
    #[napi(catch_unwind)]
    pub fn adopt(&self, text: String, options: Option<Object<'_>>) -> Result<f64> {
        let adoption = self.client.adopt(&text).options(Dialect::JavaScript, values(options)?);
        begin(&self.mailbox, adoption.acquire_as(NO_OWNER))
    }

    /// Starts a candidacy for the leader of a resource. `blocks` are as in `acquire`. The result is a lease.
    #[napi(catch_unwind)]
    pub fn elect(
        &self,
        resource: String,
        options: Option<Object<'_>>,
        blocks: Vec<f64>,
    ) -> Result<f64> {
        let blocks = blocks.into_iter().filter_map(block).collect();
        let election = self.client.elect(resource).options(Dialect::JavaScript, values(options)?);
        begin(&self.mailbox, election.within(blocks).next_as())
    }

    /// Returns an observer of the leader of a resource, or a failure if the resource is invalid.
    #[napi(catch_unwind)]
    pub fn watch(&self, resource: String) -> Either<Watch, Failure> {
        let mailbox = Weak::clone(&self.mailbox);
        settle(self.client.watch(resource).checked().map(|watch| Watch { watch, mailbox }))
    }

    /// Returns a semaphore, or a failure if the resource or an option is invalid.
    #[napi(catch_unwind)]
    pub fn semaphore(
        &self,
        resource: String,
        limit: Unknown<'_>,
        options: Object<'_>,
    ) -> Result<Either<Semaphore, Failure>> {
        let limit = value(limit)?;
        let semaphore = self.client.semaphore_as(Dialect::JavaScript, resource, &limit);
        let semaphore = semaphore.options(Dialect::JavaScript, values(Some(options))?);
        let mailbox = Weak::clone(&self.mailbox);
        Ok(settle(semaphore.checked().map(|semaphore| Semaphore { semaphore, mailbox })))
    }

    /// Starts a check whether any of the resources is locked. The result is a boolean.
    #[napi(catch_unwind)]
    pub fn locked(&self, resources: Vec<String>, options: Option<Object<'_>>) -> Result<f64> {
        begin(&self.mailbox, self.lock_of(resources, options)?.locked())
    }

    /// The nodes' URLs, without passwords.
    #[napi(getter, catch_unwind)]
    pub fn addresses(&self) -> Vec<String> {
        self.client.addresses().map(str::to_owned).collect()
    }

    /// Starts a diagnosis of all nodes. The result is an array of two strings: text and JSON.
    #[napi(catch_unwind)]
    pub fn doctor(&self) -> Result<f64> {
        begin(&self.mailbox, self.client.doctor())
    }

    /// Starts a query of the status of a resource. The result is JSON.
    #[napi(catch_unwind)]
    pub fn status(&self, resource: String) -> Result<f64> {
        begin(&self.mailbox, self.client.status(resource))
    }

    /// Starts a release on behalf of the holder. The result is the outcome at each node.
    #[napi(catch_unwind)]
    pub fn force_release(&self, resource: String) -> Result<f64> {
        begin(&self.mailbox, self.client.force_release_holder(resource))
    }

    /// Returns the client's statistics as JSON.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> String {
        self.client.stats().to_json()
    }

    /// Returns the client's statistics as a list of metrics, as JSON.
    #[napi(catch_unwind)]
    pub fn metrics(&self) -> String {
        self.client.stats().metrics_to_json()
    }

    /// Whether the client is closed.
    #[napi(getter, catch_unwind)]
    pub fn closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Starts closing the client. The result is `undefined`.
    #[napi(catch_unwind)]
    pub fn close(&self) -> Result<f64> {
        begin(&self.mailbox, self.client.close())
    }
}

impl Client {
    fn lock_of(
        &self,
        resources: Vec<String>,
        options: Option<Object<'_>>,
    ) -> Result<quorlock::Lock> {
        Ok(self.client.lock(resources).options(Dialect::JavaScript, values(options)?))
    }
}
