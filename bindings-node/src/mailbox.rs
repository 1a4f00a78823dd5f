//! How results get to the event loop: all operations of an environment (the main thread, or a worker
//! thread) put them into its mailbox, and wake the event loop when it was empty. So results that come
//! together are handed over together, and nothing has to be made for each of them.

use crate::Lease;
use crate::convert::Failure;
use napi::bindgen_prelude::{Either5, FnArgs, Function};
use napi::threadsafe_function::ThreadsafeFunction;
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi::{Result, Status};
use quorlock::{Operation, Pending};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What becomes of an operation.
pub(crate) type Outcome = Either5<Lease, bool, Vec<String>, Failure, ()>;

/// Called with the numbers of operations that are done, and with the outcome of each.
pub(crate) type Deliver<'a> = Function<'a, Delivery, ()>;
type Delivery = FnArgs<(Vec<f64>, Vec<Outcome>)>;

/// It does not keep the process from exiting; `index.js` does so while operations are under way.
type Wake = ThreadsafeFunction<(), (), Delivery, Status, false, true>;

/// The operations of one environment. Dropped with it: then those under way are cancelled, and the
/// results that are still here are dropped, of which leases are released.
pub(crate) struct Mailbox {
    // What is queued for a thread that is terminated is never dropped, so the results are not queued.
    mail: Arc<Mutex<Mail>>,
    wake: Wake,
}

type Done = Vec<(u64, Outcome)>;

#[derive(Default)]
struct Mail {
    last: u64,
    under_way: HashMap<u64, Operation>,
    done: Done,
}

/// Exact: nobody counts to 2^53.
fn to_js(number: u64) -> f64 {
    number as f64
}

fn open(mail: &Mutex<Mail>) -> MutexGuard<'_, Mail> {
    mail.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    pub(crate) fn new(deliver: &Deliver<'_>) -> Result<Arc<Self>> {
        let mail: Arc<Mutex<Mail>> = Arc::default();
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
        convert: impl FnOnce(T) -> Outcome + Send + 'static,
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

    fn put(&self, number: u64, outcome: Outcome) {
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

impl Mail {
    /// What is done, and what was cancelled when it was about to be done.
    fn take(&mut self) -> (Done, Done) {
        let done = std::mem::take(&mut self.done).into_iter();
        done.partition(|(number, _)| self.under_way.remove(number).is_some())
    }
}

impl Drop for Mail {
    fn drop(&mut self) {
        self.under_way.values().for_each(Operation::cancel);
    }
}
