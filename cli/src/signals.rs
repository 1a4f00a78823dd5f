//! The signals that the process gets.

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

    /// Those that are passed on to the command.
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

    /// Does away with the handlers of an interpreter that this runs in: they would be called beside ours, and
    /// an interrupt would be handled a second time. What is ignored stays so, as nohup(1) means it.
    pub(crate) fn reset() {
        for signal in PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal)) {
            set_default(signal);
        }
    }

    /// Gives the signal its default action. May be called between fork and exec.
    #[expect(unsafe_code, reason = "signal(2)")]
    pub(crate) fn set_default(signal: Signal) {
        // SAFETY: no handler of ours is replaced: tokio's are set up later, and exec removes them.
        unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) };
    }

    #[expect(unsafe_code, reason = "sigaction(2)")]
    fn is_ignored(signal: Signal) -> bool {
        // SAFETY: all zeros are a valid sigaction, which the call just fills in.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    }

    /// The signals to this process, from now on.
    pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

    impl Signals {
        /// Those that are passed on, but for those that are ignored.
        pub(crate) fn new() -> io::Result<Self> {
            let listen =
                |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
            let signals = PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal));
            signals.map(listen).collect::<io::Result<_>>().map(Self)
        }

        /// The next one.
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

        /// The number of the next one that would end the process.
        pub(crate) async fn end(&mut self) -> u8 {
            loop {
                match self.next().await {
                    Signal::WINCH => {}
                    // As it would without us.
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

    /// Ctrl-C, as it is on other systems.
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
