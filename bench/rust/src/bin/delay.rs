//! A relay that simulates a slow network: `delay MILLISECONDS PORT...`.
//!
//! It listens on a new port for each given port, prints the new ports, and relays connections to the given
//! ones. Replies are delayed. It exits at the end of standard input.
//!
//! A single thread polls in steps of 1 % of the delay, because it shares its CPUs with the nodes that are not
//! slow. `tests/proxy.py` has more features, but would occupy a CPU.

use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write, copy, sink, stdin};
use std::net::{TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u16>().expect("a number"));
    let delay = Duration::from_millis(numbers.next().expect("a delay").into());
    let listeners: Vec<_> =
        numbers.map(|port| (TcpListener::bind(("127.0.0.1", 0)).expect("a port"), port)).collect();
    let own = |(listener, _): &(TcpListener, _)| listener.local_addr().expect("an address").port();
    println!("{}", serde_json::json!(listeners.iter().map(own).collect::<Vec<_>>()));
    spawn(move || pass(&listeners, delay));
    let _ = copy(&mut stdin(), &mut sink());
}

fn pass(listeners: &[(TcpListener, u16)], delay: Duration) {
    let mut links: Vec<Link> = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let ready = wait(listeners, &links);
        let (arriving, ready) = ready.split_at(listeners.len());
        let mut sides = ready.chunks(2);
        // If one side has closed its connection, dropping the link closes the other one.
        links.retain_mut(|link| {
            let ready = sides.next().expect("two sides of each");
            link.pass(ready[0], ready[1], delay, &mut buffer).is_ok()
        });
        for ((listener, port), _) in listeners.iter().zip(arriving).filter(|(_, arrives)| **arrives)
        {
            // An error means that the client has already disconnected; ignore it.
            links.extend(listener.accept().and_then(|(client, _)| Link::new(client, *port)));
        }
        sleep(delay / 100);
    }
}

/// Waits for data or new clients, or only polls while delayed data is pending.
///
/// Returns whether there is a new client for each listener, then for each link whether the client and the
/// server have sent data.
fn wait(listeners: &[(TcpListener, u16)], links: &[Link]) -> Vec<bool> {
    let is_busy = links.iter().any(|link| !link.replies.is_empty() || !link.commands.is_empty());
    let mut ready: Vec<_> =
        listeners.iter().map(|(listener, _)| PollFd::new(listener, PollFlags::IN)).collect();
    for link in links {
        ready.push(PollFd::new(&link.client, PollFlags::IN));
        ready.push(PollFd::new(&link.server, PollFlags::IN));
    }
    let timeout = is_busy.then(Default::default);
    poll(&mut ready, timeout.as_ref()).expect("poll");
    ready.iter().map(|one| !one.revents().is_empty()).collect()
}

struct Link {
    client: TcpStream,
    server: TcpStream,
    commands: Vec<u8>,
    replies: VecDeque<(Instant, Vec<u8>)>,
}

impl Link {
    fn new(client: TcpStream, port: u16) -> Result<Self> {
        let server = TcpStream::connect(("127.0.0.1", port))?;
        for side in [&client, &server] {
            side.set_nodelay(true)?;
            side.set_nonblocking(true)?;
        }
        Ok(Self { client, server, commands: Vec::new(), replies: VecDeque::new() })
    }

    /// Relays new commands, queues new replies, and relays the replies that are due.
    fn pass(&mut self, up: bool, down: bool, delay: Duration, buffer: &mut [u8]) -> Result<()> {
        if up {
            self.commands.extend_from_slice(read(&mut self.client, buffer)?);
        }
        write(&mut self.server, &mut self.commands)?;
        if down {
            let reply = read(&mut self.server, buffer)?.to_vec();
            self.replies.push_back((Instant::now() + delay, reply));
        }
        while let Some((_, reply)) =
            self.replies.front_mut().filter(|(due, _)| *due <= Instant::now())
        {
            write(&mut self.client, reply)?;
            if !reply.is_empty() {
                break;
            }
            self.replies.pop_front();
        }
        Ok(())
    }
}

/// Reads available data. Returns an error if the connection is closed.
fn read<'a>(from: &mut TcpStream, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    match from.read(buffer)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        size => Ok(&buffer[..size]),
    }
}

/// Writes as much as the connection accepts, and removes it from `data`.
fn write(to: &mut TcpStream, data: &mut Vec<u8>) -> Result<()> {
    while !data.is_empty() {
        match to.write(data) {
            Ok(size) => drop(data.drain(..size)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
