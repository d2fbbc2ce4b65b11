//! The refusals of an API server, as it words them: clients act on code and reason.

use axum::body::{Body, Bytes};
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    code: StatusCode,
    reason: &'static str,
    message: String,
    retry_after: Option<u64>,
}

impl Answer {
    /// Any refusal.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    /// 409: another write came first.
    pub fn conflict() -> Self {
        let message = "Operation cannot be fulfilled: the object has been modified; please apply \
                       your changes to the latest version and try again";
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    /// 409: the name is taken.
    pub fn already_exists() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "AlreadyExists",
            "the object already exists",
        )
    }

    /// 403: not allowed, or over a quota.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// 429: priority and fairness has no seat left.
    pub fn too_many_requests(retry_after_seconds: u64) -> Self {
        let message = "The server has received too many requests and has asked us to try again \
                       later";
        Self {
            retry_after: Some(retry_after_seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        }
    }

    /// 500: etcd has lost its leader, a webhook failed, and the like.
    pub fn internal_error() -> Self {
        let message = "Internal error occurred: etcdserver: request timed out";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 503: shutting down, or an aggregated server is away.
    pub fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        )
    }

    /// 504: the API server gave up waiting. The write may have happened or not.
    pub fn timeout() -> Self {
        let message = "request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// 410: the resource version, or the page of a list, is too old.
    pub fn expired() -> Self {
        let message = "The resourceVersion for the provided watch is too old.";
        Self::new(StatusCode::GONE, "Expired", message)
    }

    fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code.as_u16(),
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = json!({"retryAfterSeconds": seconds});
        }
        status
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.status().to_string()));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// The same as the last event of a watch.
    pub(super) fn event(&self) -> Bytes {
        let event = json!({"type": "ERROR", "object": self.status()});
        Bytes::from(format!("{event}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_as_clients_parse_it() {
        let answer = Answer::too_many_requests(3);
        let status: kube::core::Status = serde_json::from_value(answer.status()).unwrap();
        assert_eq!(
            (status.code, status.reason.as_str()),
            (429, "TooManyRequests")
        );
        assert_eq!(answer.response().headers()["retry-after"], "3");
        let event: Value = serde_json::from_slice(&Answer::expired().event()).unwrap();
        assert_eq!(event["type"], "ERROR");
        assert_eq!(event["object"]["code"], 410);
    }
}
