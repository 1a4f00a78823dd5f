//! Runs simulations.

use super::faults::{self, Processes};
use super::network::Link;
use super::node::Node;
use super::process::{Process, within};
use super::program::Program;
use super::scenario::Scenario;
use super::witness::Witness;
use super::world::World;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

/// The virtual time in which a simulation has to end.
const LIMIT: Duration = Duration::from_secs(600);

/// The virtual time after which everything that is done in the background is done.
const SETTLED: Duration = Duration::from_secs(20);

/// What became of a seed.
struct Run {
    counts: BTreeMap<&'static str, u64>,
    virtual_time: Duration,
    violations: Vec<String>,
    scenario: Scenario,
    story: String,
}

fn simulate(seed: u64, is_traced: bool) -> Run {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    // Without it, tasks that are woken together go on in any order.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    let runtime = builder.build().expect("a runtime without IO");
    let mut random = fastrand::Rng::with_seed(seed);
    let scenario = Arc::new(Scenario::of(&mut random));
    let (world, virtual_time) = runtime.block_on(async {
        let nodes = (0..scenario.nodes).map(|number| {
            let (rate, error) = (scenario.rate(&mut random), random.i64(-20_000_000..20_000_000));
            Node::new(number, rate, error)
        });
        let nodes = nodes.collect();
        let world = World::new(random.fork(), nodes, is_traced);
        if timeout(LIMIT, live(&world, &scenario, &mut random)).await.is_err() {
            world.violation("it does not come to an end".to_owned());
        }
        let virtual_time = world.elapsed();
        (world, virtual_time)
    });
    Run {
        counts: world.counts(),
        virtual_time,
        violations: world.violations(),
        scenario: Scenario::clone(&scenario),
        story: world.story(),
    }
}

async fn live(world: &Arc<World>, scenario: &Arc<Scenario>, random: &mut fastrand::Rng) {
    let witness = Witness::new(scenario.resources);
    let processes = Processes::default();
    for number in 0..scenario.processes {
        let process = start(world, scenario, random, format!("process {number}"));
        processes.lock().expect("nobody panics").push(process);
    }
    let faults = tokio::spawn(faults::run(
        Arc::clone(world),
        Arc::clone(scenario),
        Arc::clone(&processes),
        Arc::clone(&witness),
    ));
    let mut watched = Vec::new();
    let mut number = 0;
    // A process that was killed is started again, as another one.
    while !witness.is_over() {
        let mut all = processes.lock().expect("nobody panics").clone();
        for (place, process) in all.iter_mut().enumerate() {
            if process.is_dead() {
                let name = format!("process {}", scenario.processes + number);
                number += 1;
                *process = start(world, scenario, random, name);
                processes.lock().expect("nobody panics")[place] = Arc::clone(process);
            }
            if !watched.iter().any(|(other, _)| Arc::ptr_eq(other, process)) {
                let tasks = employ(process, scenario, &witness);
                watched.push((Arc::clone(process), tasks));
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    faults.await.expect("faults do not fail");
    for (process, (_, tasks)) in &mut watched {
        for task in tasks.drain(..) {
            if !process.is_dead() {
                // An error means that it panicked, which is told already.
                let _ = task.await;
            }
        }
    }
    sleep(SETTLED).await;
    check_litter(world);
    undisturbed(world, scenario, random, &witness).await;
    for (process, (client, _)) in watched {
        if !process.is_dead() {
            let closed = within(&process, || client.close());
            closed.await;
        }
    }
}

fn start(
    world: &Arc<World>,
    scenario: &Scenario,
    random: &mut fastrand::Rng,
    name: String,
) -> Arc<Process> {
    let links = (0..scenario.nodes).map(|_| Link::new()).collect();
    let (rate, error) = (scenario.rate(random), scenario.wall_clock_error(random));
    Process::new(world, name, rate, error, links)
}

type Employed = (crate::Client, Vec<tokio::task::JoinHandle<()>>);

/// Gives a process its client and its tasks.
fn employ(process: &Arc<Process>, scenario: &Arc<Scenario>, witness: &Arc<Witness>) -> Employed {
    let client = within(process, || scenario.client());
    let tasks = (0..scenario.tasks).map(|_| {
        let program = program(process, &client, scenario, witness);
        process.spawn(program.run())
    });
    let tasks = tasks.collect();
    (client, tasks)
}

fn program(
    process: &Arc<Process>,
    client: &crate::Client,
    scenario: &Arc<Scenario>,
    witness: &Arc<Witness>,
) -> Program {
    Program {
        process: Arc::clone(process),
        client: client.clone(),
        scenario: Arc::clone(scenario),
        witness: Arc::clone(witness),
    }
}

/// Nothing is left on any node but what a process had that was killed, or what came late.
fn check_litter(world: &World) {
    for node in &world.nodes {
        for token in node.tokens() {
            let maker = world.maker(&token);
            if !world.is_late(&token) && !world.was_killed(&maker) {
                let number = node.number;
                world.violation(format!("node {number} is left with a token of {maker}"));
            }
        }
    }
}

/// With all nodes up, a new process gets everything.
async fn undisturbed(
    world: &Arc<World>,
    scenario: &Arc<Scenario>,
    random: &mut fastrand::Rng,
    witness: &Arc<Witness>,
) {
    let process = start(world, scenario, random, "the last process".to_owned());
    let client = within(&process, || scenario.client());
    let program = program(&process, &client, scenario, witness);
    let _ = process.spawn(program.run_undisturbed()).await;
    let closed = within(&process, || client.close());
    closed.await;
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn no_seed_breaks_a_promise() {
    if let Ok(seed) = std::env::var("SEED") {
        return show(seed.parse().expect("SEED is a number"));
    }
    let (first, seeds) = (number("FIRST_SEED", 1), number("SEEDS", 1_000));
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let total = Mutex::new((BTreeMap::new(), Duration::ZERO));
    let failed = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failed.lock().expect("no panic").is_empty() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let run = simulate(seed, false);
                    let mut total = total.lock().expect("no panic");
                    for (what, count) in run.counts {
                        *total.0.entry(what).or_insert(0) += count;
                    }
                    total.1 += run.virtual_time;
                    if !run.violations.is_empty() {
                        failed.lock().expect("no panic").push(seed);
                    }
                }
            });
        }
    });
    let (counts, virtual_time) = total.into_inner().expect("no panic");
    for (what, count) in counts {
        println!("{count:>12} {what}");
    }
    println!(
        "simulation: seeds {first} to {}: {:.0} hours of virtual time in {:.0} s",
        first + seeds - 1,
        virtual_time.as_secs_f64() / 3600.0,
        began.elapsed().as_secs_f64(),
    );
    if let Some(seed) = failed.into_inner().expect("no panic").into_iter().min() {
        println!("seed {seed} breaks a promise; `make simulate SEED={seed}` shows it again");
        show(seed);
    }
}

/// Runs one seed, and tells its story.
fn show(seed: u64) {
    let run = simulate(seed, true);
    println!("{}\n\nseed {seed}: {:#?}\n{:#?}", run.story, run.scenario, run.counts);
    assert!(run.violations.is_empty(), "{}", run.violations.join("\n"));
    println!("no violation");
}
