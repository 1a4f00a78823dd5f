//! Receives the signals of this process. `run` passes them on to its command; all other commands end.
//!
//! Only this module changes signal handlers.

#[cfg(not(unix))]
pub(crate) use other::{Signals, reset};
#[cfg(unix)]
pub(crate) use unix::{Signals, reset};

#[cfg(unix)]
mod unix {
    use rustix::process::Signal;
    use std::future::poll_fn;
    use std::io;
    use std::task::Poll;
    use tokio::signal::unix::{self, SignalKind};

    /// The signals that `run` passes on to its command.
    const PASSED_ON: [Signal; 9] = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::TSTP,
        Signal::WINCH,
    ];

    /// Removes the signal handlers of the Python or Node.js interpreter that runs this code. Otherwise they
    /// would be called in addition to ours, and handle an interrupt a second time. Ignored signals stay
    /// ignored, as nohup(1) requires.
    pub(crate) fn reset() {
        for signal in PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal)) {
            set_default(signal);
        }
    }

    /// Restores the default action of a signal. May be called between fork and exec.
    #[expect(unsafe_code, reason = "signal(2)")]
    pub(crate) fn set_default(signal: Signal) {
        // SAFETY: this replaces no handler of ours: tokio installs its handlers later, and exec removes them.
        unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) };
    }

    #[expect(unsafe_code, reason = "sigaction(2)")]
    fn is_ignored(signal: Signal) -> bool {
        // SAFETY: all zeros are a valid sigaction, and the call only writes to it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    }

    /// The signals that this process receives from now on.
    pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

    impl Signals {
        /// Installs handlers for the signals that are passed on, except those that are ignored.
        pub(crate) fn new() -> io::Result<Self> {
            let listen =
                |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
            let signals = PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal));
            signals.map(listen).collect::<io::Result<_>>().map(Self)
        }

        /// Waits for the next signal. Cancelling it loses no signal.
        pub(crate) async fn next(&mut self) -> Signal {
            poll_fn(|context| {
                for (signal, stream) in &mut self.0 {
                    if stream.poll_recv(context).is_ready() {
                        return Poll::Ready(*signal);
                    }
                }
                Poll::Pending
            })
            .await
        }

        /// Waits for the next signal that ends a process by default, and returns its number.
        pub(crate) async fn end(&mut self) -> u8 {
            loop {
                match self.next().await {
                    Signal::WINCH => {}
                    // Stop, as the default action does.
                    Signal::TSTP => {
                        let _ =
                            rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                    }
                    signal => return signal.as_raw() as u8,
                }
            }
        }
    }
}

#[cfg(unix)]
pub(crate) use unix::set_default;

#[cfg(not(unix))]
mod other {
    use std::io;

    /// Ctrl-C, the only signal on systems other than Unix.
    pub(crate) struct Signals;

    const INTERRUPT: u8 = 2;

    pub(crate) fn reset() {}

    impl Signals {
        #[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) async fn end(&mut self) -> u8 {
            match tokio::signal::ctrl_c().await {
                Ok(()) => INTERRUPT,
                Err(_) => std::future::pending().await,
            }
        }
    }
}
