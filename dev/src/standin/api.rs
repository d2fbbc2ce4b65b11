//! The writes of the stand-in, and the few reads that no cache answers.
//!
//! Every call takes and returns opaque JSON. Which write is right is decided elsewhere; this file
//! must not retry: the work queue does, with fresh objects.

use http::{Method, Request, header};
use kube::Client;
use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::object::{Key, resource_version};

const JSON: &str = "application/json";

/// How a patch body is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
}

impl PatchType {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// A JSON patch that sets whole fields of the version of an object it was made from: it answers
/// 409 when that version is no longer current. (Merge patches would not do: they drop the nulls
/// inside lists, and KubeVirt's conditions have `lastProbeTime: null`.)
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Patch(Vec<Value>);

impl Patch {
    pub(super) fn new(object: &Value) -> Self {
        Self(vec![json!({
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": resource_version(object),
        })])
    }

    /// Sets a field whose parent exists.
    pub(super) fn set(mut self, path: &str, value: Value) -> Self {
        let mut operation = Map::new();
        operation.insert("op".into(), json!("add"));
        operation.insert("path".into(), json!(path));
        operation.insert("value".into(), value);
        self.0.push(Value::Object(operation));
        self
    }

    pub(super) fn remove(mut self, path: &str) -> Self {
        self.0.push(json!({"op": "remove", "path": path}));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    /// What the object becomes, for tests that play without a server.
    #[cfg(test)]
    pub(super) fn applied_to(&self, object: &Value) -> Value {
        let patch: json_patch::Patch = serde_json::from_value(Value::Array(self.0.clone()))
            .expect("a list of operations is a patch");
        let mut patched = object.clone();
        json_patch::patch(&mut patched, &patch).expect("it was made from this object");
        patched
    }
}

/// What the API server says to a write.
pub(super) type Answer = Result<Value, kube::Error>;

/// The HTTP code of an answered error; 0 when there was no answer.
pub(super) fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// The server's message, without the client's wrapping.
pub(super) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Requests with opaque bodies.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
}

impl Api {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) async fn get(&self, kind: Kind, key: &Key) -> Answer {
        self.send(Method::GET, &path(kind, key, ""), None).await
    }

    pub(super) async fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Answer {
        let body = Some((JSON, object.to_string()));
        self.send(Method::POST, &kind.collection(namespace), body)
            .await
    }

    /// Posts to a subresource, such as a pod's `binding`.
    pub(super) async fn post(&self, kind: Kind, key: &Key, sub: &str, object: &Value) -> Answer {
        let body = Some((JSON, object.to_string()));
        self.send(Method::POST, &path(kind, key, sub), body).await
    }

    pub(super) async fn patch(&self, kind: Kind, key: &Key, sub: &str, patch: &Patch) -> Answer {
        let operations = format!("[{}]", join(&patch.0));
        let body = Some((PatchType::Json.content_type(), operations));
        self.send(Method::PATCH, &path(kind, key, sub), body).await
    }

    pub(super) async fn patch_as(
        &self,
        kind: Kind,
        key: &Key,
        sub: &str,
        patch_type: PatchType,
        body: &Value,
    ) -> Answer {
        let body = Some((patch_type.content_type(), body.to_string()));
        self.send(Method::PATCH, &path(kind, key, sub), body).await
    }

    /// Deletes exactly the object with this UID.
    pub(super) async fn delete(
        &self,
        kind: Kind,
        key: &Key,
        uid: &str,
        grace_seconds: Option<u64>,
    ) -> Answer {
        let mut options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
        });
        if let Some(seconds) = grace_seconds {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        let body = Some((JSON, options.to_string()));
        self.send(Method::DELETE, &path(kind, key, ""), body).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<(&str, String)>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        let bytes = match body {
            Some((content_type, body)) => {
                request = request.header(header::CONTENT_TYPE, content_type);
                body.into_bytes()
            }
            None => Vec::new(),
        };
        let request = request.body(bytes).map_err(kube::Error::HttpError)?;
        self.client.request::<Value>(request).await
    }
}

fn join(operations: &[Value]) -> String {
    let texts: Vec<String> = operations.iter().map(Value::to_string).collect();
    texts.join(",")
}

fn path(kind: Kind, key: &Key, sub: &str) -> String {
    let base = kind.collection(&key.namespace);
    if sub.is_empty() {
        format!("{base}/{}", key.name)
    } else {
        format!("{base}/{}/{sub}", key.name)
    }
}
