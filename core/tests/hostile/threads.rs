//! No thread can be started for a while. The limit is one on the process's memory: threads here have large
//! stacks, by `RUST_MIN_STACK`, which do not fit into it. Unlike a limit on threads, it holds for root, too.

use crate::servers::Servers;
use crate::{TIMEOUT, acquire, alone, client, wait};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::{Duration, Instant};

const STACK: &str = "1073741824";
/// What remains for everything but stacks.
const MARGIN: u64 = 256 << 20;

/// Does something while no thread can be started.
pub fn without_threads<T>(work: impl FnOnce() -> T) -> T {
    let pages: u64 = {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').next().unwrap().parse().unwrap()
    };
    let before = getrlimit(Resource::As);
    let limit = pages * rustix::param::page_size() as u64 + MARGIN;
    setrlimit(Resource::As, Rlimit { current: Some(limit), ..before }).unwrap();
    assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "threads can be started");
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
    // The runtime is there.
    let _ = acquire(&client(&["memory://threads".to_owned()], TIMEOUT).lock("r"));
    let servers = Servers::start(1);
    // The host name is looked up by a thread.
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
