//! What a request is about, from its path alone. Strict: the API server authorises the path as *it* reads it
//! and hands it on as it came, so a path that could be read in two ways (`..`, `//`, something behind the
//! end, escapes that make a slash) must be none here, or a right to one thing would open another.

use percent_encoding::percent_decode_str;

use crate::api::{POOL_PLURAL, SUBRESOURCES_GROUP, VERSION};

/// Longest name of an object (RFC 1123 subdomain).
const MAX_NAME: usize = 253;
/// Longest name of a namespace (RFC 1123 label).
const MAX_NAMESPACE: usize = 63;

/// What a path stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Target {
    /// `/apis`.
    Groups,
    /// `/apis/<group>`.
    Group,
    /// `/apis/<group>/<version>`.
    Resources,
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiV3Index,
    /// `/openapi/v3/apis/<group>/<version>`.
    OpenApiV3,
    /// All pools of a namespace, or of all: known, so that the answer says that there is no list here.
    Pools,
    /// A pool, or something of it.
    Pool(PoolPath),
}

/// A pool, or something of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PoolPath {
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// What of it.
    pub(super) part: Part,
}

/// What of a pool.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Part {
    /// Taking VMs out of it.
    Detach,
    /// How many VMs it has.
    Scale,
    /// Itself.
    Whole,
}

impl Part {
    /// The subresource; `None` is the pool itself.
    pub(super) fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Detach => Some("detach"),
            Self::Scale => Some("scale"),
            Self::Whole => None,
        }
    }
}

impl Target {
    /// Reads the path of a URL. `None` if nothing is there.
    pub(super) fn read(path: &str) -> Option<Self> {
        let decoded = percent_decode_str(path).decode_utf8().ok()?;
        // An escape that is none, which the API server would have refused, stays as it is and fits nothing.
        let segments: Vec<&str> = decoded.strip_prefix('/')?.split('/').collect();
        let group = |group: &str, version: &str| group == SUBRESOURCES_GROUP && version == VERSION;
        match *segments.as_slice() {
            ["apis"] => Some(Self::Groups),
            ["apis", SUBRESOURCES_GROUP] => Some(Self::Group),
            ["openapi", "v2"] => Some(Self::OpenApiV2),
            ["openapi", "v3"] => Some(Self::OpenApiV3Index),
            ["openapi", "v3", "apis", g, v] if group(g, v) => Some(Self::OpenApiV3),
            ["apis", g, v] if group(g, v) => Some(Self::Resources),
            ["apis", g, v, ref rest @ ..] if group(g, v) => below_version(rest),
            _ => None,
        }
    }
}

fn below_version(rest: &[&str]) -> Option<Target> {
    let (namespace, name, part) = match *rest {
        [POOL_PLURAL] => return Some(Target::Pools),
        ["namespaces", namespace, POOL_PLURAL] if is_label(namespace) => {
            return Some(Target::Pools);
        }
        ["namespaces", namespace, POOL_PLURAL, name] => (namespace, name, Part::Whole),
        ["namespaces", namespace, POOL_PLURAL, name, "scale"] => (namespace, name, Part::Scale),
        ["namespaces", namespace, POOL_PLURAL, name, "detach"] => (namespace, name, Part::Detach),
        _ => return None,
    };
    (is_label(namespace) && is_subdomain(name)).then(|| {
        Target::Pool(PoolPath {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            part,
        })
    })
}

fn is_subdomain(name: &str) -> bool {
    name.len() <= MAX_NAME && name.split('.').all(is_label_of_any_length)
}

fn is_label(name: &str) -> bool {
    name.len() <= MAX_NAMESPACE && is_label_of_any_length(name)
}

fn is_label_of_any_length(label: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.first().is_some_and(|byte| plain(*byte))
        && bytes.last().is_some_and(|byte| plain(*byte))
        && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "/apis/subresources.vmpool.dev/v1alpha1";

    fn pool(part: Part) -> Target {
        Target::Pool(PoolPath {
            namespace: "team".to_owned(),
            name: "web".to_owned(),
            part,
        })
    }

    #[test]
    fn each_path_has_one_meaning() {
        let below = |rest: &str| Target::read(&format!("{BASE}{rest}"));
        assert_eq!(Target::read("/apis"), Some(Target::Groups));
        assert_eq!(
            Target::read("/apis/subresources.vmpool.dev"),
            Some(Target::Group)
        );
        assert_eq!(below(""), Some(Target::Resources));
        assert_eq!(Target::read("/openapi/v2"), Some(Target::OpenApiV2));
        assert_eq!(Target::read("/openapi/v3"), Some(Target::OpenApiV3Index));
        assert_eq!(
            Target::read(&format!("/openapi/v3{BASE}")),
            Some(Target::OpenApiV3)
        );
        assert_eq!(below("/virtualmachinepools"), Some(Target::Pools));
        let pools = "/namespaces/team/virtualmachinepools";
        assert_eq!(below(pools), Some(Target::Pools));
        assert_eq!(below(&format!("{pools}/web")), Some(pool(Part::Whole)));
        assert_eq!(
            below(&format!("{pools}/web/scale")),
            Some(pool(Part::Scale))
        );
        assert_eq!(
            below(&format!("{pools}/web/detach")),
            Some(pool(Part::Detach))
        );
        // As some clients write it: the API server authorises what this decodes to.
        assert_eq!(
            below(&format!("{pools}/web%2fscale")),
            Some(pool(Part::Scale))
        );
        assert_eq!(below(&format!("{pools}/w%65b")), Some(pool(Part::Whole)));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_nothing() {
        let pools = format!("{BASE}/namespaces/team/virtualmachinepools");
        for path in [
            "/",
            "",
            "*",
            "/api",
            "/apis/",
            "//apis",
            "/apis/vmpool.dev/v1alpha1",
            "/apis/subresources.vmpool.dev/v1",
            "/openapi/v3/",
            "/openapi/v3/apis/apps/v1",
        ] {
            assert_eq!(Target::read(path), None, "{path:?}");
        }
        for rest in [
            "/",
            "/web/",
            "/web/scale/",
            "/web/scale/more",
            "/web//scale",
            "//web/scale",
            "/web/detach/../scale",
            "/web/detach/%2e%2e/scale",
            "/web/./scale",
            "/../virtualmachinepools/web",
            "/web%2f",
            "/web%252fscale",
            "/web/scale%00",
            "/web/scale%3fdryRun=All",
            "/web/Scale",
            "/WEB/scale",
            "/-web",
            "/web%ff",
            "/web%2",
            "/web;a=b/scale",
            "/web/attach",
            "/web/status",
        ] {
            assert_eq!(Target::read(&format!("{pools}{rest}")), None, "{rest:?}");
        }
        let long = "a".repeat(254);
        assert_eq!(Target::read(&format!("{pools}/{long}")), None);
        assert_eq!(
            Target::read(&format!("{BASE}/namespaces/te.am/virtualmachinepools/web")),
            None
        );
    }
}
