//! `subresources.kubevirt.io/v1` over HTTP, as virt-api serves it: PUT `start`, `stop`, `restart`.
//!
//! Source: `pkg/virt-api/apiserver/storage/virtualmachine/{start,stop,restart}.go` for bodies and
//! answers, the `lifecycle` folder beside them for the texts of refusals. What is decided is
//! `subresources.rs`'s; what a caller may do was decided by the API server.

use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use http::StatusCode;
use serde_json::{Value, json};

use super::api::{code, message};
use super::calls::{Decide, Wishes, call};
use super::object::Key;
use super::shared::Shared;
use super::subresources::{self, Refusal};
use crate::extension::{ApiGroup, Extension, status};

const GROUP: ApiGroup = ApiGroup {
    group: "subresources.kubevirt.io",
    version: "v1",
    service: ("kubevirt", "virt-api"),
};
/// The subresources of a VM that are played.
const PLAYED: [&str; 3] = ["start", "stop", "restart"];

pub(super) async fn serve(shared: &Arc<Shared>) -> Result<Extension> {
    let vm = format!(
        "{}/namespaces/{{namespace}}/virtualmachines/{{name}}",
        GROUP.path()
    );
    let router = Router::new()
        .route(&format!("{vm}/{{verb}}"), put(handle))
        .with_state(Arc::clone(shared));
    let resources: Vec<Value> = PLAYED
        .iter()
        .map(|verb| {
            json!({
                "name": format!("virtualmachines/{verb}"), "singularName": "",
                "namespaced": true, "kind": "VirtualMachine", "verbs": ["update"],
            })
        })
        .collect();
    let client = shared.api.client().clone();
    Extension::serve(client, GROUP, json!(resources), router)
        .await
        .context("failed to serve KubeVirt's subresources")
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name, verb)): Path<(String, String, String)>,
    body: Bytes,
) -> Response {
    let asked = match options(&body) {
        Ok(options) => decide(&verb, &options),
        Err(refusal) => Err(refusal),
    };
    let (wishes, decide) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return refused(&name, &refusal),
    };
    match call(&shared, &Key::new(&namespace, &name), wishes, decide).await {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(error) => failed(&name, &error),
    }
}

/// YAML or JSON, or nothing at all.
fn options(body: &[u8]) -> Result<Value, Refusal> {
    let text = std::str::from_utf8(body).map_err(|error| bad_request(error.to_string()))?;
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    serde_saphyr::from_str(text)
        .map_err(|error| bad_request(format!("unable to decode options: {error}")))
}

fn decide(verb: &str, options: &Value) -> Result<(Wishes, Decide), Refusal> {
    let mut wishes = Wishes {
        dry_run: options["dryRun"] == json!(["All"]),
        grace_seconds: None,
    };
    match verb {
        "start" if options["paused"] == true => Err(bad_request(
            "the stand-in does not play a paused start".to_owned(),
        )),
        "start" => Ok((wishes, subresources::start)),
        "stop" => {
            wishes.grace_seconds = options["gracePeriod"].as_i64();
            Ok((wishes, subresources::stop))
        }
        "restart" => {
            wishes.grace_seconds = restart_grace(options["gracePeriodSeconds"].as_i64())?;
            Ok((wishes, subresources::restart))
        }
        _ => Err(Refusal {
            code: 404,
            message: format!("the stand-in does not play {verb}"),
        }),
    }
}

/// Zero is a forced restart, which virt-api makes one second; nothing else may be asked for.
fn restart_grace(seconds: Option<i64>) -> Result<Option<i64>, Refusal> {
    match seconds {
        None => Ok(None),
        Some(0) => Ok(Some(1)),
        Some(1..) => Err(bad_request(
            "For force restart, only gracePeriod=0 is supported for now".to_owned(),
        )),
        Some(_) => Err(bad_request(
            "gracePeriod has to be greater or equal to 0".to_owned(),
        )),
    }
}

fn bad_request(message: String) -> Refusal {
    Refusal { code: 400, message }
}

fn failed(vm: &str, error: &anyhow::Error) -> Response {
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        return refused(vm, refusal);
    }
    match error.downcast_ref::<kube::Error>() {
        Some(error) if code(error) == 404 => refused(
            vm,
            &Refusal {
                code: 404,
                message: format!("virtualmachine.kubevirt.io {vm:?} not found"),
            },
        ),
        Some(error) => refused(
            vm,
            &Refusal {
                code: 500,
                message: message(error),
            },
        ),
        None => refused(
            vm,
            &Refusal {
                code: 500,
                message: format!("{error:#}"),
            },
        ),
    }
}

/// With the prefixes that apimachinery's errors have.
fn refused(vm: &str, refusal: &Refusal) -> Response {
    let text = &refusal.message;
    match refusal.code {
        400 => status(StatusCode::BAD_REQUEST, "BadRequest", text),
        404 => status(StatusCode::NOT_FOUND, "NotFound", text),
        409 => {
            let object = format!("virtualmachine.kubevirt.io {vm:?}");
            let text = format!("Operation cannot be fulfilled on {object}: {text}");
            status(StatusCode::CONFLICT, "Conflict", &text)
        }
        _ => {
            let text = format!("Internal error occurred: {text}");
            status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_optional_and_may_be_yaml() {
        assert_eq!(options(b"").unwrap(), json!({}));
        assert_eq!(
            options(b"dryRun: [All]").unwrap(),
            json!({"dryRun": ["All"]})
        );
        assert_eq!(options(b"{").unwrap_err().code, 400);
    }

    #[test]
    fn a_restart_takes_no_grace_period_but_none() {
        let asked = |seconds: i64| decide("restart", &json!({"gracePeriodSeconds": seconds}));
        assert_eq!(asked(0).unwrap().0.grace_seconds, Some(1));
        assert_eq!(asked(30).unwrap_err().code, 400);
        assert_eq!(asked(-1).unwrap_err().code, 400);
        assert_eq!(decide("pause", &json!({})).unwrap_err().code, 404);
    }
}
