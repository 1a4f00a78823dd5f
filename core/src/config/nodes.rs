//! Builds the client's list of nodes. Called by `ClientBuilder::build`.

use crate::config::credentials::Provider;
use crate::config::endpoint::Endpoint;
use crate::config::options::{NODES_VARIABLE, wrong_nodes};
use crate::config::url::split;
use crate::error::{Error, Result, same_server};
use quorlock_protocol::MAX_NODES;

/// Parses `urls`, or the URLs in the environment variable `QUORLOCK_NODES` if `None`. Fails if the
/// number of nodes is out of range, a URL is invalid, or two URLs name the same server.
///
/// Connections use the credentials that `credentials` returns, if there is such a function.
pub(crate) fn endpoints(
    urls: Option<&[String]>,
    credentials: Option<&Provider>,
) -> Result<Vec<Endpoint>> {
    let from_environment;
    let urls = match urls {
        Some(urls) => urls,
        None => {
            from_environment = split(&std::env::var(NODES_VARIABLE).unwrap_or_default());
            &from_environment
        }
    };
    if !(1..=MAX_NODES).contains(&urls.len()) {
        return Err(wrong_nodes(urls.len()));
    }
    let mut endpoints: Vec<Endpoint> = Vec::with_capacity(urls.len());
    for (index, url) in urls.iter().enumerate() {
        let mut endpoint = Endpoint::parse(index + 1, url)?;
        if let Some(provider) = credentials {
            endpoint.use_credentials(index + 1, provider)?;
        }
        if let Some(duplicate) = endpoints.iter().position(|other| other.is_same_server(&endpoint))
        {
            let (first, second) = (&*endpoints[duplicate].address, &*endpoint.address);
            return Err(Error::config(same_server((duplicate, first), (index, second))));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}
