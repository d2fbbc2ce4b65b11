//! What makes a VM look like a member, taken off one that is none: a stranger's copy, or a VM that
//! was a member and is not any more.
//!
//! Takes every label and annotation of our domain, from the VM and its template, and the controller
//! reference to our pools. Keeps the annotations by which anyone may ask for a single VM from a
//! config, and everything that is not ours, names of disks and secrets included: they are what the
//! VM has.

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::Value;

use crate::api::{GROUP, POOL_KIND, annotations, labels};

/// Annotations of our domain on a VM that are no marks of a member: a user's request for a single VM
/// from a config, and where a VM that left came from. (A label of a member has the key of one.)
const KEPT_ANNOTATIONS: &[&str] = &[
    annotations::DETACHED_FROM,
    annotations::FROM_CONFIG,
    annotations::POSTFIX,
    annotations::STAMPED_FROM,
];

/// The patch, and what it takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stripped {
    /// Empty when there is nothing to take.
    pub patch: Patch,
    /// Each thing taken, for the warning or event: `label vmpool.dev/pool`.
    pub taken: Vec<String>,
}

/// What is to be taken off a VM that is not a member.
pub fn strip(vm: &Value) -> Stripped {
    let mut stripped = Stripped::default();
    strip_owner(vm, &mut stripped);
    for (what, place, kept) in [
        ("label", &["metadata", "labels"][..], &[][..]),
        ("annotation", &["metadata", "annotations"], KEPT_ANNOTATIONS),
        (
            "template label",
            &["spec", "template", "metadata", "labels"],
            &[],
        ),
        (
            "template annotation",
            &["spec", "template", "metadata", "annotations"],
            &[],
        ),
    ] {
        let pointer = PointerBuf::from_tokens(place.iter().copied());
        let Some(map) = vm.pointer(pointer.as_str()).and_then(Value::as_object) else {
            continue;
        };
        let ours = |key: &&String| key.starts_with(labels::PREFIX) && !kept.contains(&key.as_str());
        for key in map.keys().filter(ours) {
            let mut path = pointer.clone();
            path.push_back(key.as_str());
            stripped
                .patch
                .0
                .push(PatchOperation::Remove(RemoveOperation { path }));
            stripped.taken.push(format!("{what} {key}"));
        }
    }
    stripped
}

fn strip_owner(vm: &Value, stripped: &mut Stripped) {
    let Some(owners) = vm
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
    else {
        return;
    };
    let (ours, others): (Vec<&Value>, Vec<&Value>) =
        owners.iter().partition(|owner| is_pool(owner));
    if ours.is_empty() {
        return;
    }
    for owner in ours {
        let name = owner
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        stripped
            .taken
            .push(format!("controller reference to {POOL_KIND} {name}"));
    }
    let path = PointerBuf::from_tokens(["metadata", "ownerReferences"]);
    // Positions in a list say nothing about who stands there by the time the patch arrives.
    let value = Value::from(owners.clone());
    stripped.patch.0.push(PatchOperation::Test(TestOperation {
        path: path.clone(),
        value,
    }));
    stripped.patch.0.push(if others.is_empty() {
        PatchOperation::Remove(RemoveOperation { path })
    } else {
        let value = others.into_iter().cloned().collect();
        PatchOperation::Replace(ReplaceOperation { path, value })
    });
}

/// Whether an owner reference is to a pool of ours: any version, and the group compared, since KubeVirt has
/// the same kind in another one. One that doesn't control is a mark too: the garbage collector would take the
/// VM with the pool.
fn is_pool(owner: &Value) -> bool {
    let text = |key| owner.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group);
    group == GROUP && text("kind") == POOL_KIND
}
