//! What is refused for its size or depth, and that it is refused in words.

use serde_json::{Value, json};

use super::super::metadata::ANNOTATION_BUDGET;
use super::super::review::{ReadRequest, Request};
use super::super::validate_config::{self, MAX_SPEC};
use super::super::{hooks, validate_pool};
use super::http::reviewed;
use super::{Fake, body, config, create, fields, pool};
use crate::json::MAX_DEPTH;

/// JSON text that is nested so deep: Value itself can be no deeper than the stack.
fn nested(levels: usize) -> String {
    format!("{}1{}", r#"{"x":"#.repeat(levels), "}".repeat(levels))
}

/// The review of a config whose spec has a field of so many levels.
fn deep_review(levels: usize, metadata: &Value) -> String {
    let mut object = config("desktop", json!({"template": {"spec": {"odd": "HERE"}}}));
    super::merge(&mut object["metadata"], metadata.clone());
    body(&object, &Value::Null)
        .to_string()
        .replace("\"HERE\"", &nested(levels))
}

#[test]
fn what_is_nested_too_deep_is_refused_with_its_uid_and_the_bound() {
    let read = |levels| Request::read(deep_review(levels, &json!({})).as_bytes()).unwrap();
    // The object, its spec, the template, its spec: four levels are above.
    assert_eq!(read(MAX_DEPTH - 4).too_deep(), None);
    for levels in [MAX_DEPTH - 3, 128, 9000] {
        let cause = read(levels).too_deep().unwrap();
        assert_eq!(cause.field.as_str(), "spec");
        assert_eq!(cause.message, "is nested too deep: at most 100 levels");
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let request = Request::read(deep_review(levels, &going).as_bytes()).unwrap();
        assert_eq!(request.too_deep(), None, "it is to go away");
    }
    let elsewhere = format!(
        r#"{{"request":{{"uid":"a","operation":{}}}}}"#,
        nested(9000)
    );
    let failure = Request::read(elsewhere.as_bytes()).unwrap_err();
    assert!(matches!(failure, ReadRequest::Malformed { uid, .. } if uid == "a"));
}

#[tokio::test]
async fn every_hook_answers_a_deep_object_with_422() {
    let objects = [
        (
            validate_config::PATH,
            config("desktop", json!({"odd": "HERE"})),
        ),
        (validate_pool::PATH, pool("web", json!({"odd": "HERE"}))),
    ];
    for (path, object) in objects {
        let review = body(&object, &Value::Null).to_string();
        let review = review.replace("\"HERE\"", &nested(500));
        let response = reviewed(&Fake::default(), path, review).await;
        assert_eq!(response["status"]["code"], 422, "{path}: {response}");
        assert_eq!(response["status"]["details"]["causes"][0]["field"], "spec");
    }
    assert_eq!(
        hooks().len(),
        5,
        "a new hook is refused for by `decide` too"
    );
}

/// A config whose spec has exactly so many bytes.
fn sized(bytes: usize) -> Value {
    let mut object = config("desktop", json!({"padding": ""}));
    let empty = object["spec"].to_string().len();
    object["spec"]["padding"] = "x".repeat(bytes - empty).into();
    object
}

#[test]
fn a_spec_that_no_vm_has_room_for_is_refused_with_its_size_and_the_bound() {
    let judge = |object: &Value| validate_config::review(&create(object), &Ok(Vec::new()));
    assert_eq!(fields(&judge(&sized(MAX_SPEC))), [""; 0]);
    let verdict = judge(&sized(MAX_SPEC + 1));
    assert_eq!(fields(&verdict), ["spec"]);
    let message = &verdict.causes[0].message;
    assert!(
        message.starts_with("has 393217 bytes as JSON; at most 393216,"),
        "{message}"
    );
    // As it is stored: Go writes six bytes for each of these.
    let mut escaped = config("desktop", json!({}));
    escaped["spec"]["padding"] = "&".repeat(MAX_SPEC / 6).into();
    assert_eq!(fields(&judge(&escaped)), ["spec"]);
}

#[test]
fn annotations_leave_room_for_the_mark_that_repeats_them() {
    let judge = |spec: Value| {
        let request = create(&pool("web", spec));
        validate_pool::review(&request, &validate_pool::Facts::none())
    };
    let with =
        |bytes: usize| json!({"virtualMachineMetadata": {"annotations": {"a": "x".repeat(bytes)}}});
    assert_eq!(fields(&judge(with(ANNOTATION_BUDGET / 2 - 200))), [""; 0]);
    let verdict = judge(with(ANNOTATION_BUDGET / 2));
    assert_eq!(fields(&verdict), ["spec"]);
    let message = &verdict.causes[0].message;
    assert!(
        message.contains("in vmpool.dev/stamp, a copy of both; at most 245760"),
        "{message}"
    );
    // Quotes are longer in the mark than in the annotation.
    let quotes = json!({"virtualMachineMetadata": {"annotations": {"a": "\"".repeat(ANNOTATION_BUDGET / 3)}}});
    assert_eq!(fields(&judge(quotes)), ["spec"]);
    let shared: Vec<String> = (0..2000)
        .map(|n| format!("{n}{}", "s".repeat(150)))
        .collect();
    let verdict = judge(json!({"nameGeneration": {"sharedSecrets": shared}}));
    assert_eq!(fields(&verdict), ["spec"]);
}
