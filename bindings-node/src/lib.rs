//! The Node.js binding: converts values, starts operations of the core, and delivers their results to the
//! event loop.
//!
//! It holds no lock logic: that is in the `quorlock` crate. The JavaScript files of the package, which are the only
//! callers, make promises, errors and signals. No function here may block the event loop, except `release_all`,
//! `command_line` and those of `testing.rs`.

mod client;
mod convert;
mod credentials;
mod election;
mod lease;
mod log;
mod mailbox;
mod mutex;
mod outcome;
mod scope;
mod semaphore;
pub mod testing;

use convert::{Failure, item, value};
use napi::Result;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use quorlock::Dialect;
use std::ffi::OsString;
use std::time::Duration;

/// Returns the value as error messages show it. Strings are not shown, because they may be secrets.
#[napi(catch_unwind)]
pub fn shown(given: Unknown<'_>) -> Result<String> {
    Ok(value(given)?.shown(Dialect::JavaScript))
}

/// Returns the resource as messages show it: a long name is cut.
#[napi(catch_unwind)]
pub fn shortened(resource: String) -> String {
    quorlock::shortened(&resource).into_owned()
}

/// Returns the error about a resource that is not a string. `position` is its position if it is in an array.
/// `accepted` says which types the argument may have.
#[napi(catch_unwind)]
pub fn wrong_resource(
    position: Option<u32>,
    accepted: String,
    given: Unknown<'_>,
) -> Result<Failure> {
    let position = position.map(|position| position as usize);
    Ok(quorlock::wrong_resource(Dialect::JavaScript, position, &accepted, &item(given)?).into())
}

/// Returns a warning if the ttl was probably meant in seconds, but only once in each process.
#[napi(catch_unwind)]
pub fn unit_warning(ttl: Unknown<'_>) -> Result<Option<String>> {
    Ok(quorlock::unit_warning(Dialect::JavaScript, &value(ttl)?))
}

/// Makes the operations that this thread starts send their requests together, at the next call of `uncork`.
#[napi(catch_unwind)]
pub fn cork() {
    quorlock::cork();
}

/// Sends the requests that wait because of `cork`.
#[napi(catch_unwind)]
pub fn uncork() {
    quorlock::uncork();
}

/// Closes all clients and releases all leases, for the exit of the process. Blocks for at most `milliseconds`.
#[napi(catch_unwind)]
pub fn release_all(milliseconds: u32) {
    quorlock::release_all(Duration::from_millis(milliseconds.into()));
}

/// Runs the `quorlock` command line with these arguments, and returns its exit status. Blocks until it ends.
#[napi(catch_unwind)]
pub fn command_line(given: Vec<String>) -> u32 {
    // In `given`, Node.js has replaced bytes that are not Unicode. So read the original arguments of the
    // process where the system provides them. The last of these are the arguments of the command.
    let original: Vec<_> = std::env::args_os().collect();
    let arguments = match original.len().checked_sub(given.len()) {
        Some(others) if others > 0 => original[others..].to_vec(),
        _ => given.into_iter().map(OsString::from).collect(),
    };
    let program = std::iter::once("quorlock".into());
    quorlock_cli::main(program.chain(arguments)).into()
}
