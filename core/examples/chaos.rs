//! The Rust client of the chaos test in `tests/chaos/`; `client.py` there documents its behaviour. Unix only,
//! like the chaos test.
#![allow(clippy::unwrap_used, reason = "a test program ends at anything unexpected")]

use quorlock::{Client, Error, ErrorCode, Lease, Mode, Pending};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::os::unix::net::UnixStream;
use std::panic;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The milliseconds between two checks of a lease.
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

/// Returns the heartbeat timeout of a lease that is renewed as the history says; zero if it has none.
fn heartbeat_timeout(extended: &Value) -> Duration {
    Duration::from_millis(extended.as_u64().unwrap_or_default())
}

struct Worker {
    settings: Value,
    client: Client,
    history: File,
    asks: AtomicU64,
    over: AtomicBool,
}

impl Worker {
    /// Appends a line to the history with a single write. If the process is killed, only whole lines are
    /// lost. Lines of different threads never mix.
    fn record(&self, entry: &Value) {
        (&self.history).write_all(format!("{entry}\n").as_bytes()).unwrap();
    }

    /// Returns the time and then the remaining validity of the lease, both in nanoseconds.
    fn look(lease: &Lease) -> (u64, u64) {
        (now(), u64::try_from(lease.remaining().as_nanos()).unwrap())
    }

    /// Returns `true` at random. `probability` is the name of the setting that holds the probability.
    fn happens(&self, probability: &str) -> bool {
        (below(1_000_000) as f64) < self.settings[probability].as_f64().unwrap() * 1e6
    }

    /// Returns one resource, or two in random order.
    fn some(&self) -> Vec<&str> {
        let all = self.settings["resources"].as_array().unwrap();
        let mut some: Vec<_> = all.iter().map(|resource| resource.as_str().unwrap()).collect();
        let many = if self.happens("pairs") { 2 } else { 1 };
        while some.len() > many {
            some.swap_remove(below(some.len()));
        }
        if below(2) == 0 {
            some.reverse();
        }
        some
    }

    fn run(&self) {
        let mut register = Register::connect(&self.settings);
        while !self.over.load(Ordering::Relaxed) {
            let offer = if self.happens("adopting") { self.take(&mut register) } else { json!({}) };
            let giver = &offer["giver"];
            let extended = choose(&self.settings["renewals"]);
            let resources = match offer["resources"].as_array() {
                Some(offered) => {
                    offered.iter().map(|resource| resource.as_str().unwrap()).collect()
                }
                None => self.some(),
            };
            let wait = choose(&self.settings["waits"]);
            let ask = self.asks.fetch_add(1, Ordering::Relaxed);
            let asked = now();
            self.record(&json!({
                "event": "ask", "ask": ask, "resources": resources, "wait": wait, "at": asked,
                "giver": giver,
            }));
            let pending = match offer["text"].as_str() {
                Some(text) => {
                    let adoption = self.client.adopt(text).auto_extend(*extended != false);
                    let adoption = adoption.heartbeat_timeout(heartbeat_timeout(extended));
                    match wait.is_null() {
                        true => adoption.wait_forever().acquire(),
                        false => adoption.wait(milliseconds(wait)).acquire(),
                    }
                }
                None => {
                    let some = resources.iter().filter(|_| self.happens("sharing"));
                    let some: Vec<_> = some.copied().collect();
                    let lock = self.client.lock(&*resources).auto_extend(*extended != false);
                    let lock = lock.heartbeat_timeout(heartbeat_timeout(extended));
                    let lock = if some.is_empty() { lock } else { lock.shared_for(some) };
                    match wait.is_null() {
                        true => lock.wait_forever().acquire(),
                        false => lock.wait(milliseconds(wait)).acquire(),
                    }
                }
            };
            match self.acquire(ask, giver, pending) {
                Some(Ok(lease)) => {
                    self.granted(&lease, ask, extended, asked, giver);
                    self.turn(lease, &mut register, extended);
                }
                Some(Err(error)) => self.failed(ask, giver, &error),
                None => self.record(&json!({ "event": "cancelled", "ask": ask, "at": now() })),
            }
            thread::sleep(milliseconds(choose(&self.settings["pauses"])));
        }
    }

    fn granted(&self, lease: &Lease, ask: u64, extended: &Value, asked: u64, giver: &Value) {
        let (at, left) = Self::look(lease);
        let shared = lease.modes().filter(|(_, mode)| *mode == Mode::Shared);
        self.record(&json!({
            "event": "granted", "ask": ask, "resources": lease.resources(),
            "token": lease.token(), "fences": lease.fences().collect::<HashMap<_, _>>(),
            "shared": shared.map(|(name, _)| name).collect::<Vec<_>>(),
            "extended": extended, "asked": asked, "at": at, "left": left, "giver": giver,
        }));
    }

    /// Acquires permits and holds them for a while, again and again.
    fn use_permits(&self) {
        let pool = self.settings["pool"].as_str().unwrap();
        let limit = u32::try_from(self.settings["limit"].as_u64().unwrap()).unwrap();
        while !self.over.load(Ordering::Relaxed) {
            let extended = choose(&self.settings["renewals"]);
            let wait = choose(&self.settings["waits"]);
            let permits = choose(&self.settings["permits"]).as_u64().unwrap();
            let ask = self.asks.fetch_add(1, Ordering::Relaxed);
            let asked = now();
            self.record(&json!({
                "event": "ask", "ask": ask, "resources": [pool], "wait": wait, "at": asked,
            }));
            let semaphore = self.client.semaphore(pool, limit).auto_extend(*extended != false);
            let semaphore = semaphore.heartbeat_timeout(heartbeat_timeout(extended));
            let semaphore = semaphore.permits(u32::try_from(permits).unwrap());
            let pending = match wait.is_null() {
                true => semaphore.wait_forever().acquire(),
                false => semaphore.wait(milliseconds(wait)).acquire(),
            };
            match self.acquire(ask, &Value::Null, pending) {
                Some(Ok(lease)) => {
                    let (at, left) = Self::look(&lease);
                    let slots = lease.slots().into_iter();
                    let fences: HashMap<_, _> =
                        slots.map(|slot| (format!("{pool} {slot}"), lease.fence())).collect();
                    self.record(&json!({
                        "event": "granted", "ask": ask, "token": lease.token(),
                        "resources": fences.keys().collect::<Vec<_>>(), "fences": fences,
                        "shared": [], "extended": extended, "asked": asked, "at": at, "left": left,
                        "permits": permits,
                    }));
                    self.think(&lease);
                    self.release(&lease);
                }
                Some(Err(error)) => self.failed(ask, &Value::Null, &error),
                None => self.record(&json!({ "event": "cancelled", "ask": ask, "at": now() })),
            }
            thread::sleep(milliseconds(choose(&self.settings["pauses"])));
        }
    }

    /// Asks the register for a lease that was detached.
    fn take(&self, register: &mut Register) -> Value {
        register.ask(&json!({ "op": "take", "client": self.settings["name"] }))
    }

    /// Waits for the lease. Returns `None` if the wait was cancelled.
    fn acquire(
        &self,
        ask: u64,
        giver: &Value,
        mut pending: Pending<Result<Lease, Error>>,
    ) -> Option<Result<Lease, Error>> {
        let is_cancelled = self.happens("cancelled");
        let patience = is_cancelled.then(|| milliseconds(choose(&self.settings["cancels"])));
        let done = pending.block_for(patience.unwrap_or(Duration::MAX));
        if done.is_none() {
            self.record(&json!({ "event": "cancel", "ask": ask, "at": now(), "giver": giver }));
        }
        done
    }

    /// Records that an acquire or an adoption has failed. An adoption fails with `LeaseLost` if another client was
    /// faster, or if the lease has expired.
    fn failed(&self, ask: u64, giver: &Value, error: &Error) {
        let is_expected = match error.code() {
            ErrorCode::Timeout | ErrorCode::NoQuorum => true,
            ErrorCode::LeaseLost => giver.is_string(),
            _ => false,
        };
        assert!(is_expected, "{error}");
        let code = error.code().as_str();
        self.record(&json!({
            "event": "error", "ask": ask, "at": now(), "code": code, "giver": giver
        }));
    }

    /// Sometimes detaches the lease and offers its text at the register. Returns whether the lease was detached.
    fn hand_over(&self, lease: &Lease, register: &mut Register) -> bool {
        if !self.happens("detaching") {
            return false;
        }
        let token = lease.token();
        let within = choose(&self.settings["withins"]);
        self.record(&json!({ "event": "detach", "token": token, "at": now(), "within": within }));
        let detached = lease.detach(milliseconds(within)).block();
        let ok = detached.is_ok();
        self.record(&json!({ "event": "detached", "token": token, "at": now(), "ok": ok }));
        match detached {
            Ok(detached) => {
                register.ask(&json!({
                    "op": "offer", "client": self.settings["name"], "text": detached.into_text(),
                    "giver": token, "resources": lease.resources(),
                }));
            }
            Err(error) => assert!(
                matches!(error.code(), ErrorCode::NoQuorum | ErrorCode::LeaseLost),
                "{error}"
            ),
        }
        ok
    }

    fn turn(&self, lease: Lease, register: &mut Register, extended: &Value) {
        self.write(&lease, register);
        let lease = self.change(lease, register, extended);
        if !self.hand_over(&lease, register) {
            self.release(&lease);
        }
    }

    /// Reads all resources of the lease, pauses, and writes those that the lease holds exclusively.
    fn write(&self, lease: &Lease, register: &mut Register) {
        let fences: Vec<_> = lease.fences().collect();
        let values: Vec<_> =
            fences.iter().map(|&fence| self.ask(register, lease, "read", fence, 0)).collect();
        if !values.contains(&None) {
            self.think(lease);
        }
        for ((fence, value), (_, mode)) in fences.into_iter().zip(values).zip(lease.modes()) {
            if let (Some(value), Mode::Exclusive) = (value, mode) {
                self.ask(register, lease, "write", fence, value + 1);
            }
        }
    }

    /// Sometimes changes the mode of the lease. Returns the lease that the caller holds from then on.
    fn change(&self, lease: Lease, register: &mut Register, extended: &Value) -> Lease {
        if !self.happens("changing") {
            return lease;
        }
        let is_upgrade = lease.mode() == Some(Mode::Shared);
        let what = if is_upgrade { "upgrade" } else { "downgrade" };
        self.record(&json!({ "event": what, "token": lease.token(), "at": now() }));
        if !is_upgrade {
            match lease.downgrade().block() {
                Ok(()) => self.write(&lease, register),
                Err(error) => assert!(error.code() == ErrorCode::LeaseLost, "{error}"),
            }
            return lease;
        }
        let ask = self.asks.fetch_add(1, Ordering::Relaxed);
        let asked = now();
        self.record(&json!({
            "event": "ask", "ask": ask, "resources": lease.resources(), "wait": 0, "at": asked
        }));
        let upgraded = lease.try_upgrade().block();
        let (at, left) = Self::look(&lease);
        let ok = matches!(upgraded, Ok(Some(_)));
        self.record(&json!({
            "event": "upgraded", "token": lease.token(), "at": at, "left": left, "ok": ok
        }));
        let code = match upgraded {
            Ok(Some(upgraded)) => {
                self.granted(&upgraded, ask, extended, asked, &Value::Null);
                self.write(&upgraded, register);
                return upgraded;
            }
            Ok(None) => ErrorCode::Timeout,
            Err(error) => error.code(),
        };
        let is_expected = code != ErrorCode::Config && code != ErrorCode::Closed;
        assert!(is_expected, "{}", code.as_str());
        self.record(&json!({ "event": "error", "ask": ask, "at": now(), "code": code.as_str() }));
        lease
    }

    /// Campaigns in the election again and again. A leader either ends its term or hands its lease over to a client by
    /// name.
    fn lead(&self) {
        let name = self.settings["name"].as_str().unwrap();
        let leader = self.settings["leader"].as_str().unwrap();
        let election = self.client.elect(leader).holder(name);
        while !self.over.load(Ordering::Relaxed) {
            let ask = self.asks.fetch_add(1, Ordering::Relaxed);
            let asked = now();
            self.record(&json!({
                "event": "ask", "ask": ask, "resources": [leader], "wait": null, "at": asked
            }));
            let lease = election.next().block().unwrap();
            let (at, left) = Self::look(&lease);
            self.record(&json!({
                "event": "granted", "ask": ask, "resources": [leader], "token": lease.token(),
                "fences": lease.fences().collect::<HashMap<_, _>>(), "shared": [], "extended": true,
                "asked": asked, "at": at, "left": left,
            }));
            self.think(&lease);
            if self.happens("handing") && self.has_handed(&lease) {
                continue;
            }
            self.release(&lease);
        }
    }

    /// Hands a lease over to a random client. Returns whether the lease has ended.
    fn has_handed(&self, lease: &Lease) -> bool {
        let to = choose(&self.settings["others"]).as_str().unwrap();
        self.record(&json!({ "event": "hand", "token": lease.token(), "at": now(), "to": to }));
        let ttl = milliseconds(&self.settings["ttl"]);
        let handed = lease.hand_over(to, ttl).block();
        let ok = handed.unwrap_or_else(|error| {
            let is_expected = matches!(error.code(), ErrorCode::NoQuorum | ErrorCode::LeaseLost);
            assert!(is_expected, "{error}");
            false
        });
        let (at, left) = Self::look(lease);
        self.record(&json!({
            "event": "handed", "token": lease.token(), "at": at, "left": left, "ok": ok
        }));
        !lease.is_valid()
    }

    /// Records each leader.
    fn observe(&self) {
        let resource = self.settings["leader"].as_str().unwrap();
        let watch = self.client.watch(resource);
        let mut seen = 0;
        let mut found = watch.after(seen);
        while !self.over.load(Ordering::Relaxed) {
            if let Some(leader) = found.block_for(Duration::from_millis(100)) {
                let leader = leader.unwrap();
                self.record(&json!({
                    "event": "observed", "at": now(), "process": std::process::id(),
                    "resource": resource, "holder": leader.holder, "fence": leader.fence,
                }));
                seen = leader.fence;
                found = watch.after(seen);
            }
        }
    }

    fn release(&self, lease: &Lease) {
        self.record(&json!({ "event": "release", "token": lease.token(), "at": now() }));
        let ok = lease.release().block();
        self.record(&json!({ "event": "released", "token": lease.token(), "at": now(), "ok": ok }));
    }

    fn think(&self, lease: &Lease) {
        let mut left = choose(&self.settings["thinks"]).as_u64().unwrap();
        while left > 0 {
            let step = left.min(STEP);
            thread::sleep(Duration::from_millis(step));
            left -= step;
            let (at, left) = Self::look(lease);
            self.record(
                &json!({ "event": "look", "token": lease.token(), "at": at, "left": left }),
            );
        }
    }

    fn ask(
        &self,
        register: &mut Register,
        lease: &Lease,
        op: &str,
        (resource, fence): (&str, u64),
        value: u64,
    ) -> Option<u64> {
        let mode = lease.modes().find(|(name, _)| *name == resource).map(|(_, mode)| mode);
        let answer = register.ask(&json!({
            "op": op, "resource": resource, "fence": fence, "value": value,
            "mode": mode.unwrap().as_str(), "client": self.settings["name"],
        }));
        let value = answer["value"].as_u64();
        if value.is_none() {
            let (at, left) = Self::look(lease);
            self.record(&json!({
                "event": "refused", "resource": resource, "token": lease.token(),
                "at": at, "left": left,
            }));
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
    // A panic of any thread, including quorlock's, must end the process immediately.
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
        .retry_delay(
            milliseconds(&settings["retry_delay"][0]),
            milliseconds(&settings["retry_delay"][1]),
        );
    if let Some(guard) = settings["guard"].as_u64() {
        builder = builder.restart_guard(Duration::from_millis(guard));
    }
    let history = settings["history"].as_str().unwrap();
    let worker = Worker {
        client: builder.build().unwrap(),
        history: OpenOptions::new().create(true).append(true).open(history).unwrap(),
        asks: AtomicU64::new(1),
        over: AtomicBool::new(false),
        settings,
    };
    thread::scope(|scope| {
        scope.spawn(|| worker.lead());
        scope.spawn(|| worker.observe());
        for _ in 0..worker.settings["loops"].as_u64().unwrap() {
            scope.spawn(|| worker.run());
        }
        for _ in 0..worker.settings["permit_loops"].as_u64().unwrap() {
            scope.spawn(|| worker.use_permits());
        }
        let _ = stdin().read(&mut [0]);
        worker.over.store(true, Ordering::Relaxed);
    });
    worker.client.close().block();
    worker.record(&json!({ "event": "closed", "at": now() }));
    let _ = stdin().read_to_end(&mut Vec::new());
}
