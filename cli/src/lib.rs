//! The `quorlock` command line.
//!
//! It runs as a program of its own, and inside the interpreters of the Python and Node.js packages. So it takes
//! its arguments as a parameter and returns the exit status; it must neither read the arguments of the process
//! nor exit it.

mod args;
mod bench;
mod connect;
mod doctor;
mod duration;
mod manual;
mod output;
mod release;
mod run;
mod signals;
mod status;

use args::{Arguments, Command};
use clap::FromArgMatches;
use output::{Failure, Output};
use std::ffi::OsString;

/// The exit statuses of `quorlock` itself. `run` otherwise returns the status of its command.
mod exit {
    pub(crate) const OK: u8 = 0;
    /// `status`: the lock is held; `release`: the answer to the question was no, or the lock is still held.
    pub(crate) const NO: u8 = 1;
    /// `EX_USAGE` of sysexits.h: an invalid flag, option, URL or list of nodes.
    pub(crate) const USAGE: u8 = 64;
    /// `EX_UNAVAILABLE`: too few nodes could vote.
    pub(crate) const NO_QUORUM: u8 = 69;
    /// `EX_TEMPFAIL`: others held the lock for the whole wait.
    pub(crate) const CONFLICT: u8 = 75;
    /// The lease was lost while the command ran. No status of sysexits.h fits; they end at 78.
    pub(crate) const LOST: u8 = 79;
    /// As in timeout(1), env(1) and others: something else failed.
    pub(crate) const FAILED: u8 = 125;
    /// As in the shell: the command was found but cannot be run.
    pub(crate) const CANNOT_RUN: u8 = 126;
    /// As in the shell: there is no such command.
    pub(crate) const NOT_FOUND: u8 = 127;
    /// As in the shell: the number of the signal is added to it.
    pub(crate) const SIGNAL: u8 = 128;
}

/// Runs the command line and returns its exit status. The first of the arguments is the program's name.
///
/// Call it once, on the main thread of the process, and exit afterwards: it replaces the signal handlers of the
/// process, and does not restore them. Blocks until the command ends. Errors are printed on stderr.
pub fn main(arguments: impl Iterator<Item = OsString>) -> u8 {
    let arguments: Vec<_> = arguments.collect();
    let parsed = args::command()
        .try_get_matches_from(&arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let Arguments { nodes, output, command } = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return output::usage(&error, &arguments),
    };
    signals::reset();
    let output = Output::new(&output);
    let result = on_runtime(async {
        match command {
            Command::Run(wanted) => run::run(&nodes, &wanted, &output).await,
            Command::Status(wanted) => status::status(&nodes, &wanted, &output).await,
            Command::Release(wanted) => release::release(&nodes, &wanted, &output).await,
            Command::Doctor => doctor::doctor(&nodes, &output).await,
            Command::Bench(wanted) => bench::bench(&nodes, &wanted, &output).await,
            Command::Completions { shell } => {
                manual::completions(shell, &output);
                Ok(exit::OK)
            }
            Command::Man { command } => manual::page(command.as_deref(), &output),
        }
    });
    result.unwrap_or_else(|failure| output.fail(&failure))
}

/// Runs `work` on a runtime on this thread. The client has a runtime of its own.
fn on_runtime(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::own("the event loop cannot start", &error))?.block_on(work)
}

#[test]
fn the_arguments_are_well_defined() {
    args::command().debug_assert();
}
