//! The nodes' clocks as one client last read them. Fence proposals and waiters' tickets are computed from these clocks.
//!
//! The validity of a lease never depends on these clocks: only local [`Moment`]s decide when a lease ends. The client
//! (`node/clocks.rs` of the crate `quorlock`) records every clock reading that an answer of a node carries.

use crate::fence::FENCE_LIMIT;
use crate::quorum::MAX_NODES;
use crate::term::Moment;
use core::time::Duration;

/// A reading of this age or older is always replaced by a newer reading. Clocks run at different rates, so an old
/// reading is inaccurate.
const LATEST: Duration = Duration::from_millis(100);

/// The nodes' clocks, as a client last read them.
///
/// Fence proposals and waiters' tickets are the median of these clocks. The median does not depend on any client's wall
/// clock. A minority of nodes can move the median only within the range of the other nodes' clocks.
#[derive(Clone, Debug)]
pub struct NodeClocks {
    /// The kept reading of each node: the moment at which the reading arrived, and the node's time in microseconds
    /// since the Unix epoch.
    read: Vec<Option<(Moment, u64)>>,
}

impl NodeClocks {
    /// Creates the state for `nodes` nodes, with no reading yet.
    pub fn new(nodes: usize) -> Self {
        Self { read: vec![None; nodes] }
    }

    /// Records a reading of a node's clock: `micros` since the Unix epoch, in an answer that arrived at
    /// `now`.
    ///
    /// A reading is a little too low, because the clock went on while the answer travelled. If an earlier reading, less
    /// than 100 ms old, implies a later time at `now`, then the earlier answer travelled faster. The earlier reading is
    /// therefore more accurate, and is kept.
    ///
    /// # Panics
    ///
    /// If `node` is not below the number of nodes.
    pub fn saw(&mut self, now: Moment, node: usize, micros: u64) {
        let reading = &mut self.read[node];
        let is_better =
            |known: &(Moment, u64)| now.since(known.0) < LATEST && shown(*known, now) > micros;
        if reading.as_ref().is_none_or(|known| !is_better(known)) {
            *reading = Some((now, micros));
        }
    }

    /// Returns the median of the nodes' clocks at `moment`, in microseconds since the Unix epoch, from 1 to
    /// [`FENCE_LIMIT`] − 1. `None` if no clock has been read yet.
    pub fn at(&self, moment: Moment) -> Option<u64> {
        let mut times = [0; MAX_NODES];
        let mut count = 0;
        for reading in self.read.iter().flatten() {
            times[count] = shown(*reading, moment).clamp(1, FENCE_LIMIT - 1);
            count += 1;
        }
        let times = &mut times[..count];
        times.sort_unstable();
        times.get(count.checked_sub(1)? / 2).copied()
    }
}

/// Returns the time that a clock shows at `moment` if the clock showed `micros` at `seen`.
fn shown((seen, micros): (Moment, u64), moment: Moment) -> u64 {
    let later = micros.saturating_add(microseconds(moment.since(seen)));
    later.saturating_sub(microseconds(seen.since(moment)))
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
