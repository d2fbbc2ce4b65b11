//! What is taken off VMs that are no members, and what stays.

use serde_json::{Value, json};

use super::*;

fn stripped(vm: &Value) -> (Value, Vec<String>) {
    let Stripped { patch, taken } = strip(vm);
    let mut result = vm.clone();
    json_patch::patch(&mut result, &patch).unwrap();
    assert_eq!(
        strip(&result),
        Stripped::default(),
        "nothing is left to take"
    );
    (result, taken)
}

#[test]
fn a_copied_member_becomes_a_plain_vm() {
    let spec = json!({"runStrategy": "Always", "dataVolumeTemplates": [{"metadata": {"name": "root"}}], "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"domain": {}}}});
    let metadata =
        json!({"virtualMachineMetadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}});
    let mut copy = stamped(&spec, &inputs(metadata), 1);
    copy["metadata"]["annotations"]["vmpool.dev/parked"] = json!("{}");
    copy["metadata"]["annotations"]["vmpool.dev/config"] = json!("desktop");
    copy["metadata"]["annotations"]["vmpool.dev/postfix"] = json!("7");
    let (plain, taken) = stripped(&copy);
    assert_eq!(
        plain,
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {
                "name": "a-1",
                "namespace": "t",
                "labels": {"team": "x"},
                "annotations": {"note": "y", "vmpool.dev/config": "desktop", "vmpool.dev/postfix": "7"},
            },
            "spec": {
                "runStrategy": "Always",
                "dataVolumeTemplates": [{"metadata": {"name": "a-1-root"}}],
                "template": {"metadata": {"labels": {"app": "w"}, "annotations": {}}, "spec": {"domain": {}}},
            },
        })
    );
    assert_eq!(
        taken,
        [
            "controller reference to VirtualMachinePool a",
            "label vmpool.dev/config",
            "label vmpool.dev/ordinal",
            "label vmpool.dev/pool",
            "label vmpool.dev/pool-uid",
            "label vmpool.dev/revision",
            "annotation vmpool.dev/member-of",
            "annotation vmpool.dev/parked",
            "annotation vmpool.dev/stamp",
            "template label vmpool.dev/config",
            "template label vmpool.dev/ordinal",
            "template label vmpool.dev/pool",
            "template label vmpool.dev/pool-uid",
            "template label vmpool.dev/revision",
            "template annotation vmpool.dev/stamp-hash",
        ]
    );
}

#[test]
fn other_owners_stay_and_a_list_that_changed_meanwhile_is_not_touched() {
    let kubevirts = json!({"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "p", "uid": "1", "controller": true});
    let not_controlling = json!({"apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool", "name": "a", "uid": "2"});
    let ours = json!({"apiVersion": "vmpool.dev/v2", "kind": "VirtualMachinePool", "name": "a", "uid": "2", "controller": true});
    let vm = json!({"metadata": {"ownerReferences": [kubevirts, ours, not_controlling, "odd"]}});
    let (plain, taken) = stripped(&vm);
    assert_eq!(
        plain["metadata"]["ownerReferences"],
        json!([kubevirts, "odd"])
    );
    assert_eq!(taken.len(), 2);

    let mut meanwhile = vm.clone();
    meanwhile["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .remove(0);
    json_patch::patch(&mut meanwhile, &strip(&vm).patch).unwrap_err();
}

#[test]
fn vms_that_have_nothing_of_ours_are_left_alone() {
    for vm in [
        json!(null),
        json!({}),
        json!({"metadata": null, "spec": []}),
        json!({"metadata": {"labels": [], "annotations": "x", "ownerReferences": {}}}),
        json!({"metadata": {"labels": {"x.vmpool.dev/y": "", "vmpool.dev": "", "vmpool.device/x": ""}}}),
        json!({"metadata": {"annotations": {"vmpool.dev/config": "desktop", "vmpool.dev/detached-from": "a"}}}),
    ] {
        assert_eq!(strip(&vm), Stripped::default(), "{vm}");
    }
}
