//! Installs the CRDs of KubeVirt and CDI, each by itself, so that a test can have them come late.
//!
//! With [`KUBEVIRT_CRDS_ENV`] KubeVirt's real ones, else small ones with open schemas under the
//! same names: enough for a try on anyone's machine. CDI's is always the small one. Ours are not
//! installed here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// The folder with KubeVirt's real CRDs, one file each.
pub const KUBEVIRT_CRDS_ENV: &str = "VMPOOL_KUBEVIRT_CRDS";

/// A CRD is established in a moment; large ones on a busy machine take seconds.
const ESTABLISH_TIMEOUT: Duration = Duration::from_mins(1);
const MANAGER: &str = "vmpool-dev";

/// Installs KubeVirt's CRDs and CDI's.
pub async fn install(client: &Client) -> Result<()> {
    install_kubevirt(client).await?;
    install_cdi(client).await
}

/// Installs KubeVirt's CRDs: the real ones if [`KUBEVIRT_CRDS_ENV`] says where they are.
pub async fn install_kubevirt(client: &Client) -> Result<()> {
    let crds = match std::env::var_os(KUBEVIRT_CRDS_ENV).filter(|folder| !folder.is_empty()) {
        Some(folder) => read_folder(Path::new(&folder))?,
        None => vec![virtual_machines(), virtual_machine_instances()],
    };
    apply(client, &crds).await
}

/// Installs CDI's DataVolume.
pub async fn install_cdi(client: &Client) -> Result<()> {
    apply(client, &[data_volumes()]).await
}

/// Server-side-applies CRDs and waits until they are served. Server-side, for kubectl's client
/// would keep a copy in an annotation, which is limited to 256 KiB.
pub async fn apply(client: &Client, crds: &[Value]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    let applied = crds.iter().map(async |crd| {
        let name = crd["metadata"]["name"]
            .as_str()
            .context("a CRD without a name")?;
        let crd = api
            .patch(name, &params, &Patch::Apply(crd))
            .await
            .with_context(|| format!("failed to apply the CRD {name}"))?;
        anyhow::Ok(crd.name_any())
    });
    for name in futures::future::try_join_all(applied).await? {
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(ESTABLISH_TIMEOUT, established)
            .await
            .with_context(|| format!("{name} was not served in {ESTABLISH_TIMEOUT:?}"))?
            .with_context(|| format!("failed to wait for {name}"))?;
    }
    Ok(())
}

/// The CRDs in a folder's YAML files, in the order of their names.
fn read_folder(folder: &Path) -> Result<Vec<Value>> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("failed to read {folder:?}, which {KUBEVIRT_CRDS_ENV} names"))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    paths.sort();
    paths.iter().map(|path| read_file(path)).collect()
}

/// Without its status, which is the API server's to write.
fn read_file(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {path:?}"))?;
    let mut crd: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("failed to parse {path:?}"))?;
    if let Some(crd) = crd.as_object_mut() {
        crd.remove("status");
    }
    Ok(crd)
}

fn virtual_machines() -> Value {
    open_crd("kubevirt.io", "v1", "VirtualMachine", &["vm", "vms"], true)
}

/// No status subresource: KubeVirt's controllers write status with the rest of the object.
fn virtual_machine_instances() -> Value {
    let names = ["vmi", "vmis"];
    open_crd("kubevirt.io", "v1", "VirtualMachineInstance", &names, false)
}

fn data_volumes() -> Value {
    open_crd(
        "cdi.kubevirt.io",
        "v1beta1",
        "DataVolume",
        &["dv", "dvs"],
        true,
    )
}

/// A namespaced kind that takes any fields.
fn open_crd(group: &str, version: &str, kind: &str, short_names: &[&str], status: bool) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let subresources = if status {
        json!({"status": {}})
    } else {
        json!({})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": singular,
                "shortNames": short_names,
                "categories": ["all"],
            },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": subresources,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": open, "status": open},
                }},
                "additionalPrinterColumns": columns(kind),
            }],
        },
    })
}

/// The first of the real kind's columns: what one sees in a demo should look like KubeVirt.
fn columns(kind: &str) -> Value {
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let ready = r#".status.conditions[?(@.type=="Ready")].status"#;
    match kind {
        "VirtualMachine" => json!([
            age,
            column("Status", ".status.printableStatus"),
            column("Ready", ready),
        ]),
        "VirtualMachineInstance" => json!([
            age,
            column("Phase", ".status.phase"),
            column("NodeName", ".status.nodeName"),
            column("Ready", ready),
        ]),
        _ => json!([column("Phase", ".status.phase"), age]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_instance_has_no_status_subresource() {
        let status = |crd: &Value| crd["spec"]["versions"][0]["subresources"]["status"].is_object();
        assert!(status(&virtual_machines()));
        assert!(!status(&virtual_machine_instances()));
        assert!(status(&data_volumes()));
    }

    #[test]
    fn the_small_crds_are_crds() {
        for crd in [
            virtual_machines(),
            virtual_machine_instances(),
            data_volumes(),
        ] {
            let typed: CustomResourceDefinition = serde_json::from_value(crd.clone()).unwrap();
            let expected = format!("{}.{}", typed.spec.names.plural, typed.spec.group);
            assert_eq!(typed.name_any(), expected);
        }
    }
}
