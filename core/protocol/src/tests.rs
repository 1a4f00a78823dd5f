//! Tests of the protocol: exhaustive where the number of cases is small enough, random (`properties`) elsewhere.

mod claim;
mod exhaustive;
mod fencing;
mod footprint;
mod forgetting;
mod keeping;
mod late;
mod leader;
mod leases;
mod permits;
mod permits_exhaustive;
mod promises;
mod properties;
mod shared;
mod transfer;
mod turns;
mod upkeep;
mod waiting;

use crate::node::entry::{Entry, LockValue};
use crate::node::readers::LockMode;
use crate::{Ended, Lease, Moment, Quorum, Term};
use std::time::Duration;

const TERM: Term = Term { ttl: Duration::from_secs(10), drift_factor: 0.01 };

impl LockValue for u8 {
    fn readers() -> Self {
        Self::MAX
    }
}

impl LockValue for char {
    fn readers() -> Self {
        '*'
    }
}

/// The moment `milliseconds` after the clock's origin.
fn at(milliseconds: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(milliseconds))
}

/// The validity end of a round that begins at `at(0)` with [`TERM`], in milliseconds: 10 s − 100 ms − 2 ms.
const END: u64 = 9_898;

/// Returns each entry with the mode in which a request locks it: exclusive.
fn exclusive<'a, T: 'a>(
    entries: impl IntoIterator<Item = &'a mut Entry<T>>,
) -> Vec<(&'a mut Entry<T>, LockMode)> {
    entries.into_iter().map(|entry| (entry, LockMode::Exclusive)).collect()
}

/// Whether the lease has ended at `now` for a reason other than its release.
fn is_lost(lease: &Lease, now: Moment) -> bool {
    lease.ended(now).is_some_and(|ended| ended != Ended::Released)
}

/// The lease of a round that all nodes granted with fence 7.
fn granted_by_all(quorum: Quorum, end: Moment, limit: Option<Moment>) -> Lease {
    Lease::new(quorum, quorum.all(), 7, end, limit)
}

/// All sequences of `length` digits from 0 to `base` − 1.
fn digits(base: usize, length: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..base.pow(length as u32)).map(move |mut number| {
        let mut digits = Vec::with_capacity(length);
        for _ in 0..length {
            digits.push(number % base);
            number /= base;
        }
        digits
    })
}

/// All permutations of `0..length`.
fn orders(length: usize) -> Vec<Vec<usize>> {
    if length == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(length - 1) {
        for place in 0..length {
            let mut order = shorter.clone();
            order.insert(place, length - 1);
            all.push(order);
        }
    }
    all
}
