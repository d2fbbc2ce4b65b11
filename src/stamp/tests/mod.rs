//! Tests of stamping, by what they are about; what they have in common stands here.

#![expect(
    clippy::needless_pass_by_value,
    reason = "helpers that take `json!` read better so"
)]

mod crd;
mod golden;
mod merge;
mod merge_disks;
mod merge_properties;
mod merge_templates;
mod merge_users;
mod properties;
mod references;
mod repair;
mod revision;
mod sharing;
mod strip;
mod table;
mod whole;

use serde_json::{Map, Value, json};

use super::*;

/// A pool `a`, with what it says about its VMs as JSON.
fn inputs(extra: Value) -> PoolInputs {
    let mut inputs = json!({"vmPrefix": "a"});
    inputs
        .as_object_mut()
        .unwrap()
        .append(extra.clone().as_object_mut().unwrap());
    serde_json::from_value(inputs).unwrap()
}

/// All three switches on.
fn all_flags() -> PoolInputs {
    inputs(json!({
        "appendPostfixToSecretReferences": true,
        "appendPostfixToConfigMapReferences": true,
        "appendPostfixToVolumeClaimReferences": true,
    }))
}

/// VM number `ordinal` of pool `a` with a config `cfg` of this spec.
fn stamped(spec: &Value, inputs: &PoolInputs, ordinal: u32) -> Value {
    let spec = spec.as_object().unwrap();
    let content_hash = revision_hash(spec);
    stamp(&StampInput {
        namespace: "t",
        pool: PoolIdentity {
            name: "a",
            uid: "1f0c",
        },
        config: "cfg",
        revision: Revision {
            name: &revision_name("cfg", &content_hash),
            content_hash: &content_hash,
            spec,
        },
        inputs,
        ordinal,
    })
}

/// A spec with these volumes.
fn volumes(volumes: Value) -> Value {
    json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "volumes": volumes}}})
}

/// Puts a value where a pattern of the table points, making what is on the way; each list gets an
/// element of its own. What is there already and has another shape is kept, and nothing placed.
fn place(target: &mut Value, pattern: &str, leaf: &Value) {
    if pattern.is_empty() {
        if target.is_null() {
            *target = leaf.clone();
        }
    } else if let Some(rest) = pattern.strip_prefix("<json>") {
        let mut inner = Value::Null;
        place(&mut inner, rest, leaf);
        *target = Value::from(inner.to_string());
    } else if let Some(rest) = pattern.strip_prefix("[]") {
        if target.is_null() {
            *target = json!([]);
        }
        if let Value::Array(list) = target {
            list.push(Value::Null);
            place(list.last_mut().unwrap(), rest, leaf);
        }
    } else {
        let (key, rest) = if let Some(tail) = pattern.strip_prefix("[\"") {
            tail.split_once("\"]").unwrap()
        } else {
            let tail = pattern.strip_prefix('.').unwrap_or(pattern);
            tail.split_at(tail.find(['.', '[', '<']).unwrap_or(tail.len()))
        };
        if target.is_null() {
            *target = json!({});
        }
        if let Value::Object(object) = target {
            place(object.entry(key).or_insert(Value::Null), rest, leaf);
        }
    }
}

/// All that a pattern finds.
fn at(value: &Value, pattern: &'static str) -> Vec<Value> {
    let mut found = Vec::new();
    path::Pattern::parse(pattern).visit(value, &mut |_, value| found.push(value.clone()));
    found
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}
