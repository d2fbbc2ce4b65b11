//! What a pool gets filled in.

use serde_json::{Value, json};

use super::super::defaulting::review;
use super::{create, patched, pool, request};

/// `object` with its defaults; going through again must change nothing.
fn defaulted(object: &Value, stored: &Value) -> Value {
    let result = patched(object, &review(&request(object, stored)));
    let again = review(&request(&result, stored));
    assert!(again.patch.0.is_empty(), "{:?}", again.patch);
    result
}

#[test]
fn vd_09_replicas_are_one_at_creation_and_zero_is_not_absent() {
    for (spec, replicas) in [
        (json!({}), json!(1)),
        (json!({"replicas": 0}), json!(0)),
        (json!({"replicas": -1}), json!(-1)),
        (json!({"replicas": "x"}), json!("x")),
        (
            json!({"replicas": 2_147_483_647_i64}),
            json!(2_147_483_647_i64),
        ),
    ] {
        let object = pool("web", spec);
        assert_eq!(
            defaulted(&object, &Value::Null)["spec"]["replicas"],
            replicas
        );
    }
    let mut object = pool("web", json!({}));
    object["spec"]["replicas"] = Value::Null;
    assert_eq!(defaulted(&object, &Value::Null)["spec"]["replicas"], 1);
}

#[test]
fn an_absent_number_keeps_what_an_autoscaler_has_set() {
    let stored = pool(
        "web",
        json!({"replicas": 7, "nameGeneration": {"vmPrefix": "web"}}),
    );
    let applied = pool("web", json!({"paused": true}));
    assert_eq!(defaulted(&applied, &stored)["spec"]["replicas"], 7);
    let mut null = applied.clone();
    null["spec"]["replicas"] = Value::Null;
    assert_eq!(defaulted(&null, &stored)["spec"]["replicas"], 7);
    let scaled = pool("web", json!({"replicas": 2}));
    assert_eq!(defaulted(&scaled, &stored)["spec"]["replicas"], 2);
}

#[test]
fn the_prefix_is_the_pools_name_where_that_can_be_one() {
    let with = |name: &str, spec: Value| {
        let object = pool(name, spec);
        defaulted(&object, &Value::Null)["spec"]["nameGeneration"].clone()
    };
    assert_eq!(with("web", json!({})), json!({"vmPrefix": "web"}));
    assert_eq!(
        with("web", json!({"nameGeneration": {"ordinalStart": 3}})),
        json!({"ordinalStart": 3, "vmPrefix": "web"})
    );
    assert_eq!(
        with("web", json!({"nameGeneration": {"vmPrefix": "other"}})),
        json!({"vmPrefix": "other"})
    );
    assert_eq!(with("db.prod", json!({})), Value::Null);
    assert_eq!(with(&"p".repeat(57), json!({})), Value::Null);
    assert_eq!(with("web", json!({"nameGeneration": "odd"})), json!("odd"));
}

#[test]
fn a_generated_name_is_not_there_yet() {
    let mut object = pool("web", json!({}));
    object["metadata"] = json!({"generateName": "web-", "namespace": "team"});
    assert!(defaulted(&object, &Value::Null)["spec"]["nameGeneration"].is_null());
}

#[test]
fn vd_08_nothing_is_written_into_a_union() {
    for spec in [
        json!({}),
        json!({"updateStrategy": {}}),
        json!({"updateStrategy": {"opportunistic": {}}, "scaleInStrategy": {}}),
    ] {
        let object = pool("web", spec);
        let result = defaulted(&object, &Value::Null);
        for union in ["updateStrategy", "scaleInStrategy"] {
            assert_eq!(result["spec"].get(union), object["spec"].get(union));
        }
    }
}

#[test]
fn vd_03_what_is_going_away_is_left_alone() {
    let mut object = pool("web", json!({}));
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let stored = object.clone();
    object["spec"]["paused"] = json!(true);
    assert!(review(&request(&object, &stored)).patch.0.is_empty());
}

#[test]
fn odd_objects_are_the_schemas_to_refuse() {
    for object in [
        json!({"kind": "VirtualMachinePool"}),
        json!({"spec": null}),
        json!({"spec": []}),
        json!({"spec": {"nameGeneration": 3}, "metadata": "x"}),
    ] {
        let verdict = review(&create(&object));
        assert!(verdict.causes.is_empty());
        let _ = patched(&object, &verdict);
    }
}
