//! Threads for work that may block: looking up a host, reading files. Such work must not run on the runtime, where it would
//! delay renewals. Called by `config` and `transport`.

use futures_util::future::{BoxFuture, FutureExt, Shared};
use std::future::Future;
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// After this time, the work may never end, so the next caller begins it again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The result of work that several callers wait for; `None` if the work panicked.
pub(crate) type Common<T> = Shared<BoxFuture<'static, Option<T>>>;

/// Work that may hang for long after its callers have given up. Those that come while it is under way wait for the same
/// result, so that it costs few threads, however often it is wanted.
pub(crate) struct OneAtATime<T: Clone>(Option<(Instant, Common<T>)>);

impl<T: Clone> Default for OneAtATime<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Clone + Send + Sync + 'static> OneAtATime<T> {
    /// Returns the result of the work under way, or else begins it as [`on_thread`] does.
    pub(crate) fn run(
        &mut self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Common<T>> {
        if let Some((began, result)) = &self.0
            && began.elapsed() < PATIENCE
            && !self.has_ended()
        {
            return Ok(result.clone());
        }
        let result = on_thread(name, work)?.boxed().shared();
        self.0 = Some((Instant::now(), result.clone()));
        Ok(result)
    }

    /// Whether no work is under way.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.as_ref().is_none_or(|(_, result)| result.clone().now_or_never().is_some())
    }
}

/// Runs `work` on a thread of its own. Returns its result when it has ended; `None` if it panicked. Fails if no thread can
/// be started. That is not a blocking thread of tokio, because tokio panics then.
pub(crate) fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<impl Future<Output = Option<T>> + Send + 'static> {
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        // Sending fails if nobody waits any more.
        let _ = sender.send(work());
    };
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started?;
    Ok(async { receiver.await.ok() })
}
