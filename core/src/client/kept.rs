//! Leases that outlive the process that acquired them, for scripts that have no process to hold them.
//!
//! [`keep`] lets a lease go and returns a text; [`resume`] makes a lease of the text in another process. Meanwhile
//! nothing renews or repairs the lease, so it ends by its ttl unless it is resumed and extended in time. The text has
//! the token, so it is a secret: anyone who has it can extend and release the lease. Any number of processes may use
//! it; they share the lease.

use crate::client::lock::Lock;
use crate::client::setup::Setup;
use crate::client::status::ask;
use crate::command::keys::Keys;
use crate::command::reply::{Holder, Reply, StoredLock};
use crate::command::request::{Request, Subject};
use crate::config::resources::Resources;
use crate::error::{Error, ErrorCode, NodeReport, Result};
use crate::lock::driver::Driver;
use crate::lock::held::{Grant, HeldLease};
use crate::lock::lease::Lease;
use crate::runtime::clock;
use crate::runtime::timer::sleep;
use crc::{CRC_32_ISO_HDLC, Crc};
use futures_util::future::join_all;
use quorlock_protocol::{self as protocol, NodeSet};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The beginning of a text of any version, and of this one.
const MARK: &str = "quorlock-lease-";
const VERSION: &str = "1:";
/// The number of hexadecimal digits of the checksum at the end of a text.
const CHECKSUM: usize = 8;

/// The interval at which [`keep`] checks whether all nodes have granted the lease.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// What a text contains.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    resources: Vec<String>,
    token: String,
    fence: u64,
    ttl: Duration,
    /// The positions of the nodes that counted for the lease.
    sound: Vec<usize>,
    /// Tells nodes and key prefix from others.
    nodes: u32,
}

/// Stops renewing the lease, and returns it with the text from which [`resume`] makes a lease. The nodes keep the keys until
/// they expire.
///
/// Waits until all nodes have granted the lease, but at most `node_timeout`: the others would not count later.
pub(crate) async fn keep(setup: &Setup, lease: Lease) -> Result<(Lease, String)> {
    lease.check()?;
    let Some(held) = lease.held().map(Arc::clone) else { return Err(Error::closed()) };
    let ttl = held.grant.term.ttl;
    let until = clock::now().plus(setup.options.node_timeout(ttl));
    while !held.missing().is_empty() && clock::now() < until {
        sleep(POLL_INTERVAL).await;
    }
    let sound = held.state().lease.sound().iter().collect();
    if !lease.let_go() {
        return Err(held.lost_error());
    }
    let (resources, token) = (lease.resources().to_vec(), lease.token().to_owned());
    let nodes = fingerprint(setup);
    let kept = Kept { resources, token, fence: held.grant.fence, ttl, sound, nodes };
    Ok((lease, kept.to_text()))
}

/// Makes a lease of the text of [`keep`]. It is not renewed or repaired.
///
/// The result is [`ErrorCode::LeaseLost`] if the lease has ended; what is left of it on the nodes is then released. It
/// is [`ErrorCode::NoQuorum`] if too few nodes answer to tell, and [`ErrorCode::Config`] for a text that is damaged, or
/// of other nodes.
pub(crate) async fn resume(setup: &Arc<Setup>, text: &str) -> Result<Lease> {
    let kept = Kept::of_text(text)?;
    if kept.nodes != fingerprint(setup) {
        return Err(Error::config(
            "the lease was acquired on other nodes or with another key prefix: give the same nodes, in the \
             same order, and the same key prefix",
        ));
    }
    let resources = Resources::from(kept.resources);
    let keys = Lock::new(Arc::clone(setup), resources.clone()).prepare()?;
    let (renewer, driver) = (setup.renewer(), setup.driver());
    driver.ready().await.map_err(|error| error.about(&resources))?;
    let subject = Arc::new(Subject::new(keys, kept.token.into(), None));
    let sent = clock::now();
    let Found { left, missing, reports } = find(driver, &subject).await;
    let is_missing = |node: &usize| missing.contains(*node);
    let sound: NodeSet = kept.sound.into_iter().filter(|node| !is_missing(node)).collect();
    let (quorum, factor) = (driver.quorum, driver.options.drift_factor);
    let resumed = protocol::Lease::resume(quorum, sound, kept.fence, sent, factor, &left);
    let (nodes, needed) = (quorum.nodes(), quorum.size());
    if resumed.is_none() && sound.len() >= needed {
        let message = format!(
            "too few nodes answered about the lease of {resources} in time: {} of {nodes} did, {needed} are \
             needed",
            left.len()
        );
        return Err(Error::new(ErrorCode::NoQuorum, message).about(&resources).with_nodes(reports));
    }
    let Some(resumed) = resumed.filter(|lease| lease.is_valid(clock::now())) else {
        // No other process can bring it back, so what is left of it only blocks others.
        let release = |(node, _): &(usize, Duration)| {
            let patience = driver.options.node_timeout(kept.ttl);
            let request = Request::release(&subject, driver.turns());
            driver.call(*node, request, clock::now(), patience)
        };
        join_all(left.iter().map(release)).await;
        let message = format!(
            "the lease of {resources} has ended: {} of {nodes} nodes still held it, {needed} are needed",
            left.len()
        );
        return Err(Error::new(ErrorCode::LeaseLost, message)
            .about(&resources)
            .with_nodes(reports));
    };
    let grant = Grant {
        resources,
        subject,
        fence: kept.fence,
        term: driver.options.term(kept.ttl),
        sent,
        end: resumed.end(),
        max_hold: None,
        auto_extend: false,
        keep: None,
        is_resumed: true,
        owner: None,
    };
    // A node that has not answered may hold the key.
    let holders = (0..quorum.nodes()).filter(|node| !is_missing(node)).collect();
    Ok(Lease::new(renewer, HeldLease::with(driver, grant, resumed, holders)))
}

/// What the nodes know about a token.
struct Found {
    /// The nodes that hold the token for all resources, with the time until the first of the keys expires.
    left: Vec<(usize, Duration)>,
    /// The nodes that do not hold it for all resources.
    missing: NodeSet,
    reports: Vec<NodeReport>,
}

/// Asks all nodes for a token.
async fn find(driver: &Driver, subject: &Subject) -> Found {
    let about = |keys: &Keys| {
        let request = Request::Inspect([keys.clone()].into());
        async move { ask(driver, |_| Some(request.clone())).await }
    };
    let answers = join_all(subject.keys.iter().map(about)).await;
    let (mut left, mut missing) = (HashMap::new(), NodeSet::EMPTY);
    let mut unknown = NodeSet::EMPTY;
    for (node, (_, answered)) in answers.iter().flat_map(|answers| answers.iter().enumerate()) {
        match answered {
            Ok(Reply::Seen(StoredLock {
                holder: Holder::Token(token),
                expires_in: Some(ttl),
                ..
            })) if *token == subject.token => {
                let shortest = left.entry(node).or_insert(*ttl);
                *shortest = (*shortest).min(*ttl);
            }
            Ok(Reply::Seen(_)) => missing.insert(node),
            // It has not answered, or it is guarded and may have lost the key.
            _ => unknown.insert(node),
        }
    }
    left.retain(|node, _| !missing.contains(*node) && !unknown.contains(*node));
    let reports = answers.into_iter().next().unwrap_or_default();
    Found {
        left: left.into_iter().collect(),
        missing,
        reports: reports.into_iter().map(|(report, _)| report).collect(),
    }
}

/// A number that differs for other nodes, another order of them, or another key prefix.
fn fingerprint(setup: &Setup) -> u32 {
    let addresses = setup.endpoints.iter().map(|endpoint| &*endpoint.address);
    let parts: Vec<_> = addresses.chain([&*setup.options.key_prefix]).collect();
    CRC.checksum(parts.join("\n").as_bytes())
}

impl Kept {
    /// Returns the text: letters, digits, `-` and `:` only.
    fn to_text(&self) -> String {
        let json =
            serde_json::to_vec(self).expect("it contains only values that JSON can represent");
        let hex: String = json.iter().map(|byte| format!("{byte:02x}")).collect();
        let checksum = CRC.checksum(hex.as_bytes());
        format!("{MARK}{VERSION}{hex}{checksum:0CHECKSUM$x}")
    }

    /// Fails with a message that does not contain the text, which is a secret.
    fn of_text(text: &str) -> Result<Self> {
        let Some(rest) = text.trim().strip_prefix(MARK) else {
            return Err(Error::config(
                "this is no lease text: give exactly what the acquire has returned",
            ));
        };
        let Some(rest) = rest.strip_prefix(VERSION) else {
            return Err(Error::config("the lease text is from another version of quorlock"));
        };
        let damaged =
            || Error::config("the lease text is damaged: it is not complete, or was changed");
        let end = rest.len().checked_sub(CHECKSUM).ok_or_else(damaged)?;
        let (hex, checksum) = rest.split_at_checked(end).ok_or_else(damaged)?;
        if format!("{:0CHECKSUM$x}", CRC.checksum(hex.as_bytes())) != checksum {
            return Err(damaged());
        }
        let byte = |pair: &[u8]| {
            let digits = std::str::from_utf8(pair).ok().filter(|digits| digits.len() == 2)?;
            u8::from_str_radix(digits, 16).ok()
        };
        let json: Option<Vec<_>> = hex.as_bytes().chunks(2).map(byte).collect();
        serde_json::from_slice(&json.ok_or_else(damaged)?).map_err(|_| damaged())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{Kept, MARK, VERSION};
    use crate::error::ErrorCode;
    use std::time::Duration;

    fn kept() -> Kept {
        Kept {
            resources: vec!["orders:42".to_owned(), "ü \"x\"\n".to_owned()],
            token: "0123456789abcdef0123456789abcdef01234567;web-7:4121".to_owned(),
            fence: 1_795_298_783_776_551,
            ttl: Duration::from_millis(1500),
            sound: vec![0, 2],
            nodes: u32::MAX,
        }
    }

    #[test]
    fn a_text_can_be_read_again() {
        let text = kept().to_text();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-:".contains(letter);
        assert!(text.chars().all(is_plain), "{text}");
        assert_eq!(Kept::of_text(&format!(" {text}\n")).unwrap(), kept());
    }

    #[test]
    fn a_damaged_text_is_refused_without_being_shown() {
        let text = kept().to_text();
        let mut texts: Vec<_> = (0..text.len()).map(|end| text[..end].to_owned()).collect();
        for at in 0..text.len() {
            let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
            texts.push(format!("{}{other}{}", &text[..at], &text[at + 1..]));
        }
        texts.push(text.replace(VERSION, "2:"));
        texts.push(format!("{text}{text}"));
        texts.push(format!("{MARK}{VERSION}€€€€€€€€"));
        for text in texts {
            let error = Kept::of_text(&text).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Config);
            assert!(!error.message().contains("7b22"), "{error}");
        }
    }
}
