//! `AdmissionReview` v1 as it comes and goes. Decoding is lenient about all but the uid: whatever else is
//! wrong with a request, its answer has to carry the uid back, or the API server says no more than "invalid
//! webhook response". Objects are read to a bound on their depth, so that one that is deeper is refused in
//! words and not unreadable.
//!
//! Own types beside kube's: objects stay raw JSON (kube's need typed metadata, so one odd label would lose
//! the whole request), and a patch goes out in base64 (kube writes a list of numbers, four times as long).

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::field::{Cause, Path};
use super::verdict::Verdict;
use crate::json::{Bounded, MAX_DEPTH};

/// `apiVersion` of what we are sent and answer.
const API_VERSION: &str = "admission.k8s.io/v1";
/// Its kind.
const KIND: &str = "AdmissionReview";
/// Causes that the message spells out; the rest is counted. kubectl shows `details.causes`, other clients
/// the message.
const CAUSES_IN_MESSAGE: usize = 10;
/// Causes that are listed at all: an answer has to stay readable, and small.
const MAX_CAUSES: usize = 100;

/// What the API server asks.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Goes back with the answer.
    pub uid: String,
    /// Kind of [`Self::object`].
    #[serde(default)]
    pub kind: GroupKind,
    /// Name of the object; empty at creation where the name is generated.
    #[serde(default)]
    pub name: String,
    /// Namespace of the object.
    #[serde(default)]
    pub namespace: String,
    /// What is done.
    pub operation: Operation,
    /// Who does it.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object as it is to be.
    #[serde(default)]
    pub object: Bounded,
    /// The object as it is; null at creation.
    #[serde(default)]
    pub old_object: Bounded,
}

/// Group and kind, without the version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
pub struct GroupKind {
    /// Group.
    #[serde(default)]
    pub group: String,
    /// Kind.
    #[serde(default)]
    pub kind: String,
}

/// What is done.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// A connection to a subresource.
    Connect,
    /// A creation.
    Create,
    /// A deletion.
    Delete,
    /// An update.
    Update,
}

/// Who asks.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct UserInfo {
    /// User name.
    #[serde(default)]
    pub username: String,
    /// UID, of users that have one.
    #[serde(default)]
    pub uid: Option<String>,
    /// Groups.
    #[serde(default)]
    pub groups: Vec<String>,
    /// What else its authenticator said.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Why a body is no request.
#[derive(Debug, thiserror::Error)]
pub enum ReadRequest {
    /// The rest of a request with this uid.
    #[error("failed to read the admission request: {source}")]
    Malformed {
        /// To answer with.
        uid: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// No uid to answer with.
    #[error("failed to find request.uid in the body")]
    NoUid,
    /// Not JSON at all.
    #[error("failed to read the body as JSON: {0}")]
    NotJson(#[source] serde_json::Error),
}

/// What an answer can't do without; the rest is skipped, however deep.
#[derive(Deserialize)]
struct UidAlone {
    request: Uid,
}

#[derive(Deserialize)]
struct Uid {
    uid: String,
}

impl Request {
    /// Reads a body, whatever its content type says.
    pub fn read(body: &[u8]) -> Result<Self, ReadRequest> {
        #[derive(Deserialize)]
        struct Review {
            request: Request,
        }
        let failure = match serde_json::from_slice::<Review>(body) {
            Ok(review) if review.request.uid.is_empty() => return Err(ReadRequest::NoUid),
            Ok(review) => return Ok(review.request),
            Err(failure) => failure,
        };
        match serde_json::from_slice::<UidAlone>(body) {
            Ok(review) if !review.request.uid.is_empty() => Err(ReadRequest::Malformed {
                uid: review.request.uid,
                source: failure,
            }),
            Err(error) if !error.is_data() => Err(ReadRequest::NotJson(error)),
            Ok(_) | Err(_) => Err(ReadRequest::NoUid),
        }
    }

    /// The cause to refuse an object for that is nested deeper than is read, unless it is going away.
    pub fn too_deep(&self) -> Option<Cause> {
        let is_refused = self.object.is_cut && self.operation.writes() && !self.is_deleting();
        is_refused.then(|| {
            let message = format!("is nested too deep: at most {MAX_DEPTH} levels");
            Cause::invalid(Path::spec(), message)
        })
    }

    fn is_deleting(&self) -> bool {
        self.object
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(|time| !time.is_null())
    }

    /// The object's own name, or the request's.
    pub fn object_name(&self) -> &str {
        self.object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or(&self.name)
    }

    /// The stored object, on an update.
    pub fn stored(&self) -> Option<&Value> {
        (self.operation == Operation::Update && !self.old_object.is_null())
            .then_some(&*self.old_object)
    }

    /// Whether there is nothing to be said: the object is going away, or its spec stays what it is. The
    /// configuration's conditions say the same; a request that comes all the same is answered alike.
    pub fn leaves_spec_alone(&self) -> bool {
        let unchanged = self.stored().is_some_and(|stored| {
            stored.get("spec").is_some() && stored.get("spec") == self.object.get("spec")
        });
        self.is_deleting() || unchanged
    }
}

impl Operation {
    /// Whether there is an object to look at.
    pub fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update)
    }
}

/// The whole answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Answer {
    /// The answer that carries a verdict.
    pub fn of(request: &Request, verdict: Verdict) -> Self {
        if !verdict.causes.is_empty() {
            let status = invalid(&request.kind, request.object_name(), &verdict.causes);
            return Self::new(&request.uid, false, Some(status), None, verdict.warnings);
        }
        let patch = (!verdict.patch.0.is_empty()).then(|| {
            let bytes = serde_json::to_vec(&verdict.patch)
                .expect("a patch is strings and JSON values, which are JSON");
            ByteString(bytes)
        });
        Self::new(&request.uid, true, None, patch, verdict.warnings)
    }

    /// A refusal that says nothing about fields: `reason` with its HTTP code.
    pub fn failure(uid: &str, code: i32, reason: &str, message: String) -> Self {
        let status = Status {
            code: Some(code),
            message: Some(message),
            reason: Some(reason.to_owned()),
            status: Some("Failure".to_owned()),
            ..Status::default()
        };
        Self::new(uid, false, Some(status), None, Vec::new())
    }

    fn new(
        uid: &str,
        allowed: bool,
        status: Option<Status>,
        patch: Option<ByteString>,
        warnings: Vec<String>,
    ) -> Self {
        Self {
            api_version: API_VERSION,
            kind: KIND,
            response: Response {
                uid: uid.to_owned(),
                allowed,
                status,
                patch_type: patch.as_ref().map(|_| "JSONPatch"),
                patch,
                warnings,
            },
        }
    }
}

/// The Status that the API server's own validation would answer with, about an object of that kind and name.
pub fn invalid(kind: &GroupKind, name: &str, causes: &[Cause]) -> Status {
    let mut listed: Vec<_> = causes
        .iter()
        .take(CAUSES_IN_MESSAGE)
        .map(Cause::to_string)
        .collect();
    if causes.len() > CAUSES_IN_MESSAGE {
        listed.push(format!("and {} more", causes.len() - CAUSES_IN_MESSAGE));
    }
    let GroupKind { group, kind } = kind;
    let qualified = if group.is_empty() {
        kind.clone()
    } else {
        format!("{kind}.{group}")
    };
    Status {
        code: Some(422),
        details: Some(StatusDetails {
            causes: Some(
                causes
                    .iter()
                    .take(MAX_CAUSES)
                    .map(Cause::to_status_cause)
                    .collect(),
            ),
            group: Some(group.clone()),
            kind: Some(kind.clone()),
            name: Some(name.to_owned()),
            ..StatusDetails::default()
        }),
        message: Some(format!(
            "{qualified} {name:?} is invalid: {}",
            listed.join(", ")
        )),
        reason: Some("Invalid".to_owned()),
        status: Some("Failure".to_owned()),
        ..Status::default()
    }
}
