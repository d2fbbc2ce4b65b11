//! The API as its callers see it, on a made-up API server that knows pools, tokens and rights.

mod access;
mod detach;
mod fake;
mod pki;
mod pools;
mod scale;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use self::fake::Fake;

/// A pool's path, and what is behind it.
fn path(rest: &str) -> String {
    format!("/apis/subresources.vmpool.dev/v1alpha1/namespaces/team/virtualmachinepools/web{rest}")
}

/// An answer.
#[derive(Debug)]
struct Answer {
    code: u16,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    /// The answer is a Status with this code and reason; gives its message.
    #[track_caller]
    fn refused(&self, code: u16, reason: &str) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.body["kind"], "Status", "{self:?}");
        assert_eq!(self.body["code"], json!(code), "{self:?}");
        assert_eq!(self.body["reason"], reason, "{self:?}");
        self.body["message"].as_str().unwrap()
    }
}

async fn send(fake: &Fake, request: Request<Body>) -> Answer {
    let response = fake.router().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        code: head.status.as_u16(),
        headers: head.headers,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    }
}

/// A request of the user whose token is `jane`, who may do everything unless a test says otherwise.
fn request(method: Method, path: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", "Bearer jane");
    if !content_type.is_empty() {
        request = request.header("content-type", content_type);
    }
    request.body(body.into()).unwrap()
}

async fn get(fake: &Fake, path: &str) -> Answer {
    send(fake, request(Method::GET, path, "", "")).await
}
