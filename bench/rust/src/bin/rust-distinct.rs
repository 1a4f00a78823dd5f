//! Runs cycles that each use a new resource. `bench/scale/distinct.py` describes the protocol.

use quorlock::Client;
use quorlock_bench::{Micros, Request, micros_since, serve};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

async fn run(client: Client, next: Rc<Cell<usize>>, cycles: usize) -> Micros {
    let mut micros = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let number = next.replace(next.get() + 1);
        let start = Instant::now();
        let lock = client.lock(format!("distinct-{number:08}"));
        let lease = lock.acquire().await.map_err(|error| error.to_string())?;
        if !lease.release().await {
            return Err("not released".into());
        }
        micros.push(micros_since(start));
    }
    Ok(micros)
}

fn main() {
    let builder = Client::builder().nodes(std::env::args().skip(1)).auto_extend(false);
    let client = builder.build().expect("a client");
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let next = Rc::new(Cell::new(0));
    serve(|Request { cycles, concurrency }| {
        LocalSet::new().block_on(&runtime, async {
            let start = |_| tokio::task::spawn_local(run(client.clone(), next.clone(), cycles));
            let tasks: Vec<_> = (0..concurrency).map(start).collect();
            let mut all = Vec::with_capacity(cycles * concurrency);
            for task in tasks {
                all.extend(task.await.expect("no panic")?);
            }
            Ok(all)
        })
    });
}
