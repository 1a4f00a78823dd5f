//! A relay that simulates a slow network: `delay MILLISECONDS PORT...`.
//!
//! It listens on a new port for each given port, prints the new ports, and relays connections to the given
//! ones. Replies are delayed. It exits at the end of standard input.
//!
//! A single thread sleeps until data arrives or a reply is due, because it shares its CPUs with the nodes.
//! `tests/proxy.py` has more features, but would occupy a CPU.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write, copy, sink, stdin};
use std::net::{TcpListener, TcpStream};
use std::thread::spawn;
use std::time::{Duration, Instant};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let milliseconds: f64 = arguments.next().expect("a delay").parse().expect("a number");
    let delay = Duration::from_secs_f64(milliseconds / 1e3);
    let listeners: Vec<_> = arguments
        .map(|port| port.parse().expect("a port"))
        .map(|port: u16| (TcpListener::bind(("127.0.0.1", 0)).expect("a port"), port))
        .collect();
    let own = |(listener, _): &(TcpListener, _)| listener.local_addr().expect("an address").port();
    println!("{}", serde_json::json!(listeners.iter().map(own).collect::<Vec<_>>()));
    spawn(move || pass(&listeners, delay));
    let _ = copy(&mut stdin(), &mut sink());
}

fn pass(listeners: &[(TcpListener, u16)], delay: Duration) {
    let mut links: Vec<Link> = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    // By default, Linux may wake a thread 50 µs late.
    #[cfg(target_os = "linux")]
    rustix::thread::set_current_timer_slack(std::num::NonZero::new(1)).expect("a timer slack");
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
    }
}

/// Waits for data, new clients, or the time at which a reply is due.
///
/// Returns whether there is a new client for each listener, then for each link whether the client and the
/// server have sent data.
fn wait(listeners: &[(TcpListener, u16)], links: &[Link]) -> Vec<bool> {
    let now = Instant::now();
    let mut ready: Vec<_> =
        listeners.iter().map(|(listener, _)| PollFd::new(listener, PollFlags::IN)).collect();
    let mut timeout = None;
    for link in links {
        let due = link.replies.front().map(|(due, _)| *due);
        // What is due but not written waits for the connection to accept it.
        ready.push(polled(&link.client, due.is_some_and(|due| due <= now)));
        ready.push(polled(&link.server, !link.commands.is_empty()));
        let left = due.map(|due| due.saturating_duration_since(now)).filter(|left| !left.is_zero());
        timeout = timeout.into_iter().chain(left).min();
    }
    let timeout = timeout.map(|left| Timespec::try_from(left).expect("a short time"));
    poll(&mut ready, timeout.as_ref()).expect("poll");
    let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
    ready.iter().map(|one| one.revents().intersects(readable)).collect()
}

fn polled(stream: &TcpStream, writes: bool) -> PollFd<'_> {
    let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    PollFd::new(stream, flags)
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
