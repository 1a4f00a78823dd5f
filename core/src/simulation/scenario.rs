//! What a seed stands for: how many nodes and processes there are, their clocks, the options, and
//! what goes wrong.

use crate::Client;
use std::time::Duration;

/// The smallest and the largest time to live, in milliseconds, where leases are lost to time.
const SHORT: (u64, u64) = (100, 3_000);

/// A time to live in which what is left on a node is seen, since it outlives the simulation.
const LONG: u64 = 100_000;

/// By how much wall clocks may be wrong if no node forgets its counters: a day, in microseconds.
const DAY: i64 = 86_400_000_000;

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) nodes: usize,
    pub(super) processes: usize,
    /// The tasks of each process.
    pub(super) tasks: usize,
    pub(super) resources: usize,
    /// The largest ttl that is used.
    pub(super) ttl: Duration,
    pub(super) node_timeout: Duration,
    pub(super) drift_factor: f64,
    /// On if nodes forget.
    pub(super) guard: Option<Duration>,
    pub(super) faults: Faults,
    /// By how many microseconds wall clocks are wrong at most.
    pub(super) wall_clock_error: i64,
    /// For how long things go wrong.
    pub(super) length: Duration,
}

/// What goes wrong; `faults.rs` says how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// The longest time between two faults, in milliseconds; none if there are no faults.
    pub(super) pause: Option<u64>,
    /// Whether nodes forget everything when they restart.
    pub(super) memory_loss: bool,
}

impl Scenario {
    pub(super) fn of(random: &mut fastrand::Rng) -> Self {
        let nodes = [1, 2, 3, 3, 3, 4, 5, 5, 5, 7][random.usize(..10)];
        let is_long = random.u8(..100) < 30;
        let ttl = if is_long { LONG } else { random.u64(SHORT.0..SHORT.1) };
        let memory_loss = !is_long && random.u8(..100) < 60;
        let calm = random.u8(..100) < 10;
        let pause = if calm { None } else { Some(random.u64(20..2_000)) };
        Self {
            nodes,
            processes: random.usize(2..5),
            tasks: random.usize(1..4),
            resources: random.usize(1..5),
            ttl: Duration::from_millis(ttl),
            node_timeout: Duration::from_millis(match random.bool() {
                true => random.u64(10..100),
                false => random.u64(10..ttl.min(3_000) / 2),
            }),
            drift_factor: [0.01, 0.01, 0.1, 0.3][random.usize(..4)],
            guard: memory_loss.then(|| Duration::from_millis(ttl)),
            faults: Faults { pause, memory_loss },
            // The fences of a node that forgets rely on clocks, to less than the guard.
            wall_clock_error: if memory_loss { ttl as i64 * 1_000 / 2 - 1_000 } else { DAY },
            length: Duration::from_secs(20),
        }
    }

    /// How fast a clock runs: two of them differ by no more than the drift factor.
    pub(super) fn rate(&self, random: &mut fastrand::Rng) -> f64 {
        // Often at the very limit, where mistakes show.
        let part = [0.0, 1.0, random.f64()][random.usize(..3)];
        1.0 / (1.0 - self.drift_factor * part)
    }

    pub(super) fn wall_clock_error(&self, random: &mut fastrand::Rng) -> i64 {
        let any = random.i64(-self.wall_clock_error..=self.wall_clock_error);
        [-self.wall_clock_error, self.wall_clock_error, any][random.usize(..3)]
    }

    pub(super) fn client(&self) -> Client {
        let nodes = (0..self.nodes).map(|number| format!("memory://{number}"));
        let builder = Client::builder()
            .nodes(nodes)
            .ttl(self.ttl)
            .node_timeout(self.node_timeout)
            .drift_factor(self.drift_factor)
            .retry_delay(Duration::from_millis(2), Duration::from_millis(40));
        let builder = match self.guard {
            Some(guard) => builder.restart_guard(guard),
            None => builder,
        };
        builder.build().expect("the options are valid")
    }
}
