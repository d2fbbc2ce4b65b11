//! Rows of the matrix that the schema's own rules decide, before any webhook is asked. Numbers that may be
//! percentages are in `tests/it` alone: kube-cel 0.8 can't evaluate their rules.

use kube::core::cel::Validator;
use serde_json::{Value, json};

use super::{config, pool};
use crate::api::{POOL_KIND, crds};

/// Paths and messages of the schema's rules that `object` breaks.
fn broken(object: &Value) -> Vec<String> {
    let schema = crds()
        .into_iter()
        .find(|crd| crd.spec.names.kind == object["kind"].as_str().unwrap())
        .and_then(|crd| crd.spec.versions[0].schema.clone()?.open_api_v3_schema)
        .unwrap();
    let schema = serde_json::to_value(schema).unwrap();
    match Validator::new().validate(&schema, object, None) {
        Ok(()) => Vec::new(),
        Err(errors) => errors
            .into_vec()
            .into_iter()
            .map(|error| error.field_path)
            .collect(),
    }
}

/// All choices of two and three out of a union's members.
fn overfull(members: &[(&str, Value); 3]) -> Vec<Value> {
    let chosen = |indices: &[usize]| {
        indices
            .iter()
            .map(|&index| (members[index].0.to_owned(), members[index].1.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    [&[0, 1][..], &[0, 2], &[1, 2], &[0, 1, 2]]
        .map(chosen)
        .into()
}

#[test]
fn m56_m57_m58_m59_m60_m61_m62_m63_vd_08_unions_have_at_most_one_member() {
    let empty = json!({});
    let members = || ["unmanaged", "proactive", "opportunistic"].map(|name| (name, empty.clone()));
    for union in ["updateStrategy", "scaleInStrategy"] {
        for strategy in overfull(&members()) {
            let object = pool("web", json!({union: strategy}));
            assert_eq!(broken(&object), [format!("spec.{union}")], "{strategy}");
        }
        for (name, member) in members() {
            let object = pool("web", json!({union: {name: member}}));
            assert!(broken(&object).is_empty(), "{name}");
        }
        assert!(broken(&pool("web", json!({union: {}}))).is_empty());
    }
    let both = json!({"unmanaged": {}, "proactive": {}});
    let object = pool(
        "web",
        json!({"updateStrategy": both, "scaleInStrategy": both}),
    );
    let mut paths = broken(&object);
    paths.sort_unstable();
    assert_eq!(
        paths,
        ["spec.scaleInStrategy", "spec.updateStrategy"],
        "two causes"
    );
}

#[test]
fn a_config_has_one_of_run_strategy_and_running() {
    for (spec, refused) in [
        (json!({}), false),
        (json!({"runStrategy": null}), true),
        (json!({"running": true}), true),
        (json!({"runStrategy": null, "running": false}), false),
    ] {
        let paths = broken(&config("desktop", spec.clone()));
        assert_eq!(!paths.is_empty(), refused, "{spec}: {paths:?}");
    }
}

#[test]
fn what_a_webhook_says_is_not_said_by_the_schema_too() {
    let object = pool("web", json!({"autohealing": {}, "replicas": 3}));
    assert_eq!(object["kind"], POOL_KIND);
    assert!(broken(&object).is_empty());
}
