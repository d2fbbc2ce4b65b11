//! The webhooks as the API server calls them.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::super::{
    AdmissionMetrics, AdmissionState, defaulting, hooks, router, stamping, validate_config,
    validate_pool, validate_scale,
};
use super::{Fake, OURSELVES, UID, body, config, pool, scale};

async fn post(fake: &Fake, path: &str, body: impl Into<Body>) -> (StatusCode, Value) {
    let state = AdmissionState {
        objects: Arc::new(fake.clone()),
        access: Arc::new(fake.clone()),
        own_username: OURSELVES.to_owned(),
        metrics: AdmissionMetrics::default(),
    };
    // No content type: the API server sends one, other clients of ours need not.
    let request = Request::post(format!("{path}?timeout=5s"))
        .body(body.into())
        .unwrap();
    let response = router(state).oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    (status, value)
}

/// The response for a review of `object`; its uid must be the request's.
pub(super) async fn reviewed(fake: &Fake, path: &str, review: impl ToString) -> Value {
    let (status, answer) = post(fake, path, review.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], UID);
    answer["response"].clone()
}

fn with_desktop() -> Fake {
    Fake {
        configs: vec![config("desktop", json!({}))],
        pools: vec![pool("web", json!({"replicas": 1}))],
        ..Fake::default()
    }
}

fn vm() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "web-1", "labels": {"vmpool.dev/pool": "web"}},
        "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {}, "volumes": []}}},
    })
}

/// A VM that asks for a config's spec.
fn from_config() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "mine", "annotations": {"vmpool.dev/config": "desktop", "vmpool.dev/postfix": "7"}},
        "spec": {"template": {"spec": {"volumes": [{"name": "x", "containerDisk": {}}]}}},
    })
}

/// A good review for each path.
pub(super) fn good_reviews() -> Vec<(&'static str, Value)> {
    let nothing = Value::Null;
    let wide = json!({
        "replicas": 3, "nameGeneration": {"vmPrefix": "web", "sharedSecrets": ["a"]},
        "virtualMachineMetadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
        "updateStrategy": {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}, "partition": 0}},
        "scaleInStrategy": {"proactive": {"statePreservation": "Disabled"}}, "maxUnavailable": "25%",
    });
    let full = json!({
        "dataVolumeTemplates": [{"metadata": {"name": "root", "labels": {"a": "b"}}, "spec": {}}],
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "domain": {"cpu": {}, "memory": {}, "devices": {"disks": [{"name": "root", "disk": {}}]}},
            "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
        }},
    });
    vec![
        (defaulting::PATH, body(&pool("web", wide.clone()), &nothing)),
        (
            validate_pool::PATH,
            body(&pool("web", wide.clone()), &nothing),
        ),
        (
            validate_pool::PATH,
            body(&pool("web", wide), &pool("web", json!({}))),
        ),
        (
            validate_scale::PATH,
            body(&scale("web", 3), &scale("web", 1)),
        ),
        (
            validate_config::PATH,
            body(&config("desktop", full.clone()), &nothing),
        ),
        (
            validate_config::PATH,
            body(&config("desktop", full), &config("desktop", json!({}))),
        ),
        (stamping::PATH, body(&vm(), &nothing)),
        (stamping::PATH, body(&from_config(), &nothing)),
    ]
}

#[tokio::test]
async fn good_objects_are_admitted() {
    for (path, review) in good_reviews() {
        let response = reviewed(&with_desktop(), path, &review).await;
        assert_eq!(response["allowed"], true, "{path}: {response}");
    }
}

#[tokio::test]
async fn every_hook_is_served() {
    for hook in hooks() {
        let (status, _) = post(&Fake::default(), hook.path, "{}").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{}", hook.path);
    }
    let (status, _) = post(&Fake::default(), "/admission/validate/pods", "{}").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_refusal_is_a_422_with_every_cause() {
    let object = pool(
        "web",
        json!({"autohealing": {}, "preservedDisks": {"expireAfter": "1h"}, "scaleInStrategy": {"opportunistic": {}}}),
    );
    let response = reviewed(
        &with_desktop(),
        validate_pool::PATH,
        &body(&object, &Value::Null),
    )
    .await;
    assert_eq!(response["allowed"], false);
    let status = &response["status"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(422), &json!("Invalid"))
    );
    assert_eq!(
        status["message"],
        "VirtualMachinePool.vmpool.dev \"web\" is invalid: \
         spec.preservedDisks.expireAfter: not supported yet, spec.scaleInStrategy.opportunistic: not supported yet, \
         spec.autohealing: not supported yet"
    );
    let details = &status["details"];
    assert_eq!(
        (&details["name"], &details["group"], &details["kind"]),
        (
            &json!("web"),
            &json!("vmpool.dev"),
            &json!("VirtualMachinePool")
        )
    );
    assert_eq!(
        details["causes"][2],
        json!({"field": "spec.autohealing", "message": "not supported yet", "reason": "FieldValueNotSupported"})
    );
}

#[tokio::test]
async fn a_message_names_ten_causes_and_counts_the_rest() {
    let labels: serde_json::Map<String, Value> = (0..14)
        .map(|index| (format!("vmpool.dev/{index:02}"), json!("x")))
        .collect();
    let object = pool("web", json!({"virtualMachineMetadata": {"labels": labels}}));
    let review = body(&object, &Value::Null);
    let response = reviewed(&with_desktop(), validate_pool::PATH, &review).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.ends_with(", and 4 more"), "{message}");
    assert_eq!(
        response["status"]["details"]["causes"]
            .as_array()
            .unwrap()
            .len(),
        14
    );
    let again = reviewed(&with_desktop(), validate_pool::PATH, &review).await;
    assert_eq!(response, again, "the order is always the same");
}

#[tokio::test]
async fn a_patch_comes_in_base64() {
    let object = pool("web", json!({}));
    let response = reviewed(
        &with_desktop(),
        defaulting::PATH,
        &body(&object, &Value::Null),
    )
    .await;
    assert_eq!(response["patchType"], "JSONPatch");
    let bytes: k8s_openapi::ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&bytes.0).unwrap();
    assert_eq!(patch.0.len(), 2);
}

#[tokio::test]
async fn vd_02_a_scale_is_judged_as_one_whatever_path_it_takes() {
    for path in [validate_scale::PATH, validate_pool::PATH] {
        for (replicas, allowed) in [(5, true), (-1, false), (100_001, false)] {
            let review = body(&scale("web", replicas), &scale("web", 1));
            let response = reviewed(&with_desktop(), path, &review).await;
            assert_eq!(
                response["allowed"], allowed,
                "{path} {replicas}: {response}"
            );
        }
    }
}

#[tokio::test]
async fn objects_of_another_kind_get_an_answer_with_their_uid() {
    let pod = json!({"apiVersion": "x/v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}});
    let theirs = json!({"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": {"name": "p"}});
    for hook in hooks() {
        for object in [&pod, &theirs] {
            let response = reviewed(&Fake::default(), hook.path, &body(object, &Value::Null)).await;
            assert_eq!(response["allowed"], false);
            assert_eq!(response["status"]["code"], 400, "{}", hook.path);
        }
    }
}

#[tokio::test]
async fn strangers_vms_are_stripped_and_ours_are_held_to_their_claim() {
    let mut review = body(&vm(), &Value::Null);
    let response = reviewed(&with_desktop(), stamping::PATH, &review).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response["warnings"].as_array().unwrap().len(), 1);
    assert!(response["patch"].is_string());
    review["request"]["userInfo"]["username"] = json!(OURSELVES);
    let response = reviewed(&with_desktop(), stamping::PATH, &review).await;
    assert_eq!(response["status"]["code"], 422, "{response}");
}

#[tokio::test]
async fn while_facts_are_missing_users_go_on_and_our_own_vms_wait() {
    let down = Fake {
        is_down: true,
        ..Fake::default()
    };
    for (path, review) in good_reviews() {
        let response = reviewed(&down, path, &review).await;
        // What a VM is made of has to be known before it is made.
        let waits = review["request"]["name"] == "mine";
        assert_eq!(response["allowed"], !waits, "{path}: {response}");
    }
    let mut member = vm();
    member["metadata"]["labels"]["vmpool.dev/revision"] = json!("desktop-x");
    member["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool", "name": "web", "uid": "u", "controller": true},
    ]);
    let mut review = body(&member, &Value::Null);
    review["request"]["userInfo"]["username"] = json!(OURSELVES);
    let response = reviewed(&down, stamping::PATH, &review).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 500);
}

#[tokio::test]
async fn vd_04_a_panic_is_an_answer_too() {
    let panics = Fake {
        panics: true,
        ..Fake::default()
    };
    let review = body(&config("desktop", json!({})), &Value::Null);
    let response = reviewed(&panics, validate_config::PATH, &review).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 500);
}

#[tokio::test]
async fn vd_04_bodies_that_are_no_reviews_are_refused() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let no_uid = json!({"request": {"operation": "CREATE", "object": {}}});
    let empty_uid = json!({"request": {"uid": "", "operation": "CREATE", "object": {}}});
    for body in [
        "",
        "null",
        "not JSON",
        "[]",
        "{\"request\": null}",
        "{\"request\": {\"uid\": 3}}",
        "\u{feff}{}",
        &deep,
        &no_uid.to_string(),
        &empty_uid.to_string(),
    ] {
        for hook in hooks() {
            let (status, _) = post(&Fake::default(), hook.path, body.to_owned()).await;
            assert_eq!(
                status,
                StatusCode::BAD_REQUEST,
                "{}",
                &body[..body.len().min(40)]
            );
        }
    }
    for hook in hooks() {
        let (status, _) = post(&Fake::default(), hook.path, vec![0xff, 0xfe, 0x00]).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let (status, _) = post(&Fake::default(), hook.path, vec![b' '; 9 * 1024 * 1024]).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}

#[tokio::test]
async fn vd_04_any_one_thing_missing_or_of_another_type_gets_an_answer() {
    for (path, review) in good_reviews() {
        for pointer in pointers(&review["request"], "/request") {
            if pointer == "/request/uid" {
                continue;
            }
            let mut without = review.clone();
            remove(&mut without, &pointer);
            does_not_panic(path, &without).await;
            for other in odd_values() {
                let mut odd = review.clone();
                *odd.pointer_mut(&pointer).unwrap() = other;
                does_not_panic(path, &odd).await;
            }
        }
    }
}

/// A panic is answered too, with 500; here everything that is looked up is there.
async fn does_not_panic(path: &str, review: &Value) {
    let response = reviewed(&with_desktop(), path, review).await;
    assert_ne!(response["status"]["code"], 500, "{path}: {review}");
}

pub(super) fn odd_values() -> [Value; 8] {
    [
        Value::Null,
        json!(false),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("é\u{0}"),
        json!([null]),
        json!({"": {"": null}}),
    ]
}

/// JSON pointers to everything in `value`, itself left out.
pub(super) fn pointers(value: &Value, at: &str) -> Vec<String> {
    let children: Vec<(String, &Value)> = match value {
        Value::Array(list) => {
            let entries = list.iter().enumerate();
            entries
                .map(|(index, entry)| (index.to_string(), entry))
                .collect()
        }
        Value::Object(map) => {
            let members = map.iter();
            members
                .map(|(key, member)| (key.replace('~', "~0").replace('/', "~1"), member))
                .collect()
        }
        _ => Vec::new(),
    };
    children
        .into_iter()
        .flat_map(|(key, child)| {
            let at = format!("{at}/{key}");
            let mut found = pointers(child, &at);
            found.push(at);
            found
        })
        .collect()
}

pub(super) fn remove(value: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Array(list) => {
            list.remove(key.parse().unwrap());
        }
        Value::Object(map) => {
            map.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        _ => unreachable!("a parent has children"),
    }
}

#[tokio::test]
async fn reviews_are_counted_by_what_came_of_them() {
    let mut registry = Registry::default();
    let state = AdmissionState {
        objects: Arc::new(with_desktop()),
        access: Arc::new(with_desktop()),
        own_username: OURSELVES.to_owned(),
        metrics: AdmissionMetrics::register(&mut registry),
    };
    let service = router(state);
    for (object, times) in [
        (config("desktop", json!({})), 2),
        (config("d", json!({"template": 3})), 1),
    ] {
        for _ in 0..times {
            let review = body(&object, &Value::Null).to_string();
            let request = Request::post(validate_config::PATH)
                .body(Body::from(review))
                .unwrap();
            service.clone().oneshot(request).await.unwrap();
        }
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "vmpool_admission_reviews_total{hook=\"ValidateConfig\",outcome=\"Allowed\"} 2",
        "vmpool_admission_reviews_total{hook=\"ValidateConfig\",outcome=\"Refused\"} 1",
        "vmpool_admission_review_seconds_count{hook=\"ValidateConfig\"} 3",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
