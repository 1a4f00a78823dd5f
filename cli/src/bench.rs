//! `quorlock bench`: measures how long an acquire and a release take on the user's own nodes.
//!
//! It uses resources with random names only, and deletes all their keys at the end.

use crate::args::{self, Nodes};
use crate::connect::client;
use crate::duration::{self, show};
use crate::exit;
use crate::output::{Failure, Output, json};
use crate::signals::Signals;
use quorlock::{Client, Error};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The result of a measurement.
#[derive(Serialize)]
struct Measured {
    concurrency: u16,
    seconds: f64,
    /// The number of times a lock was acquired and released.
    cycles: usize,
    per_second: f64,
    acquire_ms: Times,
    release_ms: Times,
    /// An acquire and the following release together.
    cycle_ms: Times,
}

/// Percentiles of durations, in milliseconds.
#[derive(Serialize)]
struct Times {
    median: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

/// The longest `--duration`.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The durations of each acquire and of the following release.
type Cycles = Vec<(Duration, Duration)>;

pub(crate) async fn bench(
    nodes: &Nodes,
    wanted: &args::Bench,
    output: &Output,
) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let length = duration::of(&wanted.duration).filter(|length| !length.is_zero());
    let length = length.filter(|length| *length <= LONGEST).ok_or_else(|| {
        Failure::Usage("--duration must be longer than 0, and at most a year".to_owned())
    })?;
    let resources =
        (0..wanted.concurrency).map(|_| random_name()).collect::<Result<Vec<_>, _>>()?;
    let mut signals = Signals::new().map_err(|error| Failure::own("no signals", &error))?;

    let began = Instant::now();
    let mut workers = JoinSet::new();
    for resource in &resources {
        workers.spawn(work(client.clone(), resource.clone(), began + length));
    }
    let ended = tokio::select! {
        cycles = all(&mut workers) => Ok(cycles),
        signal = signals.end() => Err(signal),
    };
    let seconds = began.elapsed().as_secs_f64();
    tokio::select! {
        cleaned = clean_up(&client, &mut workers, &resources) => cleaned?,
        // This signal ends the wait for nodes that do not answer.
        signal = signals.end() => return Ok(exit::SIGNAL + signal),
    }
    match ended {
        Err(signal) => Ok(exit::SIGNAL + signal),
        Ok(Err(error)) => Err(error.into()),
        Ok(Ok(cycles)) => {
            let text = text(&Measured::of(wanted.concurrency, seconds, &cycles), output);
            tokio::select! {
                biased;
                signal = signals.end() => Ok(exit::SIGNAL + signal),
                printed = output.print_aside(&text) => printed.map(|()| exit::OK),
            }
        }
    }
}

/// Acquires and releases one lock in a loop, at least once.
async fn work(client: Client, resource: String, until: Instant) -> Result<Cycles, Error> {
    let lock = client.lock(resource);
    let mut cycles = Cycles::new();
    while cycles.is_empty() || Instant::now() < until {
        let began = Instant::now();
        let lease = lock.acquire().await?;
        let acquired = Instant::now();
        lease.release().await;
        cycles.push((acquired - began, acquired.elapsed()));
    }
    Ok(cycles)
}

/// Stops the workers, deletes the keys of the resources, and closes the client.
async fn clean_up(
    client: &Client,
    workers: &mut JoinSet<Result<Cycles, Error>>,
    resources: &[String],
) -> Result<(), Error> {
    workers.shutdown().await;
    for resource in resources {
        client.forget(resource).await?;
    }
    client.close().await;
    Ok(())
}

async fn all(workers: &mut JoinSet<Result<Cycles, Error>>) -> Result<Cycles, Error> {
    let mut all = Cycles::new();
    while let Some(cycles) = workers.join_next().await {
        all.extend(cycles.expect("a worker neither panics nor is cancelled")?);
    }
    Ok(all)
}

fn random_name() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::own("no random numbers", &error.into()))?;
    let mut name = "quorlock-bench:".to_owned();
    for byte in bytes {
        let _ = write!(name, "{byte:02x}");
    }
    Ok(name)
}

impl Measured {
    fn of(concurrency: u16, seconds: f64, cycles: &Cycles) -> Self {
        Self {
            concurrency,
            seconds,
            cycles: cycles.len(),
            per_second: cycles.len() as f64 / seconds,
            acquire_ms: Times::of(cycles.iter().map(|(acquire, _)| *acquire)),
            release_ms: Times::of(cycles.iter().map(|(_, release)| *release)),
            cycle_ms: Times::of(cycles.iter().map(|(acquire, release)| *acquire + *release)),
        }
    }
}

impl Times {
    /// Panics if `times` is empty.
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        // The smallest duration that at least `part` per cent of all durations do not exceed.
        let percentile = |part: usize| {
            let at = (times.len() * part).div_ceil(100).max(1) - 1;
            times[at].as_secs_f64() * 1e3
        };
        Self {
            median: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max: percentile(100),
        }
    }
}

fn text(measured: &Measured, output: &Output) -> String {
    if output.json {
        return format!("{}\n", json(measured));
    }
    let Measured { concurrency, seconds, cycles, per_second, .. } = measured;
    let mut text = format!(
        "{cycles} times acquired and released in {seconds:.1} s, {concurrency} at once: {per_second:.0} per second\n\n\
         {:<10}{:>12}{:>12}{:>12}{:>12}\n",
        "", "median", "p90", "p99", "max"
    );
    let rows = [
        ("acquire", &measured.acquire_ms),
        ("release", &measured.release_ms),
        ("both", &measured.cycle_ms),
    ];
    for (name, times) in rows {
        let [median, p90, p99, max] = [times.median, times.p90, times.p99, times.max]
            .map(|milliseconds| show(Duration::from_secs_f64(milliseconds / 1e3)));
        text += &format!("{name:<10}{median:>12}{p90:>12}{p99:>12}{max:>12}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let times = |count: u64| Times::of((1..=count).rev().map(Duration::from_millis));
        let all = |times: Times| {
            [times.median, times.p90, times.p99, times.max].map(|ms| ms.round() as u64)
        };
        assert_eq!(all(times(1)), [1, 1, 1, 1]);
        assert_eq!(all(times(10)), [5, 9, 10, 10]);
        assert_eq!(all(times(1000)), [500, 900, 990, 1000]);
    }
}
