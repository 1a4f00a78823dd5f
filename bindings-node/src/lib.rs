//! The Node.js binding: converts values, starts operations of the core, and delivers their results to the
//! event loop.
//!
//! It holds no lock logic: that is in the `quorlock` crate. Promises, errors and signals are made in
//! `index.js`, which is the only caller, except that `testing.js` calls `testing.rs`. No function here may
//! block the event loop, except `release_all`, `command_line` and those of `testing.rs`.

mod convert;
mod credentials;
mod log;
mod mailbox;
pub mod testing;

use convert::{Failure, NodeReport, settle, value, values};
use mailbox::Deliver;
use napi::bindgen_prelude::{Either, Either8, Function, Null, Object, Unknown};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi::{Error, Result, Status};
use napi_derive::napi;
use quorlock::{Dialect, Owner, Pending};
use std::ffi::OsString;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// All asynchronous functions run on one thread, so the caller cannot be identified, unless it is in a block.
const NO_OWNER: Option<Owner> = None;

/// Returns the owner that stands for the block of this number.
fn owner(block: f64) -> Owner {
    Owner::Foreign(block as u64)
}

/// The outcome of an operation.
type Outcome = Either8<Lease, bool, Vec<String>, Failure, (), Null, Vec<NodeReport>, Detached>;

/// Collects the results of all operations of one environment: the main thread, or a worker thread. A method
/// that starts an operation returns its number, which identifies the operation.
#[napi]
pub struct Mailbox(Arc<mailbox::Mailbox<Outcome>>);

#[napi]
impl Mailbox {
    /// `deliver` is called on the event loop with two arrays: the numbers that identify the finished
    /// operations, and their results.
    #[napi(constructor, catch_unwind)]
    pub fn new(deliver: Deliver<'_, Outcome>) -> Result<Self> {
        mailbox::Mailbox::new(&deliver).map(Self)
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
    mailbox: Weak<mailbox::Mailbox<Outcome>>,
}

#[napi]
impl Client {
    /// Starts an acquire. `block` is the number of the block that the caller is in: see [`Lease::enter_block`]. The
    /// result is a lease.
    #[napi(catch_unwind)]
    pub fn acquire(
        &self,
        resources: Vec<String>,
        options: Option<Object<'_>>,
        block: Option<f64>,
    ) -> Result<f64> {
        let acquired = self.lock_of(resources, options)?.acquire_as(block.map(owner));
        let mailbox = Weak::clone(&self.mailbox);
        let lease = |lease| Either8::A(Lease { lease, mailbox });
        begin(&self.mailbox, acquired, |acquired| outcome(acquired, lease))
    }

    /// Starts a single attempt to acquire. The result is a lease, or `null` if others hold the lock.
    #[napi(catch_unwind)]
    pub fn try_acquire(&self, resources: Vec<String>, options: Option<Object<'_>>) -> Result<f64> {
        let tried = self.lock_of(resources, options)?.try_acquire_as(NO_OWNER);
        let mailbox = Weak::clone(&self.mailbox);
        let lease = |lease: Option<_>| match lease {
            Some(lease) => Either8::A(Lease { lease, mailbox }),
            None => Either8::F(Null),
        };
        begin(&self.mailbox, tried, |tried| outcome(tried, lease))
    }

    /// Starts to adopt a detached lease. The result is a lease.
    #[napi(catch_unwind)]
    pub fn adopt(&self, text: String, options: Option<Object<'_>>) -> Result<f64> {
        let adoption = self.client.adopt(&text).options(Dialect::JavaScript, values(options)?);
        let mailbox = Weak::clone(&self.mailbox);
        let lease = |lease| Either8::A(Lease { lease, mailbox });
        begin(&self.mailbox, adoption.acquire_as(NO_OWNER), |adopted| outcome(adopted, lease))
    }

    /// Starts a candidacy for the leader of a resource. The result is a lease.
    #[napi(catch_unwind)]
    pub fn elect(&self, resource: String, options: Option<Object<'_>>) -> Result<f64> {
        let election = self.client.elect(resource).options(Dialect::JavaScript, values(options)?);
        let mailbox = Weak::clone(&self.mailbox);
        let lease = |lease| Either8::A(Lease { lease, mailbox });
        begin(&self.mailbox, election.next_as(), |elected| outcome(elected, lease))
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
        let locked = self.lock_of(resources, options)?.locked();
        begin(&self.mailbox, locked, |locked| outcome(locked, Either8::B))
    }

    /// The nodes' URLs, without passwords.
    #[napi(getter, catch_unwind)]
    pub fn addresses(&self) -> Vec<String> {
        self.client.addresses().map(str::to_owned).collect()
    }

    /// Starts a diagnosis of all nodes. The result is an array of two strings: text and JSON.
    #[napi(catch_unwind)]
    pub fn doctor(&self) -> Result<f64> {
        let forms = |diagnosis: quorlock::Diagnosis| {
            Either8::C(vec![diagnosis.to_string(), diagnosis.to_json()])
        };
        begin(&self.mailbox, self.client.doctor(), move |diagnosis| outcome(diagnosis, forms))
    }

    /// Starts a query of the status of a resource. The result is an array of one string: JSON.
    #[napi(catch_unwind)]
    pub fn status(&self, resource: String) -> Result<f64> {
        let json = |status: quorlock::Status| Either8::C(vec![status.to_json()]);
        begin(&self.mailbox, self.client.status(resource), move |status| outcome(status, json))
    }

    /// Starts a release on behalf of the holder. The result is the outcome at each node.
    #[napi(catch_unwind)]
    pub fn force_release(&self, resource: String) -> Result<f64> {
        let reports = |nodes: Vec<_>| Either8::G(nodes.iter().map(NodeReport::from).collect());
        let released = self.client.force_release_holder(resource);
        begin(&self.mailbox, released, move |released| outcome(released, reports))
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
        begin(&self.mailbox, self.client.close(), Either8::E)
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

/// The native part of `Semaphore`.
#[napi]
pub struct Semaphore {
    semaphore: quorlock::Semaphore,
    mailbox: Weak<mailbox::Mailbox<Outcome>>,
}

#[napi]
impl Semaphore {
    #[napi(getter, catch_unwind)]
    pub fn resource(&self) -> &str {
        self.semaphore.resource()
    }

    #[napi(getter, catch_unwind)]
    pub fn limit(&self) -> u32 {
        self.semaphore.limit()
    }

    #[napi(getter, catch_unwind)]
    pub fn permits(&self) -> u32 {
        self.semaphore.permits_wanted()
    }

    /// Starts an acquire. The options override those of the semaphore. The result is a lease.
    #[napi(catch_unwind)]
    pub fn acquire(&self, options: Option<Object<'_>>) -> Result<f64> {
        let semaphore = self.semaphore.clone().options(Dialect::JavaScript, values(options)?);
        let mailbox = Weak::clone(&self.mailbox);
        let lease = |lease| Either8::A(Lease { lease, mailbox });
        begin(&self.mailbox, semaphore.acquire_as(NO_OWNER), |acquired| outcome(acquired, lease))
    }

    /// Starts a single attempt to acquire. The result is a lease, or `null` if too few permits are free.
    #[napi(catch_unwind)]
    pub fn try_acquire(&self) -> Result<f64> {
        let mailbox = Weak::clone(&self.mailbox);
        let lease = |lease: Option<_>| match lease {
            Some(lease) => Either8::A(Lease { lease, mailbox }),
            None => Either8::F(Null),
        };
        let tried = self.semaphore.try_acquire_as(NO_OWNER);
        begin(&self.mailbox, tried, |tried| outcome(tried, lease))
    }

    /// Starts a query of the status. The result is an array of one string: JSON.
    #[napi(catch_unwind)]
    pub fn status(&self) -> Result<f64> {
        let json = |status: quorlock::SemaphoreStatus| Either8::C(vec![status.to_json()]);
        begin(&self.mailbox, self.semaphore.status(), move |status| outcome(status, json))
    }
}

/// An observer of the leader of a resource.
#[napi]
pub struct Watch {
    watch: quorlock::Watch,
    mailbox: Weak<mailbox::Mailbox<Outcome>>,
}

#[napi]
impl Watch {
    /// Starts to wait for a leader with a larger fence. The result is an array of two strings: its name and its fence.
    #[napi(catch_unwind)]
    pub fn after(&self, fence: f64) -> Result<f64> {
        let leader =
            |leader: quorlock::Leader| Either8::C(vec![leader.holder, leader.fence.to_string()]);
        // Fences are below 2^53, so the conversion is exact.
        begin(&self.mailbox, self.watch.after(fence as u64), move |found| outcome(found, leader))
    }
}

/// The native part of `Lease`.
#[napi]
pub struct Lease {
    lease: quorlock::Lease,
    // Weak, to avoid a reference cycle: undelivered results in the mailbox may be leases.
    mailbox: Weak<mailbox::Mailbox<Outcome>>,
}

#[napi]
impl Lease {
    /// The locked resources, in the order given.
    #[napi(getter, catch_unwind)]
    pub fn resources(&self) -> Vec<String> {
        self.lease.resources().to_vec()
    }

    /// The ttl in milliseconds with which the lease was acquired.
    #[napi(getter, catch_unwind)]
    pub fn ttl(&self) -> f64 {
        self.lease.ttl().as_secs_f64() * 1e3
    }

    /// The value of the key on the nodes.
    #[napi(getter, catch_unwind)]
    pub fn token(&self) -> &str {
        self.lease.token()
    }

    /// The name that others see; empty if there is none.
    #[napi(getter, catch_unwind)]
    pub fn holder(&self) -> &str {
        self.lease.holder()
    }

    /// Returns the fencing token: below 2^53, so the conversion is exact. Returns a failure if the lease has
    /// several resources.
    #[napi(catch_unwind)]
    pub fn fence(&self) -> Either<f64, Failure> {
        settle(self.lease.only_fence().map(|fence| fence as f64))
    }

    /// Returns the fencing tokens, in the order of the resources.
    #[napi(catch_unwind)]
    pub fn fences(&self) -> Vec<f64> {
        self.lease.fences().map(|(_, fence)| fence as f64).collect()
    }

    /// The numbers of the permits of a semaphore, in ascending order.
    #[napi(getter, catch_unwind)]
    pub fn slots(&self) -> Vec<u32> {
        self.lease.slots()
    }

    /// Returns the only slot, or a failure if there are several or none.
    #[napi(catch_unwind)]
    pub fn slot(&self) -> Either<u32, Failure> {
        settle(self.lease.only_slot())
    }

    /// The mode of the resources; `null` if it is not the same for all of them.
    #[napi(getter, catch_unwind)]
    pub fn mode(&self) -> Either<&'static str, Null> {
        self.lease.mode().map_or(Either::B(Null), |mode| Either::A(mode.as_str()))
    }

    /// Returns the modes, in the order of the resources.
    #[napi(catch_unwind)]
    pub fn modes(&self) -> Vec<&'static str> {
        self.lease.modes().map(|(_, mode)| mode.as_str()).collect()
    }

    /// Whether the lock is held now, by the local clock.
    #[napi(getter, catch_unwind)]
    pub fn valid(&self) -> bool {
        self.lease.is_valid()
    }

    /// The time in milliseconds for which the lease stays valid without another extension; 0 once
    /// it has ended.
    #[napi(getter, catch_unwind)]
    pub fn remaining(&self) -> f64 {
        self.lease.remaining().as_secs_f64() * 1e3
    }

    /// Returns why the lease has ended, or `undefined` while it is valid.
    #[napi(catch_unwind)]
    pub fn check(&self) -> Option<Failure> {
        self.lease.check().err().map(Failure::from)
    }

    /// Returns why the lease was lost, or `undefined` if it was not lost.
    #[napi(catch_unwind)]
    pub fn loss(&self) -> Option<Failure> {
        self.lease.loss().map(Failure::from)
    }

    /// Calls `done` on the event loop when the lease is lost. Does not keep the process alive.
    #[napi(catch_unwind)]
    pub fn on_lost(&self, done: Function<'_, Failure, ()>) -> Result<()> {
        let done = done.build_threadsafe_function::<Failure>().weak::<true>().build()?;
        self.lease.on_lost(move |loss| {
            // The call fails if the environment has been torn down. Nothing needs to be done then.
            let _: Status = done.call(loss.into(), NonBlocking);
        });
        Ok(())
    }

    /// Starts an extension to `ttl` ms from now. If `ttl` is `undefined`, uses the ttl of the acquire.
    #[napi(catch_unwind)]
    pub fn extend(&self, ttl: Unknown<'_>) -> Result<f64> {
        let ttl = convert::given(ttl)?.map(value).transpose()?;
        let extended = self.lease.extend_by(Dialect::JavaScript, ttl.as_ref());
        begin(&self.mailbox, extended, |extended| outcome(extended, Either8::E))
    }

    /// Marks the lease as one that the block of this number releases at its end. If the lease is shared, an acquire in
    /// the block that would wait for it fails instead.
    #[napi(catch_unwind)]
    pub fn enter_block(&self, block: f64) {
        self.lease.enter_block(Some(owner(block)));
    }

    /// Starts to make the lease shared. The result is `undefined`.
    #[napi(catch_unwind)]
    pub fn downgrade(&self) -> Result<f64> {
        begin(&self.mailbox, self.lease.downgrade(), |downgraded| outcome(downgraded, Either8::E))
    }

    /// Starts to upgrade the lease. The result is a lease, or `null` if others read a resource.
    #[napi(catch_unwind)]
    pub fn try_upgrade(&self) -> Result<f64> {
        let mailbox = Weak::clone(&self.mailbox);
        let lease = |lease: Option<_>| match lease {
            Some(lease) => Either8::A(Lease { lease, mailbox }),
            None => Either8::F(Null),
        };
        begin(&self.mailbox, self.lease.try_upgrade(), |upgraded| outcome(upgraded, lease))
    }

    /// Starts to detach the lease, for an adopter within so many ms; `undefined` for the default. The result is a
    /// [`Detached`].
    #[napi(catch_unwind)]
    pub fn detach(&self, within: Unknown<'_>) -> Result<f64> {
        let within = convert::given(within)?.map(value).transpose()?;
        let detached = self.lease.detach_by(Dialect::JavaScript, within.as_ref());
        let delivered = |detached| Either8::H(Detached(Some(detached)));
        begin(&self.mailbox, detached, move |detached| outcome(detached, delivered))
    }

    /// Starts to hand the lease over to a candidate of this name within so many ms; `undefined` for the default. The
    /// result is whether that is the leader.
    #[napi(catch_unwind)]
    pub fn hand_over(&self, successor: Unknown<'_>, within: Unknown<'_>) -> Result<f64> {
        let within = convert::given(within)?.map(value).transpose()?;
        let successor = value(successor)?;
        let handing = self.lease.hand_over_by(Dialect::JavaScript, &successor, within.as_ref());
        begin(&self.mailbox, handing, |taken| outcome(taken, Either8::B))
    }

    /// Stops renewing a lease that was garbage-collected, without releasing it. Returns whether it was valid.
    #[napi(catch_unwind)]
    pub fn abandon(&self) -> bool {
        self.lease.abandon()
    }

    /// Starts the release. `keep` overrides the option of the lock, unless it is `undefined`. The result is whether
    /// the lease was valid and a majority confirmed the release.
    #[napi(catch_unwind)]
    pub fn release(&self, keep: Unknown<'_>) -> Result<Either<f64, Failure>> {
        let keep = convert::given(keep)?.map(value).transpose()?;
        match self.lease.release_by(Dialect::JavaScript, keep.as_ref()) {
            Ok(released) => begin(&self.mailbox, released, Either8::B).map(Either::A),
            Err(error) => Ok(Either::B(error.into())),
        }
    }
}

/// A lease that was detached. If its environment ends before the text was taken, the lock is released.
#[napi]
pub struct Detached(Option<quorlock::Detached>);

#[napi]
impl Detached {
    /// Returns the text, the first time.
    #[napi(catch_unwind)]
    pub fn take(&mut self) -> Option<String> {
        self.0.take().map(quorlock::Detached::into_text)
    }
}

/// Registers an operation with the mailbox, which will deliver its result. Returns the operation's number.
/// Fails if the environment is being torn down.
fn begin<T: Send + 'static>(
    mailbox: &Weak<mailbox::Mailbox<Outcome>>,
    pending: Pending<T>,
    convert: impl FnOnce(T) -> Outcome + Send + 'static,
) -> Result<f64> {
    let mailbox = mailbox.upgrade().ok_or_else(|| Error::from_status(Status::Closing))?;
    Ok(mailbox.expect(pending, convert))
}

fn outcome<T>(result: quorlock::Result<T>, convert: impl FnOnce(T) -> Outcome) -> Outcome {
    result.map_or_else(|error| Either8::D(error.into()), convert)
}

/// Returns the value as error messages show it. Strings are not shown, because they may be secrets.
#[napi(catch_unwind)]
pub fn shown(given: Unknown<'_>) -> Result<String> {
    Ok(value(given)?.shown(Dialect::JavaScript))
}

/// Returns the resource as messages show it: a long name is cut.
#[napi(catch_unwind)]
pub fn shortened(resource: String) -> String {
    quorlock::shortened(&resource).into_owned()
}

/// Returns the error about a resource that is not a string. `position` is its position if it is in an array.
/// `accepted` says which types the argument may have.
#[napi(catch_unwind)]
pub fn wrong_resource(
    position: Option<u32>,
    accepted: String,
    given: Unknown<'_>,
) -> Result<Failure> {
    let position = position.map(|position| position as usize);
    Ok(quorlock::wrong_resource(Dialect::JavaScript, position, &accepted, &convert::item(given)?)
        .into())
}

/// Returns a warning if the ttl was probably meant in seconds, but only once in each process.
#[napi(catch_unwind)]
pub fn unit_warning(ttl: Unknown<'_>) -> Result<Option<String>> {
    Ok(quorlock::unit_warning(Dialect::JavaScript, &value(ttl)?))
}

/// Makes the operations that this thread starts send their requests together, at the next call of `uncork`.
#[napi(catch_unwind)]
pub fn cork() {
    quorlock::cork();
}

/// Sends the requests that wait because of `cork`.
#[napi(catch_unwind)]
pub fn uncork() {
    quorlock::uncork();
}

/// Closes all clients and releases all leases, for the exit of the process. Blocks for at most `milliseconds`.
#[napi(catch_unwind)]
pub fn release_all(milliseconds: u32) {
    quorlock::release_all(Duration::from_millis(milliseconds.into()));
}

/// Runs the `quorlock` command line with these arguments, and returns its exit status. Blocks until it ends.
#[napi(catch_unwind)]
pub fn command_line(given: Vec<String>) -> u32 {
    // In `given`, Node.js has replaced bytes that are not Unicode. So read the original arguments of the
    // process where the system provides them. The last of these are the arguments of the command.
    let original: Vec<_> = std::env::args_os().collect();
    let arguments = match original.len().checked_sub(given.len()) {
        Some(others) if others > 0 => original[others..].to_vec(),
        _ => given.into_iter().map(OsString::from).collect(),
    };
    let program = std::iter::once("quorlock".into());
    quorlock_cli::main(program.chain(arguments)).into()
}
