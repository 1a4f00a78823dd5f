//! Delivers results of operations to the event loop of one environment (the main thread, or a worker thread).
//!
//! Operations put their results into the mailbox. If it was empty, they also wake the event loop. Results
//! that arrive together are therefore delivered in one call, and no threadsafe function is created per
//! operation. The mailbox must not keep the process alive. Used by `client.rs` and `outcome.rs`.

use crate::mutex;
use napi::bindgen_prelude::{FnArgs, Function, JsValuesTupleIntoVec};
use napi::threadsafe_function::ThreadsafeFunction;
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi::{Result, Status};
use quorlock::{Operation, Pending};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// Called with the numbers that identify the finished operations, and with their outcomes.
pub(crate) type Deliver<'a, O> = Function<'a, Delivery<O>, ()>;
type Delivery<O> = FnArgs<(Vec<f64>, Vec<O>)>;

/// Wakes up the event loop. It does not keep the process alive; `operations.js` does that while operations are in
/// progress.
type Wake<O> = ThreadsafeFunction<(), (), Delivery<O>, Status, false, true>;

/// The operations of one environment. The mailbox is dropped when the environment ends. This cancels the
/// operations in progress and drops the undelivered results, so leases among them are released.
pub(crate) struct Mailbox<O>
where
    O: Send + 'static,
    Delivery<O>: JsValuesTupleIntoVec,
{
    // Results are kept here, not in the queue of `wake`. If a thread is terminated, Node.js never drops the
    // values in its queue, so leases among them would not be released.
    mail: Arc<Mutex<Mail<O>>>,
    wake: Wake<O>,
}

type Done<O> = Vec<(u64, O)>;

struct Mail<O> {
    last: u64,
    under_way: HashMap<u64, Operation>,
    done: Done<O>,
}

/// Converts an operation's number. The conversion is exact, because the numbers never reach 2^53.
fn to_js(number: u64) -> f64 {
    number as f64
}

impl<O> Mailbox<O>
where
    O: Send + 'static,
    Delivery<O>: JsValuesTupleIntoVec,
{
    pub(crate) fn new(deliver: &Deliver<'_, O>) -> Result<Arc<Self>> {
        let mail: Arc<Mutex<Mail<O>>> = Arc::default();
        let weak = Arc::downgrade(&mail);
        let wake = deliver.build_threadsafe_function::<()>().weak::<true>();
        let wake = wake.build_callback(move |_| {
            // Cancelled results are dropped only after the mutex is unlocked, because dropping a lease starts
            // its release.
            let (done, _cancelled) =
                weak.upgrade().map(|mail| mutex::lock(&mail).take()).unwrap_or_default();
            let numbered = |(number, outcome)| (to_js(number), outcome);
            let (numbers, outcomes) = done.into_iter().map(numbered).unzip();
            Ok((numbers, outcomes).into())
        })?;
        Ok(Arc::new(Self { mail, wake }))
    }

    /// Registers an operation, to deliver its result when it is ready. Returns the operation's number.
    pub(crate) fn expect<T: Send + 'static>(
        self: &Arc<Self>,
        pending: Pending<T>,
        convert: impl FnOnce(T, &Weak<Self>) -> O + Send + 'static,
    ) -> f64 {
        let number = {
            let mut mail = mutex::lock(&self.mail);
            mail.last += 1;
            mail.last
        };
        let weak = Arc::downgrade(self);
        // The mutex must be unlocked here: the callback locks it, and may run before `on_ready` returns.
        let operation = pending.on_ready(move |value| {
            if let Some(mailbox) = weak.upgrade() {
                mailbox.put(number, convert(value, &weak));
            }
        });
        mutex::lock(&self.mail).under_way.insert(number, operation);
        to_js(number)
    }

    /// Cancels an operation. Its result is not delivered, even if it is already in the mailbox.
    pub(crate) fn cancel(&self, number: f64) {
        let operation = mutex::lock(&self.mail).under_way.remove(&(number as u64));
        if let Some(operation) = operation {
            operation.cancel();
        }
    }

    fn put(&self, number: u64, outcome: O) {
        let was_empty = {
            let mut mail = mutex::lock(&self.mail);
            mail.done.push((number, outcome));
            mail.done.len() == 1
        };
        if was_empty {
            // The call fails if the environment has been torn down; dropping the mailbox then drops the result.
            let _: Status = self.wake.call((), NonBlocking);
        }
    }
}

impl<O> Default for Mail<O> {
    fn default() -> Self {
        Self { last: 0, under_way: HashMap::new(), done: Vec::new() }
    }
}

impl<O> Mail<O> {
    /// Takes all results. Returns the results to deliver, and those of operations that were cancelled after
    /// they had finished.
    fn take(&mut self) -> (Done<O>, Done<O>) {
        let done = std::mem::take(&mut self.done).into_iter();
        done.partition(|(number, _)| self.under_way.remove(number).is_some())
    }
}

impl<O> Drop for Mail<O> {
    fn drop(&mut self) {
        self.under_way.values().for_each(Operation::cancel);
    }
}
