//! A user as Kubernetes knows one, and how the API server's front proxy names one in headers. Pure: whether
//! the headers count is decided in [`super::identity`].

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

/// The group of everybody who is known at all.
pub(super) const AUTHENTICATED: &str = "system:authenticated";

/// Who asks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Caller {
    /// User name.
    pub(super) name: String,
    /// UID, if the user has one.
    pub(super) uid: Option<String>,
    /// Groups, in their order.
    pub(super) groups: Vec<String>,
    /// Whatever else the authenticator says, by key.
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// In which headers the front proxy names the user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct HeaderNames {
    /// For the user name; the first that is there counts.
    pub(super) username: Vec<HeaderName>,
    /// For the UID; likewise.
    pub(super) uid: Vec<HeaderName>,
    /// For groups; all count, each as often as it is there.
    pub(super) group: Vec<HeaderName>,
    /// What headers with anything else begin with, in lower case.
    pub(super) extra_prefixes: Vec<String>,
}

impl Caller {
    /// Adds the group that everybody is in who is known.
    pub(super) fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Reads the front proxy's headers. `None` if they name nobody, or with bytes that are no text.
    pub(super) fn read(headers: &HeaderMap, names: &HeaderNames) -> Option<Self> {
        let first = |names: &[HeaderName]| -> Option<String> {
            names
                .iter()
                .filter_map(|name| headers.get(name))
                .filter_map(|value| text(value.as_bytes()))
                .find(|value| !value.is_empty())
        };
        let mut caller = Self {
            name: first(&names.username)?,
            uid: first(&names.uid),
            ..Self::default()
        };
        for value in names.group.iter().flat_map(|name| headers.get_all(name)) {
            caller.groups.push(text(value.as_bytes())?);
        }
        for prefix in &names.extra_prefixes {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    let value = text(value.as_bytes())?;
                    caller.extra.entry(unescaped(key)).or_default().push(value);
                }
            }
        }
        Some(caller)
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Keys may have characters that a header's name can't: they come percent-encoded. One that is not stays.
fn unescaped(key: &str) -> String {
    let decoded = percent_decode_str(key).decode_utf8();
    decoded.map_or_else(|_| key.to_owned(), |key| key.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn names() -> HeaderNames {
        HeaderNames {
            username: vec![HeaderName::from_static("x-remote-user")],
            uid: vec![HeaderName::from_static("x-remote-uid")],
            group: vec![HeaderName::from_static("x-remote-group")],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn all_groups_and_extras_are_taken_and_keys_decoded() {
        let headers = headers(&[
            ("X-Remote-User", "system:serviceaccount:team:robot"),
            ("X-Remote-Uid", "f8ae"),
            ("X-Remote-Group", "system:serviceaccounts"),
            ("X-Remote-Group", "system:authenticated"),
            (
                "X-Remote-Extra-Authentication.kubernetes.io%2fCredential-Id",
                "JTI=1",
            ),
            ("X-Remote-Extra-Scopes", "a"),
            ("X-Remote-Extra-Scopes", "b"),
            ("X-Forwarded-For", "10.0.0.1"),
        ]);
        let caller = Caller::read(&headers, &names()).unwrap();
        assert_eq!(caller.name, "system:serviceaccount:team:robot");
        assert_eq!(caller.uid.as_deref(), Some("f8ae"));
        assert_eq!(
            caller.groups,
            ["system:serviceaccounts", "system:authenticated"]
        );
        assert_eq!(
            caller.extra["authentication.kubernetes.io/credential-id"],
            ["JTI=1"]
        );
        assert_eq!(caller.extra["scopes"], ["a", "b"]);
        assert_eq!(caller.extra.len(), 2);
        assert_eq!(caller.clone().authenticated(), caller);
    }

    #[test]
    fn names_of_headers_are_the_clusters_and_nobody_is_nobody() {
        let mut other = names();
        other.username = vec![
            HeaderName::from_static("x-user"),
            HeaderName::from_static("x-remote-user"),
        ];
        let both = headers(&[("X-Remote-User", "jane"), ("X-User", "joe")]);
        assert_eq!(Caller::read(&both, &other).unwrap().name, "joe");
        assert_eq!(Caller::read(&both, &names()).unwrap().name, "jane");
        for pairs in [&[][..], &[("X-Remote-User", "")], &[("X-User", "joe")]] {
            assert_eq!(Caller::read(&headers(pairs), &names()), None, "{pairs:?}");
        }
        let mut odd = headers(&[("X-Remote-User", "jane")]);
        let group = HeaderValue::from_bytes(b"\xff").unwrap();
        odd.append("x-remote-group", group);
        assert_eq!(Caller::read(&odd, &names()), None);
    }

    #[test]
    fn text_beyond_ascii_arrives_as_it_is() {
        let headers = headers(&[("X-Remote-User", "jürgen"), ("X-Remote-Extra-%zz", "x")]);
        let caller = Caller::read(&headers, &names()).unwrap();
        assert_eq!(caller.name, "jürgen");
        assert_eq!(caller.extra["%zz"], ["x"]);
        let known = caller.authenticated();
        assert_eq!(known.groups, [AUTHENTICATED]);
    }
}
