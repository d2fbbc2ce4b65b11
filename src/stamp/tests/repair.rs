//! What the webhook puts right, and what it keeps.

use serde_json::{Value, json};

use super::*;

fn member() -> Value {
    let spec = json!({
        "runStrategy": "Always",
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"storage": {"accessModes": ["ReadWriteOnce"]}}}],
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}}],
            "domain": {"devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "init", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            }},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "dataVolume": {"name": "root"}},
                {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "ud"}}},
            ],
        }},
    });
    stamped(&spec, &all_flags(), 1)
}

/// The VM after its repair; a second one has nothing to do.
fn repaired(vm: &Value, stamped: &Value) -> Value {
    let patch = repair(vm, stamped);
    let mut result = vm.clone();
    json_patch::patch(&mut result, &patch).unwrap();
    assert_eq!(
        repair(&result, stamped),
        json_patch::Patch::default(),
        "{result:#}"
    );
    result
}

#[test]
fn a_stamped_vm_needs_no_repair() {
    assert!(repair(&member(), &member()).0.is_empty());
}

#[test]
fn all_that_is_missing_comes_back() {
    let stamped = member();
    for pointer in [
        "/metadata/labels",
        "/metadata/annotations",
        "/metadata/ownerReferences",
        "/spec/runStrategy",
        "/spec/dataVolumeTemplates",
        "/spec/template/metadata",
        "/spec/template/spec/volumes",
        "/spec/template/spec/volumes/0",
        "/spec/template/spec/volumes/1",
        "/spec/template/spec/tolerations/0/key",
        "/spec/template/spec/domain/devices/disks/0",
        "/spec/template/spec/domain/devices/disks/0/disk/bus",
        "/spec/template/spec/accessCredentials/0/sshPublicKey/propagationMethod",
        "/spec",
    ] {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        let mut vm = stamped.clone();
        match vm.pointer_mut(parent).unwrap() {
            Value::Object(object) => drop(object.remove(last).unwrap()),
            Value::Array(elements) => drop(elements.remove(last.parse().unwrap())),
            other => panic!("{other}"),
        }
        assert_eq!(repaired(&vm, &stamped), stamped, "{pointer}");
    }
}

#[test]
fn all_that_was_changed_is_put_right() {
    let stamped = member();
    for (pointer, wrong) in [
        ("/metadata/labels/vmpool.dev~1ordinal", json!("2")),
        ("/metadata/labels", json!("x")),
        ("/metadata/annotations/vmpool.dev~1stamp", json!("{}")),
        ("/metadata/ownerReferences/0/name", json!("other")),
        ("/metadata/ownerReferences/0/controller", json!(false)),
        ("/spec/runStrategy", json!("Halted")),
        (
            "/spec/template/spec/volumes/0/dataVolume/name",
            json!("root"),
        ),
        (
            "/spec/template/spec/volumes/1/cloudInitNoCloud/secretRef/name",
            json!("ud"),
        ),
        (
            "/spec/dataVolumeTemplates/0/spec/storage/accessModes",
            json!(["ReadWriteOnce", "ReadOnlyMany"]),
        ),
        ("/spec/template/spec/networks", json!({})),
        ("/spec/template", json!(null)),
    ] {
        let mut vm = stamped.clone();
        *vm.pointer_mut(pointer).unwrap() = wrong;
        assert_eq!(repaired(&vm, &stamped), stamped, "{pointer}");
    }
}

#[test]
fn what_others_add_is_kept() {
    let stamped = member();
    let mut vm = stamped.clone();
    vm["metadata"]["labels"]["policy/checked"] = json!("yes");
    vm["metadata"]["finalizers"] = json!(["policy/x"]);
    vm["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(json!({"uid": "9", "kind": "X"}));
    vm["spec"]["template"]["metadata"]["annotations"]["a"] = json!("b");
    let template = &mut vm["spec"]["template"]["spec"];
    template["nodeSelector"] = json!({"zone": "a"});
    template["tolerations"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"key": "added"}));
    template["tolerations"][1]["effect"] = json!("NoSchedule");
    template["domain"]["machine"] = json!({"type": "q35"});
    template["domain"]["devices"]["disks"]
        .as_array_mut()
        .unwrap()
        .insert(1, json!({"name": "added", "disk": {}}));
    template["domain"]["devices"]["disks"][0]["cache"] = json!("none");
    template["domain"]["devices"]["interfaces"][0]["macAddress"] = json!("02:00:00:00:00:01");
    template["volumes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "added", "emptyDisk": {}}));
    template["accessCredentials"]
        .as_array_mut()
        .unwrap()
        .push(json!({"userPassword": {"source": {"secret": {"secretName": "keys-1"}}}}));
    assert!(repair(&vm, &stamped).0.is_empty());

    // ... and beside something that is put right, too.
    let mut broken = vm.clone();
    broken["spec"]["template"]["spec"]["volumes"]
        .as_array_mut()
        .unwrap()
        .remove(0);
    broken["spec"]["template"]["spec"]["domain"]["devices"]["disks"][2]["disk"]["bus"] =
        json!("sata");
    assert_eq!(repaired(&broken, &stamped), vm);
}

#[test]
fn the_order_of_the_guests_devices_is_put_right() {
    let stamped = member();
    let mut vm = stamped.clone();
    vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = json!([
        {"name": "init", "disk": {"bus": "virtio"}},
        {"name": "added", "disk": {}},
        {"name": "root", "disk": {"bus": "virtio"}},
    ]);
    let vm = repaired(&vm, &stamped);
    let disks = &vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"];
    let names: Vec<_> = disks
        .as_array()
        .unwrap()
        .iter()
        .map(|disk| disk["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["root", "init", "added"]);
}

#[test]
fn running_beside_the_stamps_run_strategy_is_taken_off() {
    let stamped = member();
    let mut vm = stamped.clone();
    vm["spec"]["running"] = json!(false);
    assert_eq!(repaired(&vm, &stamped), stamped);
}

#[test]
fn nulls_of_a_config_that_the_api_server_dropped_are_not_missed() {
    let spec = json!({"runStrategy": "Always", "x": null, "template": {"metadata": {"creationTimestamp": null}, "spec": {"hostname": null}}});
    let stamped = stamped(&spec, &all_flags(), 1);
    let mut vm = stamped.clone();
    vm["spec"].as_object_mut().unwrap().remove("x");
    vm["spec"]["template"]["spec"]
        .as_object_mut()
        .unwrap()
        .remove("hostname");
    vm["spec"]["template"]["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(repair(&vm, &stamped).0.is_empty());
}

#[test]
fn numbers_are_compared_as_numbers() {
    let stamped = json!({"spec": {"x": 1, "y": 2.0, "l": [1]}});
    assert!(
        repair(&json!({"spec": {"x": 1.0, "y": 2, "l": [1.0]}}), &stamped)
            .0
            .is_empty()
    );
    assert!(
        !repair(&json!({"spec": {"x": 1.5, "y": 2, "l": [1]}}), &stamped)
            .0
            .is_empty()
    );
}

#[test]
fn lists_with_keys_missing_or_twice_are_taken_as_a_whole() {
    let stamped = member();
    for odd in [
        json!([{"name": "root"}, {"name": "root"}]),
        json!([{"name": "root", "dataVolume": {"name": "a-1-root"}}, {}]),
        json!([null]),
    ] {
        let mut vm = stamped.clone();
        vm["spec"]["template"]["spec"]["volumes"] = odd;
        assert_eq!(repaired(&vm, &stamped), stamped);
    }
}
