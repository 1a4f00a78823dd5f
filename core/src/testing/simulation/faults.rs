//! The kinds of faults in a simulation, and the task that injects faults at random. Every fault ends by itself.

use super::process::Process;
use super::scenario::Scenario;
use super::witness::Witness;
use super::world::World;
use futures_util::future::join_all;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The longest duration of a fault, in milliseconds.
const LONGEST: u64 = 4_000;

pub(super) type Processes = Arc<Mutex<Vec<Arc<Process>>>>;

/// Injects faults, some of them concurrent, until the scenario's time is over. Returns when the last fault
/// has ended.
pub(super) async fn run(
    world: Arc<World>,
    scenario: Arc<Scenario>,
    processes: Processes,
    witness: Arc<Witness>,
) {
    let mut faults = JoinSet::new();
    while let Some(pause) = scenario.faults.pause
        && world.elapsed() < scenario.length
    {
        sleep(world.milliseconds(0..pause)).await;
        let process = {
            let processes = processes.lock().expect("no thread panics");
            Arc::clone(&processes[world.random(0..processes.len() as u64) as usize])
        };
        let lasts = match world.random(0..3) {
            0 => world.milliseconds(1..50),
            1 => world.milliseconds(1..500),
            _ => world.milliseconds(1..LONGEST),
        };
        let node = world.random(0..scenario.nodes as u64) as usize;
        let world = Arc::clone(&world);
        match world.random(0..100) {
            0..5 => {
                world.count("faults: queues forged");
                world.log(format!("the queues of node {node} are forged"));
                world.nodes[node].forge_queues();
                continue;
            }
            5..10 => faults.spawn(silence(world, process, node, lasts)),
            10..35 => faults.spawn(disturb(world, process, node, lasts)),
            35..45 => faults.spawn(freeze(world, node, lasts)),
            45..57 => faults.spawn(restart(world, node, lasts, scenario.faults.memory_loss)),
            57..60 => faults.spawn(blackout(world, lasts, scenario.faults.memory_loss)),
            60..80 => faults.spawn(stop(world, process, lasts)),
            80..90 => faults.spawn(slow_down(world, process, node, lasts)),
            _ => {
                let error = scenario.wall_clock_error;
                let error = world.random(0..2 * error as u64 + 1) as i64 - error;
                world.count("faults: wall clocks set");
                world.log(format!("the wall clock of {} is set", process.name));
                process.step_wall_clock(error);
                continue;
            }
        };
    }
    if scenario.faults.pause.is_none() {
        sleep(scenario.length).await;
    }
    while faults.join_next().await.is_some() {}
    witness.end();
}

/// Partitions a process from a node in one direction or both, or breaks their connections.
async fn disturb(world: Arc<World>, process: Arc<Process>, node: usize, lasts: Duration) {
    let name = &process.name;
    let link = &process.links[node];
    let kind = world.random(0..5);
    match kind {
        3 | 4 => {
            let is_lost = kind == 3;
            world.count("faults: connections cut");
            world.log(format!("{name}: connection to node {node} is cut, lost: {is_lost}"));
            let trouble = world.evidence.begin(node, Some(name));
            world.evidence.end(world.elapsed(), trouble);
            return link.cut(is_lost);
        }
        _ => world.count("faults: partitions"),
    }
    let up = kind != 0;
    let down = kind != 1;
    world.log(format!("{name}: node {node} is cut off for {lasts:?}: to {up}, from {down}"));
    let trouble = world.evidence.begin(node, Some(name));
    if up {
        link.up.send_replace(false);
    }
    if down {
        link.down.send_replace(false);
    }
    sleep(lasts).await;
    link.up.send_replace(true);
    link.down.send_replace(true);
    world.evidence.end(world.elapsed(), trouble);
    world.log(format!("{name}: node {node} can be reached again"));
}

/// Drops the notifications of a node to a process.
async fn silence(world: Arc<World>, process: Arc<Process>, node: usize, lasts: Duration) {
    world.count("faults: notifications lost");
    world.log(format!("{}: notifications of node {node} are lost for {lasts:?}", process.name));
    process.links[node].loses_calls.store(true, Ordering::Relaxed);
    sleep(lasts).await;
    process.links[node].loses_calls.store(false, Ordering::Relaxed);
}

async fn slow_down(world: Arc<World>, process: Arc<Process>, node: usize, lasts: Duration) {
    world.count("faults: slow links");
    world.log(format!("{}: node {node} is slow for {lasts:?}", process.name));
    let trouble = world.evidence.begin(node, Some(&process.name));
    process.links[node].set_delay(0..world.random(5..200));
    sleep(lasts).await;
    process.links[node].set_delay(0..2);
    world.evidence.end(world.elapsed(), trouble);
}

async fn freeze(world: Arc<World>, node: usize, lasts: Duration) {
    world.count("faults: nodes frozen");
    world.log(format!("node {node} is frozen for {lasts:?}"));
    let trouble = world.evidence.begin(node, None);
    world.nodes[node].freeze();
    sleep(lasts).await;
    world.nodes[node].thaw();
    world.evidence.end(world.elapsed(), trouble);
    world.log(format!("node {node} runs again"));
}

async fn restart(world: Arc<World>, node: usize, lasts: Duration, may_forget: bool) {
    if !world.nodes[node].is_up() {
        return;
    }
    let forgets = may_forget && world.chance(70);
    world.count(if forgets { "faults: nodes emptied" } else { "faults: nodes restarted" });
    world.log(format!("node {node} is down for {lasts:?}, forgets: {forgets}"));
    let trouble = world.evidence.begin(node, None);
    world.nodes[node].kill();
    sleep(lasts).await;
    world.nodes[node].start(forgets);
    world.evidence.end(world.elapsed(), trouble);
    world.log(format!("node {node} is up again"));
}

/// Restarts all nodes at the same time.
async fn blackout(world: Arc<World>, lasts: Duration, may_forget: bool) {
    world.count("faults: blackouts");
    // Most blackouts are short, as if one command had restarted all nodes.
    let lasts = if world.chance(70) { lasts.min(Duration::from_millis(5)) } else { lasts };
    let nodes = 0..world.nodes.len();
    join_all(nodes.map(|node| restart(Arc::clone(&world), node, lasts, may_forget))).await;
}

/// Stops a process, suspends its machine, or kills the process.
async fn stop(world: Arc<World>, process: Arc<Process>, lasts: Duration) {
    if process.is_stopped() || process.is_dead() {
        return;
    }
    let name = &process.name;
    match world.random(0..4) {
        0 => {
            world.count("faults: processes killed");
            world.log(format!("{name} is killed"));
            process.kill();
        }
        kind => {
            let suspended = kind == 1;
            let what = if suspended { "faults: suspensions" } else { "faults: processes stopped" };
            world.count(what);
            world.log(format!("{name} is stopped for {lasts:?}, suspended: {suspended}"));
            process.stop();
            sleep(lasts).await;
            process.go_on(if suspended { lasts } else { Duration::ZERO });
            world.log(format!("{name} resumes"));
        }
    }
}
