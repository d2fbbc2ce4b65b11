//! The tables against KubeVirt's own CRD, where it is at hand: a field that looks like a reference
//! and is neither in a table nor known to be none fails here.

use std::path::PathBuf;

use serde_json::Value;

use crate::stamp::table::{PER_VM_VALUES, TABLE};

/// Fields whose names look like references, and that are none.
const NOT_A_REFERENCE: &[&str] = &[
    // Names of entries, options and devices inside the spec.
    "template.spec.dnsConfig.options[].name",
    "template.spec.domain.cpu.features[].name",
    "template.spec.domain.devices.gpus[].name",
    "template.spec.domain.devices.gpus[].requestName",
    "template.spec.domain.devices.hostDevices[].name",
    "template.spec.domain.devices.hostDevices[].requestName",
    "template.spec.domain.devices.inputs[].name",
    "template.spec.domain.devices.interfaces[].ports[].name",
    "template.spec.domain.devices.sound.name",
    "template.spec.domain.devices.watchdog.name",
    "template.spec.livenessProbe.httpGet.httpHeaders[].name",
    "template.spec.readinessProbe.httpGet.httpHeaders[].name",
    "template.spec.networks[].name",
    "template.spec.networks[].resourceClaim.requestName",
    "template.spec.resourceClaims[].name",
    "template.spec.utilityVolumes[].name",
    "template.spec.volumes[].downwardAPI.fields[].resourceFieldRef.containerName",
    "template.spec.volumes[].name",
    // Resources of nodes.
    "template.spec.domain.devices.gpus[].deviceName",
    "template.spec.domain.devices.hostDevices[].deviceName",
    // What the guest is told.
    "template.spec.domain.devices.interfaces[].dhcpOptions.bootFileName",
    "template.spec.domain.devices.interfaces[].dhcpOptions.tftpServerName",
    // The VM that an image is imported from.
    "dataVolumeTemplates[].spec.source.vddk.uuid",
];

fn crd() -> Option<Value> {
    let folder = std::env::var_os("VMPOOL_KUBEVIRT_CRDS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/kubevirt/crds"),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(folder.join("virtualmachines.kubevirt.io.yaml")).ok()?;
    Some(serde_saphyr::from_str(&text).unwrap())
}

fn leaves(schema: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (key, property) in properties {
            let at = if at.is_empty() {
                key.clone()
            } else {
                format!("{at}.{key}")
            };
            leaves(property, &at, found);
        }
    } else if let Some(items) = schema.get("items") {
        leaves(items, &format!("{at}[]"), found);
    } else if schema.get("type").and_then(Value::as_str) == Some("string") {
        found.push(at.to_owned());
    }
}

fn looks_like_a_reference(path: &str) -> bool {
    let field = path
        .rsplit('.')
        .next()
        .unwrap()
        .trim_end_matches("[]")
        .to_lowercase();
    let inside = [
        "secret",
        "configmap",
        "claim",
        "hostname",
        "namespace",
        "serial",
        "uuid",
        "mac",
    ];
    let ends = [
        "name",
        "ref",
        "class",
        "imagestream",
        "extraargs",
        "fromvolume",
    ];
    (inside.iter().any(|part| field.contains(part)) || ends.iter().any(|part| field.ends_with(part)))
        // A pod affinity's namespaces are where to look for other pods.
        && !(path.contains(".affinity.") && field == "namespaces")
}

#[test]
fn every_reference_of_kubevirts_crd_is_in_a_table_and_every_row_in_the_crd() {
    let Some(crd) = crd() else {
        eprintln!("skipped: no CRDs of KubeVirt; name their folder in VMPOOL_KUBEVIRT_CRDS");
        return;
    };
    let version = &crd["spec"]["versions"].as_array().unwrap()[0];
    assert_eq!(version["name"], "v1");
    let mut fields = Vec::new();
    leaves(
        &version["schema"]["openAPIV3Schema"]["properties"]["spec"],
        "",
        &mut fields,
    );
    assert!(fields.len() > 200, "the schema was read");

    let known = |path: &str| {
        TABLE.iter().any(|row| row.path == path)
            || PER_VM_VALUES.iter().any(|(known, _)| *known == path)
            || NOT_A_REFERENCE.contains(&path)
    };
    let unknown: Vec<_> = fields
        .iter()
        .filter(|path| looks_like_a_reference(path) && !known(path))
        .collect();
    assert!(
        unknown.is_empty(),
        "neither in a table nor known to be no reference: {unknown:#?}"
    );

    // Metadata has no schema there.
    let opaque = |path: &&&str| path.contains("metadata.");
    let rows = TABLE.iter().map(|row| &row.path);
    let values = PER_VM_VALUES.iter().map(|(path, _)| path);
    let lost: Vec<_> = rows
        .chain(values)
        .chain(NOT_A_REFERENCE)
        .filter(|path| !opaque(path) && !fields.iter().any(|field| field == **path))
        .collect();
    assert!(lost.is_empty(), "not in the CRD: {lost:#?}");
}
