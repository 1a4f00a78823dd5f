//! How results get to the event loop: all operations of an environment (the main thread, or a worker
//! thread) put them into its mailbox, and wake the event loop when it was empty. So results that come
//! together are handed over together, and nothing has to be made for each of them.

use napi::bindgen_prelude::{FnArgs, Function, JsValuesTupleIntoVec};
use napi::threadsafe_function::ThreadsafeFunction;
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi::{Result, Status};
use quorlock::{Operation, Pending};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Called with the numbers of operations that are done, and with the outcome of each.
pub(crate) type Deliver<'a, O> = Function<'a, Delivery<O>, ()>;
type Delivery<O> = FnArgs<(Vec<f64>, Vec<O>)>;

/// It does not keep the process from exiting; `index.js` does so while operations are under way.
type Wake<O> = ThreadsafeFunction<(), (), Delivery<O>, Status, false, true>;

/// The operations of one environment. Dropped with it: then those under way are cancelled, and the
/// results that are still here are dropped, of which leases are released.
pub(crate) struct Mailbox<O>
where
    O: Send + 'static,
    Delivery<O>: JsValuesTupleIntoVec,
{
    // What is queued for a thread that is terminated is never dropped, so the results are not queued.
    mail: Arc<Mutex<Mail<O>>>,
    wake: Wake<O>,
}

type Done<O> = Vec<(u64, O)>;

struct Mail<O> {
    last: u64,
    under_way: HashMap<u64, Operation>,
    done: Done<O>,
}

/// Exact: nobody counts to 2^53.
fn to_js(number: u64) -> f64 {
    number as f64
}

fn open<O>(mail: &Mutex<Mail<O>>) -> MutexGuard<'_, Mail<O>> {
    mail.lock().unwrap_or_else(PoisonError::into_inner)
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
            // A lease that is dropped begins its release, so with the mail not open.
            let (done, _cancelled) =
                weak.upgrade().map(|mail| open(&mail).take()).unwrap_or_default();
            let numbered = |(number, outcome)| (to_js(number), outcome);
            let (numbers, outcomes) = done.into_iter().map(numbered).unzip();
            Ok((numbers, outcomes).into())
        })?;
        Ok(Arc::new(Self { mail, wake }))
    }

    /// Delivers the result when it is there. Returns the operation's number.
    pub(crate) fn expect<T: Send + 'static>(
        self: &Arc<Self>,
        pending: Pending<T>,
        convert: impl FnOnce(T) -> O + Send + 'static,
    ) -> f64 {
        let number = {
            let mut mail = open(&self.mail);
            mail.last += 1;
            mail.last
        };
        let mailbox = Arc::downgrade(self);
        // May be called at once, so with the mail not open.
        let operation = pending.on_ready(move |value| {
            if let Some(mailbox) = mailbox.upgrade() {
                mailbox.put(number, convert(value));
            }
        });
        open(&self.mail).under_way.insert(number, operation);
        to_js(number)
    }

    /// Cancels an operation: its result is not delivered, even if it is here by now.
    pub(crate) fn cancel(&self, number: f64) {
        let operation = open(&self.mail).under_way.remove(&(number as u64));
        if let Some(operation) = operation {
            operation.cancel();
        }
    }

    fn put(&self, number: u64, outcome: O) {
        let was_empty = {
            let mut mail = open(&self.mail);
            mail.done.push((number, outcome));
            mail.done.len() == 1
        };
        if was_empty {
            // An environment that is torn down meanwhile refuses the call.
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
    /// What is done, and what was cancelled when it was about to be done.
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
