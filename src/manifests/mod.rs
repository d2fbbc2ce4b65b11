//! What `kubectl apply` installs, built from typed objects: CRDs from `api`, RBAC from the rules that stand
//! beside the calls that need them, webhooks from the hooks that `admission` serves. `vmpool manifests` writes
//! the files; a test compares them with what is generated, so that the two can't part.
//!
//! Nothing is decided here that another module knows better: this one only joins. `samples/` is written by
//! hand and never touched.

#[allow(missing_docs, unreachable_pub, reason = "interim")]
mod interim;
mod kustomize;
mod program;
mod rbac;
mod webhooks;
mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;

pub use program::{deployment, namespace, service};
pub use rbac::{cluster_role, cluster_role_binding, self_signed_role, self_signed_role_binding};
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
    let mut add = |path: &str, text: String| {
        files.insert(PathBuf::from(path), text);
    };
    let mut crd_files = Vec::new();
    for crd in crds() {
        let name = format!("{}.yaml", crd.name_any());
        add(&format!("crds/{name}"), yaml::file([yaml::document(&crd)]));
        crd_files.push(name);
    }
    add("crds/kustomization.yaml", kustomize::of(&crd_files));

    add(
        "rbac/service-account.yaml",
        yaml::file([yaml::document(&service_account())]),
    );
    add("rbac/cluster-role.yaml", rbac::cluster_role_file());
    add(
        "rbac/cluster-role-binding.yaml",
        yaml::file([yaml::document(&cluster_role_binding())]),
    );
    add(
        "rbac/user-roles.yaml",
        yaml::file(user_roles().iter().map(yaml::document)),
    );
    add(
        "rbac/kustomization.yaml",
        kustomize::of(&[
            "service-account.yaml",
            "cluster-role.yaml",
            "cluster-role-binding.yaml",
            "user-roles.yaml",
        ]),
    );

    let target = WebhookTarget::service();
    let (mutating, validating) = webhook_configurations(&target, None);
    add(
        "base/namespace.yaml",
        yaml::file([yaml::document(&namespace())]),
    );
    add(
        "base/service.yaml",
        yaml::file([yaml::document(&service())]),
    );
    add(
        "base/deployment.yaml",
        yaml::file([yaml::document(&deployment())]),
    );
    add(
        "base/webhooks.yaml",
        yaml::file([yaml::document(&mutating), yaml::document(&validating)]),
    );
    add(
        "base/kustomization.yaml",
        kustomize::of(&[
            "namespace.yaml",
            "../crds",
            "../rbac",
            "service.yaml",
            "deployment.yaml",
            "webhooks.yaml",
        ]),
    );

    add("overlays/self-signed/rbac.yaml", rbac::self_signed_file());
    add(
        "overlays/self-signed/kustomization.yaml",
        kustomize::of(&["rbac.yaml", "../../base"]),
    );
    files
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
