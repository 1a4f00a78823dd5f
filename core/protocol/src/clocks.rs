//! The time by the nodes' clocks, as one client knows it.

use crate::fence::FENCE_LIMIT;
use crate::quorum::MAX_NODES;
use crate::term::Moment;
use core::time::Duration;

/// An older reading says less than a new one, since clocks run at different rates.
const LATEST: Duration = Duration::from_millis(100);

/// The nodes' clocks, as a client last read them.
///
/// Fence proposals and the tickets of waiters are made of their median. It is the same for all nodes,
/// no client's wall clock takes part, and no minority of the nodes moves it further than the other
/// nodes' clocks differ.
#[derive(Clone, Debug)]
pub struct NodeClocks {
    /// Each node's clock in microseconds, and when it was read.
    read: Vec<Option<(Moment, u64)>>,
}

impl NodeClocks {
    /// The clocks of so many nodes, none of which is read yet.
    pub fn new(nodes: usize) -> Self {
        Self { read: vec![None; nodes] }
    }

    /// A node's clock was read, in microseconds since the Unix epoch, and the answer came at `now`.
    ///
    /// The answer took some time, so the clock shows more by now. A reading of the last
    /// 100 ms whose answer was quicker is closer to the truth, and is kept.
    pub fn saw(&mut self, now: Moment, node: usize, micros: u64) {
        let reading = &mut self.read[node];
        let is_better =
            |known: &(Moment, u64)| now.since(known.0) < LATEST && shown(*known, now) > micros;
        if reading.as_ref().is_none_or(|known| !is_better(known)) {
            *reading = Some((now, micros));
        }
    }

    /// The time at `moment` by the nodes' clocks, in microseconds: their median, within the range that
    /// every language and server knows exactly. `None` while no clock is read.
    pub fn at(&self, moment: Moment) -> Option<u64> {
        let (mut times, mut count) = ([0; MAX_NODES], 0);
        for reading in self.read.iter().flatten() {
            times[count] = shown(*reading, moment).clamp(1, FENCE_LIMIT - 1);
            count += 1;
        }
        let times = &mut times[..count];
        times.sort_unstable();
        times.get(count.checked_sub(1)? / 2).copied()
    }
}

/// What a clock shows at `moment` that showed this then.
fn shown((seen, micros): (Moment, u64), moment: Moment) -> u64 {
    let later = micros.saturating_add(microseconds(moment.since(seen)));
    later.saturating_sub(microseconds(seen.since(moment)))
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
