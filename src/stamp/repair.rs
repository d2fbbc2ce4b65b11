//! What is to be put right in a VM of ours on its way into the cluster, so that it is the stamp and
//! whatever others have added to it.
//!
//! Only for VMs that our own service account creates: what a stamp says wins there. It must not be
//! used on a living member, whose user may have stopped it or changed its disks on purpose.

use json_patch::Patch;
use serde_json::{Map, Value};

use super::lists;

/// The patch that makes `vm` cover `stamped`. Empty when it does; a VM that was repaired needs no
/// repair, so calling again is harmless.
pub fn repair(vm: &Value, stamped: &Value) -> Patch {
    json_patch::diff(vm, &repaired(vm, stamped, ""))
}

/// `value` with all that `stamped` says. A null says nothing: the API server drops it.
fn repaired(value: &Value, stamped: &Value, path: &str) -> Value {
    match (value, stamped) {
        (_, Value::Null) => value.clone(),
        (Value::Object(object), Value::Object(stamped)) => {
            Value::Object(repaired_object(object, stamped, path))
        }
        (Value::Array(list), Value::Array(stamped)) => {
            Value::Array(repaired_list(list, stamped, path))
        }
        _ if same_scalar(value, stamped) => value.clone(),
        _ => stamped.clone(),
    }
}

fn repaired_object(
    object: &Map<String, Value>,
    stamped: &Map<String, Value>,
    path: &str,
) -> Map<String, Value> {
    let mut result = object.clone();
    for (key, wanted) in stamped {
        if wanted.is_null() {
            continue;
        }
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        let member = match object.get(key) {
            None | Some(Value::Null) => wanted.clone(),
            Some(present) => repaired(present, wanted, &path),
        };
        result.insert(key.clone(), member);
    }
    // KubeVirt refuses both, and a stamp has the other one.
    if path == "spec" && stamped.contains_key("runStrategy") && !stamped.contains_key("running") {
        result.remove("running");
    }
    result
}

fn repaired_list(list: &[Value], stamped: &[Value], path: &str) -> Vec<Value> {
    let element_path = format!("{path}[]");
    if let (Some(keys), Some(wanted)) = (lists::keys(path, list), lists::keys(path, stamped)) {
        return repaired_by_key(list, &keys, stamped, &wanted, &element_path);
    }
    if is_covered(list, stamped, &element_path) {
        list.to_vec()
    } else {
        stamped.to_vec()
    }
}

/// The stamp's elements in its order (the order of disks is that of the guest's devices), and each
/// element of others behind the one it stands behind.
fn repaired_by_key<K: PartialEq>(
    list: &[Value],
    keys: &[K],
    stamped: &[Value],
    wanted: &[K],
    element_path: &str,
) -> Vec<Value> {
    let mut result: Vec<(&K, Value)> = wanted
        .iter()
        .zip(stamped)
        .map(
            |(key, wanted)| match keys.iter().position(|present| present == key) {
                Some(index) => (key, repaired(&list[index], wanted, element_path)),
                None => (key, wanted.clone()),
            },
        )
        .collect();
    for (index, (key, element)) in keys.iter().zip(list).enumerate() {
        if wanted.contains(key) {
            continue;
        }
        let before = index.checked_sub(1).map(|before| &keys[before]);
        let position = before.map_or(0, |before| {
            let found = result.iter().position(|(present, _)| *present == before);
            found.map_or(result.len(), |found| found + 1)
        });
        result.insert(position, (key, element.clone()));
    }
    result.into_iter().map(|(_, element)| element).collect()
}

/// Whether a list without keys has all the stamp's elements, in order, with others between them at
/// most (a toleration, say). A list of plain values is one value: `["sh", "-c"]` is not `["sh"]` and
/// an addition.
fn is_covered(list: &[Value], stamped: &[Value], element_path: &str) -> bool {
    let plain = |value: &Value| !value.is_object();
    if list.len() != stamped.len() && list.iter().chain(stamped).any(plain) {
        return false;
    }
    let mut rest = list.iter();
    stamped
        .iter()
        .all(|wanted| rest.any(|present| repaired(present, wanted, element_path) == *present))
}

/// Equal, the two ways to write a whole number included.
fn same_scalar(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64() == right.as_f64()
        }
        _ => left == right,
    }
}
