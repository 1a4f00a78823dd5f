//! A slow network: `delay MILLISECONDS PORT...` listens on a port for each given one, tells them on its
//! standard output, and passes on what goes through, replies later by so much. It ends with its input.
//!
//! It works in steps of a hundredth of the delay, one thread for all, so that it takes little of the CPUs
//! that it shares with the nodes that are not slow. `tests/proxy.py` does more, and takes a CPU for it.

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
        // Whoever has ended, the other side is told by the sockets being closed.
        links.retain_mut(|link| {
            let ready = sides.next().expect("two sides of each");
            link.pass(ready[0], ready[1], delay, &mut buffer).is_ok()
        });
        for ((listener, port), _) in listeners.iter().zip(arriving).filter(|(_, arrives)| **arrives)
        {
            // A client that is gone at once is nobody's loss.
            links.extend(listener.accept().and_then(|(client, _)| Link::new(client, *port)));
        }
        sleep(delay / 100);
    }
}

/// Waits until something arrives, unless something is on its way. Tells which listeners have a client,
/// and then of each link whether the client has sent something, and the server.
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

    /// Passes on what there is from either side, and what is due.
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

/// What has arrived. An error if nothing will any more.
fn read<'a>(from: &mut TcpStream, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    match from.read(buffer)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        size => Ok(&buffer[..size]),
    }
}

/// Writes as much as the connection takes, which is then no longer in `data`.
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
