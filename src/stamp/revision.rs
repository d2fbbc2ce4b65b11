//! When two specs are the same spec: the normal form of a config's spec, and hashes over it.
//!
//! Forms that mean the same to KubeVirt get one hash, so that a re-apply makes no new revision. In
//! doubt two forms are different: a revision too many costs little, an edit taken for none is lost.
//! An empty map is mostly *not* the same as none (`tpm: {}`, `pod: {}`), so only listed ones are.
//! The hashes are in names and annotations of stored objects: an upgrade must not change them.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

use super::inputs::PoolInputs;

/// Length of every hash here: 27^10 is 47 bits, and what is compared are the specs of one config.
pub const HASH_LENGTH: usize = 10;

/// Kubernetes' own for generated names (`k8s.io/apimachinery/pkg/util/rand`): no vowels and nothing
/// that looks like one, so that no words come out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Where an empty map or list says the same as none, since KubeVirt's types can't tell them apart or
/// don't care. Generators and typed clients write them.
const EMPTY_IS_ABSENT: &[&str] = &[
    "dataVolumeTemplates",
    "dataVolumeTemplates[].metadata.annotations",
    "dataVolumeTemplates[].metadata.labels",
    "template.metadata",
    "template.metadata.annotations",
    "template.metadata.labels",
    "template.spec.accessCredentials",
    "template.spec.domain.devices.disks",
    "template.spec.domain.devices.filesystems",
    "template.spec.domain.devices.gpus",
    "template.spec.domain.devices.hostDevices",
    "template.spec.domain.devices.inputs",
    "template.spec.domain.devices.interfaces",
    "template.spec.domain.resources",
    "template.spec.networks",
    "template.spec.nodeSelector",
    "template.spec.tolerations",
    "template.spec.volumes",
];

/// A spec's normal form, for comparing and hashing only: what is stored and stamped is what the user
/// wrote. Nulls in objects are absent, `running` is a run strategy, listed empty values are absent,
/// whole numbers are integers; keys are sorted when it is hashed.
pub fn normalise(spec: &Map<String, Value>) -> Value {
    let mut spec = spec.clone();
    set_run_strategy(&mut spec);
    normal_object(&spec, "")
}

/// Replaces the deprecated `running` by the run strategy that KubeVirt takes it for. Where both are
/// given, which KubeVirt refuses, they stay, and so does what is not a boolean.
pub fn set_run_strategy(spec: &mut Map<String, Value>) {
    if spec
        .get("runStrategy")
        .is_some_and(|strategy| !strategy.is_null())
    {
        return;
    }
    let strategy = match spec.get("running") {
        Some(Value::Bool(true)) => "Always",
        Some(Value::Bool(false)) => "Halted",
        _ => return,
    };
    spec.remove("running");
    spec.insert("runStrategy".to_owned(), strategy.into());
}

/// The hash of a config's spec, over its normal form.
pub fn revision_hash(spec: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_canonical(&normalise(spec), &mut text);
    hash(&text)
}

/// The hash of a config's disk templates, over their normal form. A config without any has the one of none.
pub fn disks_hash(spec: &Map<String, Value>) -> String {
    let mut text = String::new();
    let templates = normalise(spec).get("dataVolumeTemplates").cloned();
    write_canonical(&templates.unwrap_or_default(), &mut text);
    hash(&text)
}

/// The name of a config's revision: a label value as long as the config's name keeps its budget.
pub fn revision_name(config: &str, content_hash: &str) -> String {
    format!("{config}-{content_hash}")
}

/// The hash of a stamp: over the content of the revision, by its hash, and the pool's inputs.
#[expect(clippy::missing_panics_doc, reason = "it can't")]
pub fn stamp_hash(content_hash: &str, inputs: &PoolInputs) -> String {
    let inputs =
        serde_json::to_value(inputs).expect("strings, booleans, maps with string keys are JSON");
    let mut text = format!("{content_hash}\n");
    write_canonical(&inputs, &mut text);
    hash(&text)
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let mut number = digest[..16]
        .iter()
        .fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
    let mut hash = String::with_capacity(HASH_LENGTH);
    for _ in 0..HASH_LENGTH {
        let digit = usize::try_from(number % 27).expect("less than 27");
        hash.push(char::from(ALPHABET[digit]));
        number /= 27;
    }
    hash
}

fn normal(value: &Value, path: &str) -> Value {
    match value {
        Value::Array(list) => {
            let path = format!("{path}[]");
            Value::Array(list.iter().map(|element| normal(element, &path)).collect())
        }
        Value::Number(number) => Value::Number(normal_number(number)),
        Value::Object(object) => normal_object(object, path),
        Value::Bool(_) | Value::Null | Value::String(_) => value.clone(),
    }
}

fn normal_object(object: &Map<String, Value>, path: &str) -> Value {
    let mut normalised = Map::new();
    for (key, value) in object {
        let path = if path.is_empty() {
            Cow::Borrowed(key.as_str())
        } else {
            format!("{path}.{key}").into()
        };
        let value = normal(value, &path);
        let empty = match &value {
            Value::Array(list) => list.is_empty(),
            Value::Object(object) => object.is_empty(),
            Value::Null => continue,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if !(empty && EMPTY_IS_ABSENT.contains(&path.as_ref())) {
            normalised.insert(key.clone(), value);
        }
    }
    Value::Object(normalised)
}

/// `1.0` and `1` are one number in JSON, and clients turn one into the other.
fn normal_number(number: &Number) -> Number {
    // Up to 2^53 a float holds every integer; above, its digits are not what was written.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.is_f64()
        && let Some(float) = number.as_f64()
        && float.fract() == 0.0
        && float.abs() <= EXACT
    {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole, and in the range of i64"
        )]
        return Number::from(float as i64);
    }
    number.clone()
}

/// Compact JSON with sorted keys, whatever order the map type keeps them in.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(list) => {
            text.push('[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(element, text);
            }
            text.push(']');
        }
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            members.sort_by_key(|(key, _)| key.as_str());
            text.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(&Value::from(key.as_str()), text);
                text.push(':');
                write_canonical(member, text);
            }
            text.push('}');
        }
        Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => {
            write!(text, "{value}").expect("a String takes all that is written");
        }
    }
}
