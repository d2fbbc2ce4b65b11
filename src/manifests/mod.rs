//! What `kubectl apply` installs, built from typed objects: CRDs from `api`, RBAC from the rules that stand
//! beside the calls that need them, webhooks from the hooks that `admission` serves. `vmpool manifests` writes
//! the files; a test compares them with what is generated, so that the two can't part.
//!
//! Nothing is decided here that another module knows better: this one only joins. `samples/` is written by
//! hand and never touched.

mod api_service;
mod cert_manager;
mod guard;
mod kustomize;
mod program;
mod rbac;
mod webhooks;
mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;

pub use api_service::{api_service, trust_role_binding};
pub use guard::{policies, policy_bindings};
pub use program::{REPLICAS, deployment, disruption_budget, namespace, service};
pub use rbac::{cluster_role, cluster_role_binding, self_signed_role, self_signed_role_binding};
pub use rbac::{own_namespace_role, own_namespace_role_binding};
pub use rbac::{self_signed_namespaced_role, self_signed_namespaced_role_binding};
pub use rbac::{service_account, user_roles};
pub use webhooks::{WebhookTarget, webhook_configurations};

/// Where the program is installed. Guards and the own-namespace exclusion of the webhooks name it.
pub const NAMESPACE: &str = "vmpool-system";
/// Name of the Deployment, the Service, the ServiceAccount and the ClusterRole.
pub const NAME: &str = "vmpool";
/// How to bring the files up to date; the test that finds them stale prints it.
pub const FIX: &str = "cargo run -- manifests";

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {path:?}")]
pub struct WriteFile {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Both CRDs.
pub fn crds() -> Vec<CustomResourceDefinition> {
    crate::api::crds()
}

/// Every generated file, by its path below the manifests folder.
pub fn files() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    files.extend(folder("crds", crd_files()));
    let mut rights = rbac::files();
    rights.extend(api_service::rights_files());
    files.extend(folder("rbac", rights));
    let mut base = program::files();
    base.extend(guard::files());
    base.extend(api_service::files());
    base.extend(webhooks::files());
    files.extend(folder_on("base", &["../crds", "../rbac"], base));
    let overlay = "overlays/self-signed";
    files.extend(folder_on(
        overlay,
        &["../../base"],
        rbac::self_signed_files(),
    ));
    let overlay = cert_manager::files().into_iter();
    files.extend(overlay.map(|(name, text)| (Path::new("overlays/cert-manager").join(name), text)));
    files
}

/// A file's name and text.
type File = (String, String);

fn crd_files() -> Vec<File> {
    let crds = crds();
    let file = |crd| yaml::file([yaml::document(crd)]);
    crds.iter()
        .map(|crd| (format!("{}.yaml", crd.name_any()), file(crd)))
        .collect()
}

/// Files of one folder, and the kustomization that names them.
fn folder(path: &str, files: Vec<File>) -> Vec<(PathBuf, String)> {
    folder_on(path, &[], files)
}

/// The same on top of other folders, which come first.
fn folder_on(path: &str, below: &[&str], mut files: Vec<File>) -> Vec<(PathBuf, String)> {
    let names = files.iter().map(|(name, _)| name.as_str());
    let resources: Vec<&str> = below.iter().copied().chain(names).collect();
    let kustomization = kustomize::of(&resources);
    files.push(("kustomization.yaml".to_owned(), kustomization));
    files
        .into_iter()
        .map(|(name, text)| (Path::new(path).join(name), text))
        .collect()
}

/// Writes every generated file below `dir`; other files there stay.
pub fn write(dir: &Path) -> Result<(), WriteFile> {
    for (path, text) in files() {
        let path = dir.join(path);
        write_file(&path, &text).map_err(|source| WriteFile { path, source })?;
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

#[cfg(test)]
mod tests;
