//! Locks over the nodes: acquiring, waiting, keeping leases and releasing them.

pub(crate) mod acquire;
pub(crate) mod driver;
pub(crate) mod duplicates;
pub(crate) mod extend;
pub(crate) mod heal;
pub(crate) mod held;
pub(crate) mod lease;
pub(crate) mod locked;
pub(crate) mod owner;
pub(crate) mod renewer;
pub(crate) mod repair;
pub(crate) mod round;
pub(crate) mod subscriber;
pub(crate) mod trace;
pub(crate) mod waiters;
pub(crate) mod watcher;
