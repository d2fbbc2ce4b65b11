//! Answers that are no success: always a metav1 `Status` with code and reason, whatever went wrong, since
//! that is what kubectl and client libraries can read.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};

use crate::admission::field::Cause;
use crate::admission::review::{GroupKind, invalid};
use crate::api::{POOL_PLURAL, SUBRESOURCES_GROUP};

/// When to ask again where we have just started, or have too much to do.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal(Box<Status>);

impl Refusal {
    fn new(code: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(Status {
            code: Some(i32::from(code.as_u16())),
            message: Some(message.into()),
            reason: Some(reason.to_owned()),
            status: Some("Failure".to_owned()),
            ..Status::default()
        }))
    }

    /// The request makes no sense.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// It doesn't go with what is stored.
    pub(super) fn conflict(name: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(name)
    }

    /// The user may not.
    pub(super) fn forbidden(name: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(name)
    }

    /// We failed.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            message.into(),
        )
    }

    /// What was sent can't be; all that is wrong with it.
    pub(super) fn invalid(kind: &GroupKind, name: &str, causes: &[Cause]) -> Self {
        Self(Box::new(invalid(kind, name, causes)))
    }

    /// Not with this verb.
    pub(super) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            message.into(),
        )
    }

    /// No such pool.
    pub(super) fn no_pool(name: &str) -> Self {
        let message = format!("{POOL_PLURAL}.{SUBRESOURCES_GROUP} {name:?} not found");
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(name)
    }

    /// Nothing is at this path.
    pub(super) fn no_such_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// Not in a form that the client understands.
    pub(super) fn not_acceptable() -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        )
    }

    /// The body is too long.
    pub(super) fn too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("the body is longer than {limit} bytes"),
        )
    }

    /// Too much is under way.
    pub(super) fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry(RETRY_SOON)
    }

    /// Nobody answered in time.
    pub(super) fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).retry(RETRY_SOON)
    }

    /// Not yet, or not now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        )
        .retry(RETRY_SOON)
    }

    /// Nobody knows who asks.
    pub(super) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "no client certificate or bearer token of this cluster",
        )
    }

    /// A body of that content type is not read.
    pub(super) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// What the API server said to a call of ours: its own refusal, or that there was none.
    pub(super) fn of_call(what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code >= 400 => Self::passed_on(status),
            kube::Error::BuildRequest(error) => Self::bad_request(error.to_string()),
            _ => Self::unavailable(format!("failed to {what}: {error}")),
        }
    }

    fn passed_on(status: &kube::core::Status) -> Self {
        let details = status.details.as_ref().map(|details| StatusDetails {
            causes: Some(
                details
                    .causes
                    .iter()
                    .map(|cause| StatusCause {
                        field: Some(cause.field.clone()),
                        message: Some(cause.message.clone()),
                        reason: Some(cause.reason.clone()),
                    })
                    .collect(),
            ),
            group: Some(details.group.clone()),
            kind: Some(details.kind.clone()),
            name: Some(details.name.clone()),
            retry_after_seconds: i32::try_from(details.retry_after_seconds)
                .ok()
                .filter(|seconds| *seconds > 0),
            uid: None,
        });
        Self(Box::new(Status {
            code: Some(i32::from(status.code)),
            details,
            message: Some(status.message.clone()),
            reason: Some(status.reason.clone()),
            status: Some("Failure".to_owned()),
            ..Status::default()
        }))
    }

    fn about(mut self, name: &str) -> Self {
        let details = self.0.details.get_or_insert_default();
        details.group = Some(SUBRESOURCES_GROUP.to_owned());
        details.kind = Some(POOL_PLURAL.to_owned());
        details.name = Some(name.to_owned());
        self
    }

    /// What is wrong, one by one.
    pub(super) fn with_causes(mut self, causes: Vec<StatusCause>) -> Self {
        self.0.details.get_or_insert_default().causes = Some(causes);
        self
    }

    fn retry(mut self, after: Duration) -> Self {
        let seconds = i32::try_from(after.as_secs()).unwrap_or(i32::MAX);
        let details = self.0.details.get_or_insert_default();
        details.retry_after_seconds = Some(seconds);
        self
    }

    /// The HTTP status.
    pub(super) fn code(&self) -> StatusCode {
        let code = self.0.code.and_then(|code| u16::try_from(code).ok());
        code.and_then(|code| StatusCode::from_u16(code).ok())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// For logs.
    pub(super) fn message(&self) -> &str {
        self.0.message.as_deref().unwrap_or_default()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = self.code();
        let retry = self.0.details.as_ref().and_then(|d| d.retry_after_seconds);
        let body = serde_json::to_vec(&self.0).expect("a Status is strings and numbers");
        let mut response =
            (code, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(seconds) = retry {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if code == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
