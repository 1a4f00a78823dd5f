//! `quorlock run`: runs a command while a lock is held, and stops it before the lease ends.
//!
//! This module owns the sequence of steps: acquire, run, stop if the lease is lost, release. `handover` replaces them
//! for `--detach`, and reads the text for `--adopt`. `heartbeat` receives the heartbeats of the command. `unix` and
//! `other` own the process of the command, and `descendants` finds the processes that it has started. The command
//! and these processes must never outlive the lease.

#[cfg(target_os = "linux")]
mod descendants;
mod handover;
#[cfg(unix)]
mod heartbeat;
#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod unix;

#[cfg(unix)]
use heartbeat::Heartbeats;
#[cfg(not(unix))]
use other::{Child, Heartbeats, stdin};
#[cfg(unix)]
use unix::{Child, stdin};

use crate::acquiring::{Source, acquire, names, slots};
use crate::args::{Named, Nodes, Run};
use crate::connect::client;
use crate::duration::{self, show};
use crate::exit;
use crate::output::{self, Failure, Output};
use crate::signals::{Signals, keep_running};
use quorlock::{Client, Lease, OptionValue};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// The interval at which to check, after SIGTERM was sent, whether the processes of the command are gone.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) async fn run(nodes: &Nodes, wanted: &Run, output: &Output) -> Result<u8, Failure> {
    let client = client(nodes)?;
    let kill_after = |max_hold| {
        let ttl = lease_ttl(&nodes.ttl, max_hold);
        kill_after(ttl, wanted.kill_after.as_ref(), &nodes.named)
    };
    if wanted.detach {
        // A lease that is handed over has no `max_hold`, although the environment may set one.
        return handover::run(client, wanted, kill_after(None)?, output).await;
    }
    let source = if wanted.adopt {
        Source::Adoption(handover::adoption(&client, wanted.lease_file.as_deref())?)
    } else {
        Source::wanted(&client, wanted)
    };
    let max_hold = wanted.max_hold.as_ref().unwrap_or(&OptionValue::Null);
    let keep = wanted.keep.as_ref().unwrap_or(&OptionValue::Null);
    let heartbeat_timeout = wanted.heartbeat_timeout.as_ref().unwrap_or(&OptionValue::Null);
    let source = source.option(&nodes.named, "max_hold", max_hold);
    let source = source.option(&nodes.named, "heartbeat_timeout", heartbeat_timeout);
    let source = source.option(&nodes.named, "keep", keep).checked()?;
    // After the check of `max_hold`, on which the limit depends.
    let kill_after = kill_after(wanted.max_hold.as_ref())?;
    let mut signals = signals()?;
    let result = hold(&client, &source, wanted, kill_after, &mut signals, output).await;
    client.close().await;
    result
}

fn signals() -> Result<Signals, Failure> {
    keep_running();
    Signals::new().map_err(|error| Failure::own("no signals", &error))
}

/// Returns the command and its arguments.
fn command(wanted: &Run) -> Vec<OsString> {
    match &wanted.script {
        Some(script) => vec!["sh".into(), "-c".into(), script.clone()],
        None => wanted.command.clone(),
    }
}

/// Returns the ttl of the lease. As in the core, a lease lasts no longer than `max_hold`.
fn lease_ttl(ttl: &OptionValue, max_hold: Option<&OptionValue>) -> Duration {
    let ttl = duration::of(ttl).unwrap_or_default();
    max_hold.and_then(duration::of).map_or(ttl, |max_hold| max_hold.min(ttl))
}

/// Returns how long the command may run after SIGTERM before it is killed. If the lease cannot be extended,
/// SIGTERM is sent this long before the lease ends. At most half of the ttl, so that there is time to retry a
/// renewal, which is due every third of the ttl.
fn kill_after(
    ttl: Duration,
    wanted: Option<&OptionValue>,
    named: &Named,
) -> Result<Duration, Failure> {
    match wanted {
        None => Ok(ttl / 5),
        Some(value) => duration::of(value).filter(|time| *time <= ttl / 2).ok_or_else(|| {
            Failure::Usage(format!(
                "{} must be a duration from 0 to half of --ttl, or of --max-hold if that is shorter ({})",
                named.name("kill_after"),
                show(ttl / 2)
            ))
        }),
    }
}

async fn hold(
    client: &Client,
    source: &Source,
    wanted: &Run,
    kill_after: Duration,
    signals: &mut Signals,
    output: &Output,
) -> Result<u8, Failure> {
    let mut heartbeats = Heartbeats::new(wanted)?;
    let lease = tokio::select! {
        biased;
        signal = signals.end() => return Ok(exit::SIGNAL + signal),
        acquired = acquire(source, &wanted.acquiring, output) => acquired?,
    };
    // This process may have been suspended since the lease was granted.
    lease.check()?;
    let command = command(wanted);
    let acquired = Instant::now();
    let mut environment = environment(client, &lease);
    environment.extend(heartbeats.environment());
    let ended = match Child::spawn(&command, &environment, heartbeats.pipes(), kill_after) {
        Ok(child) => supervise(child, &lease, &mut heartbeats, kill_after, signals, output).await,
        Err(error) => Err(cannot_run(&command, &error)),
    };
    let release = match &ended {
        Ok(_) => lease.release(),
        // Another host may be able to run it.
        Err(_) => lease.release_and_keep(Duration::ZERO)?,
    };
    // Those that came before the command ended were for it.
    loop {
        tokio::select! {
            biased;
            _ = signals.end() => {}
            () = std::future::ready(()) => break,
        }
    }
    let is_released = tokio::select! {
        is_released = release => Some(is_released),
        // A second signal ends the wait for nodes that do not answer.
        _ = signals.end() => None,
    };
    let held_for = show(acquired.elapsed());
    // The lock is released even if nobody reads the output. A signal ends this wait, too.
    let passed_on = tokio::select! {
        passed_on = heartbeats.finish(), if is_released.is_some() => passed_on,
        _ = signals.end(), if is_released.is_some() => Ok(()),
        else => Ok(()),
    };
    let name = names(lease.resources());
    let loss = lease.loss();
    if is_released == Some(true) {
        let keep = wanted.keep.as_ref().filter(|_| ended.is_ok()).and_then(duration::of);
        let keep = keep.filter(|keep| !keep.is_zero());
        let kept =
            keep.map_or_else(String::new, |keep| format!(", kept for {} from now on", show(keep)));
        output.note(format_args!("released {name} after {held_for}{kept}"));
    } else if loss.is_none() {
        let reason = match is_released {
            Some(_) => "a majority of the nodes did not confirm",
            None => "a signal ended the wait for",
        };
        output.note(format_args!(
            "{reason} the release of {name}: it may stay held for one more ttl"
        ));
    }
    let Ended { status, stopped, killed } = ended?;
    let failure = match (stopped, loss) {
        _ if killed.is_err() => Failure::Lost(
            "the command or a process that it started may have gone on without the lock, because this user may not kill it"
                .to_owned(),
        ),
        (Some(Stopped::AtLimit), _) => {
            let limit = wanted.max_hold.as_ref().and_then(duration::of).unwrap_or_default();
            Failure::Lost(format!("--max-hold ({}) ended the command", show(limit)))
        }
        (_, Some(loss)) => loss.into(),
        (Some(Stopped::Silent(timeout)), None) => Failure::Lost(format!(
            "no heartbeat for {}, so the command was stopped before the lease ended",
            show(timeout)
        )),
        (Some(Stopped::Triggered), None) => {
            Failure::Lost("the command sent WATCHDOG=trigger, so it was stopped".to_owned())
        }
        (Some(Stopped::Lost | Stopped::NotRenewed), None) => Failure::Lost(
            "the lease could not be renewed, so the command was stopped before the lease ended"
                .to_owned(),
        ),
        (None, None) => match passed_on {
            Ok(()) => return Ok(status),
            Err(error) => Failure::own("the output of the command cannot be passed on", &error),
        },
    };
    if stopped.is_some() || status == exit::OK {
        return Err(failure);
    }
    // The status of a command that failed by itself takes precedence.
    output.report(&failure, status);
    Ok(status)
}

/// Changes to the environment of the command: variables to set, or to remove where the value is `None`.
type Environment = Vec<(&'static str, Option<String>)>;

fn environment(client: &Client, lease: &Lease) -> Environment {
    let fences: BTreeMap<_, _> = lease.fences().collect();
    let json = serde_json::to_string(&fences).expect("there is nothing in it that JSON can't hold");
    let only = match lease.resources() {
        [resource] => lease.only_fence().ok().map(|fence| (resource.clone(), fence.to_string())),
        _ => None,
    };
    let (resource, fence) = only.unzip();
    let mut changes = vec![
        ("QUORLOCK_RESOURCE", resource),
        ("QUORLOCK_FENCE", fence),
        ("QUORLOCK_FENCES", Some(json)),
        ("QUORLOCK_SLOTS", slots(lease)),
        ("QUORLOCK_TOKEN", Some(lease.token().to_owned())),
    ];
    if handover::is_used_up(client, lease) {
        changes.push((handover::VARIABLE, None));
    }
    changes
}

fn cannot_run(command: &[OsString], error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        // The system has no resources for another process.
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => exit::FAILED,
        _ => exit::CANNOT_RUN,
    };
    let program = &command[0];
    let hint = match status {
        exit::NOT_FOUND if needs_shell(program) => {
            "; it is run without a shell: for a shell command, use -c 'SCRIPT' instead of --, or -- sh -c 'SCRIPT'"
        }
        _ => "",
    };
    Failure::Other(format!("cannot run {}: {error}{hint}", output::named(program)), status)
}

/// Whether the name of a program looks like a command for a shell: quoted as one word, with an assignment in front,
/// or a word that only a shell knows.
fn needs_shell(program: &OsStr) -> bool {
    let builtins = ["cd", "export", "source", "eval", "exec", "set", "ulimit", "umask"];
    let text = program.to_string_lossy();
    text.contains([' ', '\t', '\n', '=', '|', '&', ';', '<', '>', '$', '`'])
        || builtins.contains(&&*text)
}

struct Ended {
    /// The command's exit status.
    status: u8,
    /// Why `quorlock run` stopped the command; `None` if it ended by itself.
    stopped: Option<Stopped>,
    /// An error if something that `quorlock run` had to kill could not be killed.
    killed: io::Result<()>,
}

/// Why the command was stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopped {
    /// The lease was lost.
    Lost,
    /// The lease could not be renewed in time.
    NotRenewed,
    /// The lease was not renewed, because there was no heartbeat for this time.
    Silent(Duration),
    /// The command asked to be stopped.
    Triggered,
    /// The lease was held for `--max-hold`.
    AtLimit,
}

/// Waits until the command ends. Stops it if the lease is lost, or cannot be extended in time.
async fn supervise(
    mut child: Child,
    lease: &Lease,
    heartbeats: &mut Heartbeats,
    kill_after: Duration,
    signals: &mut Signals,
    output: &Output,
) -> Result<Ended, Failure> {
    let mut lost = lease.lost();
    let name = names(lease.resources());
    let mut kill_at = None;
    let mut stopped = None;
    let mut killed = None;
    // The start of the command.
    heartbeats.beat(lease);
    let status = loop {
        let spare = lease.remaining().saturating_sub(kill_after);
        let running = kill_at.is_none();
        tokio::select! {
            status = child.wait(signals, || lease.is_valid()) => break status,
            // The lease was taken away, or it ended because this process was suspended.
            _ = &mut lost, if running => {
                child.stop();
                stopped = Some(Stopped::Lost);
                kill_at = Some(Instant::now() + kill_after);
                output.note(format_args!("lost {name}: stopping the command"));
            }
            // The lease is about to end, unless it was extended during the sleep.
            () = sleep(spare), if running => {
                let left = lease.remaining();
                if left <= kill_after {
                    child.stop();
                    kill_at = Some(Instant::now() + left);
                    let left = show(left);
                    let (reason, text) = if lease.is_at_limit() {
                        (Stopped::AtLimit, format!("--max-hold for {name} ends in {left}"))
                    } else if let Some(timeout) = heartbeats.missing() {
                        let silence = show(timeout);
                        let text =
                            format!("no heartbeat for {silence}, so the lease of {name} ends in {left}");
                        (Stopped::Silent(timeout), text)
                    } else {
                        let text =
                            format!("the lease of {name} ends in {left} and could not be renewed");
                        (Stopped::NotRenewed, text)
                    };
                    stopped = Some(reason);
                    output.note(format_args!("{text}: stopping the command"));
                }
            }
            () = heartbeats.triggered(lease) => if running {
                child.stop();
                stopped = Some(Stopped::Triggered);
                kill_at = Some(Instant::now() + kill_after.min(lease.remaining()));
                output.note("the command sent WATCHDOG=trigger: stopping it");
            },
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if !running && killed.is_none() => {
                if let Err(error) = killed.insert(child.kill()) {
                    output.note(format_args!(
                        "cannot kill the command or a process that it started ({error}): it may go on without the lock"
                    ));
                }
            }
        }
    };
    let mut killed = killed.unwrap_or(Ok(()));
    // Processes that the command has started must not run without the lock either.
    if let Some(kill_at) = kill_at {
        while child.ask_rest_to_end() && Instant::now() < kill_at {
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                _ = signals.end() => break,
            }
        }
        killed = killed.and(child.kill());
    }
    let status = status.map_err(|error| Failure::own("the command's end was not seen", &error))?;
    Ok(Ended { status, stopped, killed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::parse;

    #[test]
    fn a_command_is_killed_before_its_lease_ends() {
        let value = |text: &str| parse(text).expect("a duration");
        let kill_after = |ttl, wanted: Option<&str>| {
            let ttl = lease_ttl(&value(ttl), None);
            kill_after(ttl, wanted.map(value).as_ref(), &Named::default())
                .map_err(|failure| format!("{failure:?}"))
        };
        assert_eq!(lease_ttl(&value("10s"), Some(&value("2s"))), Duration::from_secs(2));
        assert_eq!(lease_ttl(&value("10s"), Some(&value("1h"))), Duration::from_secs(10));
        assert_eq!(kill_after("10s", None), Ok(Duration::from_secs(2)));
        assert_eq!(kill_after("10s", Some("5s")), Ok(Duration::from_secs(5)));
        assert_eq!(kill_after("10s", Some("0")), Ok(Duration::ZERO));
        for wrong in ["5.1s", "-1s", "forever"] {
            let error = kill_after("10s", Some(wrong)).expect_err(wrong);
            assert!(error.contains("--kill-after") && error.contains("5.0 s"), "{error}");
        }
    }
}
