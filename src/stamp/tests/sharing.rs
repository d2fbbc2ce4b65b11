//! What is found to be wrong with a second VM.

use serde_json::{Value, json};

use super::*;
use crate::stamp::sharing::{
    Severity, fixed_identity, for_several_vms, misplaced, shared_writable,
};

fn claim_with(volume: Value, disks: Value) -> Value {
    json!({"template": {"spec": {
        "domain": {"devices": {"disks": disks}},
        "volumes": [{"name": "other", "emptyDisk": {}}, volume],
    }}})
}

#[test]
fn a_claim_that_all_vms_would_write_to_is_found() {
    let claim = json!({"name": "d", "persistentVolumeClaim": {"claimName": "data"}});
    let written = json!([{"name": "other", "cdrom": {}}, {"name": "d", "disk": {"bus": "virtio"}}]);
    let plain = inputs(json!({}));
    let found = shared_writable(&claim_with(claim.clone(), written.clone()), &plain);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].path,
        "template.spec.volumes[1].persistentVolumeClaim.claimName"
    );
    assert_eq!(found[0].severity, Severity::Warn);
    assert!(
        found[0]
            .message
            .contains("\"data\" would be written to by several VMs")
    );

    let data_volume = json!({"name": "d", "dataVolume": {"name": "data"}});
    assert_eq!(
        shared_writable(&claim_with(data_volume, written.clone()), &plain).len(),
        1
    );

    let listed = inputs(
        json!({"appendPostfixToVolumeClaimReferences": true, "sharedVolumeClaims": ["data"]}),
    );
    assert_eq!(
        shared_writable(&claim_with(claim.clone(), written.clone()), &listed).len(),
        1
    );

    // One for each VM.
    assert!(shared_writable(&claim_with(claim.clone(), written.clone()), &all_flags()).is_empty());
    let mut template = claim_with(claim.clone(), written);
    template["dataVolumeTemplates"] = json!([{"metadata": {"name": "data"}}]);
    assert!(shared_writable(&template, &plain).is_empty());

    // Not written to, or made for several writers.
    for disks in [
        json!([{"name": "d", "disk": {"readonly": true}}]),
        json!([{"name": "d", "cdrom": {}}]),
        json!([{"name": "d", "lun": {"readonly": true}}]),
        json!([{"name": "d", "disk": {}, "shareable": true}]),
        json!([]),
        json!(null),
    ] {
        assert!(
            shared_writable(&claim_with(claim.clone(), disks.clone()), &plain).is_empty(),
            "{disks}"
        );
    }
    let read_only =
        json!({"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}});
    let disks = json!([{"name": "d", "disk": {}}]);
    assert!(shared_writable(&claim_with(read_only, disks.clone()), &plain).is_empty());
    let backing =
        json!({"name": "d", "ephemeral": {"persistentVolumeClaim": {"claimName": "data"}}});
    assert!(shared_writable(&claim_with(backing, disks), &plain).is_empty());
}

#[test]
fn written_down_identities_are_found_with_their_place() {
    let spec = json!({"template": {"spec": {
        "hostname": "desk",
        "domain": {
            "firmware": {"uuid": "u", "serial": ""},
            "devices": {
                "interfaces": [{"name": "a"}, {"name": "b", "macAddress": "02:00:00:00:00:01"}],
                "disks": [{"name": "d", "serial": "s"}],
            },
            "launchSecurity": {"sev": {"session": "x", "dhCert": "y"}},
        },
    }}});
    let paths: Vec<_> = fixed_identity(&spec)
        .into_iter()
        .map(|found| found.path)
        .collect();
    assert_eq!(
        paths,
        [
            "template.spec.domain.firmware.uuid",
            "template.spec.domain.devices.interfaces[1].macAddress",
            "template.spec.domain.devices.disks[0].serial",
            "template.spec.hostname",
            "template.spec.domain.launchSecurity.sev.session",
            "template.spec.domain.launchSecurity.sev.dhCert",
        ]
    );
}

#[test]
fn what_only_one_vm_can_have_is_refused_and_the_rest_a_warning() {
    let spec = json!({
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"pvc": {"volumeName": "pv-1"}}}],
        "template": {
            "metadata": {"annotations": {"hooks.kubevirt.io/hookSidecars": "[{\"pvc\": {\"name\": \"hook\"}}]"}},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-1"}, {"name": "x", "resourceClaimTemplateName": "t"}],
                "volumes": [{"name": "h", "hostDisk": {"path": "/data/disk.img", "type": "Disk"}}],
            },
        },
    });
    let found: Vec<_> = for_several_vms(&spec, &all_flags())
        .into_iter()
        .map(|found| (found.severity, found.path))
        .collect();
    assert_eq!(
        found,
        [
            (
                Severity::Refuse,
                "template.spec.resourceClaims[0].resourceClaimName".to_owned()
            ),
            (
                Severity::Refuse,
                "dataVolumeTemplates[0].spec.pvc.volumeName".to_owned()
            ),
            (
                Severity::Warn,
                "template.spec.volumes[0].hostDisk.path".to_owned()
            ),
            (
                Severity::Warn,
                "template.metadata.annotations[\"hooks.kubevirt.io/hookSidecars\"][0].pvc.name"
                    .to_owned()
            ),
        ]
    );
}

#[test]
fn what_belongs_to_one_vms_life_has_no_place_in_a_config() {
    let spec = json!({
        "instancetype": {"name": "u1", "revisionName": "r"},
        "preference": {"revisionName": "r"},
        "dataVolumeTemplates": [
            {"metadata": {"name": "a", "namespace": "t"}},
            {"metadata": {"name": "b", "namespace": "elsewhere"}},
            {"metadata": {"name": "c", "namespace": ""}},
        ],
        "template": {"spec": {
            "utilityVolumes": [{"name": "u", "claimName": "c"}],
            "volumes": [{"name": "m", "memoryDump": {"claimName": "c"}}],
        }},
    });
    let paths: Vec<_> = misplaced(&spec, "t")
        .into_iter()
        .map(|found| found.path)
        .collect();
    assert_eq!(
        paths,
        [
            "template.spec.volumes[0].memoryDump.claimName",
            "template.spec.utilityVolumes[0].claimName",
            "instancetype.revisionName",
            "preference.revisionName",
            "dataVolumeTemplates[1].metadata.namespace",
        ]
    );
}
