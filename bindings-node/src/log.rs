//! Forwards log events of the core to one environment's diagnostics channels.
//!
//! It does not filter or format: the core selects events by level, and `channels.js` publishes them. Created by
//! `channels.js`, once per environment.

use napi::Result;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi_derive::napi;
use quorlock::{Listener, TARGETS};
use std::sync::{Arc, OnceLock, Weak};

/// Receives log events of the core for one environment: the main thread, or a worker thread.
#[napi]
pub struct Log(Arc<Listener>);

#[napi]
impl Log {
    /// `publish` is called on the event loop with a list of records, as JSON. Does not keep the process alive.
    #[napi(constructor, catch_unwind)]
    pub fn new(publish: Function<'_, String, ()>) -> Result<Self> {
        let own: Arc<OnceLock<Weak<Listener>>> = Arc::default();
        let listener = Arc::clone(&own);
        let wake = publish.build_threadsafe_function::<()>().weak::<true>();
        // Runs on the JavaScript thread, and takes all records that have arrived by then.
        let wake = wake.build_callback(move |_| {
            let listener = listener.get().and_then(Weak::upgrade);
            Ok(listener.map_or_else(|| "[]".to_owned(), |listener| listener.take_json()))
        })?;
        let listener = Listener::new(move || {
            // The call fails if the environment has been torn down.
            wake.call((), NonBlocking) == napi::Status::Ok
        });
        let _ = own.set(Arc::downgrade(&listener));
        Ok(Self(listener))
    }

    /// Sets the level from which events are received: 0 for none, 1 for errors only, up to 5 for all.
    #[napi(catch_unwind)]
    pub fn listen(&self, level: u8) {
        self.0.listen([level; TARGETS.len()]);
    }
}
