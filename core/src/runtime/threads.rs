//! Threads for work that may block: looking up a host, reading files. Such work must not run on the runtime, where it would
//! delay renewals. Called by `config` and `transport`.

use std::future::Future;
use std::io;
use std::thread;
use tokio::sync::oneshot;

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
