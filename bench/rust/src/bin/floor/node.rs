//! One node: its connection, and the requests without an answer.

use crate::reply;
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
    owed: VecDeque<Ticket>,
}

impl Node {
    /// Connects and loads the scripts. Returns the node and the hashes of the scripts.
    pub fn connect(address: &str, scripts: &[Vec<u8>]) -> Result<(Self, Vec<String>)> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut hashes = Vec::new();
        for script in scripts {
            stream.write_all(script)?;
            let mut input = Vec::new();
            // The answer has two lines: the length of the hash, and the hash.
            let hash = loop {
                let mut buffer = [0; 256];
                let size = stream.read(&mut buffer)?;
                input.extend_from_slice(&buffer[..size]);
                let second = reply::line(&input, 0).and_then(|(_, at)| reply::line(&input, at));
                if let Some((hash, _)) = second {
                    break hash.to_owned();
                }
                assert!(size > 0, "the node has closed the connection");
            };
            hashes.push(hash);
        }
        stream.set_nonblocking(true)?;
        let (output, input, owed) = Default::default();
        Ok((Self { stream, gone: false, output, input, owed }, hashes))
    }

    /// The number of requests without an answer.
    pub fn owes(&self) -> usize {
        self.owed.len()
    }

    /// Whether requests are left to write, because the connection accepted no more.
    pub fn is_full(&self) -> bool {
        !self.output.is_empty()
    }

    /// Appends a request. `flush` writes all appended requests together.
    pub fn push(&mut self, message: &[u8], ticket: Ticket) {
        self.output.extend_from_slice(message);
        self.owed.push_back(ticket);
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

    /// Reads available answers, and calls `answered` for each. Returns an error for an answer other than 1.
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
            let ticket = self.owed.pop_front().expect("an answer that was asked for");
            match result {
                Ok(1) => answered(ticket),
                Ok(other) => return Err(format!("answered with {other}")),
                Err(error) => return Err(error),
            }
        }
        self.input.drain(..done);
        Ok(())
    }
}
