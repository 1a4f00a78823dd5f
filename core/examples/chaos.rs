//! The Rust client of `tests/chaos/`; `client.py` there says what it does. Unix only, as the run is.
#![allow(clippy::unwrap_used, reason = "a program for developers: what is unexpected ends it")]

use quorlock::{Client, Error, ErrorCode, Lease};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::os::unix::net::UnixStream;
use std::panic;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Milliseconds between two looks at a lease.
const STEP: u64 = 20;

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

fn below(limit: usize) -> usize {
    getrandom::u32().unwrap() as usize % limit
}

fn choose(from: &Value) -> &Value {
    &from[below(from.as_array().unwrap().len())]
}

fn milliseconds(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().unwrap())
}

struct Worker {
    settings: Value,
    client: Client,
    history: File,
    over: AtomicBool,
}

impl Worker {
    /// One write to a file in append mode: a kill loses whole lines, and never mixes them.
    fn record(&self, entry: &Value) {
        (&self.history).write_all(format!("{entry}\n").as_bytes()).unwrap();
    }

    /// When this began to look, and how much longer the lease is valid.
    fn look(lease: &Lease) -> (u64, u64) {
        (now(), u64::try_from(lease.remaining().as_nanos()).unwrap())
    }

    fn observe(&self, event: &str, lease: &Lease) {
        let (at, left) = Self::look(lease);
        self.record(&json!({ "event": event, "token": lease.token(), "at": at, "left": left }));
    }

    fn run(&self) {
        let mut register = Register::connect(&self.settings);
        while !self.over.load(Ordering::Relaxed) {
            let resource = choose(&self.settings["resources"]).as_str().unwrap();
            let wait = milliseconds(choose(&self.settings["waits"]));
            let extended = below(2) == 0;
            let lock = self.client.lock(resource).wait(wait).auto_extend(extended);
            let asked = now();
            match lock.acquire().wait(Duration::MAX).unwrap() {
                Ok(lease) => self.turn(asked, &lease, extended, &mut register),
                Err(error) => self.failed(asked, resource, &error),
            }
            thread::sleep(milliseconds(choose(&self.settings["pauses"])));
        }
    }

    fn failed(&self, asked: u64, resource: &str, error: &Error) {
        assert!(matches!(error.code(), ErrorCode::Timeout | ErrorCode::NoQuorum), "{error}");
        let code = error.code().as_str();
        let (event, at) = ("error", now());
        self.record(&json!({
            "event": event, "resource": resource, "asked": asked, "at": at, "code": code
        }));
    }

    fn turn(&self, asked: u64, lease: &Lease, extended: bool, register: &mut Register) {
        let (at, left) = Self::look(lease);
        self.record(&json!({
            "event": "granted", "resource": lease.resources()[0], "token": lease.token(),
            "fence": lease.fence(), "extended": extended, "asked": asked, "at": at, "left": left,
        }));
        if let Some(value) = self.ask(register, lease, "read", 0) {
            self.think(lease);
            self.ask(register, lease, "write", value + 1);
        }
        self.record(&json!({ "event": "release", "token": lease.token(), "at": now() }));
        let ok = lease.release().wait(Duration::MAX).unwrap();
        self.record(&json!({ "event": "released", "token": lease.token(), "at": now(), "ok": ok }));
    }

    fn think(&self, lease: &Lease) {
        let mut left = choose(&self.settings["thinks"]).as_u64().unwrap();
        while left > 0 {
            let step = left.min(STEP);
            thread::sleep(Duration::from_millis(step));
            left -= step;
            self.observe("look", lease);
        }
    }

    fn ask(&self, register: &mut Register, lease: &Lease, op: &str, value: u64) -> Option<u64> {
        let answer = register.ask(&json!({
            "op": op, "resource": lease.resources()[0], "fence": lease.fence(), "value": value,
            "client": self.settings["name"],
        }));
        let value = answer["value"].as_u64();
        if value.is_none() {
            self.observe("refused", lease);
        }
        value
    }
}

struct Register(BufReader<UnixStream>);

impl Register {
    fn connect(settings: &Value) -> Self {
        let path = settings["register"].as_str().unwrap();
        Self(BufReader::new(UnixStream::connect(path).unwrap()))
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

fn main() {
    // A panic of any thread, of quorlock's own too, is to be noticed while the others go on.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        exit(101);
    }));
    let settings: Value = serde_json::from_str(&std::env::args().nth(1).unwrap()).unwrap();
    let urls = settings["urls"].as_array().unwrap().iter().map(|url| url.as_str().unwrap());
    let mut builder = Client::builder()
        .nodes(urls)
        .ttl(milliseconds(&settings["ttl"]))
        .node_timeout(milliseconds(&settings["node_timeout"]))
        .retry_delay(Duration::from_millis(2), Duration::from_millis(20));
    if let Some(guard) = settings["guard"].as_u64() {
        builder = builder.restart_guard(Duration::from_millis(guard));
    }
    let history = settings["history"].as_str().unwrap();
    let worker = Worker {
        client: builder.build().unwrap(),
        history: OpenOptions::new().create(true).append(true).open(history).unwrap(),
        over: AtomicBool::new(false),
        settings,
    };
    thread::scope(|scope| {
        for _ in 0..worker.settings["loops"].as_u64().unwrap() {
            scope.spawn(|| worker.run());
        }
        let _ = stdin().read_to_end(&mut Vec::new());
        worker.over.store(true, Ordering::Relaxed);
    });
}
