//! Reading and writing a Scale. Cases VD-01 and HS-01.

use axum::http::Method;
use serde_json::{Value, json};

use super::fake::{Fake, pool};
use super::{Answer, get, path, request, send};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

async fn patch(fake: &Fake, content_type: &str, body: Value) -> Answer {
    let request = request(
        Method::PATCH,
        &path("/scale"),
        content_type,
        body.to_string(),
    );
    send(fake, request).await
}

async fn put(fake: &Fake, content_type: &str, body: Value) -> Answer {
    let request = request(Method::PUT, &path("/scale"), content_type, body.to_string());
    send(fake, request).await
}

fn scale(replicas: i64, version: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "web", "namespace": "team", "uid": "uid-web", "resourceVersion": version},
        "spec": {"replicas": replicas},
        "status": {"replicas": 3, "selector": "vmpool.dev/pool-uid=uid-web"},
    })
}

fn replicas(fake: &Fake) -> i64 {
    fake.stored()["spec"]["replicas"].as_i64().unwrap()
}

#[tokio::test]
async fn hs_01_the_selector_is_text_and_there_from_the_start() {
    let fake = Fake::with_pool();
    let answer = get(&fake, &path("/scale")).await;
    let mut wanted = scale(4, "7");
    wanted["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(answer.body, wanted);

    let young = Fake::empty();
    let mut pool = pool();
    pool["status"] = Value::Null;
    young.show(pool);
    let answer = get(&young, &path("/scale")).await;
    assert_eq!(
        answer.body["status"]["selector"],
        "vmpool.dev/pool-uid=uid-web"
    );
    assert_eq!(answer.body["status"]["replicas"], 0);
}

#[tokio::test]
async fn a_scale_is_patched_as_kubectl_does_it() {
    let fake = Fake::with_pool();
    let answer = patch(&fake, MERGE, json!({"spec": {"replicas": 6}})).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(answer.body["kind"], "Scale");
    assert_eq!(answer.body["spec"]["replicas"], 6);
    assert_eq!(answer.body["metadata"]["resourceVersion"], "8");
    assert_eq!(replicas(&fake), 6);
    let (line, body) = fake.calls("PATCH").pop().unwrap();
    assert!(line.contains("/virtualmachinepools/web/scale?"), "{line}");
    assert_eq!(body["metadata"]["resourceVersion"], "7");

    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": 6},
        {"op": "replace", "path": "/spec/replicas", "value": 2},
    ]);
    assert_eq!(patch(&fake, JSON_PATCH, operations.clone()).await.code, 200);
    assert_eq!(replicas(&fake), 2);
    patch(&fake, JSON_PATCH, operations)
        .await
        .refused(422, "Invalid");
    assert_eq!(replicas(&fake), 2);
}

#[tokio::test]
async fn a_scale_is_put_as_the_autoscaler_does_it() {
    let fake = Fake::with_pool();
    let mut request = request(Method::PUT, &path("/scale"), "", scale(9, "7").to_string());
    let headers = request.headers_mut();
    headers.insert(
        "accept",
        "application/vnd.kubernetes.protobuf, */*".parse().unwrap(),
    );
    headers.insert(
        "user-agent",
        "kube-controller-manager/v1.36.3".parse().unwrap(),
    );
    let answer = send(&fake, request).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(replicas(&fake), 9);
    let (line, _) = fake.calls("PATCH").pop().unwrap();
    assert!(
        line.contains("fieldManager=kube-controller-manager"),
        "{line}"
    );
}

#[tokio::test]
async fn what_was_just_written_is_read() {
    let fake = Fake::with_pool();
    let router = fake.router();
    let send = async |request: axum::http::Request<axum::body::Body>| {
        let response = tower::ServiceExt::oneshot(router.clone(), request)
            .await
            .unwrap();
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        serde_json::from_slice::<Value>(&body.to_bytes()).unwrap()
    };
    let body = json!({"spec": {"replicas": 6}}).to_string();
    send(request(Method::PATCH, &path("/scale"), MERGE, body)).await;
    let read = send(request(Method::GET, &path("/scale"), "", "")).await;
    assert_eq!(read["spec"]["replicas"], 6, "the cache still shows 4");
}

#[tokio::test]
async fn a_version_that_is_named_must_be_the_stored_one() {
    let fake = Fake::with_pool();
    put(&fake, "application/json", scale(9, "6"))
        .await
        .refused(409, "Conflict");
    let named = json!({"metadata": {"resourceVersion": "6"}, "spec": {"replicas": 9}});
    patch(&fake, MERGE, named).await.refused(409, "Conflict");
    assert_eq!(replicas(&fake), 4);
    let mut other = scale(9, "7");
    other["metadata"]["uid"] = "another".into();
    put(&fake, "", other).await.refused(409, "Conflict");

    // Overtaken: a patch is applied to what is there by then, what names a version is refused.
    fake.state().overtaken = 2;
    let answer = patch(&fake, MERGE, json!({"spec": {"replicas": 5}})).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(replicas(&fake), 5);
    fake.state().overtaken = 1;
    let version = fake.stored()["metadata"]["resourceVersion"].clone();
    put(&fake, "", scale(9, version.as_str().unwrap()))
        .await
        .refused(409, "Conflict");
    let mut any = scale(3, "");
    any["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(put(&fake, "", any).await.code, 200);
    assert_eq!(replicas(&fake), 3);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let fake = Fake::with_pool();
    let body = json!({"spec": {"replicas": 6}}).to_string();
    let dry = request(
        Method::PATCH,
        &path("/scale?dryRun=All&fieldManager=me"),
        MERGE,
        body,
    );
    let answer = send(&fake, dry).await;
    assert_eq!(answer.body["spec"]["replicas"], 6);
    assert_eq!(replicas(&fake), 4);
    let (line, _) = fake.calls("PATCH").pop().unwrap();
    assert!(
        line.contains("dryRun=All") && line.contains("fieldManager=me"),
        "{line}"
    );
    let odd = request(Method::PATCH, &path("/scale?dryRun=yes"), MERGE, "{}");
    send(&fake, odd).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn vd_01_the_rules_of_the_crds_scale_hold() {
    let fake = Fake::with_pool();
    for wanted in [
        json!(-1),
        json!(100_001),
        json!(2_147_483_648_i64),
        json!("3"),
        json!(1.5),
    ] {
        let answer = patch(&fake, MERGE, json!({"spec": {"replicas": wanted}})).await;
        let message = answer.refused(422, "Invalid");
        assert!(message.contains("spec.replicas"), "{message}");
        assert_eq!(
            answer.body["details"]["causes"][0]["field"],
            "spec.replicas"
        );
    }
    assert_eq!(replicas(&fake), 4);
    assert_eq!(fake.calls("PATCH").len(), 0);
    assert_eq!(
        patch(&fake, MERGE, json!({"spec": {"replicas": 0}}))
            .await
            .code,
        200
    );
    assert_eq!(replicas(&fake), 0);
}

#[tokio::test]
async fn what_is_no_scale_is_refused_with_a_status() {
    let fake = Fake::with_pool();
    let mut other_kind = scale(1, "7");
    other_kind["kind"] = "VirtualMachinePool".into();
    let mut other_name = scale(1, "7");
    other_name["metadata"]["name"] = "db".into();
    let mut other_namespace = scale(1, "7");
    other_namespace["metadata"]["namespace"] = "else".into();
    for body in [
        other_kind,
        other_name,
        other_namespace,
        json!([]),
        json!("scale"),
        Value::Null,
    ] {
        put(&fake, "", body).await.refused(400, "BadRequest");
    }
}

#[tokio::test]
async fn bodies_of_other_types_and_lengths_are_refused_with_a_status() {
    let fake = Fake::with_pool();
    let cases = [
        (Method::PUT, "", "{", 400, "BadRequest"),
        (
            Method::PUT,
            "application/yaml",
            "{}",
            415,
            "UnsupportedMediaType",
        ),
        (Method::PATCH, "", "{}", 415, "UnsupportedMediaType"),
        (
            Method::PATCH,
            "application/strategic-merge-patch+json",
            "{}",
            415,
            "UnsupportedMediaType",
        ),
        (
            Method::PATCH,
            "application/apply-patch+yaml",
            "{}",
            415,
            "UnsupportedMediaType",
        ),
        (Method::PATCH, MERGE, "", 400, "BadRequest"),
        (Method::PATCH, MERGE, "[1", 400, "BadRequest"),
        (Method::PATCH, JSON_PATCH, "{}", 400, "BadRequest"),
        (
            Method::PATCH,
            JSON_PATCH,
            r#"[{"op":"copy","from":"","path":"/spec/a"}]"#,
            400,
            "BadRequest",
        ),
    ];
    for (method, content_type, body, code, reason) in cases {
        let request = request(method, &path("/scale"), content_type, body);
        send(&fake, request).await.refused(code, reason);
    }
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(300 * 1024));
    let request = request(Method::PUT, &path("/scale"), "", long);
    send(&fake, request)
        .await
        .refused(413, "RequestEntityTooLarge");
    assert_eq!(replicas(&fake), 4);

    // A patch that makes something else of it.
    let answer = patch(&fake, MERGE, json!({"kind": "Pod"})).await;
    answer.refused(400, "BadRequest");
    patch(&fake, MERGE, json!(3))
        .await
        .refused(400, "BadRequest");
}

/// A patch that nests what it moves 100 levels deeper each time, as text.
fn nesting() -> String {
    let deep = "/".repeat(120);
    let mut operations = vec![json!({"op": "add", "path": "/a", "value": {}})];
    for level in 1..=49 {
        let inner = "{\"\":".repeat(100) + "{}" + &"}".repeat(100);
        let inner: Value = serde_json::from_str(&inner).unwrap();
        operations.push(json!({"op": "add", "path": format!("/b{level}"), "value": inner}));
        let path = format!("/b{level}{}", &deep[..100]);
        operations.push(json!({"op": "move", "from": "/a", "path": path}));
        operations.push(json!({"op": "move", "from": format!("/b{level}"), "path": "/a"}));
    }
    operations.truncate(99);
    json!(operations).to_string()
}

#[test]
fn a_patch_can_nest_nothing_deep() {
    // As little stack as a worker has; a debug build needs more of it.
    let small = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    let test = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let fake = Fake::with_pool();
            let deepest = "/".repeat(3000);
            let add = |path: &str| json!([{"op": "add", "path": path, "value": {}}]).to_string();
            let moved = json!([{"op": "move", "from": "/status", "path": "/spec"}]).to_string();
            let copied = json!([{"op": "copy", "from": "/status", "path": "/spec"}]).to_string();
            for body in [nesting(), add(&deepest), add("/a/b/c/d/e"), moved, copied] {
                let request = request(Method::PATCH, &path("/scale"), JSON_PATCH, body);
                let answer = send(&fake, request).await;
                let message = answer.refused(400, "BadRequest");
                assert!(message.contains("at most 4 parts"), "{message}");
            }
            let whole = json!([
                {"op": "add", "path": "/metadata/annotations", "value": {}},
                {"op": "add", "path": "/metadata/annotations/team", "value": "a"},
            ]);
            assert_eq!(patch(&fake, JSON_PATCH, whole).await.code, 200);
        });
    };
    small.spawn(test).unwrap().join().unwrap();
}

#[tokio::test]
async fn what_has_no_spec_is_no_scale_and_takes_no_vm() {
    let fake = Fake::with_pool();
    for body in [
        json!({}),
        json!({"virtualMachines": ["web-1"]}),
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": null}),
    ] {
        let answer = put(&fake, "application/json", body).await;
        let message = answer.refused(400, "BadRequest");
        assert!(message.contains("spec.replicas 0"), "{message}");
        assert_eq!(replicas(&fake), 4);
    }
    let answer = patch(&fake, MERGE, json!({"spec": null})).await;
    answer.refused(400, "BadRequest");
    // What clients in Go write for none.
    let answer = put(&fake, "application/json", json!({"spec": {}})).await;
    assert_eq!((answer.code, replicas(&fake)), (200, 0));
}
