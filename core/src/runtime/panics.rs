//! Catches panics, so that a panic ends only the code that panics.
//!
//! Foreign code may panic: callbacks, wakers of other executors, `tracing` subscribers, wake-up functions of language
//! bindings. A bug may also make quorlock's own code panic. The panic hook reports every panic, but a panic must not
//! end a task that also serves other leases. docs/architecture.md lists where each kind of panic is caught. Called by
//! every module that runs foreign code, and by the runtime for its own tasks.

use crate::runtime::mutex::assert_none_held;
use futures_util::future::FutureExt;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Calls code that may panic. Returns `None` if the code panicked.
///
/// The caller must not hold a mutex: foreign code may call back into quorlock.
#[track_caller]
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    assert_none_held("runs code that may be foreign");
    catch_unwind(AssertUnwindSafe(code)).map_err(discard).ok()
}

/// Awaits a future that may panic. Returns `None` if the future panicked.
pub(crate) async fn contained<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(discard).ok()
}

/// Wraps a waker of a foreign executor. The returned waker catches the panics of that waker.
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
    // In a simulation there is no foreign code, and a bug in quorlock must fail the test.
    #[cfg(test)]
    if crate::runtime::machine::current().is_some() {
        std::panic::resume_unwind(payload);
    }
    // Dropping the payload may panic again. The payload of that second panic is never dropped.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::{contain, contained, containing};
    use crate::runtime::mutex::Mutex;
    use std::panic::catch_unwind;
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    struct PanickingWaker;

    impl Wake for PanickingWaker {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics");
        }
    }

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("the payload of a panic panics");
        }
    }

    #[test]
    fn foreign_code_does_not_run_while_a_mutex_is_held() {
        static MUTEX: Mutex<u32> = Mutex::new(1);
        let held = catch_unwind(|| {
            let _guard = MUTEX.lock();
            contain(|| ())
        });
        assert!(held.is_err());
        assert_eq!(contain(|| *MUTEX.lock()), Some(1), "it may lock itself");
    }

    #[test]
    fn panic_is_contained() {
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
