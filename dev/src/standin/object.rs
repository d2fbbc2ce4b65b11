//! Reads opaque Kubernetes objects: the few metadata and condition fields the stand-in looks at.
//!
//! Decides nothing about KubeVirt, and must not: whatever is not named here passes through the
//! stand-in untouched, because the objects stay `serde_json::Value` from the watch to the write.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A cached object. Shared, never changed in place.
pub(super) type Obj = Arc<Value>;

/// Namespace and name of an object; the namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn of(object: &Value) -> Self {
        Self::new(namespace(object), name(object))
    }
}

/// The controller named in an object's owner references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Controller<'a> {
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

pub(super) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub(super) fn namespace(object: &Value) -> &str {
    text(&object["metadata"]["namespace"])
}

pub(super) fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

pub(super) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

pub(super) fn resource_version(object: &Value) -> &str {
    text(&object["metadata"]["resourceVersion"])
}

/// The resource version as a number. Kubernetes 1.35 made comparing them an API promise
/// (KEP-5504), and etcd's are numbers in every release this program runs against.
pub(super) fn version_number(object: &Value) -> u64 {
    resource_version(object).parse().unwrap_or(0)
}

pub(super) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub(super) fn phase(object: &Value) -> &str {
    text(&object["status"]["phase"])
}

/// A string field; empty when it is absent or of another type.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// The elements of a list; none when it is absent.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A copy of a map field; empty when it is absent.
pub(super) fn map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    items(&object["metadata"]["finalizers"])
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

pub(super) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    finalizers(object).contains(&finalizer)
}

pub(super) fn controller_of(object: &Value) -> Option<Controller<'_>> {
    items(&object["metadata"]["ownerReferences"])
        .iter()
        .find(|owner| owner["controller"] == json!(true))
        .map(|owner| Controller {
            kind: text(&owner["kind"]),
            name: text(&owner["name"]),
            uid: text(&owner["uid"]),
        })
}

pub(super) fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    controller_of(object).is_some_and(|controller| controller.uid == uid(owner))
}

/// The controller owner reference that Kubernetes' `NewControllerRef` makes.
pub(super) fn controller_reference(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "name": name(owner),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"])
        .iter()
        .find(|condition| condition["type"] == kind)
}

pub(super) fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == status)
}

/// Puts a condition in, keeping the old one (and its times) when status, reason and message are
/// the same, as KubeVirt's condition managers do (`pkg/controller/conditions.go`).
pub(super) fn set_condition(conditions: &mut Vec<Value>, new: Value) {
    let same = |old: &Value| {
        old["status"] == new["status"]
            && text(&old["reason"]) == text(&new["reason"])
            && text(&old["message"]) == text(&new["message"])
    };
    match conditions.iter_mut().find(|c| c["type"] == new["type"]) {
        Some(old) if same(old) => {}
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

pub(super) fn remove_condition(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|condition| condition["type"] != kind);
}

/// A time as Kubernetes writes it: whole seconds, UTC.
pub(super) fn time(now: Timestamp) -> Value {
    json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Whether two values mean the same to Kubernetes' `equality.Semantic`, which takes an absent, a
/// null and an empty field for equal.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.iter()
                .all(|(key, value)| same(value, right.get(key).unwrap_or(&Value::Null)))
                && right
                    .iter()
                    .all(|(key, value)| left.contains_key(key) || is_empty(value))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r))
        }
        _ => left == right || (is_empty(left) && is_empty(right)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Drops what the stand-in never reads, so that thousands of objects stay small in memory.
pub(super) fn trim(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_null_and_empty_are_the_same() {
        assert!(same(&json!({"a": null, "b": {}}), &json!({"c": []})));
        assert!(same(&json!({"a": {"b": {}}}), &json!({})));
        assert!(!same(&json!({"a": {"b": 1}}), &json!({})));
        assert!(!same(&json!({"a": [1]}), &json!({"a": [1, 2]})));
        assert!(!same(&json!({"a": false}), &json!({})));
    }

    #[test]
    fn an_unchanged_condition_keeps_its_times() {
        let old = json!({"type": "Ready", "status": "False", "lastTransitionTime": "t0"});
        let mut conditions = vec![old.clone()];
        set_condition(
            &mut conditions,
            json!({"type": "Ready", "status": "False", "lastTransitionTime": "t1"}),
        );
        assert_eq!(conditions, vec![old]);
        set_condition(&mut conditions, json!({"type": "Ready", "status": "True"}));
        assert_eq!(conditions, vec![json!({"type": "Ready", "status": "True"})]);
    }
}
