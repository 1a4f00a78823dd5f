//! The clock that lease validity is measured with, and the wall clock for fence proposals.
//!
//! All code of this crate reads the time here, so that the simulation can replace it. Timers are in
//! `timer.rs`.

use quorlock_protocol::Moment;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The current time on a monotonic clock that keeps running while the machine is suspended:
/// CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on other Unix systems (on macOS it includes sleep), the
/// performance counter on Windows (which includes sleep).
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

/// The wall clock in microseconds since the Unix epoch. Used for fence proposals only, never to
/// measure time.
pub(crate) fn wall_clock_micros() -> u64 {
    #[cfg(test)]
    if let Some(machine) = crate::runtime::machine::current() {
        return machine.wall_clock_micros();
    }
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// Tests cannot suspend the machine. Instead they move this clock ahead of the clock that timers
/// use, which is the effect of a suspension.
#[cfg(test)]
pub(crate) mod suspended {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    static MILLISECONDS: AtomicU64 = AtomicU64::new(0);

    pub(super) fn total() -> Duration {
        Duration::from_millis(MILLISECONDS.load(Ordering::SeqCst))
    }

    pub(crate) fn suspend(time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).expect("it fits");
        MILLISECONDS.fetch_add(milliseconds, Ordering::SeqCst);
    }
}
