//! Runs seeds and prints totals. `make simulate` runs the test in this file.

use super::life::{Work, simulate};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The totals of many seeds.
#[derive(Default)]
struct Total {
    counts: BTreeMap<&'static str, u64>,
    virtual_time: Duration,
    /// Seeds that violate a guarantee.
    failed: Vec<u64>,
}

#[test]
fn every_seed_keeps_the_guarantees() {
    match std::env::var("SEED") {
        Ok(seed) => show(seed.parse().expect("SEED is a number")),
        Err(_) => run(number("FIRST_SEED", 1), number("SEEDS", 800)),
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Runs `seeds` seeds from `first` on. Stops when a seed fails.
fn run(first: u64, seeds: u64) {
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let total = Mutex::new(Total::default());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while lock(&total).failed.is_empty() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let run = simulate(seed, false, Work::Lock);
                    let mut total = lock(&total);
                    for (what, count) in run.counts {
                        *total.counts.entry(what).or_default() += count;
                    }
                    total.virtual_time += run.virtual_time;
                    if !run.violations.is_empty() {
                        total.failed.push(seed);
                    }
                }
            });
        }
    });
    let Total { counts, virtual_time, failed } =
        total.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (what, count) in counts {
        println!("{count:>12} {what}");
    }
    let hours = virtual_time.as_secs_f64() / 3600.0;
    let took = began.elapsed().as_secs_f64();
    println!(
        "simulation: {seeds} seeds from {first}, {hours:.0} hours of virtual time in {took:.0} s"
    );
    if let Some(seed) = failed.into_iter().min() {
        println!("seed {seed} violates a guarantee; `make simulate SEED={seed}` reproduces it");
        show(seed);
    }
}

/// Runs one seed and prints its history.
fn show(seed: u64) {
    let run = simulate(seed, true, Work::Lock);
    println!("{}\n\nseed {seed}: {:#?}\n{:#?}", run.story, run.scenario, run.counts);
    assert!(run.violations.is_empty(), "{}", run.violations.join("\n"));
    println!("no violation");
}

fn lock(total: &Mutex<Total>) -> MutexGuard<'_, Total> {
    total.lock().unwrap_or_else(PoisonError::into_inner)
}
