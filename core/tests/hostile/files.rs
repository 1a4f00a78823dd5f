//! Periods in which no file can be opened.

use crate::{TIMEOUT, acquire, alone, client, wait};
use quorlock::ErrorCode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Runs `work` while the process can open at most `spare` more files.
fn with_files<T>(spare: usize, work: impl FnOnce() -> T) -> T {
    // The limit applies to the numbers of files, not to how many files are open. Each new file gets the lowest free
    // number.
    let is_free = |number: &u64| !fs::exists(format!("/proc/self/fd/{number}")).unwrap();
    let limit = (0..).filter(is_free).nth(spare).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
    let done = work();
    setrlimit(Resource::Nofile, before).unwrap();
    done
}

#[test]
fn the_first_use_without_files_fails_and_works_later() {
    if !alone("files::the_first_use_without_files_fails_and_works_later", &[]) {
        return;
    }
    let lock = client(&["memory://files".to_owned()], TIMEOUT).lock("r");
    for spare in 0..5 {
        let error = with_files(spare, || wait(lock.acquire())).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoQuorum);
        let text = error.to_string();
        assert!(text.starts_with("the background runtime cannot start: "), "{text}");
        assert!(text.contains("Too many open files"), "{text}");
    }
    let _ = acquire(&lock);
    // The runtime runs already, and a node in memory needs no file.
    let _ = with_files(0, || acquire(&lock));
}
