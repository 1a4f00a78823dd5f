//! Threads for work that may block, such as looking up a host or reading files. Such work must not run on the runtime,
//! because it would delay renewals. Called by `config` and `transport`.

use futures_util::future::{BoxFuture, FutureExt, Shared};
use std::future::Future;
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Work that takes longer than this may never end. So the next caller starts the work again instead of waiting for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest number of threads that do the same work. If all of them hang, callers wait for the newest one.
const MAX_THREADS: usize = 4;

/// A future for the result of work that several callers wait for; its output is `None` if the work panicked.
pub(crate) type Common<T> = Shared<BoxFuture<'static, Option<T>>>;

/// Work that may hang. Callers that arrive while the work is in progress wait for the same result instead of starting
/// the work again. So even work that hangs occupies few threads, however many callers there are.
pub(crate) struct SharedWork<T: Clone> {
    /// When each thread has begun, and its result; the newest last. Contains at most [`MAX_THREADS`].
    running: Vec<(Instant, Common<T>)>,
}

impl<T: Clone> Default for SharedWork<T> {
    fn default() -> Self {
        Self { running: Vec::new() }
    }
}

impl<T: Clone + Send + Sync + 'static> SharedWork<T> {
    /// Returns a future for the result of the work. Starts `work` with [`on_thread`] if no work is in progress, or if
    /// the work in progress has taken longer than [`PATIENCE`].
    pub(crate) fn run(
        &mut self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Common<T>> {
        self.running.retain(|(_, result)| !has_ended(result));
        if let Some((began, result)) = self.running.last()
            && (began.elapsed() < PATIENCE || self.running.len() == MAX_THREADS)
        {
            return Ok(result.clone());
        }
        let result = on_thread(name, work)?.boxed().shared();
        self.running.push((Instant::now(), result.clone()));
        Ok(result)
    }

    /// Whether no work is in progress: none was started, or all work has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.running.iter().all(|(_, result)| has_ended(result))
    }
}

fn has_ended<T: Clone>(result: &Common<T>) -> bool {
    result.clone().now_or_never().is_some()
}

/// Runs `work` on a new thread. The returned future completes with the result of `work`, or with `None` if `work`
/// panicked. Fails if no thread can be started. Does not use tokio's blocking threads, because tokio panics if it
/// cannot start one.
pub(crate) fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<impl Future<Output = Option<T>> + Send + 'static> {
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        // Sending fails if no caller waits for the result any more.
        let _ = sender.send(work());
    };
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started?;
    Ok(async { receiver.await.ok() })
}

#[cfg(test)]
mod tests {
    use super::{MAX_THREADS, PATIENCE, SharedWork};
    use futures_util::future::{FutureExt, pending};
    use std::time::Instant;

    #[test]
    fn work_that_hangs_occupies_few_threads() {
        let long_ago = Instant::now().checked_sub(PATIENCE).expect("the machine runs for longer");
        let hanging = || (long_ago, pending::<Option<u8>>().boxed().shared());
        let mut work = SharedWork { running: (1..MAX_THREADS).map(|_| hanging()).collect() };
        let result = work.run("quorlock-test", || 7).expect("a thread");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(result), Some(7));

        work.running = (0..MAX_THREADS).map(|_| hanging()).collect();
        let result = work.run("quorlock-test", || 7).expect("no thread is needed");
        assert!(result.now_or_never().is_none() && !work.has_ended());
        assert_eq!(work.running.len(), MAX_THREADS);
    }
}
