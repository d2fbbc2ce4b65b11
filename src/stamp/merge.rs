//! What a member's VM object is to be when its pool follows another revision: the three-way merge of the stamp
//! that it was made with, the stamp that it is to have, and the VM as it is.
//!
//! Only what differs between the two stamps is done to the VM ([`super::merge_tree`] says how), so that what
//! others did stays: labels and annotations, MAC addresses, firmware UUID and serial, PCI topology, the machine
//! type, hot-plugged volumes. Beyond that:
//!
//! - A run strategy that somebody changed stays: who stopped a VM, or started one of a halted pool, meant it.
//!   One written as `running` stays written so where that can say it.
//! - Disks are in [`super::merge_disks`]: no merge points a disk elsewhere.
//! - An instance type or preference is taken over as a whole when the config changes it, without the
//!   `revisionName` that KubeVirt resolved for the other one: virt-api refuses the two together.
//! - Our own labels and annotations are always those of the target.
//!
//! Where the base is not known (its revision is gone, its mark can't be read, KubeVirt restored the VM), what
//! the target says is written over what is there, but never the run strategy, disk templates, sources of
//! volumes, firmware or MAC addresses, and nothing is taken out.

use serde_json::{Map, Value};

use super::merge_disks::Volumes;
use super::merge_tree::{Decision, Merge, Sides, is_same_or_absent, without_nulls};
use crate::api::{annotations, labels};

const INSTANCE_TYPES: [(&str, &str); 2] = [
    ("spec.instancetype", "virtualmachineclusterinstancetype"),
    ("spec.preference", "virtualmachineclusterpreference"),
];
/// Not touched where the base is not known.
const UNTOUCHED_WITHOUT_BASE: [&str; 3] = [
    "spec.dataVolumeTemplates",
    "spec.template.spec.domain.devices.interfaces[].macAddress",
    "spec.template.spec.domain.firmware",
];

/// What is merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    /// The stamp that the VM was made with, if it is known.
    pub(super) base: Option<&'a Value>,
    /// The stamp that it is to have.
    pub(super) target: &'a Value,
    /// The VM.
    pub(super) live: &'a Value,
    /// Whether the run strategy is left as it is in any case.
    pub(super) keeps_run_strategy: bool,
}

/// The VM that comes of it.
pub(super) fn merge(input: &Input<'_>) -> Value {
    let base = input.base.map(without_nulls);
    let target = without_nulls(input.target);
    let sides = Sides {
        base: base.as_ref(),
        target: Some(&target),
        live: Some(input.live),
    };
    let template = sides.get("spec").get("template").get("spec");
    let merging = Merging {
        has_base: base.is_some(),
        volumes: Volumes::merge(sides.get("spec"), template.get("volumes")),
    };
    let mut merged = input.live.clone();
    for place in ["labels", "annotations"] {
        let path = format!("metadata.{place}");
        let map = merging.merged(sides.get("metadata").get(place), &path);
        set(&mut merged["metadata"], place, map);
    }
    let spec = merging.merged(sides.get("spec"), "spec");
    set(&mut merged, "spec", spec);
    if base.is_some() && !input.keeps_run_strategy {
        merge_run_strategy(sides.get("spec"), &mut merged);
    }
    overlay_marks(&mut merged, &target);
    merged
}

struct Merging {
    has_base: bool,
    volumes: Volumes,
}

impl Merge for Merging {
    fn decide(&self, sides: Sides<'_>, path: &str) -> Decision {
        if !self.has_base && UNTOUCHED_WITHOUT_BASE.contains(&path) {
            return Decision::Is(sides.live.cloned());
        }
        if let Some((_, cluster_kind)) = INSTANCE_TYPES.iter().find(|(known, _)| *known == path) {
            return Decision::Is(instance_type(sides, cluster_kind));
        }
        match path {
            // Done on its own: two fields say it.
            "spec.runStrategy" | "spec.running" => Decision::Is(sides.live.cloned()),
            "spec.dataVolumeTemplates" => Decision::Is(self.volumes.templates(sides, path)),
            "spec.template.spec.volumes" => Decision::Is(self.volumes.volumes(sides)),
            "spec.template.spec.domain.devices.disks[]"
            | "spec.template.spec.domain.devices.filesystems[]" => {
                self.volumes.decide_device(sides)
            }
            _ => Decision::Merge,
        }
    }
}

/// The run strategy that a spec declares, in either way.
fn declared(spec: Option<&Value>) -> Option<String> {
    let spec = spec?;
    match (
        spec.get("runStrategy").and_then(Value::as_str),
        spec.get("running").and_then(Value::as_bool),
    ) {
        (Some(strategy), _) => Some(strategy.to_owned()),
        (None, Some(true)) => Some("Always".to_owned()),
        (None, Some(false)) => Some("Halted".to_owned()),
        (None, None) => None,
    }
}

fn merge_run_strategy(spec: Sides<'_>, merged: &mut Value) {
    let (base, target) = (declared(spec.base), declared(spec.target));
    if base == target || declared(spec.live) != base {
        return;
    }
    let Some(merged) = merged.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let uses_running = merged.get("runStrategy").is_none_or(Value::is_null)
        && merged.get("running").is_some_and(Value::is_boolean);
    match target.as_deref() {
        Some("Always") if uses_running => {
            merged.insert("running".to_owned(), true.into());
        }
        Some("Halted") if uses_running => {
            merged.insert("running".to_owned(), false.into());
        }
        target => {
            // KubeVirt refuses both.
            merged.remove("running");
            match target {
                Some(target) => merged.insert("runStrategy".to_owned(), target.into()),
                None => merged.remove("runStrategy"),
            };
        }
    }
}

/// An instance type or preference.
fn instance_type(sides: Sides<'_>, cluster_kind: &str) -> Option<Value> {
    if is_same_or_absent(sides.base, sides.target) {
        return sides.live.cloned();
    }
    let Some(target) = sides.target else {
        // One that was inferred from a volume has been resolved since; one that somebody else chose is theirs.
        let of_config = |live: &&Value| {
            sides.base.is_some_and(|base| {
                base.get("name").is_none() || names_same(base, live, cluster_kind)
            })
        };
        return sides.live.filter(|live| !of_config(live)).cloned();
    };
    let is_same = sides
        .live
        .is_some_and(|live| names_same(target, live, cluster_kind));
    let sets_revision = target.get("revisionName").is_some();
    if is_same && !sets_revision {
        sides.live.cloned()
    } else {
        Some(target.clone())
    }
}

/// Whether two matchers mean the same object.
fn names_same(left: &Value, right: &Value, cluster_kind: &str) -> bool {
    let kind = |matcher: &Value| {
        let kind = matcher.get("kind").and_then(Value::as_str);
        kind.filter(|kind| !kind.is_empty())
            .map_or_else(|| cluster_kind.to_owned(), str::to_ascii_lowercase)
    };
    let name = |matcher: &Value| {
        matcher
            .get("name")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    name(left).is_some() && name(left) == name(right) && kind(left) == kind(right)
}

/// Our labels, the mark and the hash are always the target's.
fn overlay_marks(merged: &mut Value, target: &Value) {
    let vm_annotations = [annotations::MEMBER_OF, annotations::STAMP];
    let places: [(&[&str], &[&str]); 4] = [
        (&["metadata", "labels"], &labels::IDENTITY),
        (&["metadata", "annotations"], &vm_annotations),
        (
            &["spec", "template", "metadata", "labels"],
            &labels::IDENTITY,
        ),
        (
            &["spec", "template", "metadata", "annotations"],
            &[annotations::STAMP_HASH],
        ),
    ];
    for (place, keys) in places {
        let said = place
            .iter()
            .try_fold(target, |value, key| value.get(key))
            .and_then(Value::as_object);
        for (key, value) in said.into_iter().flatten() {
            if keys.contains(&key.as_str())
                && let Some(map) = object_at(merged, place)
            {
                map.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The object at that place, made where there is none; `None` where there is something else.
fn object_at<'v>(value: &'v mut Value, place: &[&str]) -> Option<&'v mut Map<String, Value>> {
    let mut at = value;
    for key in place {
        let next = at.as_object_mut()?.entry(*key).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        at = next;
    }
    at.as_object_mut()
}

fn set(object: &mut Value, key: &str, value: Option<Value>) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => {
            object.insert(key.to_owned(), value);
        }
        None => {
            object.remove(key);
        }
    }
}
