//! The write that brings a member to another stamp: one JSON patch, which the API server takes only if the VM
//! is still the one that was read. Pure; who calls it has read the VM itself, not a cache.
//!
//! It says with the stamp's mark what KubeVirt had noted of a restore, so that a restore since is known, and
//! on `vmpool.dev/disks-of` which disk templates the member's disks are of, where it keeps disks that the
//! config would make otherwise now.

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, TestOperation};
use serde_json::{Map, Value};

use super::merge::{Input, merge};
use super::merge_tree::is_same;
use super::revision::{disks_hash, normalise};
use super::{StampInput, StampMark, stamp};
use crate::api::annotations;
use crate::kubevirt::LAST_RESTORE;

/// What a member was made from, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum Base<'a> {
    /// This.
    Known(StampInput<'a>),
    /// Its revision is gone, its mark can't be read, or it was restored from a snapshot since.
    Unknown,
}

/// What an update is made from.
#[derive(Clone, Copy, Debug)]
pub struct UpdateInput<'a> {
    /// What the VM was made from.
    pub base: Base<'a>,
    /// What it is to be made from.
    pub target: StampInput<'a>,
    /// The VM, read from the API server.
    pub live: &'a Value,
    /// Leave the run strategy as it is: nobody is to be stopped or started.
    pub keeps_run_strategy: bool,
}

/// An update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Empty when the VM is as it is to be.
    pub patch: Patch,
    /// Whether the VM keeps disks that its config would make otherwise now.
    pub keeps_disks: bool,
}

/// What is to be written to bring `input.live` to its target.
pub fn update(input: &UpdateInput<'_>) -> Update {
    let base = match input.base {
        Base::Known(base) => Some(stamp(&base)),
        Base::Unknown => None,
    };
    let target = stamp(&input.target);
    let mut merged = merge(&Input {
        base: base.as_ref(),
        target: &target,
        live: input.live,
        keeps_run_strategy: input.keeps_run_strategy,
    });
    note_restore(input, &mut merged);
    let keeps_disks = note_disks(input, &mut merged);
    Update {
        patch: patch(input.live, &merged),
        keeps_disks,
    }
}

fn annotation<'v>(vm: &'v Value, key: &str) -> Option<&'v str> {
    vm.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

fn note_restore(input: &UpdateInput<'_>, merged: &mut Value) {
    let mark = StampMark {
        restored: annotation(input.live, LAST_RESTORE).map(str::to_owned),
        ..StampMark::new(input.target.revision.content_hash, input.target.inputs)
    };
    annotate(merged, annotations::STAMP, Some(mark.to_annotation()));
}

/// Says on the VM whether its disks are those of its config. Returns whether they are not.
fn note_disks(input: &UpdateInput<'_>, merged: &mut Value) -> bool {
    let target = input.target.revision.spec;
    let before = annotation(input.live, annotations::DISKS_OF).map(str::to_owned);
    let made_of = match (before, input.base) {
        (Some(before), _) => Some(before),
        (None, Base::Known(base)) if keeps_template(base.revision.spec, target) => {
            Some(disks_hash(base.revision.spec))
        }
        (None, Base::Known(_) | Base::Unknown) => None,
    };
    let kept = made_of.filter(|made_of| *made_of != disks_hash(target));
    let keeps = kept.is_some();
    annotate(merged, annotations::DISKS_OF, kept);
    keeps
}

/// Whether a disk template of `base` is another one in `target`, or none.
fn keeps_template(base: &Map<String, Value>, target: &Map<String, Value>) -> bool {
    let templates = |spec: &Map<String, Value>| -> Vec<Value> {
        let normal = normalise(spec);
        let templates = normal.get("dataVolumeTemplates");
        templates
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let target = templates(target);
    templates(base)
        .iter()
        .any(|template| !target.iter().any(|other| is_same(template, other)))
}

fn annotate(vm: &mut Value, key: &str, value: Option<String>) {
    let Some(metadata) = vm.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let map = metadata
        .entry("annotations")
        .or_insert_with(|| Value::Object(Map::new()));
    let Some(map) = map.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => {
            map.insert(key.to_owned(), value.into());
        }
        None => {
            map.remove(key);
        }
    }
}

/// From `live` to `merged`, if it still is that VM, unchanged.
fn patch(live: &Value, merged: &Value) -> Patch {
    let mut patch = json_patch::diff(live, merged);
    if patch.0.is_empty() {
        return patch;
    }
    for key in ["resourceVersion", "uid"] {
        let metadata = live.get("metadata");
        let value = metadata.and_then(|metadata| metadata.get(key));
        let test = TestOperation {
            path: PointerBuf::from_tokens(["metadata", key]),
            value: value.cloned().unwrap_or_default(),
        };
        patch.0.insert(0, PatchOperation::Test(test));
    }
    patch
}
