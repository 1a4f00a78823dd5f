//! The option `credentials`: calls the program's function on the event loop, and returns its result to the core.
//!
//! `index.js` calls the function and answers through [`Request`]. No text may contain a credential. Used by
//! `client.rs`.

use crate::convert;
use crate::mutex;
use napi::bindgen_prelude::{Function, JsObjectValue, Object, Unknown};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi::{Result, Status, ValueType};
use napi_derive::napi;
use quorlock::{Credentials, CredentialsRequest};
use std::sync::Mutex;

/// Returns the function that passes the core's requests to `ask`, on the event loop. Does not keep the process
/// alive. In an environment that has ended, a request fails.
pub(crate) fn provider(
    ask: &Function<'_, Request, ()>,
) -> Result<impl Fn(CredentialsRequest) + Send + Sync + use<>> {
    let ask = ask.build_threadsafe_function::<CredentialsRequest>().weak::<true>();
    let ask = ask.build_callback(|context| Ok(Request(Mutex::new(Some(context.value)))))?;
    Ok(move |request| {
        // The call fails, and drops the request, if the environment has been torn down.
        let _: Status = ask.call(request, NonBlocking);
    })
}

/// A request for credentials. Only the first answer counts.
#[napi]
pub struct Request(Mutex<Option<CredentialsRequest>>);

#[napi]
impl Request {
    /// The address of the node; empty if the request was answered.
    #[napi(getter, catch_unwind)]
    pub fn address(&self) -> String {
        let request = mutex::lock(&self.0);
        request.as_ref().map(|request| request.address().to_owned()).unwrap_or_default()
    }

    /// Answers with what the function returned: `{ username, password }`, where `username` may be missing.
    #[napi(catch_unwind)]
    pub fn give(&self, given: Unknown<'_>) -> Result<()> {
        let wrong = "it must return { username, password } with strings, or a promise of it";
        self.answer(credentials(given)?.ok_or_else(|| wrong.to_owned()));
        Ok(())
    }

    /// Answers that the function threw an error of this class.
    #[napi(catch_unwind)]
    pub fn fail(&self, class: String) {
        self.answer(Err(class));
    }
}

impl Request {
    fn answer(&self, answer: std::result::Result<Credentials, String>) {
        let request = mutex::lock(&self.0).take();
        if let Some(request) = request {
            request.answer(answer);
        }
    }
}

/// Converts the result of the function; `None` if it has another form.
fn credentials(given: Unknown<'_>) -> Result<Option<Credentials>> {
    if given.get_type()? != ValueType::Object {
        return Ok(None);
    }
    let given: Object<'_> = convert::convert(given)?;
    let property = |name| given.get_named_property::<Unknown<'_>>(name);
    let user = property("username")?;
    let password = property("password")?;
    let Some(password) = string(password)? else { return Ok(None) };
    Ok(match user.get_type()? {
        ValueType::Undefined | ValueType::Null => Some(Credentials::of_default_user(password)),
        _ => string(user)?.map(|user| Credentials::new(user, password)),
    })
}

/// Returns a well-formed string; `None` for any other value.
fn string(given: Unknown<'_>) -> Result<Option<String>> {
    if given.get_type()? == ValueType::String { convert::text(given) } else { Ok(None) }
}
