//! Plays virt-api's validating webhook for VirtualMachines: registered under KubeVirt's names, with TLS and an
//! authority of its own, it refuses what `faults` finds, in KubeVirt's form. What it doesn't know it admits.
//! The real one is asked about updates too: that is left out, since the stand-in's own writes would wait for it.

mod faults;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::webhook_server::WebhookServer;
use faults::faults;

/// KubeVirt's own names.
const CONFIGURATION: &str = "virt-api-validator";
const WEBHOOK: &str = "virtualmachine-validator.kubevirt.io";
const PATH: &str = "/virtualmachines-validate";

/// The running webhook. Dropping it stops it; its configuration stays, as after a crash of virt-api.
pub struct VirtApi {
    _server: WebhookServer,
}

impl VirtApi {
    /// Serves on a free port of this machine and registers itself.
    pub async fn start(client: &Client) -> Result<Self> {
        let router = Router::new().route(PATH, post(review));
        let server = WebhookServer::start("virt-api", router)?;
        register(client, &server.client_config(PATH)).await?;
        Ok(Self { _server: server })
    }
}

async fn register(client: &Client, client_config: &Value) -> Result<()> {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [{
            "name": WEBHOOK,
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config,
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "rules": [{
                "apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["virtualmachines"], "scope": "*",
            }],
        }],
    });
    let kind = GroupVersionKind::gvk(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    );
    let resource = ApiResource::from_gvk_with_plural(&kind, "validatingwebhookconfigurations");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let params = PatchParams::apply("virt-operator").force();
    api.patch(CONFIGURATION, &params, &Patch::Apply(&configuration))
        .await
        .context("failed to register the played virt-api")?;
    Ok(())
}

/// What is asked comes from the API server, so what can't be read is our own fault and admitted.
async fn review(body: Bytes) -> axum::Json<Value> {
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = &review["request"];
    let vm = &request["object"];
    let is_deleting = !vm["metadata"]["deletionTimestamp"].is_null();
    let found = if is_deleting { Vec::new() } else { faults(vm) };
    let mut response = json!({"uid": request["uid"], "allowed": found.is_empty()});
    if let Some(first) = found.first() {
        let causes: Vec<Value> = found
            .iter()
            .map(|fault| {
                json!({"reason": "FieldValueInvalid", "field": fault.field, "message": fault.message})
            })
            .collect();
        response["status"] = json!({
            "status": "Failure", "code": 422, "reason": "Invalid",
            "message": first.message, "details": {"causes": causes},
        });
    }
    axum::Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    }))
}
