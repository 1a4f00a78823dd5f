//! The core's events for an environment's diagnostics channels.

use napi::Result;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi_derive::napi;
use quorlock::{Listener, TARGETS};
use std::sync::{Arc, OnceLock, Weak};

/// Hears of the core's events for one environment: the main thread, or a worker thread.
#[napi]
pub struct Log(Arc<Listener>);

#[napi]
impl Log {
    /// `publish` is called with a list of records, as JSON. That alone does not keep the process from
    /// exiting.
    #[napi(constructor, catch_unwind)]
    pub fn new(publish: Function<'_, String, ()>) -> Result<Self> {
        let own: Arc<OnceLock<Weak<Listener>>> = Arc::default();
        let listener = Arc::clone(&own);
        let wake = publish.build_threadsafe_function::<()>().weak::<true>();
        // Taken on the thread of JavaScript: all that has come in by then, at once.
        let wake = wake.build_callback(move |_| {
            let listener = listener.get().and_then(Weak::upgrade);
            Ok(listener.map_or_else(|| "[]".to_owned(), |listener| listener.take_json()))
        })?;
        let listener = Listener::new(move || {
            // An environment that was torn down meanwhile refuses the call.
            wake.call((), NonBlocking) == napi::Status::Ok
        });
        let _ = own.set(Arc::downgrade(&listener));
        Ok(Self(listener))
    }

    /// How much is heard from now on: 0 for nothing, 1 for errors, to 5 for everything.
    #[napi(catch_unwind)]
    pub fn listen(&self, level: u8) {
        self.0.listen([level; TARGETS.len()]);
    }
}
