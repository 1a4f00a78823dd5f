//! The clock that validity is measured by.

use quorlock_protocol::Moment;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The current moment on a clock that counts on while the machine is suspended: CLOCK_BOOTTIME on
/// Linux, CLOCK_MONOTONIC on the other Unixes (which on macOS includes sleep), the performance
/// counter on Windows (which includes sleep).
pub(crate) fn now() -> Moment {
    #[cfg(test)]
    if let Some(machine) = crate::runtime::machine::current() {
        return machine.now();
    }
    let now = Moment::from_origin(elapsed());
    #[cfg(test)]
    let now = now.plus(suspended::total());
    now
}

#[cfg(unix)]
fn elapsed() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    // Neither field is negative on a clock that starts at boot.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn elapsed() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed()
}

/// The wall clock in microseconds since the Unix epoch: a fence proposal, never a measure of time.
pub(crate) fn wall_clock_micros() -> u64 {
    #[cfg(test)]
    if let Some(machine) = crate::runtime::machine::current() {
        return machine.wall_clock_micros();
    }
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// Tests cannot suspend the machine. They can let this clock go ahead of the one that timers run by,
/// which is what a suspension does.
#[cfg(test)]
pub(crate) mod suspended {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    static MILLISECONDS: AtomicU64 = AtomicU64::new(0);

    pub(super) fn total() -> Duration {
        Duration::from_millis(MILLISECONDS.load(Ordering::SeqCst))
    }

    pub(crate) fn suspend(time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).expect("it is short");
        MILLISECONDS.fetch_add(milliseconds, Ordering::SeqCst);
    }
}
