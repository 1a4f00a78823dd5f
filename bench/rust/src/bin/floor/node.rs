//! One node: its connection, and the requests without an answer.

use crate::reply;
use crate::requests::{Message, encode};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;

/// Identifies the request of an answer: the index of the cycle, and the number of the request.
#[derive(Clone, Copy)]
pub struct Ticket {
    pub cycle: usize,
    pub request: u64,
}

pub struct Node {
    pub stream: TcpStream,
    /// Whether the connection is closed.
    pub gone: bool,
    /// Requests that are not yet written.
    output: Vec<u8>,
    /// The beginning of an incomplete answer.
    input: Vec<u8>,
    /// The answers that are still to come. Only the last answer to a request has a ticket.
    owed: VecDeque<Option<Ticket>>,
}

impl Node {
    /// Connects, and sends the commands that load the scripts.
    pub fn connect(address: &str, load: &[Vec<String>]) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (output, input) = Default::default();
        let mut node = Self { stream, gone: false, output, input, owed: VecDeque::new() };
        for command in load {
            node.output.extend(encode(command));
            node.owed.push_back(None);
        }
        Ok(node)
    }

    /// The number of answers that are still to come.
    pub fn owes(&self) -> usize {
        self.owed.len()
    }

    /// Whether requests are left to write, because the connection accepted no more.
    pub fn is_full(&self) -> bool {
        !self.output.is_empty()
    }

    /// Appends a request. `flush` writes all appended requests together.
    pub fn push(&mut self, message: &Message, ticket: Ticket) {
        self.output.extend_from_slice(&message.bytes);
        self.owed.extend((1..message.commands).map(|_| None));
        self.owed.push_back(Some(ticket));
    }

    /// Writes as much as the connection accepts.
    pub fn flush(&mut self) {
        while !self.output.is_empty() && !self.gone {
            match self.stream.write(&self.output) {
                Ok(size) => drop(self.output.drain(..size)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.gone = true,
            }
        }
    }

    /// Reads available answers, and calls `answered` for each answered request. Returns an error if an answer
    /// is one.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut answered: impl FnMut(Ticket),
    ) -> std::result::Result<(), String> {
        match self.stream.read(buffer) {
            Ok(size @ 1..) => self.input.extend_from_slice(&buffer[..size]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.gone = true,
        }
        let mut done = 0;
        while let Some((size, result)) =
            self.input.get(done..).filter(|rest| !rest.is_empty()).and_then(reply::first)
        {
            done += size;
            result?;
            if let Some(ticket) = self.owed.pop_front().expect("an answer that was asked for") {
                answered(ticket);
            }
        }
        self.input.drain(..done);
        Ok(())
    }
}
