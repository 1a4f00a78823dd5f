//! The start of a connection: authentication, information about the server, and the classification of errors that
//! servers return.
//!
//! This module does not decide whether a server may vote. `sentinel.rs`, `cluster.rs`, `node` and `doctor` call this
//! module.

use crate::config::server::{Login, Server, ServerAddress};
use crate::error::NodeOutcome;
use crate::transport::connection::{Connection, REFUSED, Receive};
use crate::transport::login::{authentication, located, rejected, unreached};
use crate::wire::answer::{Failure, NONSENSE};
use crate::wire::limits::shortened;
use futures_util::future::FutureExt;
use redis::{Cmd, ErrorKind, InfoDict, RedisError, Value, from_redis_value};
use std::time::Duration;

/// What a server reports about itself.
pub(crate) struct ServerInfo {
    /// The ID of the server process. A restarted server has another ID.
    pub(crate) run_id: String,
    /// Identifies the process and the data set that it serves. Changes at a restart and at a failover.
    pub(crate) memory: String,
    pub(crate) uptime: Duration,
    pub(crate) is_replica: bool,
    /// The server's time in microseconds since the Unix epoch; `None` if TIME is not permitted.
    pub(crate) clock: Option<u64>,
}

/// Converts an error of the handshake to a failure, and adds advice about its likely cause.
pub(crate) fn introduction_failure(error: &RedisError, server: &Server) -> Failure {
    let mut failure = failure(error, false);
    let is_plain = server.tls.is_none() && matches!(server.place, ServerAddress::Tcp { .. });
    // A server that accepts a connection and then closes it may expect TLS, or may be stopping: the operating
    // system accepts connections for a process until the process has ended.
    let has_gone = error.is_connection_dropped() && !error.is_connection_refusal();
    let is_strange = failure.is_nonsense();
    if is_strange {
        failure.detail += ": see that this is the port of a Redis or Valkey server";
    } else if is_plain && has_gone {
        failure.detail += ": see that the server runs";
    }
    if is_plain && (is_strange || has_gone) {
        failure.detail += ", and if it speaks TLS on this port, use a URL with TLS (rediss)";
    }
    if is_unknown_command(&failure) && failure.detail.contains("HELLO") {
        failure.detail += ": use Redis 6.2 or later, or Valkey";
    }
    if failure.detail.contains("WRONGPASS") {
        failure.detail += &rejected(&server.login);
    }
    let words = [REFUSED, "TLS: "];
    let has_answered = has_gone || words.iter().any(|words| failure.detail.contains(words));
    if has_answered || is_strange || !failure.is_transport() {
        located(failure, server)
    } else {
        unreached(failure, server)
    }
}

/// Returns the commands that start a connection. If the program has set a function for credentials, calls it and waits
/// for the credentials.
pub(crate) async fn hello(login: &Login) -> Result<Vec<Cmd>, Failure> {
    // HELLO 3 selects RESP3, which allows push messages on the same connection. HELLO also authenticates.
    let mut hello = redis::cmd("HELLO");
    hello.arg(3);
    if let Some((user, password)) = authentication(login).await? {
        hello.arg("AUTH").arg(user).arg(password);
    }
    let mut commands = vec![hello];
    if login.database != 0 {
        commands.push(redis::cmd("SELECT").arg(login.database).to_owned());
    }
    Ok(commands)
}

/// Opens a connection to a server and authenticates. Has no time limit.
pub(crate) async fn open<R: Receive>(server: &Server) -> Result<Connection<R>, Failure> {
    let failed = |error: RedisError| introduction_failure(&error, server);
    let opened = async {
        let connection = Connection::connect(server).await.map_err(failed)?;
        let hello = hello(&server.login).await.map_err(|failure| located(failure, server))?;
        for reply in connection.query(&hello).await.map_err(failed)? {
            reply.extract_error().map_err(failed)?;
        }
        Ok(connection)
    };
    opened.boxed().await
}

// INFO is sent twice, because servers before Redis 7 accept only one section per command.
pub(crate) fn info_commands() -> Vec<Cmd> {
    let info = |section| redis::cmd("INFO").arg(section).to_owned();
    vec![info("server"), info("replication"), redis::cmd("TIME")]
}

pub(crate) fn server_info(replies: Vec<Value>) -> Option<ServerInfo> {
    let mut replies = replies.into_iter();
    let mut section = || from_redis_value::<InfoDict>(replies.next()?).ok();
    let server = section()?;
    let replication = section()?;
    let time = replies.next().and_then(|reply| from_redis_value::<(u64, u64)>(reply).ok());
    let micros =
        |(seconds, micros): (u64, u64)| seconds.checked_mul(1_000_000)?.checked_add(micros);
    let run_id: String = server.get("run_id")?;
    let replication_id: String = replication.get("master_replid").unwrap_or_default();
    let role: String = replication.get("role").unwrap_or_default();
    Some(ServerInfo {
        memory: format!("{run_id} {replication_id}"),
        uptime: Duration::from_secs(server.get("uptime_in_seconds")?),
        is_replica: role == "slave",
        clock: time.and_then(micros),
        run_id,
    })
}

/// Converts an error to a failure. `sent`: whether a request was in flight when the error occurred.
pub(crate) fn failure(error: &RedisError, sent: bool) -> Failure {
    let detail = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ if error.kind() == ErrorKind::Parse => NONSENSE.to_owned(),
        (_, Some(detail)) if error.kind() == ErrorKind::UnexpectedReturnType => {
            format!("{NONSENSE}: {detail}")
        }
        _ => error.to_string(),
    };
    // The error for an unknown command quotes the arguments of the command. The arguments may be passwords
    // and tokens, so cut them off.
    let detail = detail.split(", with args beginning with").next().unwrap_or_default();
    let detail = shortened(detail.to_owned());
    // Errors of a server have a code; connection errors do not.
    let refused = error.code().is_some()
        || matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::RESP3NotSupported);
    let outcome = match (refused, sent) {
        (true, _) => refusal(&detail),
        (false, true) => NodeOutcome::Disconnected,
        (false, false) => NodeOutcome::Unreachable,
    };
    Failure::new(outcome, &detail, sent)
}

/// Whether the server does not know the command or its subcommand: the server is too old, or an operator has
/// disabled the command.
pub(crate) fn is_unknown_command(failure: &Failure) -> bool {
    let detail = failure.detail.to_ascii_lowercase();
    detail.contains("unknown command") || detail.contains("unknown subcommand")
}

/// Classifies the text of an error that a server returned. If a command within a script fails, servers before Redis 7
/// put the code of that command's error into the middle of the text.
fn refusal(text: &str) -> NodeOutcome {
    let named = |code: &str| text.starts_with(code) || text.contains(&format!("-{code} "));
    match text {
        _ if named("LOADING") => NodeOutcome::Loading,
        _ if named("READONLY") => NodeOutcome::Readonly,
        _ if named("MASTERDOWN") => NodeOutcome::Masterdown,
        _ if named("OOM") => NodeOutcome::Oom,
        _ if named("MISCONF") => NodeOutcome::Misconf,
        // If a command within a script is not permitted, the error does not contain the code NOPERM. The first
        // text is from Redis 6.2 and 7.0, the second text from Redis 8.2 and Valkey.
        _ if named("NOPERM")
            || text.contains("user executing the script can't")
            || text.contains("ACL failure in script") =>
        {
            NodeOutcome::Noperm
        }
        _ => NodeOutcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::refusal;
    use crate::error::NodeOutcome::{Noperm, Oom, Refused};

    #[test]
    fn errors_of_commands_within_scripts_are_recognized_on_all_servers() {
        let texts = [
            // The same error, as worded by Redis 6.2, 7.0 and 8.2.
            (
                "ERR Error running script (call to f_96b7): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
                Noperm,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 96b7, on @user_script:1.",
                Noperm,
            ),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'scan' command script: 96b7, on @user_script:1.",
                Noperm,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key script: f2e0, on @user_script:1.",
                Noperm,
            ),
            (
                "ERR Error running script (call to f_f2e0): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
                Oom,
            ),
            ("ERR the fence key orders:42:fence holds a foreign value", Refused),
        ];
        for (text, outcome) in texts {
            assert_eq!(refusal(text), outcome, "{text}");
        }
    }
}
