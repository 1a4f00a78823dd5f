//! Threads that call into Python, started at first use. They end with the process only.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

pub(crate) fn start<T: Send + 'static>(name: &str, run: fn(&Receiver<T>)) -> Sender<T> {
    let (sender, receiver) = mpsc::channel();
    // Without the thread there is nobody to tell; there is no better way to fail.
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || run(&receiver))
        .expect("a thread can be started");
    sender
}
