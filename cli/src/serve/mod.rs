//! `quorlock serve`: a daemon that locks for programs in other languages. They speak the protocol of Redis on a Unix
//! socket.
//!
//! This module owns the life of the daemon: options, accepting, draining. `socket` makes the socket, `clients` knows who is
//! connected and owns the leases, `session` serves one connection, `command` and `wire` are the protocol, `budget` and `files`
//! limit what clients use, `notes` writes to stderr. No rule of the lock belongs here: the core decides, and this
//! converts.
//!
//! Everything that clients cause runs as tasks of `Client::spawn`, so that renewals come before it.

#[cfg(unix)]
pub(crate) mod budget;
#[cfg(unix)]
pub(crate) mod clients;
#[cfg(unix)]
pub(crate) mod command;
#[cfg(unix)]
mod daemon;
#[cfg(unix)]
mod files;
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
