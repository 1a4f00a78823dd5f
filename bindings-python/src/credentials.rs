//! The option `credentials`: calls the program's function on a Python thread, and returns its result to the
//! core.
//!
//! The core asks on a thread that must never take the GIL, so this module only enqueues a call.
//! `_credentials.py` makes it, and answers through [`Reply`]. No text may contain a credential: of an
//! exception it shows the class only.

use crate::calls::Kind;
use crate::exit;
use crate::mutex;
use pyo3::prelude::*;
use quorlock::{Credentials, CredentialsRequest};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Whether a client of this process, or of the one that forked it, has such a function.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Returns the function that answers the core's requests by calling `function`.
pub(crate) fn provider(
    py: Python<'_>,
    function: Bound<'_, PyAny>,
) -> PyResult<impl Fn(CredentialsRequest) + Send + Sync + use<>> {
    let ask = py.import("quorlock._credentials")?.call_method1("asker", (function,))?;
    IS_USED.store(true, Ordering::Relaxed);
    let ask = Arc::new(ask.unbind());
    Ok(move |request: CredentialsRequest| {
        // A function that hangs thus occupies one thread for each node.
        let key = format!("{:p} {}", Arc::as_ptr(&ask), request.address());
        let request = Arc::new(Mutex::new(Some(request)));
        let ask = Arc::clone(&ask);
        let waiting = Arc::clone(&request);
        let is_needed =
            move || mutex::lock(&waiting).as_ref().is_some_and(CredentialsRequest::is_needed);
        Kind::Credentials.put_while(&key, is_needed, move |py| {
            let request = mutex::lock(&request).take();
            let address = request.as_ref().map(|request| request.address().to_owned());
            let arguments = (address.unwrap_or_default(), Reply(Mutex::new(request)));
            Ok((ask.clone_ref(py), arguments.into_pyobject(py)?.unbind()))
        });
    })
}

/// Starts the thread that calls such functions, if there are any, unless it runs already: a forked child has none.
pub(crate) fn start_thread(py: Python<'_>) -> PyResult<()> {
    if IS_USED.load(Ordering::Relaxed) { Kind::Credentials.start(py) } else { Ok(()) }
}

/// Takes the result of one call. Only the first result counts.
#[pyclass(frozen, module = "quorlock._quorlock")]
pub(crate) struct Reply(Mutex<Option<CredentialsRequest>>);

#[pymethods]
impl Reply {
    /// Answers with what the function returned: a pair of the user, or `None`, and the password.
    fn give(&self, given: &Bound<'_, PyAny>) {
        let _entered = exit::enter(given.py());
        let answer = match given.extract::<(Option<String>, String)>() {
            Ok((Some(user), password)) => Ok(Credentials::new(user, password)),
            Ok((None, password)) => Ok(Credentials::of_default_user(password)),
            Err(_) => {
                let name = given.get_type().name().map(|name| name.to_string());
                let name = name.unwrap_or_else(|_| "unknown".to_owned());
                Err(format!(
                    "it must return a tuple (user or None, password) of str, not this {name}"
                ))
            }
        };
        self.answer(answer);
    }

    /// Answers that the function raised an exception of this class.
    fn fail(&self, class_: String) {
        self.answer(Err(class_));
    }
}

impl Reply {
    fn answer(&self, answer: Result<Credentials, String>) {
        let request = mutex::lock(&self.0).take();
        if let Some(request) = request {
            request.answer(answer);
        }
    }
}
