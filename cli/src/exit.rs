//! The exit statuses of `quorlock` itself. `run` otherwise returns the status of its command.

pub(crate) const OK: u8 = 0;
/// `status`: a lock is held or contested. `release`: the user did not confirm, or the lock is still held.
pub(crate) const NO: u8 = 1;
/// `EX_USAGE` of sysexits.h: an invalid flag, option, URL or list of nodes.
pub(crate) const USAGE: u8 = 64;
/// `EX_UNAVAILABLE`: too few nodes could vote.
pub(crate) const NO_QUORUM: u8 = 69;
/// `EX_TEMPFAIL`: others held the lock for the whole wait.
pub(crate) const CONFLICT: u8 = 75;
/// The lease was lost while the command ran. No status of sysexits.h fits; they end at 78.
pub(crate) const LOST: u8 = 79;
/// Any other failure. timeout(1), env(1) and other programs use the same status.
pub(crate) const FAILED: u8 = 125;
/// As in the shell: the command was found but cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// As in the shell: there is no such command.
pub(crate) const NOT_FOUND: u8 = 127;
/// As in the shell: if a signal ended the command, the status is this value plus the number of the
/// signal.
pub(crate) const SIGNAL: u8 = 128;
