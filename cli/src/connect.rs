//! Builds the client that the arguments describe. Called by every command that uses nodes.

use crate::args::Nodes;
use crate::output::Failure;
use quorlock::{Client, ClientBuilder, Dialect, NODES_VARIABLE, OptionValue};

/// Returns the client. Reads the file of nodes if one is given, and does no other IO.
pub(crate) fn client(nodes: &Nodes) -> Result<Client, Failure> {
    let options = [
        ("--ttl", &Some(nodes.ttl.clone())),
        ("--restart-guard", &nodes.restart_guard),
        ("--node-timeout", &nodes.node_timeout),
        ("--connect-timeout", &nodes.connect_timeout),
        ("--drift-factor", &nodes.drift_factor.map(OptionValue::Number)),
        ("--key-prefix", &nodes.key_prefix.clone().map(OptionValue::Text)),
    ];
    let mut builder = located(nodes)?;
    for (name, value) in options {
        if let Some(value) = value {
            builder = builder.option(Dialect::CommandLine, name, value);
        }
    }
    builder.build().map_err(Failure::Quorlock)
}

/// Returns a builder with the nodes from flags, else from a file, else from the environment.
fn located(nodes: &Nodes) -> Result<ClientBuilder, Failure> {
    let named = if !nodes.urls.is_empty() {
        Some(nodes.urls.join(","))
    } else if let Some(path) = &nodes.nodes_file {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!("the file of nodes {} cannot be read: {error}", path.display()))
        })?;
        let lines = text.lines().map(str::trim);
        let urls: Vec<_> =
            lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        Some(urls.join(","))
    } else {
        std::env::var(NODES_VARIABLE).ok()
    };
    match named {
        Some(urls) if !urls.trim().is_empty() => Ok(Client::builder().node_list(&urls)),
        _ => Err(Failure::Usage(format!(
            "no nodes are named: give each with --node URL, or all in --nodes-file FILE or the environment \
             variable {NODES_VARIABLE}, such as redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
        ))),
    }
}
