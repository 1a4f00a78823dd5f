//! Contains panics.
//!
//! Code that is not quorlock's may panic: callbacks, wakers of other executors, `tracing`
//! subscribers, wake-up functions of language bindings. So may quorlock's own code, because of a
//! bug. The panic hook reports the panic, but it must not end a task that serves other leases.
//! docs/architecture.md lists where each kind of panic is caught. Called by every module that runs
//! foreign code, and by `runtime::serve`.

use futures_util::future::FutureExt;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls code that may panic. Returns `None` if it did.
///
/// The caller must not hold a lock if the code is foreign: it may call back into quorlock.
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code)).map_err(discard).ok()
}

/// Awaits a future that may panic. Returns `None` if it did.
pub(crate) async fn contained<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(discard).ok()
}

fn discard(payload: Box<dyn Any + Send>) {
    // In a simulation there is no foreign code, and a bug in quorlock must fail the test.
    #[cfg(test)]
    if crate::runtime::machine::current().is_some() {
        std::panic::resume_unwind(payload);
    }
    // Dropping the payload may panic again.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::{contain, contained};

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("the payload of a panic panics");
        }
    }

    #[test]
    fn panic_is_contained() {
        assert_eq!(contain(|| 1), Some(1));
        assert_eq!(contain::<()>(|| panic!("foreign code panics")), None);
        assert_eq!(contain::<()>(|| std::panic::panic_any(PanicsAgain)), None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            assert_eq!(contained(async { 1 }).await, Some(1));
            assert_eq!(contained::<()>(async { panic!("foreign code panics") }).await, None);
        });
    }
}
