//! `quorlock serve`: a daemon that locks for programs in other languages. They speak the protocol of Redis on a Unix
//! socket.
//!
//! This module owns the life of the daemon: options, accepting, draining. `socket` makes the socket, `clients` knows who is
//! connected and owns the leases, `session` serves one connection, `command` and `wire` are the protocol, `notes` writes to
//! stderr. No rule of the lock belongs here: the core decides, and this converts.

#[cfg(unix)]
pub(crate) mod clients;
#[cfg(unix)]
pub(crate) mod command;
#[cfg(unix)]
mod daemon;
#[cfg(all(unix, any(test, feature = "fuzzing")))]
pub(crate) mod fuzzing;
#[cfg(unix)]
mod notes;
#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod session;
#[cfg(unix)]
mod socket;
#[cfg(unix)]
pub(crate) mod wire;

#[cfg(unix)]
pub(crate) use daemon::serve;
#[cfg(not(unix))]
pub(crate) use other::serve;
