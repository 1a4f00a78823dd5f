//! The Node.js binding: it converts values, and hands results to the event loop. What a lock does is
//! in the `quorlock` crate, what JavaScript makes of it (promises, errors, signals) in `index.js`.

mod convert;
mod log;
mod mailbox;

use convert::{Failure, settle, value, values};
use mailbox::Deliver;
use napi::bindgen_prelude::{Either, Either5, Function, Object, Unknown};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi::{Error, Result, Status};
use napi_derive::napi;
use quorlock::{Dialect, Pending};
use std::ffi::OsString;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The outcome of an operation.
type Outcome = Either5<Lease, bool, Vec<String>, Failure, ()>;

/// Gets the results of all operations of its environment. Methods that begin one return its number.
#[napi]
pub struct Mailbox(Arc<mailbox::Mailbox<Outcome>>);

#[napi]
impl Mailbox {
    /// `deliver` is called with the numbers of operations that are done, and with their results.
    #[napi(constructor, catch_unwind)]
    pub fn new(deliver: Deliver<'_, Outcome>) -> Result<Self> {
        mailbox::Mailbox::new(&deliver).map(Self)
    }

    /// Makes a client.
    #[napi(catch_unwind)]
    pub fn open(&self, nodes: Unknown<'_>, options: Object<'_>) -> Result<Either<Client, Failure>> {
        let mut builder = quorlock::Client::builder();
        if let Some(nodes) = convert::given(nodes)? {
            builder = match convert::texts(nodes)? {
                Some(urls) => builder.nodes(urls),
                None => builder.option(Dialect::JavaScript, "nodes", &value(nodes)?),
            };
        }
        for (name, value) in values(options)? {
            builder = builder.option(Dialect::JavaScript, &name, &value);
        }
        let mailbox = Arc::downgrade(&self.0);
        Ok(settle(builder.build().map(|client| Client { client, mailbox })))
    }

    /// Cancels an operation, unless its result is delivered already.
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
    /// Acquires a lock.
    #[napi(catch_unwind)]
    pub fn acquire(&self, resources: Vec<String>, options: Option<Object<'_>>) -> Result<f64> {
        let mut lock = self.client.lock(resources);
        for (name, value) in options.map(values).transpose()?.unwrap_or_default() {
            lock = lock.option(Dialect::JavaScript, &name, &value);
        }
        let mailbox = Weak::clone(&self.mailbox);
        let lease = |lease| Either5::A(Lease { lease, mailbox });
        // Asynchronous functions share a thread, so who acquires is not known.
        begin(&self.mailbox, lock.acquire_as(None), |acquired| outcome(acquired, lease))
    }

    /// Whether somebody holds a lock.
    #[napi(catch_unwind)]
    pub fn locked(&self, resources: Vec<String>) -> Result<f64> {
        let locked = self.client.lock(resources).locked();
        begin(&self.mailbox, locked, |locked| outcome(locked, Either5::B))
    }

    /// The nodes' URLs, without passwords.
    #[napi(getter, catch_unwind)]
    pub fn addresses(&self) -> Vec<String> {
        self.client.addresses().map(str::to_owned).collect()
    }

    /// The diagnosis as text and as JSON.
    #[napi(catch_unwind)]
    pub fn doctor(&self) -> Result<f64> {
        let forms = |diagnosis: quorlock::Diagnosis| {
            Either5::C(vec![diagnosis.to_string(), diagnosis.to_json()])
        };
        begin(&self.mailbox, self.client.doctor(), move |diagnosis| outcome(diagnosis, forms))
    }

    /// The counts as JSON.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> String {
        self.client.stats().to_json()
    }

    /// The counts as metrics, as JSON.
    #[napi(catch_unwind)]
    pub fn metrics(&self) -> String {
        self.client.stats().metrics_to_json()
    }

    /// Closes the client.
    #[napi(catch_unwind)]
    pub fn close(&self) -> Result<f64> {
        begin(&self.mailbox, self.client.close(), Either5::E)
    }
}

/// The native part of `Lease`.
#[napi]
pub struct Lease {
    lease: quorlock::Lease,
    // Weak: results that wait in the mailbox are leases.
    mailbox: Weak<mailbox::Mailbox<Outcome>>,
}

#[napi]
impl Lease {
    /// What is locked.
    #[napi(getter, catch_unwind)]
    pub fn resources(&self) -> Vec<String> {
        self.lease.resources().to_vec()
    }

    /// The value of the key.
    #[napi(getter, catch_unwind)]
    pub fn token(&self) -> &str {
        self.lease.token()
    }

    /// The fencing token; below 2^53, so exact. A failure if there are several resources.
    #[napi(catch_unwind)]
    pub fn fence(&self) -> Either<f64, Failure> {
        settle(self.lease.only_fence().map(|fence| fence as f64))
    }

    /// The fencing tokens, in the order of the resources.
    #[napi(catch_unwind)]
    pub fn fences(&self) -> Vec<f64> {
        self.lease.fences().map(|(_, fence)| fence as f64).collect()
    }

    /// Whether the lock is held now.
    #[napi(getter, catch_unwind)]
    pub fn valid(&self) -> bool {
        self.lease.is_valid()
    }

    /// For how many more milliseconds.
    #[napi(getter, catch_unwind)]
    pub fn remaining(&self) -> f64 {
        self.lease.remaining().as_secs_f64() * 1e3
    }

    /// Why the lease is over; undefined while it is valid.
    #[napi(catch_unwind)]
    pub fn check(&self) -> Option<Failure> {
        self.lease.check().err().map(Failure::from)
    }

    /// Why the lease was lost, if it was.
    #[napi(catch_unwind)]
    pub fn loss(&self) -> Option<Failure> {
        self.lease.loss().map(Failure::from)
    }

    /// Calls back when the lease is lost. That alone does not keep the process from exiting.
    #[napi(catch_unwind)]
    pub fn on_lost(&self, done: Function<'_, Failure, ()>) -> Result<()> {
        let done = done.build_threadsafe_function::<Failure>().weak::<true>().build()?;
        self.lease.on_lost(move |loss| {
            // An environment that was torn down meanwhile refuses the call.
            let _: Status = done.call(loss.into(), NonBlocking);
        });
        Ok(())
    }

    /// Extends it.
    #[napi(catch_unwind)]
    pub fn extend(&self, ttl: Unknown<'_>) -> Result<f64> {
        let ttl = convert::given(ttl)?.map(value).transpose()?;
        let extended = self.lease.extend_by(Dialect::JavaScript, ttl.as_ref());
        begin(&self.mailbox, extended, |extended| outcome(extended, Either5::E))
    }

    /// Gives it up without releasing it, for a lease that was garbage-collected. Returns whether it was valid.
    #[napi(catch_unwind)]
    pub fn abandon(&self) -> bool {
        self.lease.abandon()
    }

    /// Releases it.
    #[napi(catch_unwind)]
    pub fn release(&self) -> Result<f64> {
        begin(&self.mailbox, self.lease.release(), Either5::B)
    }
}

/// Has the result of an operation delivered; returns the operation's number.
fn begin<T: Send + 'static>(
    mailbox: &Weak<mailbox::Mailbox<Outcome>>,
    pending: Pending<T>,
    convert: impl FnOnce(T) -> Outcome + Send + 'static,
) -> Result<f64> {
    let mailbox = mailbox.upgrade().ok_or_else(|| Error::from_status(Status::Closing))?;
    Ok(mailbox.expect(pending, convert))
}

fn outcome<T>(result: quorlock::Result<T>, convert: impl FnOnce(T) -> Outcome) -> Outcome {
    result.map_or_else(|error| Either5::D(error.into()), convert)
}

/// For the end of the process: closes all clients, releases what is held, and waits for at most so many
/// milliseconds.
#[napi(catch_unwind)]
pub fn release_all(milliseconds: u32) {
    quorlock::release_all(Duration::from_millis(milliseconds.into()));
}

/// The command line with these arguments; returns the exit status.
#[napi(catch_unwind)]
pub fn command_line(given: Vec<String>) -> u32 {
    // What is no Unicode, Node.js has replaced. Where the system tells the arguments, they are the last ones.
    let told: Vec<_> = std::env::args_os().collect();
    let arguments = match told.len().checked_sub(given.len()) {
        Some(others) if others > 0 => told[others..].to_vec(),
        _ => given.into_iter().map(OsString::from).collect(),
    };
    let program = std::iter::once("quorlock".into());
    quorlock_cli::main(program.chain(arguments)).into()
}
