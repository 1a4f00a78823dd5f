//! The definition of the command line: arguments, environment variables and help texts.
//!
//! It parses only: `connect` and the commands check values. Doc comments here are the help texts that users see.

use crate::duration;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use quorlock::{Dialect, OptionValue, has_lease_text};
use std::ffi::OsString;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
A duration is a number with a unit, such as 500ms, 10s, 1m30s, 2h or 1d.

Exit status:
  0       success
  1       status: a resource is held or contested, or no permit is free;
          release: the lock was not released; doctor: there are warnings
  2       doctor: there are errors
  64      an argument, an option, a URL or the list of nodes is wrong
  69      too few nodes can vote
  75      run, acquire: others held the lock for the whole --wait
  79      run: the lease was lost; run --adopt, extend, release: the lease had
          ended
  125     any other failure
  126     run: the command cannot be run
  127     run: the command does not exist
  128+n   run, acquire, watch, list --watch, bench, serve: ended by signal n
In all other cases, run exits with the status of its command.";

const RUN_AFTER_HELP: &str = "\
The command gets these environment variables: QUORLOCK_RESOURCE, QUORLOCK_FENCE (the fencing token, to be \
sent with every write), QUORLOCK_TOKEN, and QUORLOCK_FENCES (JSON: the fencing token of each resource). With \
several resources, QUORLOCK_RESOURCE and QUORLOCK_FENCE are not set. With --limit, QUORLOCK_SLOTS has the \
numbers of the permits, such as 3, or 3,7 with --permits 2: each is 0 to the limit - 1, and no other holder has it.

If the lease cannot be renewed, the command's process group gets SIGTERM when the lease has no more than \
--kill-after left, and SIGKILL when the lease ends. So the command is gone before another client gets the \
lock. If the lease is taken away, the process group gets SIGTERM immediately, and SIGKILL after --kill-after.

With --heartbeat-timeout, quorlock renews the lease only while the last heartbeat of the command is younger than \
this. If the command hangs, the lease ends at most this time plus one ttl after the last heartbeat, and the command \
is stopped as above. The start of the command is the first heartbeat.

With --heartbeat notify, the command gets NOTIFY_SOCKET and WATCHDOG_USEC, and a message WATCHDOG=1 is a heartbeat: \
see sd_notify(3) and systemd-notify(1). WATCHDOG=trigger stops the command at once. If quorlock is a service of \
systemd itself, it passes on the messages of the command, such as READY=1.

With --heartbeat output, everything that the command writes to stdout or stderr is a heartbeat, and quorlock passes it \
on unchanged. For the command, both are pipes, so many programs write in blocks. To let a program write each line at \
once, use stdbuf(1) or an option of the program.

With --adopt, the text of the lease is used up, and is removed from the command's environment.

With --detach, quorlock does not hold the lock while the command runs, so it neither renews the lease nor stops \
the command. If the command fails and nobody has adopted the lease, quorlock releases the lock. Otherwise, the lock \
stays held until an adopter releases it, or --within has passed. The command gets neither a fencing token nor \
QUORLOCK_TOKEN: it has them when it has adopted the lease.

On stderr, one line each says that quorlock waits, has acquired, lost or released the lock. With --quiet, these \
lines and the report of a held lock are left out. Errors are still printed.

Exit status: that of the command, or
  64      an argument, an option, a URL or the list of nodes is wrong
  69      too few nodes can vote
  75      others held the lock for the whole --wait (see -E)
  79      the lease was lost, or --max-hold ended the command; with --adopt
          also: the lease was adopted already, or has ended
  125     any other failure
  126     the command cannot be run
  127     the command does not exist
  128+n   signal n ended the command or the wait

Examples:
  quorlock run -n --keep 1m nightly-report -- /usr/local/bin/report
  quorlock run --limit 4 encoder -c 'encode --gpu \"$QUORLOCK_SLOTS\" film.mkv'
  quorlock run -n nightly-report -c 'make-report | mail -s report team'
  quorlock run --detach --within 5m orders:42 -- enqueue-order 42
  quorlock run --adopt -- ship-order 42";

const ACQUIRE_AFTER_HELP: &str = "\
Exit status:
  0       the lock was acquired
  64      an argument, an option, a URL or the list of nodes is wrong
  69      too few nodes can vote
  75      others held the lock for the whole --wait (see -E)

Example:
  QUORLOCK_LEASE=$(quorlock acquire orders:42 --ttl 60s) || exit
  export QUORLOCK_LEASE
  quorlock extend
  quorlock release";

const DOCTOR_AFTER_HELP: &str = "\
Use `quorlock doctor` for alerts, and `quorlock doctor --require majority` for health probes. The probe \
succeeds while a majority of the nodes can vote, even if other nodes are down or there are warnings. It takes \
at most --connect-timeout plus --node-timeout.";

const SERVE_AFTER_HELP: &str = "\
Clients speak the protocol of Redis, RESP2 or RESP3: LOCK resource [TTL ms] [WAIT ms] replies with an id, a fencing \
token and the milliseconds for which the lease is valid; UNLOCK id releases it. docs/serve.md has all commands.

SIGTERM and SIGINT end the daemon after --drain at most; a second signal ends it at once. In both cases all leases are \
released.

Example:
  quorlock serve --socket /run/quorlock/quorlock.sock --mode 0660 --group www-data &
  redis-cli -s /run/quorlock/quorlock.sock LOCK orders:42 TTL 30000";

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
    /// The URL of a node. Repeat the flag for each node, or separate URLs by commas. Other users see it in
    /// the process list: put URLs with passwords into a file or the environment variable QUORLOCK_NODES
    #[arg(long = "node", value_name = "URL", global = true)]
    pub(crate) urls: Vec<String>,
    /// A file with the URLs of the nodes, one on each line. A # at the beginning of a line or after a space
    /// starts a comment
    #[arg(long, value_name = "FILE", global = true, env = "QUORLOCK_NODES_FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// The prefix of the keys on the nodes, before the resource [env: QUORLOCK_KEY_PREFIX]
    #[arg(long, value_name = "PREFIX", global = true)]
    pub(crate) key_prefix: Option<String>,
    /// How long the votes of a restarted node do not count: not shorter than any ttl in use [default: off]
    /// [env: QUORLOCK_RESTART_GUARD]
    #[arg(long, value_name = "DURATION", global = true, value_parser = duration::parse)]
    pub(crate) restart_guard: Option<OptionValue>,
    /// The maximum time for one node to answer a request [default: ttl/20, from 10ms to 200ms]
    #[arg(long, value_name = "DURATION", global = true, env = "QUORLOCK_NODE_TIMEOUT", value_parser = duration::parse)]
    pub(crate) node_timeout: Option<OptionValue>,
    /// The maximum time for connecting to a node, and for waiting until a majority can vote [default: 1s]
    #[arg(long, value_name = "DURATION", global = true, env = "QUORLOCK_CONNECT_TIMEOUT", value_parser = duration::parse)]
    pub(crate) connect_timeout: Option<OptionValue>,
    /// The maximum relative difference between the rates of clocks [default: 0.01] [env: QUORLOCK_DRIFT_FACTOR]
    #[arg(long, value_name = "FACTOR", global = true)]
    pub(crate) drift_factor: Option<f64>,
    /// How long the nodes keep a lock that is not renewed
    #[arg(long, value_name = "DURATION", global = true, env = "QUORLOCK_TTL", value_parser = duration::parse, default_value = "10s")]
    pub(crate) ttl: OptionValue,
    /// Whether the ttl is given as a flag, and is not a default.
    #[arg(skip)]
    pub(crate) is_ttl_flag: bool,
    #[arg(skip)]
    pub(crate) named: Named,
}

/// How the options of a call are named in errors: by the environment variable if the value is from there, else by the flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    /// The options whose values are from the environment.
    from_environment: Vec<String>,
}

impl Named {
    fn of(matches: &ArgMatches) -> Self {
        let of_command = matches.subcommand().map(|(_, matches)| matches);
        let mut from_environment = Vec::new();
        for matches in [Some(matches), of_command].into_iter().flatten() {
            let is_variable =
                |id: &&str| matches.value_source(id) == Some(ValueSource::EnvVariable);
            let ids = matches.ids().map(clap::Id::as_str);
            from_environment.extend(ids.filter(is_variable).map(str::to_owned));
        }
        Self { from_environment }
    }

    /// Returns the form of an option, such as `node_timeout`, and its name in that form.
    pub(crate) fn option(&self, option: &str) -> (Dialect, String) {
        if self.from_environment.iter().any(|known| known == option) {
            (Dialect::Environment, variable(option))
        } else {
            (Dialect::CommandLine, format!("--{}", option.replace('_', "-")))
        }
    }

    /// Returns the name of an option, such as `--node-timeout`.
    pub(crate) fn name(&self, option: &str) -> String {
        self.option(option).1
    }
}

/// Returns the environment variable of an option, such as `node_timeout`.
fn variable(option: &str) -> String {
    format!("QUORLOCK_{}", option.to_uppercase())
}

/// The options for the output, common to all commands.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Shown {
    /// Print results on stdout and errors on stderr as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no informational messages. Errors are still printed
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more messages on stderr
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Acquire(Acquire),
    Extend(Extend),
    Status(Status),
    List(List),
    Watch(Watch),
    Release(Release),
    Doctor(Doctor),
    Bench(Bench),
    Serve(Serve),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of quorlock or of one command: quorlock man run | man -l -
    Man {
        /// The command
        command: Option<String>,
    },
}

/// How to acquire a lock.
#[derive(Args, Debug)]
pub(crate) struct Acquiring {
    /// Do not wait while others hold the lock, like --wait 0. Takes precedence over --wait
    #[arg(long, short, visible_alias = "nb")]
    pub(crate) nonblock: bool,
    /// How long to wait while others hold the lock: 0 for one attempt, forever for no limit [default: 10s]
    #[arg(long, short, value_name = "DURATION", env = "QUORLOCK_WAIT", value_parser = duration::parse)]
    pub(crate) wait: Option<OptionValue>,
    /// How long to retry, from the start, while too few nodes can vote: forever for no limit [default: 0]
    #[arg(long, value_name = "DURATION", env = "QUORLOCK_OUTAGE", value_parser = duration::parse)]
    pub(crate) outage: Option<OptionValue>,
    /// Lock in shared mode: any number of clients hold the resources at the same time, if all of them do so in shared
    /// mode
    #[arg(long, short)]
    pub(crate) shared: bool,
    /// Lock this one of the resources in shared mode, and others exclusively. Can be given several times
    #[arg(long, value_name = "RESOURCE", conflicts_with = "shared")]
    pub(crate) shared_for: Vec<String>,
    /// The name that others see while they wait, at most 128 bytes; '' for none [default: HOST:PID]
    #[arg(long, value_name = "NAME", env = "QUORLOCK_HOLDER")]
    pub(crate) holder: Option<String>,
    /// The exit status if others hold the lock. Does not change the exit status of errors
    #[arg(long, short = 'E', value_name = "STATUS", env = "QUORLOCK_CONFLICT_EXIT_CODE", default_value_t = crate::exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
    #[arg(skip)]
    pub(crate) named: Named,
}

/// Run a command while holding a lock
#[derive(Args, Debug)]
#[command(after_help = RUN_AFTER_HELP)]
pub(crate) struct Run {
    /// The resources to lock, unless --adopt is given; several are locked all or none
    #[arg(required_unless_present = "adopt", value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
    /// Acquire permits of a semaphore instead of a lock: at most this many are held at the same time, 1 to 1024. All
    /// clients should use the same limit. Takes one resource
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["shared", "shared_for"])]
    pub(crate) limit: Option<f64>,
    /// How many permits to acquire, all or none: 1 to --limit [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "limit")]
    pub(crate) permits: Option<f64>,
    #[command(flatten)]
    pub(crate) acquiring: Acquiring,
    /// Adopt a detached lease instead of acquiring one. The environment variable QUORLOCK_LEASE has its text
    #[arg(long, conflicts_with = "detach")]
    pub(crate) adopt: bool,
    /// Read the text for --adopt from the first line of this file, or of stdin if it is -
    #[arg(long, value_name = "FILE", requires = "adopt")]
    pub(crate) lease_file: Option<PathBuf>,
    /// Detach the lease before the command starts. The command gets the text in QUORLOCK_LEASE, and adopts the lease
    /// or passes the text on
    #[arg(long)]
    pub(crate) detach: bool,
    /// How long a lease of --detach can be adopted: 10ms to 24h [default: 30s]
    #[arg(long, value_name = "DURATION", requires = "detach", value_parser = duration::parse)]
    pub(crate) within: Option<OptionValue>,
    /// The maximum time to hold the lock, even if it is shorter than --ttl [default: forever]
    #[arg(long, value_name = "DURATION", env = "QUORLOCK_MAX_HOLD", value_parser = duration::parse)]
    pub(crate) max_hold: Option<OptionValue>,
    /// How long others still find the lock held after the command, so that no host whose clock is late runs it
    /// again: 10ms to 24h [default: off]
    #[arg(long, value_name = "DURATION", env = "QUORLOCK_KEEP", value_parser = duration::parse)]
    pub(crate) keep: Option<OptionValue>,
    /// Stop a command that hangs: renew the lease only while the last heartbeat of the command is younger than this,
    /// 10ms to 24h [default: off]
    #[arg(long, value_name = "DURATION", env = "QUORLOCK_HEARTBEAT_TIMEOUT", value_parser = duration::parse)]
    pub(crate) heartbeat_timeout: Option<OptionValue>,
    /// What a heartbeat is: with notify, a message WATCHDOG=1 to the socket in NOTIFY_SOCKET, as services of systemd
    /// send it; with output, all that the command writes to stdout or stderr, which are then pipes
    #[arg(long, value_name = "SOURCE", value_enum, default_value = "notify")]
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no heartbeats without Unix"))]
    pub(crate) heartbeat: Heartbeat,
    /// The time between SIGTERM and SIGKILL when the lease is lost: up to ttl/2 [default: ttl/5]
    #[arg(long, short, value_name = "DURATION", env = "QUORLOCK_KILL_AFTER", value_parser = duration::parse)]
    pub(crate) kill_after: Option<OptionValue>,
    /// Run this text with the shell: sh -c SCRIPT
    #[arg(long = "command", short = 'c', value_name = "SCRIPT", conflicts_with = "command")]
    pub(crate) script: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "script", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What counts as a heartbeat of a command.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Heartbeat {
    // A message of sd_notify(3).
    Notify,
    // A write to stdout or stderr.
    Output,
}

/// Acquire a lock for a script, and print a text that stands for the lease
///
/// Nothing renews the lease: it ends after --ttl, unless `quorlock extend` extends it in time. The text is a secret:
/// anyone who has it can extend and release the lease.
#[derive(Args, Debug)]
#[command(after_help = ACQUIRE_AFTER_HELP)]
pub(crate) struct Acquire {
    /// The resources to lock; several are locked all or none
    #[arg(required = true, value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
    #[command(flatten)]
    pub(crate) acquiring: Acquiring,
}

/// Extend a lease of `quorlock acquire` to its ttl from now, or to --ttl
#[derive(Args, Debug)]
pub(crate) struct Extend {
    /// The text that `quorlock acquire` has printed. Other users see flags in the process list: use the environment
    /// variable there
    #[arg(long, value_name = "LEASE", env = "QUORLOCK_LEASE")]
    pub(crate) lease: String,
}

/// Show who holds a lock. Changes nothing
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The resources to show
    #[arg(required = true, value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
    /// Show who holds the permits of a semaphore with this limit, 1 to 1024, instead of a lock. Takes one resource
    #[arg(long, value_name = "NUMBER")]
    pub(crate) limit: Option<f64>,
}

/// Show all resources that are held. Changes nothing
///
/// It looks at every key of every node, page by page, so it takes longer the more keys there are. Keys of other
/// libraries are not shown.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Show only resources whose names begin with this text
    pub(crate) prefix: Option<String>,
    /// The most resources to show
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) limit: u16,
    /// Show the resources as they change, as `quorlock watch` does, until it is interrupted
    #[arg(long)]
    pub(crate) watch: bool,
    /// With --watch: the time between two queries
    #[arg(long, short, value_name = "DURATION", default_value = "1s", requires = "watch", value_parser = duration::parse)]
    pub(crate) interval: OptionValue,
}

/// Show who holds locks, as it changes, until it is interrupted. Changes nothing
///
/// On a terminal, it draws a table again and again. Otherwise it prints a line for each change.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// The resources to watch [default: all that are held, as `quorlock list` finds them]
    #[arg(value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
    /// The time between two queries
    #[arg(long, short, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub(crate) interval: OptionValue,
}

/// Check the nodes, and report what can break a guarantee. Changes nothing on them
#[derive(Args, Debug)]
#[command(after_help = DOCTOR_AFTER_HELP)]
pub(crate) struct Doctor {
    /// Only check whether a majority of the nodes, or all of them, can vote: exit with 0 or 69
    #[arg(long, value_name = "NODES", value_enum)]
    pub(crate) require: Option<Require>,
}

/// The number of nodes that must be able to vote.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Require {
    // Enough nodes to acquire a lock.
    Majority,
    All,
}

/// Release a lease of `quorlock acquire`, or take a lock away from its holder
///
/// With a resource, it takes the lock away from its holder, so that the next waiter gets it.
/// The holder notices the loss at its next renewal, within about a third of its ttl. Until then, it may work at the
/// same time as the next holder. If the lock gets a new holder before you confirm, it is not released.
#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The resource to take away from its holder
    pub(crate) resource: Option<String>,
    /// Release the lease of `quorlock acquire` that printed this text. Not together with a resource, which takes
    /// precedence over the environment variable
    #[arg(long, value_name = "LEASE", env = "QUORLOCK_LEASE")]
    pub(crate) lease: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short, visible_alias = "force")]
    pub(crate) yes: bool,
}

/// Measure the latency of acquire and release on the nodes. Uses resources with random names
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// How long to measure
    #[arg(long, short, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub(crate) duration: OptionValue,
    /// The number of concurrent workers, each with its own resource: 1 to 1024
    #[arg(long, short, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,
}

/// Serve locks on a Unix socket, for programs in any language that has a client for Redis
///
/// A connection owns its leases: when it ends, they are released. Every process that can open the socket can lock.
#[derive(Args, Debug)]
#[command(after_help = SERVE_AFTER_HELP)]
#[cfg_attr(not(unix), expect(dead_code, reason = "the daemon needs Unix sockets"))]
pub(crate) struct Serve {
    /// The path of the socket. A service manager can pass on a socket instead [default: $XDG_RUNTIME_DIR/quorlock.sock;
    /// for root /run/quorlock/quorlock.sock]
    #[arg(long, value_name = "PATH", env = "QUORLOCK_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// The permissions of the socket's file, in octal
    #[arg(long = "mode", value_name = "MODE", default_value = "0600", value_parser = mode)]
    pub(crate) file_mode: u32,
    /// The owner of the socket's file, by name or number [default: the user of this process]
    #[arg(long, value_name = "USER")]
    pub(crate) owner: Option<String>,
    /// The group of the socket's file, by name or number [default: the group of this process]
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// The most clients at the same time. Others get an error
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_clients: u32,
    /// The most leases of one client at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_leases: u32,
    /// The most memory that all clients together may use, for their requests, replies and leases. Further ones get an error
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = size)]
    pub(crate) max_memory: usize,
    /// How long a request waits while others hold the lock, unless it says so: 0 for one attempt, forever for no limit
    /// [default: 10s]
    #[arg(long, short, value_name = "DURATION", env = "QUORLOCK_WAIT", value_parser = duration::parse)]
    pub(crate) wait: Option<OptionValue>,
    /// The maximum time to hold a lock, so that a client that hangs does not hold it for ever. Clients can ask for less, not
    /// for more
    #[arg(long, value_name = "DURATION", env = "QUORLOCK_MAX_HOLD", value_parser = duration::parse, default_value = "1h")]
    pub(crate) max_hold: OptionValue,
    /// Renew a lease only while the last heartbeat of its client is younger than this, so that a client that hangs
    /// loses its leases: 10ms to 24h. Clients can ask for less, not for more [default: off]
    #[arg(long, value_name = "DURATION", env = "QUORLOCK_HEARTBEAT_TIMEOUT", value_parser = duration::parse)]
    pub(crate) heartbeat_timeout: Option<OptionValue>,
    /// How long clients may go on to release their leases after SIGTERM. Then all leases are released
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "10s")]
    pub(crate) drain: OptionValue,
}

/// Parses the permissions of a file.
fn mode(text: &str) -> Result<u32, String> {
    let is_octal = !text.is_empty() && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| "a mode is an octal number from 0 to 0777, such as 0660".to_owned())
}

/// Parses an amount of memory.
fn size(text: &str) -> Result<usize, String> {
    const LEAST: usize = 1 << 20;
    let wrong = || "a size is a number of MiB or GiB, at least 1MiB, such as 64MiB".to_owned();
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(wrong()),
    };
    let bytes = number.parse().ok().and_then(|number: usize| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes >= LEAST).ok_or_else(wrong)
}

/// Returns the definition of all arguments. The help does not show values of environment variables, which may
/// be secrets.
pub(crate) fn command() -> clap::Command {
    change(|arg| arg.hide_env_values(true))
}

/// Returns the definition of all arguments, with a change to each of them.
fn change(arg: impl Fn(clap::Arg) -> clap::Arg + Copy) -> clap::Command {
    Arguments::command().mut_args(arg).mut_subcommands(|command| command.mut_args(arg))
}

/// Returns the definition of all arguments with the variables that are set. An empty one counts as not set. Only the text
/// of a lease is not optional: it is empty if the acquire has failed.
fn command_with_environment() -> clap::Command {
    change(|arg| {
        let arg = arg.hide_env_values(true);
        let is_empty =
            |name| std::env::var_os(name).is_some_and(|value: OsString| value.is_empty());
        match arg.get_env() {
            Some(name) if arg.get_id() != "lease" && is_empty(name) => arg.env(Resettable::Reset),
            _ => arg,
        }
    })
}

/// Returns the environment variable whose value clap refuses with this error; `None` if an argument is wrong.
pub(crate) fn refused_variable(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let flag = |error: &clap::Error| match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => Some(flag.clone()),
        _ => None,
    };
    let wrong = flag(error).filter(|_| error.get(ContextKind::InvalidValue).is_some())?;
    let without = change(|arg| arg.env(Resettable::Reset)).try_get_matches_from(arguments);
    // Without the environment, the call is right, or there is another mistake.
    if without.is_err_and(|error| flag(&error).as_ref() == Some(&wrong)) {
        return None;
    }
    let name = wrong.trim_start_matches('-').split(' ').next().unwrap_or_default();
    Some(variable(&name.replace('-', "_")))
}

/// Parses the arguments. An error is reported with the usage.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Arguments, clap::Error> {
    let matches = command_with_environment().try_get_matches_from(arguments)?;
    // An environment variable is a default, which a flag overrides. Two flags are a contradiction.
    let is_flag =
        |matches: &ArgMatches, name| matches.value_source(name) == Some(ValueSource::CommandLine);
    let conflict = |message| Err(command().error(ErrorKind::ArgumentConflict, message));
    if is_flag(&matches, "urls") && is_flag(&matches, "nodes_file") {
        return conflict("--node and --nodes-file cannot be used together");
    }
    // Of those before and after the name of the subcommand, clap keeps only the latter.
    let is_node = |given: &&OsString| {
        given.to_str().is_some_and(|given| given == "--node" || given.starts_with("--node="))
    };
    let nodes = arguments.iter().take_while(|given| *given != "--").filter(is_node).count();
    if nodes > matches.get_many::<String>("urls").map_or(0, Iterator::count) {
        return conflict(
            "--node is given before and after the name of the subcommand: give all nodes in one place",
        );
    }
    if let Some(release) = matches.subcommand_matches("release")
        && is_flag(release, "resource")
        && is_flag(release, "lease")
    {
        return conflict("a resource and --lease cannot be used together");
    }
    if let Some(run) = matches.subcommand_matches("run") {
        if run.get_flag("adopt") && is_flag(run, "resources") {
            return conflict(
                "--adopt takes no resource: the text of the lease names its resources",
            );
        }
        if run.get_flag("adopt") && (is_flag(run, "shared") || is_flag(run, "shared_for")) {
            return conflict("--adopt takes no mode: the lease keeps its own");
        }
        if run.get_flag("adopt") && is_flag(run, "limit") {
            return conflict("--adopt takes no --limit: the lease keeps its permits");
        }
        let own = ["max_hold", "keep", "heartbeat_timeout", "kill_after"];
        if run.get_flag("detach") && own.into_iter().any(|name| is_flag(run, name)) {
            return conflict(
                "--detach cannot be used with --max-hold, --keep, --heartbeat-timeout and --kill-after: set them where the lease is adopted",
            );
        }
        if is_flag(run, "heartbeat") && !run.contains_id("heartbeat_timeout") {
            return conflict(
                "--heartbeat needs --heartbeat-timeout, which says how old the last heartbeat may be",
            );
        }
    }
    if let Some(mistake) = mistake(&matches, arguments) {
        return conflict(mistake);
    }
    let mut parsed = Arguments::from_arg_matches(&matches)?;
    parsed.nodes.is_ttl_flag = is_flag(&matches, "ttl");
    parsed.nodes.named = Named::of(&matches);
    let named = parsed.nodes.named.clone();
    match &mut parsed.command {
        Command::Run(run) => run.acquiring.named = named,
        Command::Acquire(acquire) => acquire.acquiring.named = named,
        _ => {}
    }
    Ok(parsed)
}

/// Returns the message about a call that has a valid form, but does not do what its author means.
fn mistake(matches: &ArgMatches, arguments: &[OsString]) -> Option<&'static str> {
    let (name, matches) = matches.subcommand()?;
    let text = |id| matches.try_get_one::<String>(id).ok().flatten();
    let resources =
        || matches.try_get_many::<String>("resources").ok().flatten().into_iter().flatten();
    let has_text = || {
        resources().any(|name| has_lease_text(name))
            || text("prefix").is_some_and(|prefix| has_lease_text(prefix))
    };
    let has_several = resources().count() > 1;
    let separator = arguments.iter().position(|given| given == "--");
    let after_separator = separator.map(|at| arguments.len() - at - 1);
    // Whether there are resources both before and after the argument at this position, by clap's count.
    let is_between = |at: usize| {
        let positions = || matches.indices_of("resources").into_iter().flatten();
        positions().any(|position| position < at) && positions().any(|position| position > at)
    };
    match name {
        "acquire"
            if after_separator.is_some_and(|after| (1..resources().count()).contains(&after)) =>
        {
            Some("acquire runs no command: write `quorlock run RESOURCE -- COMMAND`")
        }
        "run" if matches.index_of("script").is_some_and(is_between) => Some(
            "there are resources before and after -c: put the script in quotes, such as -c 'echo done'",
        ),
        "run" | "status" if matches.contains_id("limit") && has_several => {
            Some("--limit takes one resource: a semaphore has permits of a single resource")
        }
        "release" if text("resource").is_some_and(|name| has_lease_text(name)) => Some(
            "the text of a lease is not the name of a resource: to release that lease, write `quorlock release` with the text in the environment variable QUORLOCK_LEASE, or with --lease",
        ),
        _ if has_text() => Some(
            "the text of a lease is not the name of a resource, and is a secret: name the resource",
        ),
        "extend" | "release"
            if text("resource").is_none() && text("lease").is_some_and(String::is_empty) =>
        {
            Some(
                "the lease is empty, in --lease or the environment variable QUORLOCK_LEASE: has `quorlock acquire` failed?",
            )
        }
        "release" if text("lease").is_none() && text("resource").is_none() => Some(
            "release needs the text of a lease, in --lease or the environment variable QUORLOCK_LEASE, or the resource to take away from its holder",
        ),
        _ => None,
    }
}
