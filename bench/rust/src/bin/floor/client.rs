//! The client: the cycles in flight, and the loop that drives them.

use crate::node::{Node, Ticket};
use crate::requests::{Commands, Message, token};
use quorlock_bench::{Micros, Request, micros_since};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::Result;
use std::time::Instant;

/// A node that owes more answers than this, in addition to those of requests in flight, is considered frozen. It
/// gets no requests until it has caught up.
const BACKLOG: usize = 1000;

pub struct Client {
    name: String,
    commands: Commands,
    nodes: Vec<Node>,
    /// Whether a cycle waits for all nodes, not only for a majority.
    all: bool,
    /// The number of requests made so far.
    requests: u64,
    buffer: Vec<u8>,
}

/// A key that is acquired and released repeatedly.
struct Cycle {
    acquire: Message,
    release: Message,
    left: usize,
    began: Instant,
    /// The request whose answers are counted.
    request: u64,
    answers: usize,
    /// The nodes to which the acquire was sent, one bit each. The release goes to the same nodes.
    asked: u32,
    is_held: bool,
}

impl Client {
    pub fn new(name: &str, commands: Commands, urls: &[String], all: bool) -> Result<Self> {
        let connect =
            |url: &String| Node::connect(url.trim_start_matches("redis://"), &commands.load);
        let nodes = urls.iter().map(connect).collect::<Result<_>>()?;
        let buffer = vec![0; 1 << 16];
        Ok(Self { name: name.to_owned(), commands, nodes, all, requests: 0, buffer })
    }

    /// Runs `cycles` cycles on each of `concurrency` keys, all keys concurrently.
    pub fn run(&mut self, Request { cycles, concurrency }: Request) -> Micros {
        let commands = self.commands.acquire.len() + self.commands.release.len();
        let limit = BACKLOG + 2 * commands * concurrency;
        let mut micros = Vec::with_capacity(cycles * concurrency);
        let mut running: Vec<_> = (0..concurrency)
            .map(|number| format!("{}-{number}", self.name))
            .map(|key| Cycle {
                acquire: Message::new(&self.commands.acquire, &key),
                release: Message::new(&self.commands.release, &key),
                left: cycles,
                began: Instant::now(),
                request: 0,
                answers: 0,
                asked: 0,
                is_held: false,
            })
            .collect();
        for (number, cycle) in running.iter_mut().enumerate() {
            self.acquire(number, cycle, limit);
        }
        let mut answered = Vec::new();
        while micros.len() < cycles * concurrency {
            self.nodes.iter_mut().for_each(Node::flush);
            self.receive(&mut answered)?;
            for ticket in answered.drain(..) {
                // Ignore late answers to an earlier request, perhaps of an earlier run.
                let Some(cycle) = running.get_mut(ticket.cycle) else { continue };
                if cycle.request != ticket.request {
                    continue;
                }
                cycle.answers += 1;
                if cycle.answers < self.needed(cycle.asked) {
                    continue;
                }
                if !cycle.is_held {
                    cycle.is_held = true;
                    self.send(ticket.cycle, cycle);
                    continue;
                }
                micros.push(micros_since(cycle.began));
                cycle.left -= 1;
                cycle.request = 0;
                if cycle.left > 0 {
                    self.acquire(ticket.cycle, cycle, limit);
                }
            }
        }
        // Send the last releases also to nodes whose answers were not needed.
        self.nodes.iter_mut().for_each(Node::flush);
        Ok(micros)
    }

    fn needed(&self, asked: u32) -> usize {
        if self.all { asked.count_ones() as usize } else { self.nodes.len() / 2 + 1 }
    }

    fn acquire(&mut self, number: usize, cycle: &mut Cycle, limit: usize) {
        cycle.began = Instant::now();
        cycle.is_held = false;
        let token = token();
        cycle.acquire.renew(&token);
        cycle.release.renew(&token);
        cycle.asked = 0;
        for (bit, node) in self.nodes.iter().enumerate() {
            if !node.gone && node.owes() < limit {
                cycle.asked |= 1 << bit;
            }
        }
        self.send(number, cycle);
    }

    /// Sends the acquire, or the release if the lock is held.
    fn send(&mut self, number: usize, cycle: &mut Cycle) {
        self.requests += 1;
        cycle.request = self.requests;
        cycle.answers = 0;
        let message = if cycle.is_held { &cycle.release } else { &cycle.acquire };
        for (bit, node) in self.nodes.iter_mut().enumerate() {
            if cycle.asked & 1 << bit != 0 {
                node.push(message, Ticket { cycle: number, request: self.requests });
            }
        }
    }

    /// Waits until a node has answered, and reads all available answers.
    fn receive(&mut self, answered: &mut Vec<Ticket>) -> std::result::Result<(), String> {
        let present = self.nodes.iter_mut().filter(|node| !node.gone).collect::<Vec<_>>();
        let mut ready: Vec<_> = present
            .iter()
            .map(|node| {
                let writes = if node.is_full() { PollFlags::OUT } else { PollFlags::empty() };
                PollFd::new(&node.stream, PollFlags::IN | writes)
            })
            .collect();
        poll(&mut ready, None).map_err(|error| error.to_string())?;
        let ready: Vec<_> = ready.iter().map(PollFd::revents).collect();
        for (node, events) in present.into_iter().zip(ready) {
            if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                node.receive(&mut self.buffer, |ticket| answered.push(ticket))?;
            }
        }
        Ok(())
    }
}
