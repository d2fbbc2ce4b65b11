//! Installs what `vmpool manifests` generates, but for the Deployment, which the supervisor plays.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use kube::{Client, discovery};
use serde::Serialize;
use serde_json::{Value, json};
use vmpool::manifests::{self, WebhookTarget};

use crate::crds;

/// The field manager of an installation by hand.
const MANAGER: &str = "vmpool-dev";

/// CRDs, namespace, service account, roles, and webhooks at this address.
pub(super) async fn vmpool(client: &Client, admission: SocketAddr) -> Result<()> {
    crds::apply(client, &values(&manifests::crds())?).await?;
    let mut objects = vec![
        value(&manifests::namespace())?,
        value(&manifests::service_account())?,
        value(&manifests::cluster_role())?,
        value(&manifests::cluster_role_binding())?,
        value(&manifests::own_namespace_role())?,
        value(&manifests::own_namespace_role_binding())?,
        // The program makes its own certificate here and says so in the configurations.
        value(&manifests::self_signed_role())?,
        value(&manifests::self_signed_role_binding())?,
        value(&manifests::self_signed_namespaced_role())?,
        value(&manifests::self_signed_namespaced_role_binding())?,
        value(&manifests::trust_role_binding())?,
    ];
    objects.extend(values(&manifests::user_roles())?);
    objects.extend(values(&manifests::policies())?);
    objects.extend(values(&manifests::policy_bindings())?);
    let target = WebhookTarget::Url(format!("https://{admission}"));
    let (mutating, validating) = manifests::webhook_configurations(&target, None);
    objects.extend([value(&mutating)?, value(&validating)?]);
    for object in &objects {
        apply(client, object).await?;
    }
    Ok(())
}

/// The aggregated API at this port of this machine. The API server reaches it under the machine's own name, since
/// endpoints can't be on the loopback interface.
pub(super) async fn aggregated(client: &Client, port: u16) -> Result<()> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": manifests::NAME, "namespace": manifests::NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    apply(client, &service).await?;
    apply(client, &value(&manifests::api_service(port))?).await
}

/// Server-side-applies one object of any kind.
async fn apply(client: &Client, object: &Value) -> Result<()> {
    let typed: DynamicObject = serde_json::from_value(object.clone()).context("no object")?;
    let types = typed.types.as_ref().context("an object without a kind")?;
    let name = typed
        .metadata
        .name
        .as_deref()
        .context("an object without a name")?;
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

fn value(object: &impl Serialize) -> Result<Value> {
    serde_json::to_value(object).context("an object is no JSON")
}

fn values(objects: &[impl Serialize]) -> Result<Vec<Value>> {
    objects.iter().map(value).collect()
}
