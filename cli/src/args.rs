//! The definition of the command line: arguments, environment variables and help texts.
//!
//! It parses only: `connect` and the commands check values. Doc comments here are the help texts that users see.

use crate::duration;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use quorlock::OptionValue;
use std::ffi::OsString;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Durations: 10s, 500ms, 2m, 1h, 1d, or a number of seconds.

Exit status: 0 for success, 64 for a mistake in the usage or the configuration, 69 if too few nodes can vote, \
125 if something else fails; and of
  run      the command's own; 128 + n if signal n ended it or the waiting; 75 if others held the lock; \
79 if the lease was lost; 126 if the command can't be run; 127 if there is none
  status   0 if it is free, 1 if somebody holds it
  release  0 if it is free now, 1 if the answer was no
  doctor   0 if all is well, 1 for warnings, 2 for errors";

const RUN_AFTER_HELP: &str = "\
The command finds in its environment QUORLOCK_RESOURCE, QUORLOCK_FENCE (the fencing token, to be sent with \
every write), QUORLOCK_TOKEN, and QUORLOCK_FENCES (JSON: each resource's fencing token). With several \
resources, there are just the last two.

If the lease can't be extended, the command's process group is sent SIGTERM when the lease has no more than \
--kill-after left, and SIGKILL when it ends: before anybody else can get the lock. If the lease is taken \
away, it is sent SIGTERM at once and SIGKILL after --kill-after.

Example: quorlock run --wait 0 nightly-report -- /usr/local/bin/report";

/// A distributed lock over independent Redis or Valkey masters.
#[derive(Debug, Parser)]
#[command(name = "quorlock", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) nodes: Nodes,
    #[command(flatten)]
    pub(crate) output: Shown,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options for the nodes, common to all commands.
#[derive(Args, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct Nodes {
    /// A node's URL; for each node once, or separated by commas. Others see it in the list of processes:
    /// put URLs with passwords into a file or the environment variable QUORLOCK_NODES
    #[arg(long = "node", value_name = "URL", global = true)]
    pub(crate) urls: Vec<String>,
    /// A file with the nodes' URLs, one on each line
    #[arg(long, value_name = "FILE", global = true, env = "QUORLOCK_NODES_FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// What the keys on the nodes begin with, before the resource
    #[arg(long, value_name = "PREFIX", global = true, env = "QUORLOCK_KEY_PREFIX")]
    pub(crate) key_prefix: Option<String>,
    /// For how long a node that has restarted has no vote: not shorter than any ttl in use [default: off]
    #[arg(long, value_name = "DURATION", global = true, env = "QUORLOCK_RESTART_GUARD", value_parser = duration::parse)]
    pub(crate) restart_guard: Option<OptionValue>,
    /// How long one node may take to answer [default: ttl/20, from 10ms to 200ms]
    #[arg(long, value_name = "DURATION", global = true, env = "QUORLOCK_NODE_TIMEOUT", value_parser = duration::parse)]
    pub(crate) node_timeout: Option<OptionValue>,
    /// How long connecting may take, and how long a missing majority is waited for [default: 1s]
    #[arg(long, value_name = "DURATION", global = true, env = "QUORLOCK_CONNECT_TIMEOUT", value_parser = duration::parse)]
    pub(crate) connect_timeout: Option<OptionValue>,
    /// By how much clocks may differ in rate [default: 0.01]
    #[arg(long, value_name = "FACTOR", global = true, env = "QUORLOCK_DRIFT_FACTOR")]
    pub(crate) drift_factor: Option<f64>,
    /// How long the nodes keep the lock of a holder that is gone
    #[arg(long, value_name = "DURATION", global = true, env = "QUORLOCK_TTL", value_parser = duration::parse, default_value = "10s")]
    pub(crate) ttl: OptionValue,
}

/// The options for the output, common to all commands.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Shown {
    /// Results on stdout and errors on stderr as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No messages on stderr
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// More messages on stderr
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Status(Status),
    Release(Release),
    /// Check whether the nodes are fit for a lock. Changes nothing on them
    Doctor,
    Bench(Bench),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or that of a command: quorlock man run | man -l -
    Man {
        /// The command
        command: Option<String>,
    },
}

/// Run a command while holding a lock
#[derive(Args, Debug)]
#[command(after_help = RUN_AFTER_HELP)]
pub(crate) struct Run {
    /// What to lock; several are locked all or none
    #[arg(required = true, value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
    /// How long to wait while others hold the lock: 0 for one try, forever for no end [default: 10s]
    #[arg(long, short, value_name = "DURATION", env = "QUORLOCK_WAIT", value_parser = duration::parse)]
    pub(crate) wait: Option<OptionValue>,
    /// How long the lock can be held at most [default: forever]
    #[arg(long, value_name = "DURATION", env = "QUORLOCK_MAX_HOLD", value_parser = duration::parse)]
    pub(crate) max_hold: Option<OptionValue>,
    /// How long the command has from SIGTERM to SIGKILL when the lease is lost: up to ttl/2 [default: ttl/5]
    #[arg(long, short, value_name = "DURATION", env = "QUORLOCK_KILL_AFTER", value_parser = duration::parse)]
    pub(crate) kill_after: Option<OptionValue>,
    /// The exit status if others hold the lock
    #[arg(long, short = 'E', value_name = "STATUS", env = "QUORLOCK_CONFLICT_EXIT_CODE", default_value_t = crate::exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
    /// The command, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Show who holds a lock. Changes nothing
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// What may be locked
    #[arg(required = true, value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
}

/// Take a lock away from its holder, so that the next waiter gets it
///
/// The holder notices when it next extends its lease, within a third of its ttl. Until then it may work at the
/// same time as the next holder. A lock that has changed hands since it was shown is not released.
#[derive(Args, Debug)]
pub(crate) struct Release {
    /// What is locked
    pub(crate) resource: String,
    /// Do not ask
    #[arg(long, short, visible_alias = "force")]
    pub(crate) yes: bool,
}

/// Measure acquiring and releasing on the nodes, with resources of random names
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// For how long
    #[arg(long, short, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub(crate) duration: OptionValue,
    /// How many at once, each with a resource of its own: 1 to 1024
    #[arg(long, short, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,
}

/// Returns the definition of all arguments. The help does not show values of environment variables, which may
/// be secrets.
pub(crate) fn command() -> clap::Command {
    let hide = |arg: clap::Arg| arg.hide_env_values(true);
    Arguments::command().mut_args(hide).mut_subcommands(|command| command.mut_args(hide))
}
