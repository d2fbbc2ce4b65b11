//! The table of references: every row with its switch unset, off and on.

use serde_json::{Value, json};

use super::*;
use crate::stamp::table::{PER_VM_VALUES, TABLE};

/// What is expected of each path, written down apart from the table. A row that is in none of the
/// lists, or in two, fails.
const WITH_SECRETS: &[&str] = &[
    "template.spec.volumes[].secret.secretName",
    "template.spec.volumes[].cloudInitNoCloud.secretRef.name",
    "template.spec.volumes[].cloudInitNoCloud.networkDataSecretRef.name",
    "template.spec.volumes[].cloudInitConfigDrive.secretRef.name",
    "template.spec.volumes[].cloudInitConfigDrive.networkDataSecretRef.name",
    "template.spec.volumes[].sysprep.secret.name",
    "template.spec.accessCredentials[].sshPublicKey.source.secret.secretName",
    "template.spec.accessCredentials[].userPassword.source.secret.secretName",
];
const WITH_CONFIG_MAPS: &[&str] = &[
    "template.spec.volumes[].configMap.name",
    "template.spec.volumes[].sysprep.configMap.name",
];
const WITH_CLAIMS: &[&str] = &[
    "template.spec.volumes[].persistentVolumeClaim.claimName",
    "template.spec.volumes[].dataVolume.name",
];
const ALWAYS_PER_VM: &[&str] = &["dataVolumeTemplates[].metadata.name"];
const FOLLOWS_A_TEMPLATE: &[&str] = &[
    "template.spec.volumes[].persistentVolumeClaim.claimName",
    "template.spec.volumes[].dataVolume.name",
    "template.spec.volumes[].ephemeral.persistentVolumeClaim.claimName",
];
const KEPT: &[&str] = &[
    "template.spec.volumes[].ephemeral.persistentVolumeClaim.claimName",
    "template.spec.volumes[].serviceAccount.serviceAccountName",
    "template.spec.volumes[].containerDisk.imagePullSecret",
    "template.spec.volumes[].memoryDump.claimName",
    "template.spec.volumes[].hostDisk.path",
    "template.spec.utilityVolumes[].claimName",
    "template.spec.domain.firmware.kernelBoot.container.imagePullSecret",
    "template.spec.serviceAccountName",
    "template.spec.resourceClaims[].resourceClaimName",
    "template.spec.resourceClaims[].resourceClaimTemplateName",
    "template.spec.networks[].multus.networkName",
    "template.spec.domain.devices.interfaces[].binding.name",
    "template.spec.priorityClassName",
    "template.spec.schedulerName",
    "template.metadata.annotations[\"hooks.kubevirt.io/hookSidecars\"]<json>[].configMap.name",
    "template.metadata.annotations[\"hooks.kubevirt.io/hookSidecars\"]<json>[].pvc.name",
    "template.spec.domain.devices.disks[].name",
    "template.spec.domain.devices.filesystems[].name",
    "template.spec.domain.devices.interfaces[].name",
    "template.spec.domain.firmware.acpi.slicNameRef",
    "template.spec.domain.firmware.acpi.msdmNameRef",
    "template.spec.domain.devices.gpus[].claimName",
    "template.spec.domain.devices.hostDevices[].claimName",
    "template.spec.networks[].resourceClaim.claimName",
    "instancetype.inferFromVolume",
    "preference.inferFromVolume",
    "instancetype.name",
    "instancetype.revisionName",
    "preference.name",
    "preference.revisionName",
    "dataVolumeTemplates[].metadata.namespace",
    "dataVolumeTemplates[].spec.source.http.secretRef",
    "dataVolumeTemplates[].spec.source.s3.secretRef",
    "dataVolumeTemplates[].spec.source.gcs.secretRef",
    "dataVolumeTemplates[].spec.source.registry.secretRef",
    "dataVolumeTemplates[].spec.source.imageio.secretRef",
    "dataVolumeTemplates[].spec.source.vddk.secretRef",
    "dataVolumeTemplates[].spec.source.http.secretExtraHeaders[]",
    "dataVolumeTemplates[].spec.source.http.certConfigMap",
    "dataVolumeTemplates[].spec.source.s3.certConfigMap",
    "dataVolumeTemplates[].spec.source.registry.certConfigMap",
    "dataVolumeTemplates[].spec.source.imageio.certConfigMap",
    "dataVolumeTemplates[].spec.source.vddk.extraArgs",
    "dataVolumeTemplates[].spec.source.pvc.name",
    "dataVolumeTemplates[].spec.source.pvc.namespace",
    "dataVolumeTemplates[].spec.source.snapshot.name",
    "dataVolumeTemplates[].spec.source.snapshot.namespace",
    "dataVolumeTemplates[].spec.source.registry.imageStream",
    "dataVolumeTemplates[].spec.sourceRef.name",
    "dataVolumeTemplates[].spec.sourceRef.namespace",
    "dataVolumeTemplates[].spec.pvc.dataSource.name",
    "dataVolumeTemplates[].spec.pvc.dataSourceRef.name",
    "dataVolumeTemplates[].spec.pvc.dataSourceRef.namespace",
    "dataVolumeTemplates[].spec.pvc.volumeName",
    "dataVolumeTemplates[].spec.pvc.storageClassName",
    "dataVolumeTemplates[].spec.pvc.volumeAttributesClassName",
    "dataVolumeTemplates[].spec.storage.dataSource.name",
    "dataVolumeTemplates[].spec.storage.dataSourceRef.name",
    "dataVolumeTemplates[].spec.storage.dataSourceRef.namespace",
    "dataVolumeTemplates[].spec.storage.volumeName",
    "dataVolumeTemplates[].spec.storage.storageClassName",
    "dataVolumeTemplates[].spec.priorityClassName",
];

/// What the pool says about one switch.
#[derive(Clone, Copy, PartialEq)]
enum Switch {
    Unset,
    Off,
    On,
}

fn with(switch: Switch, flag: Flag) -> PoolInputs {
    match switch {
        Switch::Unset => inputs(json!({})),
        Switch::Off => inputs(json!({flag.field(): false})),
        Switch::On => inputs(json!({flag.field(): true})),
    }
}

/// What the name `x` at a path is on VM 4 of pool `a`.
fn name_at(path: &'static str, inputs: &PoolInputs) -> Value {
    let mut spec = json!({"runStrategy": "Always"});
    place(&mut spec, path, &json!("x"));
    let vm = stamped(&spec, inputs, 4);
    let found = at(&vm["spec"], path);
    assert_eq!(found.len(), 1, "{path}: {vm}");
    found[0].clone()
}

#[test]
fn m28_to_m36_every_row_with_its_switch_unset_off_and_on() {
    let lists = [
        (WITH_SECRETS, Some(Flag::Secrets)),
        (WITH_CONFIG_MAPS, Some(Flag::ConfigMaps)),
        (WITH_CLAIMS, Some(Flag::VolumeClaims)),
        (ALWAYS_PER_VM, None),
        (KEPT, None),
    ];
    for row in TABLE {
        let found: Vec<_> = lists
            .iter()
            .filter(|(paths, _)| paths.contains(&row.path))
            .collect();
        assert_eq!(found.len(), 1, "{} needs exactly one expectation", row.path);
        let (paths, follows) = *found[0];
        let per_vm = std::ptr::eq(paths, ALWAYS_PER_VM);
        for flag in [Flag::ConfigMaps, Flag::Secrets, Flag::VolumeClaims] {
            for switch in [Switch::Unset, Switch::Off, Switch::On] {
                let expected = match (per_vm, follows == Some(flag) && switch == Switch::On) {
                    (true, _) => "a-4-x",
                    (false, true) => "x-4",
                    (false, false) => "x",
                };
                assert_eq!(
                    name_at(row.path, &with(switch, flag)),
                    expected,
                    "{}",
                    row.path
                );
            }
        }
    }
    let expectations = lists.iter().map(|(paths, _)| paths.len()).sum::<usize>();
    assert_eq!(
        expectations,
        TABLE.len(),
        "an expectation without a row, or a row twice"
    );
}

#[test]
fn what_names_a_disk_template_follows_it_whatever_the_switches_say() {
    for row in TABLE {
        assert_eq!(
            row.names_disk,
            FOLLOWS_A_TEMPLATE.contains(&row.path),
            "{}",
            row.path
        );
        for inputs in [
            inputs(json!({})),
            all_flags(),
            inputs(json!({"sharedVolumeClaims": ["x"]})),
        ] {
            let mut spec = json!({"dataVolumeTemplates": [{"metadata": {"name": "x"}}]});
            place(&mut spec, row.path, &json!("x"));
            let vm = stamped(&spec, &inputs, 4);
            assert_eq!(
                vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"],
                "a-4-x"
            );
            if row.names_disk {
                assert_eq!(at(&vm["spec"], row.path), [json!("a-4-x")], "{}", row.path);
            }
        }
    }
}

#[test]
fn no_path_is_in_the_tables_twice() {
    let mut paths: Vec<&str> = TABLE.iter().map(|row| row.path).collect();
    paths.extend(PER_VM_VALUES.iter().map(|(path, _)| *path));
    let count = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), count);
}
