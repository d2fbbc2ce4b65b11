//! The overlay for clusters with cert-manager: it makes the certificate (`certs/` in the repository says which), and
//! the program reads it from a mounted Secret. `caBundle`s stay the program's to write: it knows when a new CA is
//! trusted everywhere, and serves with what that signed no sooner.

use serde_json::{Value, json};

use super::program::ARGS;
use super::{File, NAME, NAMESPACE, kustomize, rbac, yaml};

/// Where the Secret is mounted.
const FOLDER: &str = "/etc/vmpool/tls";
/// The Secret that cert-manager writes: another one than the program's own, which has a CA's key in it.
pub(super) const SECRET: &str = "vmpool-cert-manager-tls";
const PATCH: &str = "deployment.yaml";

/// What the command line is given then.
pub(super) fn args() -> Vec<String> {
    let files = [
        ("tls-cert-file", "tls.crt"),
        ("tls-key-file", "tls.key"),
        ("ca-file", "ca.crt"),
    ];
    let files = files.map(|(flag, file)| format!("--{flag}={FOLDER}/{file}"));
    ARGS.map(str::to_owned).into_iter().chain(files).collect()
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"template": {"spec": {
            "containers": [{
                "name": NAME,
                "args": args(),
                "volumeMounts": [{"name": "tls", "mountPath": FOLDER, "readOnly": true}],
            }],
            "volumes": [{"name": "tls", "secret": {"secretName": SECRET}}],
        }}},
    })
}

/// All files of the overlay.
pub(super) fn files() -> Vec<File> {
    let resources = ["../../base", "../../../certs", "rbac.yaml"];
    vec![
        ("rbac.yaml".to_owned(), rbac::publisher_file()),
        (
            PATCH.to_owned(),
            yaml::file([yaml::document(&deployment())]),
        ),
        (
            "kustomization.yaml".to_owned(),
            kustomize::patched(&resources, &[PATCH]),
        ),
    ]
}
