//! Every call to the API server that this module makes, with a time-out, no hidden retries, and an answer
//! that says what is known: done, refused and until when, or nothing. Decides nothing.
//!
//! kube's default client repeats a POST up to 15 times on 429, 503 and 504; the client given here must be
//! built without that (`Config::default_retry = false`), and repeating is decided by who calls.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use kube::Client;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GetParams, ListParams, ObjectList, Patch,
    PatchParams, PostParams, Preconditions,
};
use kube::client::Body;
use kube::core::{Request, Resource as _, Status};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::api::MANAGER;
use crate::json::{Head, Object};
use crate::kubevirt::verdict::{self, Verdict};
use crate::kubevirt::{self, VmView};
use crate::lease::Leadership;

/// The API server gives up on a write after 34 seconds; an answer that takes longer is none.
const CALL_TIMEOUT: Duration = Duration::from_secs(35);

/// A call that didn't succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallFailure {
    /// No answer, or one that can't be understood: it may have been done.
    #[error("no answer from the API server: {reason}")]
    LoseAnswer {
        /// Why.
        reason: String,
    },
    /// It was not done.
    #[error("{}", status.message)]
    Refuse {
        /// The API server's answer.
        status: Box<Status>,
        /// How long to wait, if it says so.
        retry_after: Option<Duration>,
    },
    /// It was not asked for, since something stands in its way.
    #[error("{reason}")]
    Withhold {
        /// What.
        reason: String,
    },
}

impl CallFailure {
    /// For metrics: one of a few words.
    pub(super) fn category(&self) -> Category {
        match self {
            Self::LoseAnswer { .. } => Category::Unanswered,
            Self::Withhold { .. } => Category::Conflict,
            Self::Refuse { status, .. } => match status.code {
                403 if status.message.contains("exceeded quota") => Category::Quota,
                403 if is_namespace_terminating(status) => Category::Terminating,
                403 => Category::Forbidden,
                404 => Category::NotFound,
                409 => Category::Conflict,
                429 => Category::Throttled,
                400 | 422 => Category::Invalid,
                _ => Category::Server,
            },
        }
    }

    /// How long the API server asks to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::LoseAnswer { .. } | Self::Withhold { .. } => None,
            Self::Refuse { retry_after, .. } => *retry_after,
        }
    }

    /// Whether the object is there already.
    pub(super) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refuse { status, .. } if status.is_already_exists())
    }

    /// Whether there is no such object.
    pub(super) fn is_not_found(&self) -> bool {
        self.category() == Category::NotFound
    }

    /// Whether a precondition or a test of a patch didn't hold.
    pub(super) fn is_conflict(&self) -> bool {
        self.category() == Category::Conflict
    }
}

/// Kinds of failure, for metrics and for what to do next.
#[derive(
    Clone, Copy, Debug, Eq, Hash, PartialEq, prometheus_client::encoding::EncodeLabelValue,
)]
pub(super) enum Category {
    /// A precondition didn't hold, or the name is taken.
    Conflict,
    /// Not allowed, or denied by a webhook.
    Forbidden,
    /// The API server or a webhook finds it wrong.
    Invalid,
    /// No such object, namespace or kind.
    NotFound,
    /// A quota is used up.
    Quota,
    /// The API server fails.
    Server,
    /// The namespace is being deleted and takes nothing new.
    Terminating,
    /// The API server has too much to do.
    Throttled,
    /// Nothing is known.
    Unanswered,
}

/// The calls.
#[derive(Clone)]
pub(super) struct Calls {
    client: Client,
    leadership: Leadership,
}

/// Where an object is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Its kind.
    pub(super) resource: &'a ApiResource,
    /// Its namespace.
    pub(super) namespace: &'a str,
    /// Its name.
    pub(super) name: &'a str,
}

impl Place<'_> {
    fn request(&self) -> Request {
        collection(self.resource, self.namespace)
    }
}

/// Metadata of an answer: what callers need of it.
pub(super) type Meta = Head;

impl Calls {
    /// Through this client; writes only while we lead.
    pub(super) fn new(client: Client, leadership: Leadership) -> Self {
        Self { client, leadership }
    }

    /// Whether a write would be sent.
    pub(super) fn may_write(&self) -> bool {
        self.leadership.is_held()
    }

    /// Creates an object.
    pub(super) async fn create(
        &self,
        resource: &ApiResource,
        namespace: &str,
        object: &impl Serialize,
    ) -> Result<Meta, CallFailure> {
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let body = as_go_writes(&serde_json::to_string(object).map_err(unsent)?);
        self.send(
            collection(resource, namespace)
                .create(&params, body)
                .map_err(unsent)?,
        )
        .await
    }

    /// KubeVirt's verdict on a VM, by dry run.
    pub(super) async fn dry_run(&self, namespace: &str, vm: &Value) -> Verdict {
        let Some(request) = verdict::question(namespace, vm) else {
            return Verdict::Open("failed to build the request".to_owned());
        };
        match self.exchange(request).await {
            Ok((head, body)) => verdict::answer(head.status.as_u16(), &body),
            Err(failure) => Verdict::Open(failure.to_string()),
        }
    }

    /// Reads an object; `None` if there is none.
    pub(super) async fn get(&self, place: Place<'_>) -> Result<Option<DynamicObject>, CallFailure> {
        let request = place
            .request()
            .get(place.name, &GetParams::default())
            .map_err(unsent)?;
        match self.send(request).await {
            Ok(Object { object, .. }) => Ok(Some(object)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads a VM; `None` if there is none.
    pub(super) async fn vm(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<VmView>, CallFailure> {
        let resource = kubevirt::virtual_machine();
        let place = Place {
            resource: &resource,
            namespace,
            name,
        };
        Ok(self.get(place).await?.as_ref().and_then(VmView::read))
    }

    /// Lists the metadata of objects with these labels.
    pub(super) async fn list(
        &self,
        resource: &ApiResource,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<Meta>, CallFailure> {
        let request = collection(resource, namespace)
            .list_metadata(&ListParams::default().labels(labels))
            .map_err(unsent)?;
        let list: ObjectList<Meta> = self.send(request).await?;
        Ok(list.items)
    }

    /// Deletes an object in the background, if it is still that one.
    pub(super) async fn delete(
        &self,
        place: Place<'_>,
        uid: &str,
        resource_version: Option<&str>,
    ) -> Result<(), CallFailure> {
        let params = DeleteParams::background().preconditions(Preconditions {
            resource_version: resource_version.map(str::to_owned),
            uid: Some(uid.to_owned()),
        });
        let request = place
            .request()
            .delete(place.name, &params)
            .map_err(unsent)?;
        let _: IgnoredAny = self.send(request).await?;
        Ok(())
    }

    /// Patches an object.
    pub(super) async fn patch(
        &self,
        place: Place<'_>,
        patch: &Patch<Value>,
    ) -> Result<DynamicObject, CallFailure> {
        let request = place
            .request()
            .patch(place.name, &patch_params(), patch)
            .map_err(unsent)?;
        let Object { object, .. } = self.send(request).await?;
        Ok(object)
    }

    /// Merges into an object's status.
    pub(super) async fn patch_status(
        &self,
        place: Place<'_>,
        status: Value,
    ) -> Result<Meta, CallFailure> {
        let patch = Patch::Merge(serde_json::json!({ "status": status }));
        let request = place
            .request()
            .patch_subresource("status", place.name, &patch_params(), &patch)
            .map_err(unsent)?;
        self.send(request).await
    }

    /// Calls a verb without options. Such a call is answered with 202 and nothing else.
    pub(super) async fn put(&self, path: &str) -> Result<(), CallFailure> {
        let request = http::Request::put(path)
            .header(CONTENT_TYPE, "application/json")
            .body(b"{}".to_vec())
            .map_err(unsent)?;
        self.done(request).await.map(drop)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<T, CallFailure> {
        let body = self.done(request).await?;
        serde_json::from_slice(&body).map_err(|error| lost(&error))
    }

    /// The body of an answer that says that it was done.
    async fn done(&self, request: http::Request<Vec<u8>>) -> Result<Vec<u8>, CallFailure> {
        if request.method() != http::Method::GET && !self.may_write() {
            return Err(not_leading());
        }
        let (head, body) = self.exchange(request).await?;
        if head.status.is_success() {
            return Ok(body);
        }
        // What stands between us and the API server answers in its own words.
        let mut status: Status = serde_json::from_slice(&body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&body);
            Status::failure(text.trim(), "")
        });
        status.code = head.status.as_u16();
        let in_body = status.details.as_ref().map(|d| d.retry_after_seconds);
        let in_head = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        Err(CallFailure::Refuse {
            status: status.boxed(),
            retry_after: in_head
                .or(in_body)
                .filter(|seconds| *seconds > 0)
                .map(|seconds| Duration::from_secs(seconds.into())),
        })
    }

    /// The answer, whatever it says.
    async fn exchange(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<(http::response::Parts, Vec<u8>), CallFailure> {
        let exchange = async {
            let response = self.client.send(request.map(Body::from)).await?;
            let (head, body) = response.into_parts();
            Ok::<_, kube::Error>((head, body.collect_bytes().await?.to_vec()))
        };
        match tokio::time::timeout(CALL_TIMEOUT, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(lost(&error)),
            Err(elapsed) => Err(lost(&elapsed)),
        }
    }
}

fn collection(resource: &ApiResource, namespace: &str) -> Request {
    Request::new(DynamicObject::url_path(resource, Some(namespace)))
}

fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// JSON as the API server writes it: Go's encoder escapes these five, which stand in strings only. The data of
/// a ControllerRevision is compared byte by byte, so that a patch of its metadata would be refused for changing
/// an `&` to `\\u0026`.
fn as_go_writes(json: &str) -> Vec<u8> {
    let mut body = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => body.push_str("\\u003c"),
            '>' => body.push_str("\\u003e"),
            '&' => body.push_str("\\u0026"),
            '\u{2028}' => body.push_str("\\u2028"),
            '\u{2029}' => body.push_str("\\u2029"),
            c => body.push(c),
        }
    }
    body.into_bytes()
}

/// The API server's admission names the cause (`v1.NamespaceTerminatingCause`).
fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "NamespaceTerminating")
}

fn lost(error: &impl ToString) -> CallFailure {
    CallFailure::LoseAnswer {
        reason: error.to_string(),
    }
}

/// Not done: another replica may lead now, and this process is about to end.
fn not_leading() -> CallFailure {
    CallFailure::Refuse {
        status: Status::failure("this replica does not lead any more", "")
            .with_code(503)
            .boxed(),
        retry_after: None,
    }
}

/// The request can't be built, so it was not done, and won't be next time.
fn unsent(error: impl ToString) -> CallFailure {
    CallFailure::Refuse {
        status: Status::failure(&error.to_string(), "")
            .with_code(400)
            .boxed(),
        retry_after: None,
    }
}
