//! Splits and decodes node URLs, and hides secrets in invalid URLs. Called by `endpoint.rs` and `nodes.rs`.
//!
//! Of the `url` crate, this module uses only the host parser, because the crate does not support URLs that name several
//! hosts. No error message may quote a password.

use percent_encoding::percent_decode_str;
use url::Host;

/// The decoded parts of a URL.
pub(crate) struct Url {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Each host, with its port if the URL has one for this host. IPv6 addresses have no brackets.
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    /// The part after the hosts, without the leading slash.
    pub(crate) path: String,
    parameters: Vec<(String, String)>,
}

impl Url {
    /// Parses the part of a URL after `scheme://`. Fails with the reason, which contains no secret.
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        // If a password contains `/`, `?` or `#` without percent-encoding, the split above is in the wrong place, and
        // an `@` follows it. Refuse such a URL.
        if rest.contains('@') && !authority.is_empty() {
            return Err(
                "the characters @ / ? # must be percent-encoded in a name, a password or a \
                        parameter"
                    .to_owned(),
            );
        }
        if rest.contains('#') {
            return Err("nothing may follow a #; if you mean #insecure, which trusts any \
                        certificate, write ?insecure=true"
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
        let non_empty = |text: String| Some(text).filter(|text| !text.is_empty());
        let hosts = match hosts {
            "" => Vec::new(),
            hosts => hosts.split(',').map(host).collect::<Result<_, _>>()?,
        };
        Ok(Self {
            user: non_empty(user),
            password: non_empty(password),
            hosts,
            path: decoded(path.strip_prefix('/').unwrap_or(path))?,
            parameters: query
                .split('&')
                .filter(|parameter| !parameter.is_empty())
                .map(|parameter| {
                    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                    Ok((decoded(name)?, decoded(value)?))
                })
                .collect::<Result<_, String>>()?,
        })
    }

    /// Removes a parameter from the URL and returns its value; `None` if the URL does not have this parameter.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.parameters.iter().position(|(known, _)| known == name)?;
        Some(self.parameters.remove(at).1)
    }

    /// Fails if parameters are left. The error quotes only names that are in `accepted`, because any other name may be
    /// part of a password that contains an `&`.
    pub(crate) fn is_used_up(&self, accepted: &[&str]) -> Result<(), String> {
        let Some((name, _)) = self.parameters.first() else { return Ok(()) };
        Err(match accepted {
            _ if accepted.contains(&&**name) => format!("the parameter {name} is given twice"),
            [] => "it has a parameter, and URLs of this kind take none".to_owned(),
            _ => format!("it has a parameter that is none of {}", accepted.join(", ")),
        })
    }

    /// The host. Fails if there is none or more than one.
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

    /// The database number in the path.
    pub(crate) fn database(&self) -> Result<u32, String> {
        database(&self.path)
    }
}

/// Parses a database number; 0 if `text` is empty.
pub(crate) fn database(text: &str) -> Result<u32, String> {
    if text.is_empty() {
        return Ok(0);
    }
    // Servers parse the number as a signed integer, so the number must fit into an i32.
    let number = text.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| "the database must be a number of 0 or more, such as /1".to_owned())
}

fn host(text: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match text.rsplit_once(':') {
        // The last colon is part of an IPv6 address, so there is no port.
        Some((_, after)) if after.contains(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let (host, zone) = zone(host)?;
    let host = Host::parse(&host).map_err(|error| match &*host {
        "" => "a host is missing".to_owned(),
        host if host.contains(':') => {
            "an IPv6 address must stand in brackets, such as [::1]".to_owned()
        }
        _ => format!("the host cannot be read ({error})"),
    })?;
    let host = match host {
        Host::Domain(name) => name,
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string() + &zone,
    };
    let number = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0);
    let wrong = "the port must be a number from 1 to 65535";
    match port {
        None => Ok((host, None)),
        Some(port) => number(port).map(|port| (host, Some(port))).ok_or_else(|| wrong.to_owned()),
    }
}

/// Splits the zone from an IPv6 address in brackets, such as `[fe80::1%25eth0]`. Returns the address in brackets, and
/// the zone with its percent sign. Without a zone, returns the host unchanged and an empty zone.
fn zone(host: &str) -> Result<(String, String), String> {
    let within = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let Some((address, zone)) = within.and_then(|within| within.split_once('%')) else {
        return Ok((host.to_owned(), String::new()));
    };
    let zone = zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._~".contains(letter);
    if zone.is_empty() || !zone.chars().all(is_plain) {
        return Err("the zone of an IPv6 address must be the name or the number of a network interface, such as \
                    [fe80::1%25eth0]"
            .to_owned());
    }
    Ok((format!("[{address}]"), format!("%{zone}")))
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| "what is percent-encoded must be UTF-8".to_owned())
}

/// Returns the scheme of an invalid URL, with `://`. Returns an empty string if the text before `://` is not a scheme.
pub(crate) fn scheme(url: &str) -> &str {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    match url.find("://") {
        Some(end @ 1..) if url[..end].bytes().all(known) => &url[..end + 3],
        _ => "",
    }
}

/// Returns the part of an invalid URL that is safe to show. A password may be before the last `@` or after the first
/// `?` or `#`; if these parts overlap, only the scheme is shown.
pub(crate) fn redacted(url: &str) -> String {
    let scheme = scheme(url);
    let rest = match url.split_once("://") {
        Some(("", rest)) => rest,
        Some(_) if scheme.is_empty() => return "***".to_owned(),
        Some((_, rest)) => rest,
        None => url,
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
    // If the user left out the host, the password may be in place of the port. So show only numbers there.
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

/// Splits a comma-separated list of URLs. A comma starts a new URL only if a scheme follows, since
/// one URL may name several hosts.
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
    fn comma_starts_a_url_only_if_a_scheme_follows() {
        let list = "redis://a, redis-sentinel://b:1,c ,d/orders,rediss://e,";
        assert_eq!(split(list), ["redis://a", "redis-sentinel://b:1,c,d/orders", "rediss://e"]);
        assert_eq!(split("a,b"), ["a,b"]);
        assert!(split(" , ").is_empty());
    }

    #[test]
    fn password_without_host_is_not_shown() {
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
