//! Where panics end.
//!
//! Code that is not quorlock's may panic: callbacks, wakers of other executors, `tracing` subscribers,
//! wake-ups of language bindings. So may quorlock's own, by mistake. The panic hook reports the panic; it
//! must not end a task that works for other leases. docs/architecture.md says what ends where.

use futures_util::future::FutureExt;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Calls code that may panic; `None` if it did.
///
/// Must be called without a lock held if the code is foreign: it may call back into quorlock.
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code)).map_err(discard).ok()
}

/// Runs a future that may panic; `None` if it did.
pub(crate) async fn contained<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(discard).ok()
}

/// A waker of any executor, whose panics end here.
pub(crate) fn containing(waker: &Waker) -> Waker {
    Waker::from(Arc::new(Containing(waker.clone())))
}

struct Containing(Waker);

impl Wake for Containing {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        contain(|| self.0.wake_by_ref());
    }
}

fn discard(payload: Box<dyn Any + Send>) {
    // There is no foreign code in a simulation, and no mistake is to be survived.
    #[cfg(test)]
    if crate::runtime::machine::current().is_some() {
        std::panic::resume_unwind(payload);
    }
    // To drop it may panic again.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::{contain, contained, containing};
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("the payload of a panic panics");
        }
    }

    struct PanickingWaker;

    impl Wake for PanickingWaker {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics");
        }
    }

    #[test]
    fn a_panic_ends_here() {
        assert_eq!(contain(|| 1), Some(1));
        assert_eq!(contain::<()>(|| panic!("foreign code panics")), None);
        assert_eq!(contain::<()>(|| std::panic::panic_any(PanicsAgain)), None);
        containing(&Waker::from(Arc::new(PanickingWaker))).wake();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            assert_eq!(contained(async { 1 }).await, Some(1));
            assert_eq!(contained::<()>(async { panic!("foreign code panics") }).await, None);
        });
    }
}
