//! The scripts on a real server, and the in-memory node, do and say the same.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::By;
use crate::clock;
use crate::ear::Ear;
use crate::endpoint::{Endpoint, Target};
use crate::memory::Entries;
use crate::pipe::Pipe;
use crate::protocol::Turns;
use crate::request::{Kept, Keys, Refusal, Reply, Request, Subject};
use crate::wire::open;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[allow(dead_code, reason = "this test needs but a part of it")]
#[path = "../../tests/integration/servers.rs"]
mod servers;

/// So long that no key expires in the test.
const LONG: Duration = Duration::from_secs(1000);
/// So long that no call is over.
const CALL: Duration = Duration::from_secs(50);
const PATIENCE: Duration = Duration::from_secs(60);
const SEQUENCES: u64 = 300;
const LENGTH: usize = 40;

type Calls = Arc<Mutex<Vec<(u64, String)>>>;

/// Requests at random, about two resources, of a few waiters, one of which does not listen.
struct Requests {
    random: fastrand::Rng,
    prefix: u64,
    tokens: Vec<Arc<Subject>>,
}

impl Requests {
    fn next(&mut self) -> Request {
        let ttl = LONG;
        let turns = Turns { call: self.length(), keep: self.length(), memory: LONG };
        let ticket = self.random.bool().then(|| self.random.u64(1..5));
        let subject = self.subject();
        let proposal = self.random.u64(1..50);
        let kind = self.random.u8(0..14);
        let subject = if kind < 4 { self.new_subject() } else { subject };
        let ticket = ticket.filter(|_| subject.waiter.is_some());
        match kind {
            0..5 => Request::Acquire { subject, ttl, proposal, ticket, turns },
            5 => Request::Raise { subject, ttl, fence: proposal },
            6 => Request::Extend([(subject, ttl), (self.subject(), ttl)].into()),
            7 => Request::Heal([(subject, ttl, proposal), (self.subject(), ttl, 1)].into()),
            8 => Request::Look(Arc::clone(&subject.keys)),
            9 => Request::Inspect([self.one()].into()),
            10 => Request::Forget([self.one()].into()),
            _ => Request::Release { subject, ticket, turns },
        }
    }

    fn one(&mut self) -> Keys {
        Keys::new(&format!("{}-", self.prefix), if self.random.bool() { "a" } else { "b" })
    }

    /// Over at once, or in no time that matters; or for so long that nobody heeds it.
    fn length(&mut self) -> Duration {
        [Duration::ZERO, CALL, CALL, LONG][self.random.usize(0..4)]
    }

    /// One that was made before, if there is one.
    fn subject(&mut self) -> Arc<Subject> {
        match self.tokens.is_empty() {
            true => self.new_subject(),
            false => Arc::clone(&self.tokens[self.random.usize(..self.tokens.len())]),
        }
    }

    fn new_subject(&mut self) -> Arc<Subject> {
        let keys = |name| Keys::new(&format!("{}-", self.prefix), name);
        let waiters = ["live#1", "live#1", "live#2", "live#3", "dead#1", "nonsense"];
        let waiter = waiters.get(self.random.usize(0..8)).copied();
        // Whoever waits, waits for the same all the time.
        let keys = match (waiter, self.random.bool()) {
            (Some("live#1" | "dead#1"), _) => vec![keys("a"), keys("b")],
            (Some("live#2"), _) | (None, true) => vec![keys("b")],
            _ => vec![keys("a")],
        };
        let waiter = waiter.map(Arc::from);
        let token = format!("token {}", self.tokens.len());
        let subject = Arc::new(Subject { keys: keys.into(), token, waiter });
        self.tokens.push(Arc::clone(&subject));
        subject
    }
}

async fn ask(pipe: &Pipe, request: &Request) -> Reply {
    let replies = pipe.ask_all(&[request.command(By::Source)]).await.expect("it is there");
    let value = replies.into_iter().next().expect("one to each").extract_error().expect("no error");
    request.understand(&value).unwrap_or_else(|| panic!("{request:?}: {value:?}"))
}

/// The reply without what differs by the time that passes between the two.
fn told(reply: Reply) -> Reply {
    match reply {
        Reply::Held(refusal) => {
            let expires_in = refusal.expires_in.map(|left| match left {
                left if left > LONG / 2 => LONG,
                left if left > CALL / 2 => CALL,
                left => left,
            });
            Reply::Held(Refusal { expires_in, clock: 0, ..refusal })
        }
        Reply::Seen(sight) => {
            Reply::Seen(Kept { expires_in: sight.expires_in.map(|_| LONG), ..sight })
        }
        other => other,
    }
}

fn hear(calls: &Calls) -> impl Fn(u64, &str) + Send + Sync + use<> {
    let calls = Arc::clone(calls);
    move |number, lock| calls.lock().unwrap().push((number, lock.to_owned()))
}

#[test]
fn a_server_does_what_an_in_memory_node_does() {
    let servers = servers::Servers::start(1);
    let endpoint = Endpoint::parse(1, &servers.urls[0]).expect("valid");
    let Target::Server(server) = &endpoint.target else { panic!("it is a server") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pipe = open(server).await.expect("it is there");
        let (server_calls, memory_calls) = (Calls::default(), Calls::default());
        let ear = Ear::open(&endpoint.target, "live", hear(&server_calls), || ());
        let _ear = ear.await.expect("it is there");
        let mut outcomes = std::collections::HashSet::new();
        for sequence in 0..SEQUENCES {
            let random = fastrand::Rng::with_seed(sequence);
            let mut requests = Requests { random, prefix: sequence, tokens: Vec::new() };
            let mut memory = Entries::default();
            let hear_memory = hear(&memory_calls);
            memory.listen(
                "live",
                Box::new(move |number, lock| {
                    hear_memory(number, lock);
                    true
                }),
            );
            let mut history = Vec::new();
            for _ in 0..LENGTH {
                let request = requests.next();
                history.push(format!("{request:?}"));
                let replied = told(ask(&pipe, &request).await);
                let expected = memory.answer(clock::now(), clock::wall_clock_micros(), &request);
                let expected = told(expected.expect("no error"));
                assert_eq!(replied, expected, "sequence {sequence}:\n{}", history.join("\n"));
                outcomes.insert(format!("{:?}", std::mem::discriminant(&expected)));
            }
            let began = Instant::now();
            let expected = memory_calls.lock().unwrap().clone();
            while *server_calls.lock().unwrap() != expected {
                let heard = server_calls.lock().unwrap().len();
                assert!(
                    heard <= expected.len() && began.elapsed() < PATIENCE,
                    "sequence {sequence}:\n{}\nheard {:?}\nexpected {expected:?}",
                    history.join("\n"),
                    server_calls.lock().unwrap(),
                );
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(outcomes.len(), 7, "granted, held, own, each, seen, yes, no");
        assert!(memory_calls.lock().unwrap().len() > 500);
    });
}
