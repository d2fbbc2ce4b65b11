//! Installs what `vmpool manifests` generates, but for the Deployment, which the supervisor plays.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use kube::{Client, discovery};
use serde_json::{Value, json};

use super::{NAMESPACE, SERVICE_ACCOUNT};
use crate::crds;

/// The field manager of an installation by hand.
const MANAGER: &str = "vmpool-dev";

/// CRDs, namespace, service account, roles, and webhooks at this address.
pub(super) async fn vmpool(client: &Client, admission: SocketAddr) -> Result<()> {
    let kinds = vmpool::manifests::crds();
    let kinds: Vec<Value> = kinds.iter().map(value).collect::<Result<_>>()?;
    crds::apply(client, &kinds).await?;
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT, "namespace": NAMESPACE},
        }),
    ];
    objects.extend(vmpool::manifests::rbac());
    let target = vmpool::manifests::Target::Url(format!("https://{admission}"));
    objects.extend(vmpool::manifests::webhook_configurations(&target, None));
    for object in &objects {
        apply(client, object).await?;
    }
    Ok(())
}

/// Server-side-applies one object of any kind.
async fn apply(client: &Client, object: &Value) -> Result<()> {
    let typed: DynamicObject = serde_json::from_value(object.clone()).context("no object")?;
    let types = typed.types.as_ref().context("an object without a kind")?;
    let name = typed.metadata.name.as_deref().context("an object without a name")?;
    let kind = GroupVersionKind::try_from(types).context("a malformed apiVersion")?;
    let (resource, capabilities) = discovery::pinned_kind(client, &kind)
        .await
        .with_context(|| format!("failed to look up {}", types.kind))?;
    let api: Api<DynamicObject> = match (capabilities.scope, &typed.metadata.namespace) {
        (Scope::Namespaced, Some(namespace)) => {
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        _ => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .with_context(|| format!("failed to apply {} {name}", types.kind))?;
    Ok(())
}

fn value(object: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(object).context("an object is no JSON")
}
