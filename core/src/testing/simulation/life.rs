//! Runs a simulated world from its seed to its end: first with faults, then without faults and with the final checks.

use super::faults::{self, Processes};
use super::link::Link;
use super::network;
use super::node::Node;
use super::process::{Process, within};
use super::program::Program;
use super::scenario::Scenario;
use super::witness::Witness;
use super::world::World;
use crate::Client;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The virtual time within which a simulation must end.
const LIMIT: Duration = Duration::from_secs(600);

/// The virtual time after which all background work has ended.
const SETTLED: Duration = Duration::from_secs(20);

/// The result of a seed.
pub(super) struct Run {
    pub(super) scenario: Scenario,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) virtual_time: Duration,
    pub(super) violations: Vec<String>,
    pub(super) story: String,
}

/// What the processes of a world do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// They acquire locks, hold them and hand them over.
    Lock,
    /// They elect leaders.
    Elect,
}

/// Runs a seed. With `is_traced`, the history contains every request.
pub(super) fn simulate(seed: u64, is_traced: bool, work: Work) -> Run {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    // Without this seed, tokio resumes tasks that are woken together in a random order, and runs are not reproducible.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    let runtime = builder.build().expect("a runtime without IO");
    runtime.block_on(async {
        let mut random = fastrand::Rng::with_seed(seed);
        let scenario = Arc::new(Scenario::of(seed, &mut random));
        let nodes = (0..scenario.nodes).map(|number| {
            let error = scenario.node_clock(&mut random);
            Node::new(number, scenario.rate(&mut random), error)
        });
        let world = World::new(nodes.collect(), random.fork(), Some(seed), is_traced);
        let witness = Witness::new(scenario.resources, scenario.fences_grow);
        let life_world = Arc::clone(&world);
        let mut life = Life { world: life_world, scenario, witness, random, started: 0, work };
        if timeout(LIMIT, life.live()).await.is_err() {
            world.violation("the simulation does not end".to_owned());
        }
        Run {
            scenario: Scenario::clone(&life.scenario),
            counts: world.counts(),
            virtual_time: world.elapsed(),
            violations: world.violations(),
            story: world.story(),
        }
    })
}

struct Life {
    world: Arc<World>,
    scenario: Arc<Scenario>,
    witness: Arc<Witness>,
    random: fastrand::Rng,
    /// The number of processes started so far.
    started: usize,
    work: Work,
}

/// A process with its client and its tasks.
struct Employed {
    process: Arc<Process>,
    client: Client,
    tasks: Vec<JoinHandle<()>>,
}

impl Life {
    async fn live(&mut self) {
        let mut employed = self.disturbed().await;
        for Employed { process, tasks, .. } in &mut employed {
            for task in tasks.drain(..) {
                if !process.is_dead() {
                    // An error means that the task panicked, which is reported already.
                    let _ = task.await;
                }
            }
        }
        sleep(SETTLED).await;
        self.check_litter();
        self.undisturbed().await;
        for Employed { process, client, .. } in employed {
            if !process.is_dead() {
                let closed = within(&process, || client.close());
                closed.await;
            }
        }
    }

    /// Runs the processes while faults happen, and replaces killed processes. Returns when all faults have
    /// ended.
    async fn disturbed(&mut self) -> Vec<Employed> {
        let processes = Processes::default();
        let mut employed = Vec::new();
        for _ in 0..self.scenario.processes {
            let new = self.employ();
            lock(&processes).push(Arc::clone(&new.process));
            employed.push(new);
        }
        let world = Arc::clone(&self.world);
        let scenario = Arc::clone(&self.scenario);
        let alive = Arc::clone(&processes);
        let witness = Arc::clone(&self.witness);
        let faults = tokio::spawn(faults::run(world, scenario, alive, witness));
        while !self.witness.is_over() {
            for place in 0..self.scenario.processes {
                let is_dead = lock(&processes)[place].is_dead();
                if is_dead {
                    let new = self.employ();
                    lock(&processes)[place] = Arc::clone(&new.process);
                    employed.push(new);
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        faults.await.expect("faults do not fail");
        employed
    }

    fn start(&mut self) -> (Arc<Process>, Client) {
        let name = format!("process {}", self.started);
        self.started += 1;
        let links = (0..self.scenario.nodes).map(|_| Link::new()).collect();
        let rate = self.scenario.rate(&mut self.random);
        let error = self.scenario.wall_clock(&mut self.random);
        let process = network::start(&self.world, name, rate, error, links);
        let client = within(&process, || self.scenario.client());
        (process, client)
    }

    fn employ(&mut self) -> Employed {
        let (process, client) = self.start();
        let tasks = 0..self.scenario.tasks;
        let task = |_| {
            let program = self.program(&process, &client);
            let work = self.work;
            process.spawn(async move {
                match work {
                    Work::Lock => program.run().await,
                    Work::Elect => program.elect().await,
                }
            })
        };
        let tasks = tasks.map(task).collect();
        Employed { process, client, tasks }
    }

    fn program(&self, process: &Arc<Process>, client: &Client) -> Program {
        Program {
            process: Arc::clone(process),
            client: client.clone(),
            scenario: Arc::clone(&self.scenario),
            witness: Arc::clone(&self.witness),
        }
    }

    /// Checks that no node has a queue, and that every key on a node belongs to a killed process, to a request that
    /// arrived late, or to a detached lease.
    fn check_litter(&self) {
        for node in &self.world.nodes {
            if node.has_waiters() {
                self.world.violation(format!("node {} is left with a queue", node.number));
            }
            for token in node.tokens() {
                let maker = self.world.maker(&token);
                if !self.world.is_late(&token) && !self.world.was_killed(&maker) {
                    let shown = token.as_str().get(..6).unwrap_or_default();
                    let text =
                        format!("node {} is left with the token {shown} of {maker}", node.number);
                    self.world.violation(text);
                }
            }
        }
    }

    /// Checks that a new process can acquire every lock now that all nodes are up.
    async fn undisturbed(&mut self) {
        let (process, client) = self.start();
        let program = self.program(&process, &client);
        // An error means that the task panicked, which is reported already.
        let _ = process.spawn(program.run_undisturbed()).await;
        let closed = within(&process, || client.close());
        closed.await;
    }
}

fn lock(processes: &Processes) -> std::sync::MutexGuard<'_, Vec<Arc<Process>>> {
    processes.lock().unwrap_or_else(PoisonError::into_inner)
}
