//! The kustomization files. Only `resources`, and patches where certificates come from elsewhere: whoever installs adds images, replicas and patches in an overlay
//! of their own.

use serde_json::json;

use super::yaml;

/// A kustomization of these files and folders. In order, though kubectl sorts by kind: namespace and CRDs first,
/// webhooks last, so that nothing is refused by a webhook that nobody serves yet. No `sortOptions`: kubectl
/// warns about them.
pub(super) fn of(resources: &[impl AsRef<str>]) -> String {
    let resources: Vec<&str> = resources.iter().map(AsRef::as_ref).collect();
    yaml::file([yaml::document(&json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    }))])
}

/// The same with files of patches, which are merged into what is of their kind and name.
pub(super) fn patched(resources: &[&str], patches: &[&str]) -> String {
    let patches = patches.iter().map(|path| json!({"path": path}));
    yaml::file([yaml::document(&json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
        "patches": patches.collect::<Vec<_>>(),
    }))])
}
