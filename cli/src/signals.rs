//! Receives the signals of this process. `run` passes them on to its command; all other commands end.
//!
//! Only this module changes signal handlers and the signal mask.

#[cfg(not(unix))]
pub(crate) use other::{Signals, keep_running, reset};
#[cfg(unix)]
pub(crate) use unix::{Signals, is_withheld, keep_running, reset, restore, stop_job};

#[cfg(unix)]
mod unix {
    use rustix::process::Signal;
    use std::future::poll_fn;
    use std::io;
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;
    use std::task::Poll;
    use tokio::signal::unix::{self, SignalKind};

    /// The signals that `run` passes on to its command.
    const PASSED_ON: [Signal; 10] = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::TSTP,
        Signal::CONT,
        Signal::WINCH,
    ];

    /// The signals that stay ignored if they were ignored at the start: nohup(1) and the background jobs of shell scripts
    /// rely on that.
    const MAY_STAY_IGNORED: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TSTP];

    /// The signals that a terminal sends to a whole process group when one process of it, which is in the background,
    /// reads from the terminal or changes it.
    const OF_TERMINAL: [i32; 2] = [libc::SIGTTIN, libc::SIGTTOU];

    /// What this process inherited when it started.
    struct Inherited {
        mask: libc::sigset_t,
        /// The numbers of the ignored signals.
        ignored: Vec<i32>,
    }

    static INHERITED: OnceLock<Inherited> = OnceLock::new();

    /// Unblocks all signals, and removes the signal handlers of the Python or Node.js interpreter that runs this code,
    /// which would otherwise be called in addition to ours. Remembers what was inherited, for [`restore`].
    pub(crate) fn reset() {
        let ignored = (1..=libc::SIGSYS).filter(|number| is_ignored(*number)).collect();
        INHERITED.get_or_init(|| Inherited { mask: unblock_all(), ignored });
        let stays_ignored =
            |signal: &Signal| MAY_STAY_IGNORED.contains(signal) && is_ignored(signal.as_raw());
        for signal in PASSED_ON.iter().filter(|signal| !stays_ignored(signal)) {
            set(signal.as_raw(), libc::SIG_DFL);
        }
        // A file that is as large as is permitted is an error of the write, and must not end this process.
        set(libc::SIGXFSZ, libc::SIG_IGN);
    }

    /// From now on, no use of the terminal from the background stops this process, whether it is its own use or that of
    /// another process of its group, such as another part of a pipeline: a lease would not be renewed, and a command would
    /// run on after its lease. Later reads of the terminal in the background fail.
    pub(crate) fn keep_running() {
        OF_TERMINAL.iter().for_each(|number| set(*number, libc::SIG_IGN));
    }

    /// Stops the other processes of this group as Ctrl-Z does: another `quorlock run` among them first stops its own
    /// command. Then stops this process: see [`stop`].
    #[expect(unsafe_code, reason = "kill(2)")]
    pub(crate) fn stop_job() {
        with_action(libc::SIGTSTP, libc::SIG_IGN, || {
            // SAFETY: this process ignores the signal.
            unsafe { libc::kill(0, libc::SIGTSTP) };
            stop();
        });
    }

    /// Stops this process as Ctrl-Z does. Returns when it is resumed; at once if there is no shell that could resume
    /// its group: SIGSTOP would then stop it for ever.
    #[expect(unsafe_code, reason = "raise(3)")]
    fn stop() {
        with_action(libc::SIGTSTP, libc::SIG_DFL, || {
            // SAFETY: the default action runs no code of this process.
            unsafe { libc::raise(libc::SIGTSTP) };
        });
    }

    /// Runs `work` while a signal has another action, and restores the action that tokio or [`with_action`] has set.
    #[expect(unsafe_code, reason = "sigaction(2)")]
    fn with_action(number: i32, action: libc::sighandler_t, work: impl FnOnce()) {
        // SAFETY: all zeros are a valid sigaction.
        unsafe {
            let mut during: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            during.sa_sigaction = action;
            libc::sigaction(number, &raw const during, &raw mut before);
            work();
            libc::sigaction(number, &raw const before, std::ptr::null_mut());
        }
    }

    /// Restores the signal mask and the ignored signals that this process inherited, for a program that it executes. Makes
    /// only system calls that are safe between fork and exec.
    pub(crate) fn restore() {
        let Some(inherited) = INHERITED.get() else { return };
        OF_TERMINAL.iter().for_each(|number| set(*number, libc::SIG_DFL));
        for number in &inherited.ignored {
            set(*number, libc::SIG_IGN);
        }
        // This process, Python or Node.js ignores these, and most programs rely on the default.
        for number in [libc::SIGPIPE, libc::SIGXFSZ] {
            set(number, libc::SIG_DFL);
        }
        #[expect(unsafe_code, reason = "pthread_sigmask(3)")]
        // SAFETY: the mask is initialized.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const inherited.mask,
                std::ptr::null_mut(),
            );
        }
    }

    /// Whether programs that this process executes inherit that the signal is blocked or ignored.
    pub(crate) fn is_withheld(signal: Signal) -> bool {
        INHERITED.get().is_some_and(|Inherited { mask, ignored }| {
            #[expect(unsafe_code, reason = "sigismember(3)")]
            // SAFETY: the mask is initialized.
            let is_blocked = unsafe { libc::sigismember(mask, signal.as_raw()) } == 1;
            is_blocked || ignored.contains(&signal.as_raw())
        })
    }

    /// Unblocks all signals for this thread and those that it starts, and returns the mask before.
    #[expect(unsafe_code, reason = "pthread_sigmask(3)")]
    fn unblock_all() -> libc::sigset_t {
        let mut none = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are initialized by the calls.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        }
    }

    /// Restores the default action of a signal, or ignores it.
    #[expect(unsafe_code, reason = "signal(2)")]
    fn set(number: i32, action: libc::sighandler_t) {
        // SAFETY: this replaces no handler of ours: tokio installs its handlers later, and exec removes them.
        unsafe { libc::signal(number, action) };
    }

    #[expect(unsafe_code, reason = "sigaction(2)")]
    fn is_ignored(number: i32) -> bool {
        // SAFETY: all zeros are a valid sigaction, and the call only writes to it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(number, std::ptr::null(), &raw mut action) == 0
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
            let signals = PASSED_ON.into_iter().filter(|signal| !is_ignored(signal.as_raw()));
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
                    Signal::CONT | Signal::WINCH => {}
                    Signal::TSTP => stop(),
                    signal => return signal.as_raw() as u8,
                }
            }
        }
    }
}

#[cfg(not(unix))]
mod other {
    use std::io;

    /// Ctrl-C, the only signal on systems other than Unix.
    pub(crate) struct Signals;

    const INTERRUPT: u8 = 2;

    pub(crate) fn reset() {}

    pub(crate) fn keep_running() {}

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
