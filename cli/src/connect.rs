//! Builds the client that the arguments describe. Called by every command that uses nodes.

use crate::args::Nodes;
use crate::output::{Failure, named};
use quorlock::{Client, ClientBuilder, Dialect, NODES_VARIABLE, OptionValue};

/// Returns the client. Reads the file of nodes if one is given, and does no other IO.
pub(crate) fn client(nodes: &Nodes) -> Result<Client, Failure> {
    client_with(nodes, &[])
}

/// Like [`client`], with further options.
pub(crate) fn client_with(
    nodes: &Nodes,
    further: &[(&str, &Option<OptionValue>)],
) -> Result<Client, Failure> {
    let options = [
        ("ttl", &Some(nodes.ttl.clone())),
        ("restart_guard", &nodes.restart_guard),
        ("node_timeout", &nodes.node_timeout),
        ("connect_timeout", &nodes.connect_timeout),
        ("drift_factor", &nodes.drift_factor.map(OptionValue::Number)),
        ("key_prefix", &nodes.key_prefix.clone().map(OptionValue::Text)),
    ];
    let mut builder = located(nodes)?;
    for (option, value) in options.iter().chain(further) {
        if let Some(value) = value {
            let (dialect, name) = nodes.named.option(option);
            builder = builder.option(dialect, &name, value);
        }
    }
    builder.build().map_err(Failure::Quorlock)
}

/// Returns a builder with the nodes from flags, else from a file, else from the environment. A file that cannot be
/// read, or that contains no node, is an error: another source would hide the mistake.
fn located(nodes: &Nodes) -> Result<ClientBuilder, Failure> {
    // Joined to the URLs before it, a host would belong to the URL before it.
    let is_url = |url: &str| url.split(',').next().is_some_and(|url| url.contains("://"));
    if !nodes.urls.is_empty() {
        if let Some(number) = nodes.urls.iter().position(|url| !is_url(url)) {
            return Err(Failure::Usage(format!(
                "--node number {} is empty or no URL: it must begin with a scheme, such as redis://; is an environment variable not set?",
                number + 1
            )));
        }
        return listed("--node", &nodes.urls.join(","));
    }
    if let Some(path) = &nodes.nodes_file {
        let name = nodes.named.name("nodes_file");
        let shown = named(path);
        let text = std::fs::read_to_string(path).map_err(|error| {
            let hint = match path.to_string_lossy().contains("://") {
                true => "; it takes the name of a file: URLs are for --node or QUORLOCK_NODES",
                false => "",
            };
            let message = format!("the nodes file {shown} of {name} cannot be read: {error}{hint}");
            Failure::Usage(message)
        })?;
        let lines: Vec<_> = urls(&text).collect();
        if let Some((number, _)) = lines.iter().find(|(_, url)| !is_url(url)) {
            return Err(Failure::Usage(format!(
                "line {number} of the nodes file {shown} is not a URL: it must begin with a scheme, such as redis://"
            )));
        }
        if lines.is_empty() {
            return Err(Failure::Usage(format!("the nodes file {shown} contains no URL")));
        }
        let urls: Vec<_> = lines.into_iter().map(|(_, url)| url).collect();
        let source = if name.starts_with("--") { "--nodes-file" } else { "QUORLOCK_NODES_FILE" };
        return listed(source, &urls.join(","));
    }
    if std::env::var_os(NODES_VARIABLE).is_none_or(|urls| urls.to_string_lossy().trim().is_empty())
    {
        return Err(missing());
    }
    // The client reads the variable.
    Ok(Client::builder().option(Dialect::CommandLine, "nodes", &OptionValue::Null))
}

fn listed(source: &'static str, urls: &str) -> Result<ClientBuilder, Failure> {
    match urls.trim() {
        "" => Err(missing()),
        urls => Ok(Client::builder().node_list_from(source, urls)),
    }
}

fn missing() -> Failure {
    Failure::Usage(format!(
        "no nodes are given: use --node URL for each node, --nodes-file FILE, or the environment variable \
         {NODES_VARIABLE}, such as redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
    ))
}

/// Returns the URLs in the text of a nodes file, one on each line, without comments, and the numbers of the lines. A `#`
/// within a URL, such as in a password, does not begin a comment.
fn urls(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // Some editors write a byte order mark.
    let lines = text.trim_start_matches('\u{feff}').lines();
    let urls = lines.zip(1..).map(|(line, number)| {
        let is_comment = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
        let comment = line.match_indices('#').map(|(at, _)| at).find(|at| is_comment(*at));
        (number, line[..comment.unwrap_or(line.len())].trim())
    });
    urls.filter(|(_, url)| !url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::urls;

    #[test]
    fn a_comment_begins_a_line_or_follows_a_space() {
        let text = "\u{feff}# nodes\r\n\r\nredis://a:6379 # first\r\n  redis://b\t#second\n\t# none\n\
                    redis://:p#w@c#x # third";
        let expected = [(3, "redis://a:6379"), (4, "redis://b"), (6, "redis://:p#w@c#x")];
        assert_eq!(urls(text).collect::<Vec<_>>(), expected);
    }
}
