//! The protocol of contenders in Rust; see `bench/README.md`.

pub mod rounds;

use quorlock::{Lease, Pending};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::io::stdin;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// The number of cycles on each key, and the number of keys that are used concurrently.
#[derive(Clone, Copy)]
pub struct Request {
    pub cycles: usize,
    pub concurrency: usize,
}

/// The duration of each cycle in microseconds, or the reason why one failed.
pub type Micros = Result<Vec<f64>, String>;

/// Answers every request on standard input with one line.
pub fn serve(mut run: impl FnMut(Request) -> Micros) {
    for line in stdin().lines() {
        let request = parse(&line.expect("standard input"));
        let number = |name: &str| request[name].as_u64().expect("a number") as usize;
        let request = Request { cycles: number("cycles"), concurrency: number("concurrency") };
        let (began, cpu) = (Instant::now(), cpu_time());
        let answer = match run(request) {
            Ok(micros) => {
                let seconds = began.elapsed().as_secs_f64();
                let cpu = (cpu_time() - cpu).as_secs_f64();
                json!({ "micros": micros, "seconds": seconds, "cpu": cpu })
            }
            Err(error) => json!({ "error": error }),
        };
        println!("{answer}");
    }
}

/// Answers every request with loops that acquire and release, all at the same time. `acquires` returns what the loop of a
/// key acquires with.
pub fn serve_loops<A>(acquires: impl Fn(usize) -> A)
where
    A: Fn() -> Pending<quorlock::Result<Lease>> + Send + 'static,
{
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    serve(|Request { cycles, concurrency }| {
        let tasks: Vec<_> =
            (0..concurrency).map(|key| runtime.spawn(run_loop(acquires(key), cycles))).collect();
        runtime.block_on(async {
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("no panic")?);
            }
            Ok(all)
        })
    });
}

async fn run_loop(acquire: impl Fn() -> Pending<quorlock::Result<Lease>>, cycles: usize) -> Micros {
    let mut micros = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let start = Instant::now();
        let lease = acquire().await.map_err(|error| error.to_string())?;
        if !lease.release().await {
            return Err("not released".into());
        }
        micros.push(micros_since(start));
    }
    Ok(micros)
}

/// Parses a line of standard input.
pub fn parse(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

/// Runs the cycles one after another, and measures each.
pub fn time(cycles: usize, mut cycle: impl FnMut() -> Result<(), String>) -> Micros {
    let timed = |_| {
        let start = Instant::now();
        cycle().map(|()| micros_since(start))
    };
    (0..cycles).map(timed).collect()
}

pub fn micros_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// Returns the CPU time that all threads of this process have used so far.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("a time that is not negative")
}

/// Returns nanoseconds of the clock that all processes share.
pub fn now() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Returns a random time between `mean - spread` and `mean + spread`.
pub fn about(mean: Duration, spread: Duration) -> Duration {
    let mut byte = [0; 1];
    getrandom::fill(&mut byte).expect("randomness");
    mean - spread + 2 * spread * u32::from(byte[0]) / 255
}
