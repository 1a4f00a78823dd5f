//! The Node.js binding: it converts values, and hands results to the event loop. What a lock does is
//! in the `quorlock` crate, what JavaScript makes of it (promises, errors, signals) in `index.js`.

mod convert;

use convert::{Failure, settle, value, values};
use napi::bindgen_prelude::{Either, Function, Object, ToNapiValue, Unknown};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi::{Result, Status};
use napi_derive::napi;
use quorlock::{Dialect, Pending};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Called with the result, or with the failure.
type Callback<'a, T> = Function<'a, Option<Either<T, Failure>>, ()>;

/// The native part of `Client`.
#[napi]
pub struct Client(quorlock::Client);

/// Makes a client.
#[napi(catch_unwind)]
pub fn open(nodes: Unknown<'_>, options: Object<'_>) -> Result<Either<Client, Failure>> {
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
    Ok(settle(builder.build().map(Client)))
}

#[napi]
impl Client {
    /// A lock, with its options checked.
    #[napi(catch_unwind)]
    pub fn lock(
        &self,
        resources: Vec<String>,
        options: Object<'_>,
    ) -> Result<Either<Lock, Failure>> {
        let mut lock = self.0.lock(resources);
        for (name, value) in values(options)? {
            lock = lock.option(Dialect::JavaScript, &name, &value);
        }
        Ok(settle(lock.checked().map(Lock)))
    }

    /// The nodes' URLs, without passwords.
    #[napi(getter, catch_unwind)]
    pub fn addresses(&self) -> Vec<String> {
        self.0.addresses().map(str::to_owned).collect()
    }

    /// The diagnosis as text and as JSON.
    #[napi(catch_unwind)]
    pub fn doctor(&self, done: Callback<'_, Vec<String>>) -> Result<Operation> {
        let forms = |diagnosis: quorlock::Result<quorlock::Diagnosis>| {
            settle(diagnosis.map(|diagnosis| vec![diagnosis.to_string(), diagnosis.to_json()]))
        };
        complete(self.0.doctor(), forms, done)
    }

    /// The counts as JSON.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> String {
        self.0.stats().to_json()
    }

    /// Closes the client.
    #[napi(catch_unwind)]
    pub fn close(&self, done: Callback<'_, ()>) -> Result<Operation> {
        complete(self.0.close(), Either::A, done)
    }
}

/// A lock.
#[napi]
pub struct Lock(quorlock::Lock);

#[napi]
impl Lock {
    /// Acquires it.
    #[napi(catch_unwind)]
    pub fn acquire(&self, done: Callback<'_, Lease>) -> Result<Operation> {
        complete(self.0.acquire(), |acquired| settle(acquired.map(Lease)), done)
    }

    /// Whether somebody holds it.
    #[napi(catch_unwind)]
    pub fn locked(&self, done: Callback<'_, bool>) -> Result<Operation> {
        complete(self.0.locked(), settle, done)
    }
}

/// The native part of `Lease`.
#[napi]
pub struct Lease(quorlock::Lease);

#[napi]
impl Lease {
    /// What is locked.
    #[napi(getter, catch_unwind)]
    pub fn resources(&self) -> Vec<String> {
        self.0.resources().to_vec()
    }

    /// The value of the key.
    #[napi(getter, catch_unwind)]
    pub fn token(&self) -> &str {
        self.0.token()
    }

    /// The fencing token; below 2^53, so exact. A failure if there are several resources.
    #[napi(catch_unwind)]
    pub fn fence(&self) -> Either<f64, Failure> {
        settle(self.0.only_fence().map(|fence| fence as f64))
    }

    /// The fencing tokens, in the order of the resources.
    #[napi(catch_unwind)]
    pub fn fences(&self) -> Vec<f64> {
        self.0.fences().map(|(_, fence)| fence as f64).collect()
    }

    /// Whether the lock is held now.
    #[napi(getter, catch_unwind)]
    pub fn valid(&self) -> bool {
        self.0.is_valid()
    }

    /// For how many more milliseconds.
    #[napi(getter, catch_unwind)]
    pub fn remaining(&self) -> f64 {
        self.0.remaining().as_secs_f64() * 1e3
    }

    /// Why the lease is over; undefined while it is valid.
    #[napi(catch_unwind)]
    pub fn check(&self) -> Option<Failure> {
        self.0.check().err().map(Failure::from)
    }

    /// Why the lease was lost, if it was.
    #[napi(catch_unwind)]
    pub fn loss(&self) -> Option<Failure> {
        self.0.loss().map(Failure::from)
    }

    /// Calls back when the lease is lost. That alone does not keep the process from exiting.
    #[napi(catch_unwind)]
    pub fn on_lost(&self, done: Function<'_, Failure, ()>) -> Result<()> {
        let done = done.build_threadsafe_function::<Failure>().weak::<true>().build()?;
        self.0.on_lost(move |loss| {
            // An environment that was torn down meanwhile refuses the call.
            let _: Status = done.call(loss.into(), NonBlocking);
        });
        Ok(())
    }

    /// Extends it.
    #[napi(catch_unwind)]
    pub fn extend(&self, ttl: Unknown<'_>, done: Callback<'_, ()>) -> Result<Operation> {
        let ttl = convert::given(ttl)?.map(value).transpose()?;
        complete(self.0.extend_by(Dialect::JavaScript, ttl.as_ref()), settle, done)
    }

    /// Releases it.
    #[napi(catch_unwind)]
    pub fn release(&self, done: Callback<'_, bool>) -> Result<Operation> {
        complete(self.0.release(), Either::A, done)
    }
}

/// An operation under way, and its result until JavaScript gets it. When nothing refers to it any
/// more, and when its worker thread is terminated, the operation is cancelled, and the result
/// dropped: a lease is released then.
#[napi]
pub struct Operation {
    operation: quorlock::Operation,
    _result: Box<dyn Any + Send>,
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.operation.cancel();
    }
}

#[napi]
impl Operation {
    /// Cancels it, unless it is done: the callback is not called.
    #[napi(catch_unwind)]
    pub fn cancel(&self) {
        self.operation.cancel();
    }
}

/// Where a result waits for JavaScript. What is queued for a thread that is terminated is never
/// dropped, so the queue has but a weak reference to it.
type Slot<T> = Mutex<Option<Either<T, Failure>>>;

fn open_slot<T>(slot: &Slot<T>) -> MutexGuard<'_, Option<Either<T, Failure>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `done` in the event loop when there is a result; until then the process does not exit.
fn complete<T, U>(
    pending: Pending<U>,
    convert: fn(U) -> Either<T, Failure>,
    done: Callback<'_, T>,
) -> Result<Operation>
where
    T: ToNapiValue + Send + 'static,
    U: Send + 'static,
{
    let done = done.build_threadsafe_function::<Weak<Slot<T>>>().build_callback(|context| {
        // There is none if JavaScript has cancelled and forgotten the operation.
        Ok(context.value.upgrade().and_then(|slot| open_slot(&slot).take()))
    })?;
    let slot: Arc<Slot<T>> = Arc::default();
    let weak = Arc::downgrade(&slot);
    let operation = pending.on_ready(move |value| {
        if let Some(slot) = weak.upgrade() {
            *open_slot(&slot) = Some(convert(value));
        }
        // An environment that was torn down meanwhile refuses the call.
        let _: Status = done.call(weak, NonBlocking);
    });
    Ok(Operation { operation, _result: Box::new(slot) })
}

/// For the end of the process: releases what is held, and waits for at most so many milliseconds.
#[napi(catch_unwind)]
pub fn release_all(milliseconds: u32) {
    quorlock::release_all(Duration::from_millis(milliseconds.into()));
}
