//! A slow network: `delay MILLISECONDS PORT...` listens on a port for each given one, tells them on its
//! standard output, and passes on what goes through, replies later by so much. It ends with its input.
//!
//! `tests/proxy.py` does the same and more, and takes a CPU for it.

use std::io::{Read, Result, Write, copy, sink, stdin};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u16>().expect("a number"));
    let delay = Duration::from_millis(numbers.next().expect("a delay").into());
    let listen = |port: u16| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let own = listener.local_addr().expect("an address").port();
        spawn(move || {
            for client in listener.incoming() {
                // A client that is gone at once is nobody's loss.
                let _ = client.and_then(|client| link(client, port, delay));
            }
        });
        own
    };
    let ports: Vec<u16> = numbers.map(listen).collect();
    println!("{}", serde_json::json!(ports));
    let _ = copy(&mut stdin(), &mut sink());
}

/// Passes on what goes from a client to a server, at once, and back, later.
fn link(client: TcpStream, port: u16, delay: Duration) -> Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut up, mut to_server) = (client.try_clone()?, server.try_clone()?);
    spawn(move || {
        let _ = copy(&mut up, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let (replies, later) = channel::<(Instant, Vec<u8>)>();
    let (mut down, mut to_client) = (server, client);
    spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(size @ 1..) = down.read(&mut buffer) {
            if replies.send((Instant::now() + delay, buffer[..size].to_vec())).is_err() {
                break;
            }
        }
    });
    spawn(move || {
        for (due, reply) in later {
            sleep(due.saturating_duration_since(Instant::now()));
            if to_client.write_all(&reply).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    Ok(())
}
