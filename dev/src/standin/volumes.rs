//! What a VM's volumes name: claims, Secrets and ConfigMaps its launcher pod cannot start without.
//!
//! Source: `pkg/virt-controller/services/rendervolumes.go` of KubeVirt (what the launcher pod
//! mounts) and `pkg/storage/types/pvc.go` (`PVCNameFromVirtVolume`). Reads only; pool naming rules
//! have no place here.

use serde_json::Value;

use super::object::{items, text};

/// The claim behind a volume; a DataVolume's claim has its name.
pub(super) fn claim_of(volume: &Value) -> Option<&str> {
    [
        &volume["dataVolume"]["name"],
        &volume["persistentVolumeClaim"]["claimName"],
        &volume["memoryDump"]["claimName"],
    ]
    .into_iter()
    .find_map(Value::as_str)
}

/// Volumes of a VMI spec that are backed by a claim: volume name and claim name.
pub(super) fn claims(spec: &Value) -> impl Iterator<Item = (&str, &str)> {
    items(&spec["volumes"])
        .iter()
        .filter_map(|volume| Some((text(&volume["name"]), claim_of(volume)?)))
}

/// Names of DataVolumes that a VMI spec mentions as such.
pub(super) fn data_volumes(spec: &Value) -> impl Iterator<Item = &str> {
    items(&spec["volumes"])
        .iter()
        .filter_map(|volume| volume["dataVolume"]["name"].as_str())
}

/// Whether a volume may come and go while the VM runs.
pub(super) fn is_hotpluggable(volume: &Value) -> bool {
    ["dataVolume", "persistentVolumeClaim", "memoryDump"]
        .iter()
        .any(|source| volume[source]["hotpluggable"] == true)
}

/// An object a kubelet mounts, and without which the pod hangs in `ContainerCreating`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mounted {
    ConfigMap(String),
    Secret(String),
}

/// Everything that the launcher pod of this VMI spec mounts by name.
pub(super) fn mounted(spec: &Value) -> Vec<Mounted> {
    let mut found = Vec::new();
    for volume in items(&spec["volumes"]) {
        if volume["configMap"]["optional"] != true {
            config_map(&mut found, &volume["configMap"]["name"]);
        }
        if volume["secret"]["optional"] != true {
            secret(&mut found, &volume["secret"]["secretName"]);
        }
        config_map(&mut found, &volume["sysprep"]["configMap"]["name"]);
        secret(&mut found, &volume["sysprep"]["secret"]["name"]);
        for source in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
            secret(&mut found, &volume[source]["secretRef"]["name"]);
            secret(&mut found, &volume[source]["networkDataSecretRef"]["name"]);
        }
    }
    for credential in items(&spec["accessCredentials"]) {
        for way in ["sshPublicKey", "userPassword"] {
            secret(
                &mut found,
                &credential[way]["source"]["secret"]["secretName"],
            );
        }
    }
    found
}

fn config_map(found: &mut Vec<Mounted>, name: &Value) {
    push(found, name, Mounted::ConfigMap);
}

fn secret(found: &mut Vec<Mounted>, name: &Value) {
    push(found, name, Mounted::Secret);
}

fn push(found: &mut Vec<Mounted>, name: &Value, make: fn(String) -> Mounted) {
    if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
        let mounted = make(name.to_owned());
        if !found.contains(&mounted) {
            found.push(mounted);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_source_is_found_once() {
        let spec = json!({
            "volumes": [
                {"name": "a", "dataVolume": {"name": "root"}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "c", "secret": {"secretName": "s"}},
                {"name": "d", "configMap": {"name": "c"}},
                {"name": "e", "secret": {"secretName": "maybe", "optional": true}},
                {"name": "f", "cloudInitNoCloud": {
                    "secretRef": {"name": "ud"}, "networkDataSecretRef": {"name": "nd"}}},
                {"name": "g", "cloudInitConfigDrive": {"secretRef": {"name": "ud"}}},
                {"name": "h", "sysprep": {"secret": {"name": "unattend"}}},
            ],
            "accessCredentials": [
                {"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}}},
            ],
        });
        assert_eq!(
            claims(&spec).collect::<Vec<_>>(),
            [("a", "root"), ("b", "data")]
        );
        assert_eq!(data_volumes(&spec).collect::<Vec<_>>(), ["root"]);
        let secret = |name: &str| Mounted::Secret(name.to_owned());
        assert_eq!(
            mounted(&spec),
            [
                secret("s"),
                Mounted::ConfigMap("c".to_owned()),
                secret("ud"),
                secret("nd"),
                secret("unattend"),
                secret("keys"),
            ]
        );
    }
}
