//! Finds secrets in a text from a user, before a message repeats the text. Secrets are passwords in URLs, and the texts
//! of leases. A text that may contain a password counts as a secret.

use crate::config::url::scheme;
use std::borrow::Cow;

/// The beginning of the text of a kept lease, which `quorlock acquire` prints. The version of the text follows this
/// mark.
pub(crate) const KEPT_MARK: &str = "quorlock-lease-";
/// The beginning of the text of a detached lease. The version of the text follows this mark.
pub(crate) const DETACHED_MARK: &str = "quorlock-handover-";

/// Whether `text` contains the text of a lease, which is a secret.
pub fn has_lease_text(text: &str) -> bool {
    // In the text of a lease, a version and a colon follow the mark. A mark alone may begin a name, such as
    // `quorlock-lease-monitor`.
    let has_version = |rest: &str| {
        let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        rest.starts_with(':')
    };
    [KEPT_MARK, DETACHED_MARK].into_iter().any(|mark| {
        let after = text.match_indices(mark).map(|(at, _)| &text[at + mark.len()..]);
        after.filter(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit())).any(has_version)
    })
}

/// Returns a text from a user in the form in which messages may repeat it. A URL is cut after its scheme. A text that
/// contains a login, a password or the text of a lease becomes `***`.
pub fn without_secrets(given: &str) -> Cow<'_, str> {
    if has_lease_text(given) {
        return "***".into();
    }
    if given.contains("://") {
        return format!("{}***", scheme(given)).into();
    }
    let is_login = given.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'));
    if is_login || given.contains("pass=") || given.contains("password=") {
        return "***".into();
    }
    given.into()
}

#[cfg(test)]
mod tests {
    use super::{has_lease_text, without_secrets};

    #[test]
    fn secrets_are_not_repeated() {
        for (given, shown) in [
            ("redis://u:SECRET@h", "redis://***"),
            ("redis://:SECRET", "redis://***"),
            ("redis://a,redis://:SECRET", "redis://***"),
            ("unix:///run/redis.sock?pass=SECRET", "unix://***"),
            ("SECRET redis://h", "***"),
            ("u:SECRET@h:6379", "***"),
            ("h/0?password=SECRET", "***"),
            ("quorlock-lease-1:SECRET", "***"),
            ("x quorlock-handover-12:SECRET", "***"),
        ] {
            assert_eq!(without_secrets(given), shown);
        }
        for given in ["", "nodes.txt", "/etc/unit@web.conf", "10:30", "quorlock-lease-monitor"] {
            assert_eq!(without_secrets(given), given);
        }
        assert!(!has_lease_text("quorlock-lease-:"));
    }
}
