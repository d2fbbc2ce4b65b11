//! What the API server is told about the webhooks.

use kube::core::cel::{AdmissionRequest, VapEvaluator, VapExpression};
use serde_json::{Value, json};

use super::super::hooks::{HookKind, MUTATING_CONFIGURATION, hooks, namespace_selector};
use super::{pool, scale};

#[test]
fn ours_is_called_before_kubevirts_mutator() {
    assert!(MUTATING_CONFIGURATION < "virt-api-mutator");
}

#[test]
fn names_and_paths_are_unique_and_nothing_hooks_deletions() {
    let hooks = hooks();
    for (index, hook) in hooks.iter().enumerate() {
        assert!(hook.name.split('.').count() >= 3, "{}", hook.name);
        assert!(hook.path.starts_with("/admission/"), "{}", hook.path);
        assert_eq!(hook.failure_policy, "Fail");
        assert_eq!(hook.side_effects, "None");
        for other in &hooks[index + 1..] {
            assert_ne!(hook.name, other.name);
            assert_ne!(hook.path, other.path);
        }
        for rule in &hook.rules {
            let operations = rule.operations.as_ref().unwrap();
            assert!(
                operations
                    .iter()
                    .all(|name| name == "CREATE" || name == "UPDATE")
            );
        }
    }
    let mutating = hooks.iter().filter(|hook| hook.kind == HookKind::Mutating);
    assert_eq!(mutating.count(), 2);
}

/// An evaluation error under `Fail` refuses every such object: what is read must have been asked for. A
/// real API server evaluates the same conditions in `tests/it`.
#[test]
fn vd_03_conditions_ask_before_they_read() {
    for hook in hooks() {
        assert!(!hook.match_conditions.is_empty(), "{}", hook.name);
        for condition in &hook.match_conditions {
            for path in [
                "object.metadata.labels",
                "object.metadata.annotations",
                "object.metadata.ownerReferences",
                "object.metadata.deletionTimestamp",
                "object.spec.template.metadata.labels",
                "oldObject.spec",
            ] {
                let reads = condition.expression.contains(path);
                let asks = condition.expression.contains(&format!("has({path})"));
                assert!(!reads || asks, "{}: {path}", condition.name);
            }
        }
    }
}

#[test]
fn our_own_namespace_does_not_need_us() {
    let selector = namespace_selector("vmpool-system");
    let expression = &selector.match_expressions.unwrap()[0];
    assert_eq!(expression.operator, "NotIn");
    assert_eq!(
        expression.values.as_deref(),
        Some(&["vmpool-system".to_owned()][..])
    );
}

/// Whether the API server would call `hook` for this change of an object, by its conditions.
fn calls(hook: &str, object: &Value, old: &Value) -> bool {
    let hooks = hooks();
    let hook = hooks
        .iter()
        .find(|spec| spec.name.starts_with(hook))
        .unwrap();
    let request = AdmissionRequest {
        operation: if old.is_null() { "CREATE" } else { "UPDATE" }.to_owned(),
        ..AdmissionRequest::default()
    };
    let mut evaluator = VapEvaluator::builder()
        .object(object.clone())
        .request(request);
    if !old.is_null() {
        evaluator = evaluator.old_object(old.clone());
    }
    let expressions: Vec<VapExpression> = hook
        .match_conditions
        .iter()
        .map(|condition| VapExpression {
            expression: condition.expression.clone(),
            message: Some("does not match".to_owned()),
            message_expression: None,
        })
        .collect();
    let results = evaluator.build().evaluate(&expressions);
    results.iter().all(|result| {
        let failed = result
            .message
            .as_deref()
            .filter(|text| *text != "does not match");
        assert_eq!(failed, None, "{object}");
        result.passed
    })
}

#[test]
fn vd_03_what_goes_away_or_keeps_its_spec_never_reaches_us() {
    let stored = pool("web", json!({"replicas": 3}));
    let mut labelled = stored.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let scaled = pool("web", json!({"replicas": 4}));
    let mut going = scaled.clone();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    for hook in ["default-pool", "validate-pool", "validate-config"] {
        assert!(calls(hook, &stored, &Value::Null), "{hook}");
        assert!(calls(hook, &scaled, &stored), "{hook}");
        assert!(!calls(hook, &labelled, &stored), "{hook}");
        assert!(!calls(hook, &going, &stored), "{hook}");
    }
    assert!(calls("validate-scale", &scale("web", 3), &scale("web", 1)));
    assert!(!calls("validate-scale", &scale("web", 3), &scale("web", 3)));
    assert!(calls(
        "validate-pool",
        &json!({"metadata": {}}),
        &json!({"metadata": {}})
    ));
}

/// That labels and annotations of ours do reach us is tested on a real API server: kube-cel 0.8 finds no
/// keys in maps of an object, neither by `exists` nor by `in`.
#[test]
fn vms_that_are_not_ours_never_reach_us() {
    let vm = |metadata: Value, template: Value| {
        let mut vm = json!({
            "metadata": {"name": "a"},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {}}}},
        });
        super::merge(&mut vm["metadata"], metadata);
        super::merge(&mut vm["spec"]["template"], template);
        calls("stamp", &vm, &Value::Null)
    };
    let owner = |version: &str, controller: Value| {
        let mut owner =
            json!({"apiVersion": version, "kind": "VirtualMachinePool", "name": "p", "uid": "u"});
        super::merge(&mut owner, json!({"controller": controller}));
        json!({"ownerReferences": [owner]})
    };
    for (metadata, template, reaches_us) in [
        (json!({}), json!({}), false),
        (
            json!({"labels": {"app": "x", "kubevirt.io/vm": "a"}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            false,
        ),
        (
            json!({"annotations": {"vmpool.dev/protected": "update"}}),
            json!({"metadata": {}}),
            false,
        ),
        (
            owner("pool.kubevirt.io/v1beta1", json!(true)),
            json!({}),
            false,
        ),
        (owner("vmpool.dev/v1alpha1", json!(false)), json!({}), false),
        (owner("vmpool.dev/v1alpha1", json!(null)), json!({}), false),
        (owner("vmpool.dev/v1alpha1", json!(true)), json!({}), true),
    ] {
        assert_eq!(
            vm(metadata.clone(), template.clone()),
            reaches_us,
            "{metadata} {template}"
        );
    }
    assert!(!calls("stamp", &json!({"metadata": {}}), &Value::Null));
    assert!(!calls(
        "stamp",
        &json!({"metadata": {}, "spec": {}}),
        &Value::Null
    ));
}
