//! What a pool makes of a config: `stamp(revision, pool inputs, ordinal) -> VM`, a pure function.
//!
//! The controller creates with it, the webhook corrects with it, the planner compares with it and
//! the preview shows it. It decides a VM's name, labels, annotations, owner, disk names and postfixed
//! references, and nothing else: the spec is opaque, every field that is not in the table of
//! references comes out as it went in. It never fails: what doesn't have the shape that KubeVirt
//! expects is left as it is, for KubeVirt to refuse in its own words.
//!
//! A stamp is compared with later ones across upgrades of this program, so what is stamped from the
//! same revision and inputs must not change; `testdata` holds the stamps of every release.

pub mod inputs;
pub mod names;
pub mod references;
pub mod revision;
pub mod sharing;
pub mod table;

mod lists;
mod merge;
mod merge_disks;
mod merge_tree;
mod path;
mod repair;
mod single;
mod strip;
#[cfg(test)]
mod tests;
mod trial;
mod update;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::api::{self, annotations, labels};

pub use self::inputs::{PoolInputs, StampMark, VmMetadata};
pub use self::names::{disk_name, parse_ordinal, vm_name};
pub use self::references::{
    Flag, Kind, Naming, Reference, Row, Rule, disk_templates_of, referenced_names, rewrite,
};
pub use self::repair::repair;
pub use self::revision::{disks_hash, normalise, revision_hash, revision_name, stamp_hash};
pub use self::single::single;
pub use self::strip::{Stripped, strip};
pub use self::trial::trial;
pub use self::update::{Base, Update, UpdateInput, update};

/// All that a stamp is made of.
#[derive(Clone, Copy, Debug)]
pub struct StampInput<'a> {
    /// The namespace of pool, config and VM.
    pub namespace: &'a str,
    /// Whose VM it is.
    pub pool: PoolIdentity<'a>,
    /// The config's name, for the label.
    pub config: &'a str,
    /// What it is made from.
    pub revision: Revision<'a>,
    /// What the pool says about its VMs.
    pub inputs: &'a PoolInputs,
    /// The VM's number.
    pub ordinal: u32,
}

/// A pool as its VMs name it.
#[derive(Clone, Copy, Debug)]
pub struct PoolIdentity<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
}

/// One revision of a config.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'a> {
    /// The name of its object.
    pub name: &'a str,
    /// [`revision_hash`] of the spec: worked out once, not for each VM.
    pub content_hash: &'a str,
    /// The config's spec as it was written.
    pub spec: &'a Map<String, Value>,
}

/// The whole VM object that a pool has at an ordinal.
pub fn stamp(input: &StampInput<'_>) -> Value {
    let inputs = input.inputs;
    let name = vm_name(&inputs.vm_prefix, input.ordinal);
    let ordinal = input.ordinal.to_string();
    let identity = identity_labels(input, &ordinal);
    let mark = StampMark::new(input.revision.content_hash, inputs);

    let mut spec = input.revision.spec.clone();
    revision::set_run_strategy(&mut spec);
    let mut spec = Value::Object(spec);
    let naming = Naming {
        vm_name: &name,
        postfix: Some(&ordinal),
        inputs,
    };
    rewrite(&mut spec, &naming);
    mark_template(&mut spec, &identity, &mark.hash);

    let mut vm_labels = inputs.virtual_machine_metadata.labels.clone();
    vm_labels.extend(
        identity
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    let mut vm_annotations = inputs.virtual_machine_metadata.annotations.clone();
    vm_annotations.insert(annotations::STAMP.to_owned(), mark.to_annotation());
    vm_annotations.insert(annotations::MEMBER_OF.to_owned(), input.pool.uid.to_owned());
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": name,
            "namespace": input.namespace,
            "labels": vm_labels,
            "annotations": vm_annotations,
            "ownerReferences": [owner_reference(&input.pool)],
        },
        "spec": spec,
    })
}

/// The reference that makes a VM a member of a pool.
pub fn owner_reference(pool: &PoolIdentity<'_>) -> Value {
    json!({
        "apiVersion": api::API_VERSION,
        "kind": api::POOL_KIND,
        "name": pool.name,
        "uid": pool.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// The labels that a VM and its template carry.
fn identity_labels<'a>(
    input: &StampInput<'a>,
    ordinal: &'a str,
) -> BTreeMap<&'static str, &'a str> {
    BTreeMap::from([
        (labels::CONFIG, input.config),
        (labels::ORDINAL, ordinal),
        (labels::POOL, input.pool.name),
        (labels::POOL_UID, input.pool.uid),
        (labels::REVISION, input.revision.name),
    ])
}

/// Puts our labels and the hash on the template, from where KubeVirt copies them to the instance.
/// A template, or metadata in it, of another shape than KubeVirt's is left alone.
fn mark_template(spec: &mut Value, identity: &BTreeMap<&'static str, &str>, hash: &str) {
    let Some(template @ Value::Object(_)) = spec.get_mut("template") else {
        return;
    };
    let Some(metadata) = member_object(template, "metadata") else {
        return;
    };
    if let Some(labels) = member_object(metadata, "labels") {
        for (key, value) in identity {
            labels[*key] = Value::from(*value);
        }
    }
    if let Some(template_annotations) = member_object(metadata, "annotations") {
        template_annotations[annotations::STAMP_HASH] = Value::from(hash);
    }
}

/// The object under a key, made where there is none or null. None where there is something else.
fn member_object<'v>(object: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    let member = object.as_object_mut()?.entry(key).or_insert(Value::Null);
    if member.is_null() {
        *member = json!({});
    }
    member.is_object().then_some(member)
}
