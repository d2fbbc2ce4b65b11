//! Whatever is sent to a webhook, an AdmissionReview goes back or a 4xx, and what it lets through changed comes
//! through unchanged the second time. A panic ends the run, also one that the router would answer for.
//!
//! An input's first byte says which hook is asked and what the rest is: the body; the object of a review, and after
//! a line feed the stored one; a merge patch of a good request to the hook; or edits of one, which get further than
//! bytes that are JSON by luck.

#![no_main]

mod edits;
mod objects;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::ByteString;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;
use vmpool::admission::{AdmissionMetrics, AdmissionState, hooks, router};

use objects::{Namespace, OURSELVES};

static ROUTER: LazyLock<Router> = LazyLock::new(|| {
    router(AdmissionState {
        objects: Arc::new(Namespace::default()),
        access: Arc::new(Namespace::default()),
        own_username: OURSELVES.to_owned(),
        metrics: AdmissionMetrics::default(),
    })
});
static GOOD: LazyLock<Vec<(&'static str, Value)>> = LazyLock::new(|| {
    let good = objects::good();
    for (path, review) in &good {
        let answer = judged(path, review.to_string().as_bytes());
        assert!(!matches!(answer, Answer::Refused), "{path}: {review}");
    }
    good
});

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime with a timer alone")
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let how = usize::from(first);
    let (how, which) = (how % 4, how / 4);
    let (path, good) = &GOOD[which % GOOD.len()];
    let mut path = *path;
    let body = match how {
        0 => {
            let hooks = hooks();
            path = hooks[which % hooks.len()].path;
            rest.to_vec()
        }
        1 => around(good, rest),
        2 => {
            let Ok(patch) = serde_json::from_slice(rest) else {
                return;
            };
            let mut review = good.clone();
            json_patch::merge(&mut review["request"], &patch);
            review.to_string().into_bytes()
        }
        _ => {
            let mut review = good.clone();
            edits::make(&mut review, rest);
            review.to_string().into_bytes()
        }
    };
    if let Answer::Changed(again) = judged(path, &body) {
        assert!(
            matches!(judged(path, &again), Answer::Allowed),
            "it was changed twice, or refused then"
        );
    }
});

enum Answer {
    /// As it is.
    Allowed,
    /// With a change: the same review of the object after it.
    Changed(Vec<u8>),
    /// Or not understood.
    Refused,
}

/// A review like that one, of these objects.
fn around(good: &Value, text: &[u8]) -> Vec<u8> {
    let mut objects = text.splitn(2, |byte| *byte == b'\n');
    let (object, stored) = (objects.next().unwrap_or_default(), objects.next());
    let mut review = good.clone();
    let request = review["request"].as_object_mut().expect("it is good");
    request.remove("object");
    request.insert(
        "operation".to_owned(),
        json!(if stored.is_some() { "UPDATE" } else { "CREATE" }),
    );
    request.remove("oldObject");
    let mut body = review.to_string().into_bytes();
    body.truncate(body.len() - 2);
    body.extend(b",\"oldObject\":");
    body.extend(stored.unwrap_or(b"null"));
    body.extend(b",\"object\":");
    body.extend(object);
    body.extend(b"}}");
    body
}

/// Sends it, and checks what comes back.
fn judged(path: &str, body: &[u8]) -> Answer {
    let request = Request::post(path)
        .body(Body::from(body.to_vec()))
        .expect("the path is one");
    let (status, answer) = RUNTIME.block_on(async {
        let answer = ROUTER.clone().oneshot(request).await;
        let (head, body) = answer.expect("a router can't fail").into_parts();
        let body = body.collect().await.expect("it is in memory").to_bytes();
        (head.status, body)
    });
    if status.is_client_error() {
        return Answer::Refused;
    }
    assert_eq!(status, 200);
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    let response = &answer["response"];
    let uid = response["uid"].as_str().expect("a uid");
    assert!(!uid.is_empty());
    if response["allowed"] != true {
        let code = response["status"]["code"].as_u64().expect("a code");
        assert!((400..500).contains(&code), "{response}");
        let message = response["status"]["message"].as_str();
        assert!(message.is_some_and(|text| !text.is_empty()), "{response}");
        return Answer::Refused;
    }
    // What is deeper than serde_json reads is refused, but parts that are not looked at are not.
    let Ok(mut sent) = serde_json::from_slice::<Value>(body) else {
        return Answer::Allowed;
    };
    assert_eq!(sent["request"]["uid"], uid);
    let Some(patch) = response.get("patch") else {
        return Answer::Allowed;
    };
    let patch: ByteString = serde_json::from_value(patch.clone()).expect("base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch.0).expect("a JSON patch");
    json_patch::patch(&mut sent["request"]["object"], &patch).expect("it fits what it is for");
    Answer::Changed(sent.to_string().into_bytes())
}
