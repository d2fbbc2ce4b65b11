//! What holds for every input, well-formed or not.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::stamp::names::is_ambiguous_template;
use crate::stamp::table::TABLE;

/// Any JSON, small.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        prop_oneof![Just("root"), Just("x"), Just(""), Just("vmpool.dev/pool")]
            .prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop_oneof![
            Just("name".to_owned()),
            Just("metadata".to_owned()),
            Just("labels".to_owned()),
            Just("secretRef".to_owned()),
            "\\PC{0,6}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A spec with names and junk in places of the table, and above and below them.
fn any_spec() -> impl Strategy<Value = Value> {
    let place_of_a_row = (
        0..TABLE.len(),
        0..=100_usize,
        prop_oneof![
            3 => prop_oneof![Just("root"), Just("x"), Just("data")].prop_map(Value::from),
            1 => any_json(),
        ],
    );
    let strategy = prop_oneof![
        Just(json!({"runStrategy": "Always"})),
        Just(json!({"running": false})),
        Just(json!({"template": {"metadata": {"labels": {"app": "w"}}}})),
        Just(json!({"dataVolumeTemplates": [{"metadata": {"name": "root"}}]})),
    ];
    (strategy, prop::collection::vec(place_of_a_row, 0..12)).prop_map(|(mut spec, places)| {
        for (row, cut, value) in places {
            let path = TABLE[row].path;
            // Most of the time the whole path, else only its beginning.
            let whole = cut > 20 || path.contains('"');
            let end = if whole {
                path.len()
            } else {
                path.len() * cut / 20
            };
            let end = path[..end]
                .rfind(['.', '['])
                .filter(|_| !whole)
                .unwrap_or(end);
            if end > 0 {
                place(&mut spec, &path[..end], &value);
            }
        }
        spec
    })
}

fn any_inputs() -> impl Strategy<Value = PoolInputs> {
    (
        any::<[bool; 3]>(),
        prop_oneof![Just(vec![]), Just(vec!["x"])],
    )
        .prop_map(|(flags, shared)| {
            inputs(json!({
                "appendPostfixToSecretReferences": flags[0],
                "appendPostfixToConfigMapReferences": flags[1],
                "appendPostfixToVolumeClaimReferences": flags[2],
                "sharedSecrets": shared,
            }))
        })
}

/// Every place where two values differ, as a pattern.
fn differences(left: &Value, right: &Value, at: &str, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (left, right) in left.iter().zip(right) {
                differences(left, right, &format!("{at}[]"), found);
            }
        }
        (Value::Object(left), Value::Object(right)) => {
            let keys = left
                .keys()
                .chain(right.keys().filter(|key| !left.contains_key(*key)));
            for key in keys {
                let at = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                let of = |object: &Map<String, Value>| object.get(key).cloned();
                match (of(left), of(right)) {
                    (Some(left), Some(right)) => differences(&left, &right, &at, found),
                    _ => found.push(at),
                }
            }
        }
        _ if left == right => {}
        _ => found.push(at.to_owned()),
    }
}

/// Takes our own marks off a template again, and what was made to hold them.
fn without_marks(spec: &Value, original: &Value) -> Value {
    let mut spec = spec.clone();
    let Some(metadata) = spec.pointer_mut("/template/metadata") else {
        return spec;
    };
    let before = original.pointer("/template/metadata");
    for key in ["labels", "annotations"] {
        let Some(map) = metadata.get_mut(key).and_then(Value::as_object_mut) else {
            continue;
        };
        map.retain(|name, _| !name.starts_with("vmpool.dev/"));
        if map.is_empty() && before.is_none_or(|before| before.get(key).is_none_or(Value::is_null))
        {
            match before.and_then(|before| before.get(key)) {
                Some(null) => metadata[key] = null.clone(),
                None => drop(metadata.as_object_mut().unwrap().remove(key)),
            }
        }
    }
    if metadata == &json!({}) && before.is_none_or(Value::is_null) {
        match before {
            Some(null) => spec["template"]["metadata"] = null.clone(),
            None => drop(spec["template"].as_object_mut().unwrap().remove("metadata")),
        }
    }
    spec
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stamping_never_fails_whatever_the_spec_is(spec in any_json(), inputs in any_inputs()) {
        let mut any = spec.clone();
        rewrite(&mut any, &Naming { vm_name: "a-1", postfix: Some("1"), inputs: &inputs });
        referenced_names(&spec);
        crate::stamp::sharing::for_several_vms(&spec, &inputs);
        strip(&spec);
        repair(&spec, &any);
        if let Value::Object(object) = &spec {
            revision_hash(object);
            stamped(&spec, &inputs, 1);
        }
    }

    #[test]
    fn stamping_is_deterministic_and_changes_nothing_but_rows_of_the_table(
        spec in any_spec(), inputs in any_inputs(), ordinal in 0..1_000_000_u32,
    ) {
        let vm = stamped(&spec, &inputs, ordinal);
        prop_assert_eq!(&vm, &stamped(&spec, &inputs, ordinal));
        let mut found = Vec::new();
        differences(&spec, &without_marks(&vm["spec"], &spec), "", &mut found);
        for path in found {
            let allowed = ["running", "runStrategy"].contains(&path.as_str())
                || path.starts_with("template.metadata.labels.vmpool.dev/")
                || TABLE.iter().any(|row| row.path == path && row.changes());
            prop_assert!(allowed, "{} was changed", path);
        }
    }

    #[test]
    fn disks_of_two_vms_never_have_one_name(
        prefixes in prop::array::uniform2("[a-c0-2]([a-c0-2-]{0,4}[a-c0-2])?"),
        ordinals in prop::array::uniform2(0..13_u32),
        templates in prop::array::uniform2("[a-c0-2]([a-c0-2-]{0,4}[a-c0-2])?"),
    ) {
        prop_assume!(!templates.iter().any(|template| is_ambiguous_template(template)));
        let vm = |index: usize| vm_name(&prefixes[index], ordinals[index]);
        prop_assume!(vm(0) != vm(1));
        prop_assert_ne!(disk_name(&vm(0), &templates[0]), disk_name(&vm(1), &templates[1]));
    }

    #[test]
    fn a_repaired_vm_needs_no_repair(
        spec in any_spec(), other in any_spec(), junk in any_json(), inputs in any_inputs(),
    ) {
        let wanted = stamped(&spec, &inputs, 1);
        for start in [stamped(&other, &inputs, 2), junk] {
            let mut vm = start.clone();
            json_patch::patch(&mut vm, &repair(&start, &wanted)).unwrap();
            prop_assert!(repair(&vm, &wanted).0.is_empty(), "{:#}", vm);
        }
    }

    #[test]
    fn a_stripped_vm_has_nothing_left_to_take(spec in any_spec(), inputs in any_inputs()) {
        let mut vm = stamped(&spec, &inputs, 1);
        let patch = strip(&vm).patch;
        json_patch::patch(&mut vm, &patch).unwrap();
        prop_assert_eq!(strip(&vm), Stripped::default());
    }

    #[test]
    fn a_hash_does_not_depend_on_the_order_of_keys_or_on_nulls(spec in any_spec()) {
        let text = spec.to_string();
        let again: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(revision_hash(object(&again)), revision_hash(object(&spec)));
        let normal = normalise(object(&spec));
        prop_assert_eq!(normalise(object(&normal)), normal.clone());
        prop_assert_eq!(revision_hash(object(&normal)), revision_hash(object(&spec)));
    }
}
