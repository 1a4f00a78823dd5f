//! Timers. Unlike the clock that validity is measured by, they may stand still while the machine is
//! suspended.

#[cfg(test)]
pub(crate) use crate::simulation::timer::{sleep, timeout};
#[cfg(not(test))]
pub(crate) use tokio::time::{sleep, timeout};
