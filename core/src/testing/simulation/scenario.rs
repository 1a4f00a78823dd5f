//! The parameters of a world, all determined by its seed: nodes, processes, clocks, options and faults.

use crate::Client;
use quorlock_protocol::FENCE_WINDOW;
use std::time::Duration;

/// The range of a short ttl, in milliseconds: so short that leases expire during the simulation.
const SHORT: (u64, u64) = (100, 3_000);

/// A long ttl, in milliseconds: longer than the simulation, so that keys left behind are noticed.
const LONG: u64 = 100_000;

/// A large error of wall clocks, in microseconds: ten years. Even an error of this size must not break a guarantee.
const YEARS: i64 = 10 * 365 * 86_400_000_000;

/// The largest error of the wall clocks of nodes that may forget counters, in microseconds: half a second.
const CLOSE: i64 = 500_000;

/// The shortest and the longest delay between two tries of a waiter.
pub(super) const RETRY_DELAY: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(40));

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) nodes: usize,
    pub(super) processes: usize,
    /// The number of tasks of each process.
    pub(super) tasks: usize,
    pub(super) resources: usize,
    /// The probability that a resource is locked in shared mode, in per cent.
    pub(super) shared: u64,
    /// The probability that an acquire is for permits of a semaphore, in per cent.
    pub(super) permits: u64,
    /// The largest ttl that is used.
    pub(super) ttl: Duration,
    pub(super) node_timeout: Duration,
    pub(super) drift_factor: f64,
    /// The restart guard; `None` if nodes forget nothing.
    pub(super) guard: Option<Duration>,
    pub(super) faults: Faults,
    /// The largest error of the processes' wall clocks, in microseconds.
    pub(super) wall_clock_error: i64,
    /// The largest error of the nodes' wall clocks, in microseconds.
    pub(super) node_clock_error: i64,
    /// Whether the run checks that fences grow. Fences might not grow if nodes lose their data while the restart guard
    /// is off, or while the guard is shorter than the clocks require.
    pub(super) fences_grow: bool,
    /// The time for which faults happen.
    pub(super) length: Duration,
}

/// The faults that a run injects; see `faults.rs`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// The longest time between two faults, in milliseconds; `None` if there are no faults.
    pub(super) pause: Option<u64>,
    /// Whether nodes forget everything when they restart.
    pub(super) memory_loss: bool,
}

impl Scenario {
    /// Draws the scenario of a seed from `random`. Every third seed has a semaphore.
    pub(super) fn of(seed: u64, random: &mut fastrand::Rng) -> Self {
        let nodes = [1, 2, 3, 3, 3, 4, 5, 5, 5, 7][random.usize(..10)];
        let is_long = random.u8(..100) < 30;
        let ttl = if is_long { LONG } else { random.u64(SHORT.0..SHORT.1) };
        let memory_loss = !is_long && random.u8(..100) < 60;
        let calm = random.u8(..100) < 10;
        let pause = if calm { None } else { Some(random.u64(20..2_000)) };
        let fences_grow = !memory_loss || random.bool();
        let guard = match fences_grow {
            true => Duration::from_millis(ttl).max(
                2 * FENCE_WINDOW + Duration::from_micros(2 * CLOSE as u64) + Duration::from_secs(1),
            ),
            false => Duration::from_millis(ttl),
        };
        Self {
            nodes,
            processes: random.usize(2..5),
            tasks: random.usize(1..4),
            resources: random.usize(1..5),
            shared: [0, 30, 70, 90][random.usize(..4)],
            permits: if seed.is_multiple_of(3) { 60 } else { 0 },
            ttl: Duration::from_millis(ttl),
            node_timeout: Duration::from_millis(match random.bool() {
                true => random.u64(10..100),
                false => random.u64(10..ttl.min(3_000) / 2),
            }),
            drift_factor: [0.01, 0.01, 0.1, 0.3][random.usize(..4)],
            guard: memory_loss.then_some(guard),
            faults: Faults { pause, memory_loss },
            wall_clock_error: YEARS,
            node_clock_error: if memory_loss || random.bool() { CLOSE } else { YEARS },
            fences_grow,
            // The time must be long enough for guarded nodes to count again.
            length: Duration::from_secs(if memory_loss && fences_grow { 40 } else { 20 }),
        }
    }

    /// Draws the rate of a clock. The rates of two clocks differ by at most the drift factor.
    pub(super) fn rate(&self, random: &mut fastrand::Rng) -> f64 {
        // Often draw a rate exactly at the limit, where bugs are most likely to show.
        let part = [0.0, 1.0, random.f64()][random.usize(..3)];
        1.0 / (1.0 - self.drift_factor * part)
    }

    /// Whether the nodes' clocks may be so far apart that rounds must raise the fence.
    pub(super) fn clocks_are_apart(&self) -> bool {
        self.node_clock_error > CLOSE
    }

    /// Draws the error of a process's wall clock, in microseconds.
    pub(super) fn wall_clock(&self, random: &mut fastrand::Rng) -> i64 {
        up_to(self.wall_clock_error, random)
    }

    /// Draws the error of a node's wall clock, in microseconds.
    pub(super) fn node_clock(&self, random: &mut fastrand::Rng) -> i64 {
        up_to(self.node_clock_error, random)
    }

    pub(super) fn client(&self) -> Client {
        let nodes = (0..self.nodes).map(|number| format!("memory://{number}"));
        let builder = Client::builder()
            .nodes(nodes)
            // All clients have the same name, because safety must not depend on names.
            .holder("a process")
            .ttl(self.ttl)
            .node_timeout(self.node_timeout)
            .drift_factor(self.drift_factor)
            .retry_delay(RETRY_DELAY.0, RETRY_DELAY.1);
        let builder = match self.guard {
            Some(guard) => builder.restart_guard(guard),
            None => builder,
        };
        builder.build().expect("valid options")
    }
}

/// Draws a number from `-most` to `most`: often zero, or one of the extremes, where bugs are most likely to show.
fn up_to(most: i64, random: &mut fastrand::Rng) -> i64 {
    [-most, most, 0, random.i64(-most..=most)][random.usize(..4)]
}
