//! Builds the client's list of nodes. Called by `ClientBuilder`.

use crate::config::credentials::Provider;
use crate::config::endpoint::{Endpoint, is_scheme, urls_within};
use crate::config::environment;
use crate::config::url::{redacted, split};
use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, Result, same_server};
use quorlock_protocol::MAX_NODES;

/// The environment variable with the node URLs, separated by commas. A client reads it if the program sets no nodes.
pub const NODES_VARIABLE: &str = "QUORLOCK_NODES";

/// Returns the URLs in a value that a language binding received; `None` if the value is null or undefined.
pub(crate) fn urls(dialect: Dialect, nodes: &OptionValue) -> Result<Option<Vec<String>>> {
    match nodes {
        OptionValue::Null | OptionValue::Undefined => Ok(None),
        OptionValue::List(nodes) => {
            let urls = nodes.iter().enumerate().map(|(index, node)| match node {
                OptionValue::Text(url) => Ok(url.clone()),
                wrong => Err(wrong_node(dialect, index, wrong)),
            });
            urls.collect::<Result<_>>().map(Some)
        }
        OptionValue::Text(text) => {
            let urls = split(text);
            let given = match urls.len() {
                0 => "an empty string".to_owned(),
                1 => "a string".to_owned(),
                count => format!("one string with {count} URLs"),
            };
            let advice = match listed(&urls) {
                Some(list) => format!("write [{list}]"),
                None => format!("write {} with a string for each URL", dialect.list()),
            };
            Err(wrong_nodes(dialect, &format!("{given}; {advice}")))
        }
        wrong => Err(wrong_nodes(dialect, &wrong.shown(dialect))),
    }
}

/// Splits a comma-separated list of URLs from `source`, the name of an option or a variable. A blank list has no URLs.
/// Fails if a part of another list is empty: where variables are not set, as in `$A,$B,$C`, fewer nodes would make a
/// majority.
pub(crate) fn split_list(source: &str, list: &str) -> Result<Vec<String>> {
    match list.split(',').position(|part| part.trim().is_empty()) {
        Some(index) if !list.trim().is_empty() => Err(Error::config(format!(
            "{source} must be URLs with one comma between them, and part {} of it is empty; is an environment \
             variable not set?",
            index + 1
        ))),
        _ => Ok(split(list)),
    }
}

/// Parses `urls`, or the URLs in the environment variable `QUORLOCK_NODES` if `urls` is `None`. Fails if the number of
/// nodes is out of range, a URL is invalid, or two URLs name the same server.
///
/// If `credentials` is given, connections use the credentials that this provider returns.
pub(crate) fn endpoints(
    dialect: Dialect,
    urls: Option<&[String]>,
    credentials: Option<&Provider>,
) -> Result<Vec<Endpoint>> {
    let from_environment;
    let urls = match urls {
        Some(urls) => urls,
        None => {
            let text = environment::text(NODES_VARIABLE, environment::process)?;
            from_environment = split_list(NODES_VARIABLE, &text.unwrap_or_default())?;
            if from_environment.is_empty() {
                let list = list_of_urls(dialect);
                return Err(Error::config(format!(
                    "nodes must be {list}, and none are given, neither to the client nor in the \
                     environment variable {NODES_VARIABLE}"
                )));
            }
            &from_environment
        }
    };
    if !(1..=MAX_NODES).contains(&urls.len()) {
        return Err(wrong_nodes(dialect, &urls.len().to_string()));
    }
    let mut endpoints: Vec<Endpoint> = Vec::with_capacity(urls.len());
    for (index, url) in urls.iter().enumerate() {
        check_is_one(dialect, index, url)?;
        let mut endpoint = Endpoint::parse(index + 1, url)?;
        if let Some(provider) = credentials {
            endpoint.use_credentials(index + 1, provider)?;
        }
        if let Some(duplicate) = endpoints.iter().position(|other| other.is_same_server(&endpoint))
        {
            let first = &*endpoints[duplicate].address;
            let second = &*endpoint.address;
            return Err(Error::config(same_server((duplicate, first), (index, second))));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

/// Fails if a string in the list of nodes is not exactly one URL: if it is empty, or contains several URLs.
fn check_is_one(dialect: Dialect, index: usize, url: &str) -> Result<()> {
    if url.trim().is_empty() {
        return Err(wrong_node(dialect, index, &OptionValue::Text(String::new())));
    }
    let mut urls = split(url);
    let are_urls = urls.iter().all(|url| has_scheme(url));
    let is_certain = are_urls && urls.len() > 1;
    if !is_certain {
        // The URLs may be joined without a comma: Python joins two strings in a list if the comma between them is
        // missing.
        urls = urls_within(url);
    }
    if urls.len() < 2 {
        return Ok(());
    }
    let shown = listed(&urls).filter(|_| is_certain || !url.contains(['@', '?', '#']));
    let list = shown.map_or_else(String::new, |list| format!(", such as {list}"));
    let position = index + 1;
    let count = urls.len();
    Err(Error::config(format!(
        "node {position} is one string with {count} URLs; write a string for each of them{list}"
    )))
}

/// Returns the URLs in quotes, separated by commas and without secrets. Returns `None` if one of them is not the URL of
/// a node, or if only some of them contain an `@`: a URL without an `@` may then be a part of a password.
fn listed(urls: &[String]) -> Option<String> {
    let logins = urls.iter().filter(|url| url.contains('@')).count();
    let is_certain = logins == 0 || logins == urls.len();
    if urls.is_empty() || !is_certain || !urls.iter().all(|url| has_scheme(url)) {
        return None;
    }
    let urls: Vec<_> = urls.iter().map(|url| format!("\"{}\"", redacted(url))).collect();
    Some(urls.join(", "))
}

fn has_scheme(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

fn wrong_nodes(dialect: Dialect, given: &str) -> Error {
    Error::config(format!("nodes must be {}, not {given}", list_of_urls(dialect)))
}

fn list_of_urls(dialect: Dialect) -> String {
    format!("{} of 1 to {MAX_NODES} URLs", dialect.list())
}

fn wrong_node(dialect: Dialect, index: usize, given: &OptionValue) -> Error {
    let is_missing = match given {
        OptionValue::Null | OptionValue::Undefined => true,
        OptionValue::Text(url) => url.is_empty(),
        _ => false,
    };
    let advice = if is_missing { "; is an environment variable not set?" } else { "" };
    let position = index + 1;
    let given = given.shown(dialect);
    Error::config(format!(
        "node {position} must be a URL in a string, such as \"redis://10.0.0.1:6379\", not \
         {given}{advice}"
    ))
}

#[cfg(test)]
mod tests {
    use super::split_list;

    #[test]
    fn list_with_an_empty_part_is_refused() {
        let split = |list| split_list("QUORLOCK_NODES", list).map_err(|error| error.to_string());
        assert_eq!(split(" "), Ok(Vec::new()));
        let urls = ["redis://a", "redis-cluster://b:1,c:2", "redis://d"].map(str::to_owned);
        assert_eq!(split(" redis://a,\n redis-cluster://b:1, c:2 ,redis://d"), Ok(urls.to_vec()));
        for (list, part) in [
            (",", 1),
            (",redis://a", 1),
            ("redis://a,", 2),
            ("redis://a,,", 2),
            ("redis-cluster://a,b, ,redis://c", 3),
        ] {
            let error = split(list).expect_err(list);
            let said = format!(
                "QUORLOCK_NODES must be URLs with one comma between them, and part {part} "
            );
            assert!(error.contains(&said), "{error}");
        }
    }
}
