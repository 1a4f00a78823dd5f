//! The text of a detached lease, which the giver writes and an adopter reads.
//!
//! `held/ending.rs` writes the text, and `client/adoption.rs` reads it. The text contains the token, so it is a secret:
//! anyone who has the text, and access to the nodes, can adopt the lease.

use crate::config::mode::Modes;
use crate::config::options::Options;
use crate::config::permits::MAX_PERMITS;
use crate::config::resources::Resources;
use crate::error::{Error, Result};
use crate::wire::request::Given;
use crate::wire::text::{self, TextKind, checksum};
use crate::wire::token::Token;
use quorlock_protocol::NodeSet;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What a round needs to take over a lease with TRANSFER.
#[derive(Clone)]
pub(crate) struct Giver {
    /// The giver's token, and the time within which an adopter must take the lease over.
    pub(crate) given: Given,
    /// The nodes that have answered all requests of the giver that set keys. Only these nodes may vote on the adoption:
    /// on any other node, a request of the giver that arrives late may restore the giver's token after the lease was
    /// adopted.
    pub(crate) voters: NodeSet,
    /// Whether no adopter can win the lease any more, or this one has won. Lost rounds of the adoption then give no keys
    /// back, even if a node answers late.
    pub(crate) is_over: Arc<AtomicBool>,
}

/// The resources or permits that a detached lease locks.
pub(crate) struct Leased {
    pub(crate) resources: Resources,
    pub(crate) modes: Modes,
    /// The limit and the slots of permits; `None` for locks.
    pub(crate) permits: Option<(u32, Vec<u32>)>,
}

/// The contents of the text of a detached lease. The text names no node by its position, because each client may list
/// the nodes in its own order.
#[derive(Serialize, Deserialize)]
struct Contents {
    resources: Vec<String>,
    /// The positions of the resources that are shared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shared: Vec<usize>,
    /// The giver's limit, and the slots of its permits; `None` for locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permits: Option<(u32, Vec<u32>)>,
    token: String,
    /// The time within which an adopter must take the lease over, in milliseconds. `until` is the end of that time by
    /// the nodes' clocks, in microseconds.
    within: u64,
    until: u64,
    /// The checksums of the addresses of the nodes that must not vote.
    silent: Vec<u32>,
    /// The checksum of the nodes' addresses, so that a client with other nodes refuses the text.
    nodes: u32,
    /// The checksum of the key prefix, so that a client with another prefix refuses the text.
    prefix: u32,
}

impl Contents {
    /// Whether [`Namespace::write`] can have written these contents. Does not check the names of the resources;
    /// [`Lock`](crate::Lock) checks them.
    fn is_possible(&self) -> bool {
        let Self { resources, shared, permits, .. } = self;
        let is_permit = |(limit, slots): &(u32, Vec<u32>)| {
            (1..=MAX_PERMITS).contains(limit)
                && !slots.is_empty()
                && slots.is_sorted_by(|one, other| one < other)
                && slots.iter().all(|slot| slot < limit)
                && (resources.len(), shared.len()) == (1, 0)
        };
        Token::from(&*self.token).is_whole()
            && Options::is_ttl(Duration::from_millis(self.within))
            && Modes::are_positions(shared, resources.len())
            && permits.as_ref().is_none_or(is_permit)
    }
}

/// A client's nodes and key prefix. Only a client with the same nodes and prefix can read a text.
pub(crate) struct Namespace<'a> {
    /// The nodes' addresses, in the order of the client's list.
    pub(crate) addresses: Vec<&'a str>,
    pub(crate) key_prefix: &'a str,
}

impl Namespace<'_> {
    fn nodes(&self) -> u32 {
        let mut addresses = self.addresses.clone();
        addresses.sort_unstable();
        checksum(&addresses.join("\n"))
    }

    /// Returns the text of a lease. `silent` are the nodes that have not answered all requests that set the lease's
    /// keys.
    pub(crate) fn write(&self, leased: &Leased, given: &Given, silent: NodeSet) -> String {
        let Leased { resources, modes, permits } = leased;
        let contents = Contents {
            resources: resources.to_vec(),
            shared: modes.shared_positions(resources),
            permits: permits.clone(),
            token: given.token.as_str().to_owned(),
            within: u64::try_from(given.within.as_millis()).unwrap_or(u64::MAX),
            until: given.until,
            silent: silent.iter().map(|node| checksum(self.addresses[node])).collect(),
            nodes: self.nodes(),
            prefix: checksum(self.key_prefix),
        };
        text::write(TextKind::Detached, &contents)
    }

    /// Reads a text, and returns what the lease locks and what an adopter needs. Fails if the text is not the text of a
    /// detached lease, is damaged, or was written for other nodes or another key prefix. The error does not contain the
    /// text.
    pub(crate) fn read(&self, text: &str) -> Result<(Leased, Giver)> {
        let contents: Contents = text::read(TextKind::Detached, text)?;
        if contents.nodes != self.nodes() {
            return Err(Error::config(
                "the lease was detached on other nodes: the client that adopts it must have the same nodes, \
                 with the same addresses",
            ));
        }
        if contents.prefix != checksum(self.key_prefix) {
            return Err(Error::config(
                "the lease was detached with another key prefix: the client that adopts it must have the \
                 same one",
            ));
        }
        if !contents.is_possible() {
            return Err(text::damaged());
        }
        let token = Arc::new(Token::from(contents.token));
        let addresses = self.addresses.iter().enumerate();
        let votes = |(_, address): &(usize, &&str)| !contents.silent.contains(&checksum(address));
        let voters = addresses.filter(votes).map(|(node, _)| node).collect();
        let within = Duration::from_millis(contents.within);
        let given = Given { token, until: contents.until, within };
        let resources = Resources::from(contents.resources);
        let modes = Modes::with_shared_positions(&resources, &contents.shared);
        let leased = Leased { resources, modes, permits: contents.permits };
        Ok((leased, Giver { given, voters, is_over: Arc::default() }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{Contents, Given, Leased, Namespace};
    use crate::config::mode::Modes;
    use crate::config::resources::Resources;
    use crate::error::ErrorCode;
    use crate::wire::text::{self, TextKind};
    use quorlock_protocol::NodeSet;
    use std::sync::Arc;
    use std::time::Duration;

    const NODES: [&str; 3] = ["redis://a", "redis://b", "redis://c"];
    const TOKEN: &str = "0123456789abcdef0123456789abcdef01234567;web-7:4121";

    const UNTIL: u64 = 1_795_298_783_776_551;
    const WITHIN: Duration = Duration::from_secs(30);

    fn namespace<'a>(addresses: &[&'a str], key_prefix: &'a str) -> Namespace<'a> {
        Namespace { addresses: addresses.to_vec(), key_prefix }
    }

    fn given(token: &str) -> Given {
        Given { token: Arc::new(token.into()), until: UNTIL, within: WITHIN }
    }

    fn text() -> String {
        let resources = Resources::from(["orders:42", "ü \"x\"\n"]);
        let modes = Modes::shared(["orders:42".to_owned()]);
        let leased = Leased { resources, modes, permits: None };
        namespace(&NODES, "p:").write(&leased, &given(TOKEN), NodeSet::from_iter([1]))
    }

    #[test]
    fn adopter_reads_what_the_giver_has_written() {
        let (leased, giver) = namespace(&NODES, "p:").read(&text()).unwrap();
        let Leased { resources, modes, permits } = leased;
        assert_eq!(&*resources, ["orders:42", "ü \"x\"\n"]);
        assert_eq!(modes.shared_positions(&resources), [0]);
        assert_eq!(permits, None);
        assert_eq!(*giver.given.token, TOKEN.into());
        assert_eq!((giver.given.until, giver.given.within), (UNTIL, WITHIN));
        assert_eq!(giver.voters, NodeSet::from_iter([0, 2]));
    }

    #[test]
    fn a_text_names_each_resource_once() {
        let is_possible = |resources: &[&str], shared: &[usize]| {
            let contents = Contents {
                resources: resources.iter().map(|name| (*name).to_owned()).collect(),
                shared: shared.to_vec(),
                permits: None,
                token: TOKEN.to_owned(),
                within: 30_000,
                until: UNTIL,
                silent: Vec::new(),
                nodes: 0,
                prefix: 0,
            };
            contents.is_possible()
        };
        assert!(is_possible(&["a", "b"], &[0, 1]) && is_possible(&["a"; 64], &[]));
        for shared in [&[1, 1][..], &[1, 0], &[2]] {
            assert!(!is_possible(&["a", "b"], shared), "{shared:?}");
        }
        assert!(!is_possible(&[], &[]) && !is_possible(&["a"; 65], &[]));
    }

    fn written(permits: Option<(u32, Vec<u32>)>, given: &Given) -> String {
        let leased = Leased { resources: "jobs".into(), modes: Modes::default(), permits };
        namespace(&NODES, "").write(&leased, given, NodeSet::EMPTY)
    }

    #[test]
    fn adopter_reads_the_permits_that_a_giver_can_have() {
        let permits = Some((10, vec![3, 7]));
        let text = written(permits.clone(), &given(TOKEN));
        let (leased, _) = namespace(&NODES, "").read(&text).unwrap();
        assert_eq!(leased.permits, permits);
    }

    #[test]
    fn text_that_no_detach_can_have_written_is_refused() {
        let permits =
            [(0, vec![0]), (2_000, vec![3]), (10, vec![]), (10, vec![10]), (10, vec![3, 3])];
        let permits = permits.map(|permits| (Some(permits), given(TOKEN)));
        let times = [Duration::ZERO, Duration::from_secs(24 * 3600 + 1), Duration::MAX];
        let times = times.map(|within| (None, Given { within, ..given(TOKEN) }));
        let tokens_of_others = ["", "a text", &TOKEN[1..]].map(|token| (None, given(token)));
        for (permits, given) in permits.into_iter().chain(times).chain(tokens_of_others) {
            let text = written(permits.clone(), &given);
            let Err(error) = namespace(&NODES, "").read(&text) else {
                panic!("{permits:?} {given:?}")
            };
            assert!(error.message().contains("damaged"), "{error}");
            assert!(!error.message().contains(&text), "{error}");
        }
        assert!(text::read::<u8>(TextKind::Kept, &text()).is_err());
    }

    #[test]
    fn nodes_may_be_listed_in_another_order() {
        let (_, giver) = namespace(&[NODES[1], NODES[2], NODES[0]], "p:").read(&text()).unwrap();
        assert_eq!(giver.voters, NodeSet::from_iter([1, 2]), "the first node may not vote");
    }

    #[test]
    fn text_of_other_nodes_or_another_prefix_is_refused() {
        let others = [
            (namespace(&NODES[..2], "p:"), "other nodes"),
            (namespace(&[NODES[0], NODES[1], "redis://d"], "p:"), "other nodes"),
            (namespace(&NODES, ""), "another key prefix"),
            (namespace(&NODES, "p:p:"), "another key prefix"),
        ];
        for (namespace, reason) in others {
            let Err(error) = namespace.read(&text()) else { panic!("{reason}") };
            assert_eq!(error.code(), ErrorCode::Config);
            assert!(error.message().contains(reason), "{error}");
        }
    }
}
