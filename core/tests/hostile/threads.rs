//! Periods in which no thread can be started.
//!
//! The tests limit the process's memory, and `RUST_MIN_STACK` gives threads stacks that do not fit into the
//! limit. Unlike a limit on the number of threads, this also works for root.

use crate::servers::Servers;
use crate::{TIMEOUT, acquire, alone, client, wait};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::{Duration, Instant};

const STACK: &str = "1073741824";
/// The memory left for everything but stacks, in bytes.
const MARGIN: u64 = 256 << 20;

/// Runs `work` while no thread can be started.
pub fn without_threads<T>(work: impl FnOnce() -> T) -> T {
    let pages: u64 = {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').next().unwrap().parse().unwrap()
    };
    let before = getrlimit(Resource::As);
    let limit = pages * rustix::param::page_size() as u64 + MARGIN;
    setrlimit(Resource::As, Rlimit { current: Some(limit), ..before }).unwrap();
    assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "a thread could be started");
    let done = work();
    setrlimit(Resource::As, before).unwrap();
    done
}

#[test]
fn a_node_is_connected_again_once_threads_can_be_started() {
    let name = "threads::a_node_is_connected_again_once_threads_can_be_started";
    if !alone(name, &[("RUST_MIN_STACK", STACK)]) {
        return;
    }
    // The first acquire starts the runtime, while threads can still be started.
    let _ = acquire(&client(&["memory://threads".to_owned()], TIMEOUT).lock("r"));
    let servers = Servers::start(1);
    // To resolve a host name, the client needs another thread, which cannot be started here.
    let url = servers.urls[0].replace("127.0.0.1", "localhost");
    assert!(url.contains("localhost"), "{url}");
    let lock = client(&[url], TIMEOUT).lock("r");
    let error = without_threads(|| wait(lock.acquire()).expect_err("the node cannot be reached"));
    assert_eq!(error.code(), quorlock::ErrorCode::NoQuorum);
    assert!(error.nodes()[0].detail.contains("without a thread"), "{error:?}");
    let began = Instant::now();
    while let Err(error) = wait(lock.acquire()) {
        assert!(began.elapsed() < TIMEOUT, "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
