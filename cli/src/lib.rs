//! The `quorlock` command line.
//!
//! It runs as a program of its own, and inside the interpreters of the Python and Node.js packages. So it takes
//! its arguments as a parameter and returns the exit status; it must neither read the arguments of the process
//! nor exit it.

mod acquiring;
mod args;
mod bench;
mod connect;
mod doctor;
mod duration;
mod exit;
mod lease;
mod list;
#[cfg(unix)]
mod manager;
mod manual;
mod output;
mod release;
mod run;
mod serve;
mod signals;
mod status;
mod watch;
mod writer;

/// The entry point of a fuzz target in `fuzz/`; not part of the public API.
#[cfg(all(unix, feature = "fuzzing"))]
#[doc(hidden)]
pub use serve::fuzzing::requests;

use args::{Arguments, Command};
use output::{Failure, Output};
use std::ffi::OsString;

/// Runs the command line and returns its exit status. The first of the arguments is the program's name.
///
/// Call it once, on the main thread of the process, and exit afterwards: it replaces the signal handlers of the
/// process, and does not restore them. Blocks until the command ends. Errors are printed on stderr.
pub fn main(arguments: impl Iterator<Item = OsString>) -> u8 {
    #[cfg(unix)]
    open_standard_streams();
    let arguments: Vec<_> = arguments.collect();
    let Arguments { nodes, output, command } = match args::parse(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => return output::usage(&error, &arguments),
    };
    signals::reset();
    let output = Output::new(&output);
    let is_daemon = matches!(command, Command::Serve(_));
    // These handle signals themselves, so they must not wait for the reader of stderr.
    let handles_signals = matches!(
        command,
        Command::Run(_)
            | Command::Acquire(_)
            | Command::List(args::List { watch: true, .. })
            | Command::Watch(_)
            | Command::Bench(_)
            | Command::Serve(_)
    );
    if handles_signals && let Err(failure) = output.write_aside() {
        return output.fail(&failure);
    }
    let work = async {
        match command {
            Command::Run(wanted) => run::run(&nodes, &wanted, &output).await,
            Command::Acquire(wanted) => lease::acquire(&nodes, &wanted, &output).await,
            Command::Extend(wanted) => lease::extend(&nodes, &wanted, &output).await,
            Command::Status(wanted) => status::status(&nodes, &wanted, &output).await,
            Command::List(wanted) if wanted.watch => watch::list(&nodes, &wanted, &output).await,
            Command::List(wanted) => list::list(&nodes, &wanted, &output).await,
            Command::Watch(wanted) => watch::watch(&nodes, &wanted, &output).await,
            Command::Release(wanted) => release::release(&nodes, &wanted, &output).await,
            Command::Doctor(wanted) => doctor::doctor(&nodes, &wanted, &output).await,
            Command::Bench(wanted) => bench::bench(&nodes, &wanted, &output).await,
            Command::Serve(wanted) => serve::serve(&nodes, &wanted, &output).await,
            Command::Completions { shell } => manual::completions(shell, &output),
            Command::Man { command } => manual::page(command.as_deref(), &output),
        }
    };
    // Each request to the daemon needs the client, so both are on the client's runtime.
    let result = if is_daemon {
        quorlock::Client::drive(work).unwrap_or_else(|error| Err(error.into()))
    } else {
        on_runtime(work)
    };
    let status = result.unwrap_or_else(|failure| output.fail(&failure));
    output.finish();
    status
}

/// Runs `work` on a runtime on this thread. The client has a runtime of its own.
fn on_runtime(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = quorlock::Client::new_runtime();
    runtime.map_err(|error| Failure::own("the event loop cannot start", &error))?.block_on(work)
}

/// Opens `/dev/null` in place of each standard stream that is closed. A program in Rust begins with that, but one in
/// Python does not. Otherwise, a file of the runtime would get the stream's number, and a command would inherit it.
#[cfg(unix)]
fn open_standard_streams() {
    use rustix::fs::{Mode, OFlags, open};
    use std::os::fd::{AsRawFd, IntoRawFd};
    while let Ok(null) = open("/dev/null", OFlags::RDWR, Mode::empty())
        && null.as_raw_fd() <= 2
    {
        let _ = null.into_raw_fd();
    }
}

#[test]
fn the_arguments_are_well_defined() {
    args::command().debug_assert();
}
