//! Syntax of labels, annotations and names that end up in objects of ours, and which labels are not for
//! users. Kubernetes checks the same, but only when a VM is created, long after the apply.

use super::field::{Cause, ENOUGH_CAUSES, Path};
use crate::api::labels::PREFIX;

/// Longest label value, and longest name in a label's or annotation's key (Kubernetes' label syntax).
const MAX_PART: usize = 63;
/// Longest DNS subdomain (RFC 1123).
const MAX_SUBDOMAIN: usize = 253;
/// Most bytes of all annotations of an object (`k8s.io/apimachinery/pkg/api/validation`).
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// What is left of them for KubeVirt, for what users note on VMs later, and for our marks of fixed length.
const RESERVED_ANNOTATIONS: usize = 16 * 1024;
/// Most bytes of annotations that a VM or an instance may come with.
pub(super) const ANNOTATION_BUDGET: usize = MAX_ANNOTATIONS - RESERVED_ANNOTATIONS;

/// Labels that KubeVirt lets nobody else set on an instance (`restrictedVmiLabels` in virt-api). Others in
/// its domain are free: its own examples use `kubevirt.io/vm` and `kubevirt.io/domain`.
const KUBEVIRT_RESERVED: [&str; 6] = [
    "kubevirt.io/created-by",
    "kubevirt.io/install-strategy",
    "kubevirt.io/migrationJobUID",
    "kubevirt.io/migrationTargetNodeName",
    "kubevirt.io/nodeName",
    "kubevirt.io/schedulable",
];

/// Faults of labels that a user gives to VMs or instances.
pub(super) fn check_labels<'a>(
    field: &Path,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels {
        if causes.len() >= ENOUGH_CAUSES {
            break;
        }
        let field = field.key(key);
        if key.starts_with(PREFIX) {
            causes.push(reserved_for_pools(field));
        } else if KUBEVIRT_RESERVED.contains(&key) {
            let message = "KubeVirt sets this label itself and refuses VMs that have it already";
            causes.push(Cause::forbidden(field, message));
        } else if !is_qualified_name(key) {
            causes.push(bad_key(field, "label"));
        } else if !is_label_value(value) {
            causes.push(Cause::invalid(
                field,
                format!(
                    "{value:?} is no label value: at most {MAX_PART} letters, digits, '-', '_' and '.', \
                     beginning and ending with a letter or digit, or nothing"
                ),
            ));
        }
    }
    causes
}

/// Faults of annotations that a user gives to VMs or instances.
pub(super) fn check_annotations<'a>(
    field: &Path,
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.len();
        if causes.len() >= ENOUGH_CAUSES {
            break;
        }
        if key.starts_with(PREFIX) {
            causes.push(reserved_for_pools(field.key(key)));
        } else if !is_qualified_name(&key.to_lowercase()) {
            causes.push(bad_key(field.key(key), "annotation"));
        }
    }
    if size > ANNOTATION_BUDGET {
        let message = format!(
            "{size} bytes of annotations are too many: at most {ANNOTATION_BUDGET}, which is what Kubernetes takes \
             less {RESERVED_ANNOTATIONS} for those that are added later"
        );
        causes.push(Cause::invalid(field.clone(), message));
    }
    causes
}

/// Faults of a list of object names.
pub(super) fn check_names(field: &Path, names: &[String]) -> Vec<Cause> {
    names
        .iter()
        .enumerate()
        .filter(|(_, name)| !is_dns_subdomain(name))
        .map(|(index, name)| not_a_name(field.index(index), name))
        .take(ENOUGH_CAUSES)
        .collect()
}

/// The cause for a name that no object can have.
pub(super) fn not_a_name(field: Path, name: &str) -> Cause {
    Cause::invalid(
        field,
        format!(
            "{name:?} is no name of an object: lower case letters, digits, '-' and '.', beginning and ending \
             with a letter or digit"
        ),
    )
}

/// RFC 1123, as Kubernetes checks the names of most objects.
pub(super) fn is_dns_subdomain(name: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= MAX_SUBDOMAIN
        && name.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.first().is_some_and(plain)
                && bytes.last().is_some_and(plain)
                && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
        })
}

fn reserved_for_pools(field: Path) -> Cause {
    Cause::forbidden(
        field,
        format!("names that begin with {PREFIX} are set by vmpool itself"),
    )
}

fn bad_key(field: Path, what: &str) -> Cause {
    Cause::invalid(
        field,
        format!(
            "the key is no {what} key: an optional DNS subdomain and '/', then at most {MAX_PART} letters, \
             digits, '-', '_' and '.', beginning and ending with a letter or digit"
        ),
    )
}

fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_dns_subdomain(domain) && is_part(name),
        None => is_part(key),
    }
}

fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_part(value)
}

fn is_part(part: &str) -> bool {
    let bytes = part.as_bytes();
    bytes.len() <= MAX_PART
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label_fault(key: &str, value: &str) -> bool {
        !check_labels(&Path::spec(), [(key, value)].into_iter()).is_empty()
    }

    #[test]
    fn labels_are_checked_as_kubernetes_does() {
        for (key, value, bad) in [
            ("app", "web", false),
            ("app", "", false),
            ("App_1.x", "A_1.x", false),
            ("example.com/app", "web", false),
            ("kubevirt.io/vm", "web", false),
            ("kubevirt.io/nodeName", "n1", true),
            ("vmpool.dev/pool", "web", true),
            ("vmpool.dev/anything", "web", true),
            ("", "web", true),
            ("/app", "web", true),
            ("example.com/", "web", true),
            ("Example.com/app", "web", true),
            ("a/b/c", "web", true),
            ("-app", "web", true),
            ("app", "-web", true),
            ("app", "web.", true),
            ("app", "two words", true),
            ("äpp", "web", true),
            ("app", "wäb", true),
        ] {
            assert_eq!(label_fault(key, value), bad, "{key}={value}");
        }
        assert!(!label_fault(&"k".repeat(63), &"v".repeat(63)));
        assert!(label_fault(&"k".repeat(64), "v"));
        assert!(label_fault("k", &"v".repeat(64)));
    }

    #[test]
    fn annotations_may_hold_anything_up_to_their_bound() {
        let check = |key: &str, value: &str| {
            check_annotations(&Path::spec(), [(key, value)].into_iter()).len()
        };
        assert_eq!(
            check("hooks.kubevirt.io/hookSidecars", "[{\"image\": \"x\"}]"),
            0
        );
        assert_eq!(check("Upper.io/is-fine", "x"), 0);
        assert_eq!(check("no spaces", "x"), 1);
        assert_eq!(check("vmpool.dev/stamp", "x"), 1);
        assert_eq!(check("big", &"x".repeat(ANNOTATION_BUDGET - 3)), 0);
        assert_eq!(check("big", &"x".repeat(ANNOTATION_BUDGET - 2)), 1);
    }
}
