//! The clock that measures lease validity, and the wall clock of this machine.
//!
//! All code of this crate that measures leases, requests and waits reads the time here. So the simulation can replace
//! the clock, and the tests that users of quorlock write can move the clock ahead. Timers are in `timer.rs`.

use quorlock_protocol::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The current time on a monotonic clock that keeps running while the machine is suspended:
/// CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on other Unix systems (on macOS it includes sleep), the
/// performance counter on Windows (which includes sleep).
pub(crate) fn now() -> Moment {
    #[cfg(test)]
    if let Some(machine) = crate::runtime::machine::current() {
        return machine.now();
    }
    Moment::from_origin(elapsed()).plus(ahead())
}

/// How far [`move_ahead`] has moved the clock in total, in nanoseconds. This value never decreases.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// How far [`move_ahead`] has moved the clock in total; zero outside tests.
pub(crate) fn ahead() -> Duration {
    Duration::from_nanos(AHEAD.load(Ordering::Acquire))
}

/// Moves the clock ahead in one jump, as a suspension of the machine does. The jump wakes no timer: see
/// `wake_followers` in `timer.rs`. For tests only. The jump would not move the clock of a real node. So while an open
/// client uses a real node, `lock/renewer.rs` returns an error instead of calling this function.
///
/// The jump cannot make a lease seem valid for longer: a lease is valid until a moment on this clock, so the jump can
/// only make the lease end earlier. In-memory nodes expire their keys by the same clock.
pub(crate) fn move_ahead(time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let moved = AHEAD.fetch_update(Ordering::AcqRel, Ordering::Acquire, |ahead| {
        Some(ahead.saturating_add(nanos))
    });
    debug_assert!(moved.is_ok(), "the update always returns a value");
}

#[cfg(unix)]
fn elapsed() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    // On a clock that starts at boot, neither field is negative, so these conversions are exact.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn elapsed() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed()
}

/// The wall clock in microseconds since the Unix epoch. [`move_ahead`] does not affect this clock. Used by in-memory
/// nodes and by the doctor. Also used to report the status of a lock if no node's clock is known. Must not be used to
/// measure how long a lease is valid.
pub(crate) fn wall_clock_micros() -> u64 {
    #[cfg(test)]
    if let Some(machine) = crate::runtime::machine::current() {
        return machine.wall_clock_micros();
    }
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}
