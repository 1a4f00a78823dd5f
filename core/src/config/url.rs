//! The parts of a node's URL, and what may be shown of one that cannot be used.

use percent_encoding::percent_decode_str;
use url::{Host, form_urlencoded};

/// A URL in its parts, which are decoded.
pub(crate) struct Url {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Hosts with their ports, if these are given. IPv6 addresses have no brackets.
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    /// Behind the hosts, without the first slash.
    pub(crate) path: String,
    parameters: Vec<(String, String)>,
}

impl Url {
    /// Parses what stands behind `scheme://`; fails with the reason, which quotes nothing secret.
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        // The URL would be taken to end, or its host to begin, within the password.
        if rest.contains('@') && !authority.is_empty() {
            return Err(
                "the characters @ / ? # must be percent-encoded in a name, a password or a \
                        parameter"
                    .to_owned(),
            );
        }
        if rest.contains('#') {
            return Err("nothing is told behind a #; where #insecure is meant, which trusts any \
                        certificate, say ?insecure=true"
                .to_owned());
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':')) {
            Some(Some((user, password))) => (decoded(user)?, decoded(password)?),
            Some(None) => (decoded(login.unwrap_or_default())?, String::new()),
            None => Default::default(),
        };
        let told = |text: String| Some(text).filter(|text| !text.is_empty());
        let hosts = match hosts {
            "" => Vec::new(),
            hosts => hosts.split(',').map(host).collect::<Result<_, _>>()?,
        };
        Ok(Self {
            user: told(user),
            password: told(password),
            hosts,
            path: decoded(path.strip_prefix('/').unwrap_or(path))?,
            parameters: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        })
    }

    /// Takes a parameter out.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.parameters.iter().position(|(known, _)| known == name)?;
        Some(self.parameters.remove(at).1)
    }

    /// Fails if there are parameters left. What they are called is not told: it may be what follows an
    /// `&` in a password.
    pub(crate) fn is_used_up(&self, accepted: &[&str]) -> Result<(), String> {
        let Some((name, _)) = self.parameters.first() else { return Ok(()) };
        Err(match accepted {
            _ if accepted.contains(&&**name) => format!("the parameter {name} is given twice"),
            [] => "it has a parameter, and these URLs have none".to_owned(),
            _ => format!("it has a parameter that is none of {}", accepted.join(", ")),
        })
    }

    /// The only host.
    pub(crate) fn host(&self) -> Result<&(String, Option<u16>), String> {
        match &*self.hosts {
            [host] => Ok(host),
            [] => Err("a host is missing".to_owned()),
            _ => {
                Err("it has several hosts: each node is a URL of its own, with its scheme"
                    .to_owned())
            }
        }
    }

    /// The number of a database, in the path.
    pub(crate) fn database(&self) -> Result<u32, String> {
        database(&self.path)
    }
}

/// The number of a database; that of no text is 0.
pub(crate) fn database(text: &str) -> Result<u32, String> {
    if text.is_empty() {
        return Ok(0);
    }
    // Servers count them by a signed number.
    let number = text.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| "the database must be a number of 0 or more, such as /1".to_owned())
}

fn host(text: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colon is within an IPv6 address.
        Some((_, after)) if after.contains(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let host = Host::parse(host).map_err(|error| match host {
        "" => "a host is missing".to_owned(),
        host if host.contains(':') => {
            "an IPv6 address must stand in brackets, such as [::1]".to_owned()
        }
        _ => format!("the host cannot be read ({error})"),
    })?;
    let host = match host {
        Host::Domain(name) => name,
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    let number = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0);
    let wrong = "the port must be a number from 1 to 65535";
    match port {
        None => Ok((host, None)),
        Some(port) => number(port).map(|port| (host, Some(port))).ok_or_else(|| wrong.to_owned()),
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| "what is percent-encoded must be UTF-8".to_owned())
}

/// What may be shown of a URL that cannot be used. A password can stand before the last `@` or
/// behind the first `?`; where these overlap, nothing but the scheme is shown.
pub(crate) fn redacted(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let scheme = match scheme {
        "" => String::new(),
        scheme if scheme.bytes().all(known) => format!("{scheme}://"),
        _ => return "***".to_owned(),
    };
    let (rest, query) = match rest.find(['?', '#']) {
        Some(at) if rest[at..].contains('@') => return format!("{scheme}***"),
        Some(at) => (&rest[..at], "?***"),
        None => (rest, ""),
    };
    if let Some((_, host)) = rest.rsplit_once('@') {
        return format!("{scheme}***@{host}{query}");
    }
    let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // Who forgets the host leaves the password where a port would be.
    let shown = |part: &str| match part.rsplit_once(':') {
        Some((host, port)) if !part.ends_with(']') && !is_port(host, port) => format!("{host}:***"),
        _ => part.to_owned(),
    };
    let shown = hosts.split(',').map(shown).collect::<Vec<_>>().join(",");
    let path = if shown == hosts { path } else { "" };
    format!("{scheme}{shown}{path}{query}")
}

fn is_port(host: &str, port: &str) -> bool {
    !host.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// The URLs in a list with commas between them: a comma begins a new one only where a scheme follows,
/// since one URL may have several hosts.
pub(crate) fn split(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for part in list.split(',').filter(|part| !part.trim().is_empty()) {
        match urls.last_mut() {
            Some(last) if !part.contains("://") => {
                last.push(',');
                last.push_str(part.trim());
            }
            _ => urls.push(part.trim().to_owned()),
        }
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::{redacted, split};

    #[test]
    fn a_comma_begins_a_url_only_where_a_scheme_follows() {
        let list = "redis://a, redis-sentinel://b:1,c ,d/orders,rediss://e,";
        assert_eq!(split(list), ["redis://a", "redis-sentinel://b:1,c,d/orders", "rediss://e"]);
        assert_eq!(split("a,b"), ["a,b"]);
        assert!(split(" , ").is_empty());
    }

    #[test]
    fn a_password_without_a_host_is_not_shown() {
        for (url, shown) in [
            ("redis://:secret", "redis://:***"),
            ("redis://:6379", "redis://:***"),
            ("redis://user:secret/0", "redis://user:***"),
            ("redis-cluster://a:1,:se/cret", "redis-cluster://a:1,:***"),
            ("redis://[::1]:secret?x", "redis://[::1]:***?***"),
            ("redis://[::1]:99999/x", "redis://[::1]:99999/x"),
            ("redis://[::1]/x", "redis://[::1]/x"),
            ("http://a:1/b", "http://a:1/b"),
            ("localhost:6379", "localhost:6379"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }
}
