//! `scale`: how many VMs a pool has, as `autoscaling/v1 Scale`. What is written goes through the CRD's own
//! `scale`, so that one rule decides, whichever way somebody scales: the API server's schema, the same
//! validation (asked here too, since admission doesn't run for requests to an aggregated API), the same owner
//! of the field. Written is always the version that was judged.

use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use json_patch::PatchOperation;
use k8s_openapi::api::autoscaling::v1::{Scale, ScaleSpec, ScaleStatus};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::path::PoolPath;
use super::pools::{Pools, StoredPool};
use super::refusal::Refusal;
use super::request::{Options, check_json, content_type};
use crate::admission::field::{Cause, Path};
use crate::admission::review::{GroupKind, Operation, Request, UserInfo};
use crate::admission::{Unavailable, validate_scale};
use crate::json::Bounded;

/// How often a pool that changes under our hands is read again, for a patch that names no version.
const ATTEMPTS: usize = 5;
/// Most operations of a JSON patch: a Scale has one field that can be changed.
const MAX_OPERATIONS: usize = 100;
/// Most tokens of a path in a JSON patch: more than the deepest field of a Scale's metadata has. Each operation can
/// put what it adds so much deeper, and what reads the outcome goes down by recursion, for which the stack
/// must do: an overflow of it ends the process.
const MAX_PATH: usize = 4;
/// How long the write may take: longer than admission has on the way.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// How the body of a write is to be understood.
enum Change {
    Json(json_patch::Patch),
    Merge(Value),
    Replace(Value),
}

/// What a write is answered with.
pub(super) struct Written {
    /// The Scale.
    pub(super) scale: Value,
    /// What its user should know.
    pub(super) warnings: Vec<String>,
}

/// Reads the Scale of a pool.
pub(super) async fn read(pools: &Pools, path: &PoolPath) -> Result<Value, Refusal> {
    Ok(of(&pools.read(path).await?, path))
}

/// Writes it.
pub(super) async fn write(
    pools: &Pools,
    path: &PoolPath,
    method: &Method,
    headers: &HeaderMap,
    options: &Options,
    body: &[u8],
) -> Result<Written, Refusal> {
    let change = Change::read(method, headers, body)?;
    for attempt in 1.. {
        let pool = pools.live(path).await?;
        let current = of(&pool, path);
        let wanted = change.apply(&current)?;
        check_identity(&wanted, &current, path)?;
        let version = wanted_version(&wanted);
        if version.is_some_and(|version| version != pool.version()) {
            return Err(Refusal::conflict(
                &path.name,
                format!(
                    "Operation cannot be fulfilled on the scale of pool {:?}: the object has been modified; \
                     please apply your changes to the latest version and try again",
                    path.name
                ),
            ));
        }
        let mut warnings = Vec::new();
        let replicas = judge(pools, path, &pool, &current, &wanted, &mut warnings).await?;
        // A PUT without a version means whatever is there; a patch whose version is only the one it was
        // applied to means the same.
        match store(pools, path, &pool, replicas, options).await {
            Ok(scale) => return Ok(Written { scale, warnings }),
            Err(refusal) if refusal.code().as_u16() == 409 && attempt < ATTEMPTS => {}
            Err(refusal) => return Err(refusal),
        }
    }
    unreachable!("the last attempt returns")
}

/// The Scale of a pool.
fn of(pool: &StoredPool, path: &PoolPath) -> Value {
    let meta = pool.meta();
    let (replicas, selector) = pool.observed();
    let number = |count: i64| i32::try_from(count).unwrap_or(i32::MAX);
    let scale = Scale {
        metadata: ObjectMeta {
            name: Some(path.name.clone()),
            namespace: Some(path.namespace.clone()),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            creation_timestamp: meta.creation_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(ScaleSpec {
            replicas: Some(number(pool.replicas())),
        }),
        status: Some(ScaleStatus {
            replicas: number(replicas),
            selector: Some(selector),
        }),
    };
    serde_json::to_value(scale).expect("a Scale is strings and numbers")
}

impl Change {
    fn read(method: &Method, headers: &HeaderMap, body: &[u8]) -> Result<Self, Refusal> {
        if *method != Method::PATCH {
            check_json(headers)?;
            return json(body).map(Self::Replace);
        }
        match content_type(headers).as_deref() {
            Some("application/merge-patch+json") => json(body).map(Self::Merge),
            Some("application/json-patch+json") => {
                let patch: json_patch::Patch = serde_json::from_slice(body).map_err(|error| {
                    Refusal::bad_request(format!(
                        "failed to read the body as a JSON patch: {error}"
                    ))
                })?;
                if patch.0.len() > MAX_OPERATIONS || !patch.0.iter().all(is_plain) {
                    return Err(Refusal::bad_request(format!(
                        "a JSON patch of a Scale has at most {MAX_OPERATIONS} operations, copies and moves \
                         nothing, and its paths have at most {MAX_PATH} parts"
                    )));
                }
                Ok(Self::Json(patch))
            }
            other => Err(Refusal::unsupported_media_type(format!(
                "the body of the request was of type {:?}: a Scale is patched with \
                 application/merge-patch+json or application/json-patch+json",
                other.unwrap_or_default()
            ))),
        }
    }

    fn apply(&self, current: &Value) -> Result<Value, Refusal> {
        let mut scale = current.clone();
        match self {
            Self::Json(patch) => {
                json_patch::patch(&mut scale, patch).map_err(|error| {
                    let message = format!("the patch can't be applied: {error}");
                    invalid("", vec![Cause::invalid(Path::metadata(), message)])
                })?;
            }
            Self::Merge(patch) => json_patch::merge(&mut scale, patch),
            Self::Replace(whole) => scale.clone_from(whole),
        }
        Ok(scale)
    }
}

/// A value that is copied over and over into itself would grow without bound, and one that is moved get
/// deeper.
fn is_plain(operation: &PatchOperation) -> bool {
    let is_short = operation.path().tokens().take(MAX_PATH + 1).count() <= MAX_PATH;
    is_short && !matches!(operation, PatchOperation::Copy(_) | PatchOperation::Move(_))
}

fn json(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("failed to read the body as JSON: {error}")))
}

/// Refuses what is not a Scale, or the Scale of something else.
fn check_identity(wanted: &Value, current: &Value, path: &PoolPath) -> Result<(), Refusal> {
    let text = |pointer| wanted.pointer(pointer).and_then(Value::as_str);
    if !wanted.is_object() {
        return Err(Refusal::bad_request("expected a Scale of autoscaling/v1"));
    }
    // Absent ones are what the path says, as the API server reads it.
    let absent = |pointer| wanted.pointer(pointer).is_none_or(Value::is_null);
    let kind = (text("/apiVersion"), text("/kind"));
    let is_scale = kind == (Some("autoscaling/v1"), Some("Scale"))
        || (absent("/apiVersion") && absent("/kind"));
    if !is_scale {
        return Err(Refusal::bad_request(format!(
            "expected a Scale of autoscaling/v1, found kind {} of {}",
            wanted["kind"], wanted["apiVersion"]
        )));
    }
    // Without `replicas` in it, it asks for none, as clients in Go write it; what has no spec is something else,
    // and would take every VM.
    if !wanted.get("spec").is_some_and(Value::is_object) {
        return Err(Refusal::bad_request(
            "expected a Scale with a spec: to ask for no VMs, say spec.replicas 0",
        ));
    }
    for (pointer, expected) in [
        ("/metadata/name", path.name.as_str()),
        ("/metadata/namespace", path.namespace.as_str()),
    ] {
        if !absent(pointer) && text(pointer) != Some(expected) {
            return Err(Refusal::bad_request(format!(
                "{} of the object ({}) is not the one of the URL ({expected:?})",
                &pointer[1..].replace('/', "."),
                wanted.pointer(pointer).unwrap_or(&Value::Null)
            )));
        }
    }
    let uid = "/metadata/uid";
    if !absent(uid) && wanted.pointer(uid) != current.pointer(uid) {
        return Err(Refusal::conflict(
            &path.name,
            format!(
                "the pool {:?} is another one than meant: its UID differs",
                path.name
            ),
        ));
    }
    Ok(())
}

fn wanted_version(wanted: &Value) -> Option<&str> {
    let version = wanted.pointer("/metadata/resourceVersion")?.as_str()?;
    (!version.is_empty()).then_some(version)
}

/// Says how many VMs the pool is to have, by the rules that the CRD's own scale has.
async fn judge(
    pools: &Pools,
    path: &PoolPath,
    pool: &StoredPool,
    current: &Value,
    wanted: &Value,
    warnings: &mut Vec<String>,
) -> Result<i64, Refusal> {
    let request = Request {
        uid: String::new(),
        kind: scale_kind(),
        name: path.name.clone(),
        namespace: path.namespace.clone(),
        operation: Operation::Update,
        user_info: UserInfo::default(),
        object: bounded(wanted),
        old_object: bounded(current),
    };
    let typed = match &pool.typed {
        Ok(pool) => Ok(Some(Arc::clone(pool))),
        Err(why) => Err(Unavailable {
            what: format!("pool {}", path.name),
            why: why.clone(),
        }),
    };
    let config = match &typed {
        Ok(Some(pool)) if validate_scale::asks_for_a_second(&request) => {
            pools.config(&path.namespace, &pool.spec.config.name).await
        }
        _ => Ok(None),
    };
    let verdict = validate_scale::review(&request, &typed, &config);
    warnings.extend(verdict.warnings);
    if !verdict.causes.is_empty() {
        return Err(invalid(&path.name, verdict.causes));
    }
    match wanted.pointer("/spec/replicas") {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value.as_i64().ok_or_else(|| {
            let field = Path::spec().child("replicas");
            let message = format!("must be a whole number, not {value}");
            invalid(&path.name, vec![Cause::invalid(field, message)])
        }),
    }
}

/// As admission reads objects; what comes here was not read any deeper.
fn bounded(value: &Value) -> Bounded {
    let (value, is_cut) = (value.clone(), false);
    Bounded { value, is_cut }
}

fn scale_kind() -> GroupKind {
    GroupKind {
        group: "autoscaling".to_owned(),
        kind: "Scale".to_owned(),
    }
}

fn invalid(name: &str, causes: Vec<Cause>) -> Refusal {
    Refusal::invalid(&scale_kind(), name, &causes)
}

/// Writes the number through the CRD's own scale, if the pool still is the one that was judged.
async fn store(
    pools: &Pools,
    path: &PoolPath,
    pool: &StoredPool,
    replicas: i64,
    options: &Options,
) -> Result<Value, Refusal> {
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": pool.version()},
        "spec": {"replicas": replicas},
    }));
    let params = PatchParams {
        dry_run: options.dry_run,
        field_manager: Some(options.manager.clone()),
        ..PatchParams::default()
    };
    let api = pools.api(path);
    let call = api.patch_subresource("scale", &path.name, &params, &patch);
    let written: DynamicObject = match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(written)) => written,
        Ok(Err(error)) => return Err(Refusal::of_call("write the scale", &error)),
        Err(_) => {
            return Err(Refusal::timeout(
                "the API server has not answered whether the scale was written",
            ));
        }
    };
    if let (false, Some(version)) = (options.dry_run, &written.metadata.resource_version) {
        pools.wrote(path, version);
    }
    let mut scale = of(pool, path);
    scale["metadata"]["resourceVersion"] = json!(written.metadata.resource_version);
    scale["spec"]["replicas"] = replicas.into();
    if let Some(count) = written.data.pointer("/status/replicas") {
        scale["status"]["replicas"] = count.clone();
    }
    Ok(scale)
}
