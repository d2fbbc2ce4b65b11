//! The objects of a start: the VM's start revision and its VMI.
//!
//! Source: `startVMI`, `SetupVMIFromVM`, `createVMRevision` in
//! `pkg/virt-controller/watch/vm/vm.go`, `pkg/virt-controller/watch/vm/firmware.go`,
//! `SetDefaultNetworkInterface`, and for finalizer, phase Pending and hot-plug maxima virt-api's
//! VMI mutator. The template's spec is copied as it is. Not played: instance types, preferences.

use serde_json::{Value, json};
use uuid::Uuid;

use super::api::Patch;
use super::live_update::quantity;
use super::names::{LATEST_VERSION, STORAGE_VERSION, VM_FINALIZER, VM_GENERATION, VMI_FINALIZER};
use super::object::{controller_reference, generation, items, map, name, namespace, text, uid};

/// `firmwareUUIDns`: the name space of UUIDs that KubeVirt makes from VM names.
const FIRMWARE_NAMESPACE: Uuid = Uuid::from_u128(0x6a1a_24a1_4061_4607_8bf4_a396_3d0c_5895);

/// virt-api's `MaxHotplugRatio` default.
const HOTPLUG_RATIO: i64 = 4;

pub(super) fn owner_reference(vm: &Value) -> Value {
    controller_reference(vm, "kubevirt.io/v1", "VirtualMachine")
}

pub(super) fn firmware_uuid(vm_name: &str) -> String {
    Uuid::new_v5(&FIRMWARE_NAMESPACE, vm_name.as_bytes()).to_string()
}

pub(super) fn has_firmware_uuid(vm: &Value) -> bool {
    let uuid = &vm["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"];
    !text(uuid).is_empty()
}

pub(super) fn add_firmware_uuid(patch: Patch, vm: &Value) -> Patch {
    let mut firmware = map(&vm["spec"]["template"]["spec"]["domain"]["firmware"]);
    firmware.insert("uuid".into(), json!(firmware_uuid(name(vm))));
    patch.set(
        "/spec/template/spec/domain/firmware",
        Value::Object(firmware),
    )
}

/// The prefix of all start revisions of a VM.
pub(super) fn revision_prefix(vm: &Value) -> String {
    format!("revision-start-vm-{}-", uid(vm))
}

pub(super) fn revision_name(vm: &Value) -> String {
    format!("{}{}", revision_prefix(vm), generation(vm))
}

pub(super) fn revision(vm: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(vm),
            "namespace": namespace(vm),
            "ownerReferences": [owner_reference(vm)],
        },
        "data": {"spec": vm["spec"]},
        "revision": generation(vm),
    })
}

pub(super) fn vmi(vm: &Value, live_update: bool) -> Value {
    let template = &vm["spec"]["template"];
    let mut annotations = map(&template["metadata"]["annotations"]);
    annotations.insert(LATEST_VERSION.into(), json!("v1"));
    annotations.insert(STORAGE_VERSION.into(), json!("v1"));
    annotations.insert(VM_GENERATION.into(), json!(generation(vm).to_string()));
    let mut metadata = json!({
        "name": name(vm),
        "namespace": namespace(vm),
        "annotations": annotations,
        "finalizers": [VM_FINALIZER, VMI_FINALIZER],
        "ownerReferences": [owner_reference(vm)],
    });
    if template["metadata"]["labels"].is_object() {
        metadata["labels"] = template["metadata"]["labels"].clone();
    }
    let mut spec = template["spec"].clone();
    if text(&spec["domain"]["firmware"]["uuid"]).is_empty() {
        spec["domain"]["firmware"]["uuid"] = json!(firmware_uuid(name(vm)));
    }
    add_default_network(&mut spec);
    add_missing_disks(&mut spec);
    let mut status = json!({"virtualMachineRevisionName": revision_name(vm)});
    if live_update {
        add_hotplug_limits(&mut spec, &mut status);
    }
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    })
}

fn add_default_network(spec: &mut Value) {
    let devices = &spec["domain"]["devices"];
    let wanted = devices["autoattachPodInterface"] != false;
    if wanted && devices["interfaces"].is_null() && spec["networks"].is_null() {
        spec["domain"]["devices"]["interfaces"] = json!([{"name": "default", "bridge": {}}]);
        spec["networks"] = json!([{"name": "default", "pod": {}}]);
    }
}

/// `SetDefaultVolumeDisk`: a volume that no disk or filesystem uses gets a disk.
fn add_missing_disks(spec: &mut Value) {
    let devices = &spec["domain"]["devices"];
    let used = |volume: &str| {
        ["disks", "filesystems"]
            .iter()
            .any(|list| items(&devices[list]).iter().any(|d| d["name"] == volume))
    };
    let missing: Vec<Value> = items(&spec["volumes"])
        .iter()
        .map(|volume| text(&volume["name"]))
        .filter(|volume| !used(volume))
        .map(|volume| json!({"name": volume}))
        .collect();
    if missing.is_empty() {
        return;
    }
    let mut disks = items(&devices["disks"]).to_vec();
    disks.extend(missing);
    spec["domain"]["devices"]["disks"] = Value::Array(disks);
}

fn add_hotplug_limits(spec: &mut Value, status: &mut Value) {
    let cpu = &spec["domain"]["cpu"];
    let part = |field: &str| cpu[field].as_i64().unwrap_or(1);
    let (cores, sockets, threads) = (part("cores"), part("sockets"), part("threads"));
    status["currentCPUTopology"] = json!({"cores": cores, "sockets": sockets, "threads": threads});
    let mut cpu = map(cpu);
    cpu.insert("cores".into(), json!(cores));
    cpu.insert("sockets".into(), json!(sockets));
    cpu.insert("threads".into(), json!(threads));
    cpu.entry("maxSockets")
        .or_insert(json!(sockets * HOTPLUG_RATIO));
    spec["domain"]["cpu"] = Value::Object(cpu);
    let guest = spec["domain"]["memory"]["guest"].clone();
    if let Some(bytes) = quantity(&guest) {
        status["memory"] =
            json!({"guestAtBoot": guest, "guestCurrent": guest, "guestRequested": guest});
        let memory = &mut spec["domain"]["memory"];
        if memory["maxGuest"].is_null() {
            memory["maxGuest"] = json!((bytes * HOTPLUG_RATIO).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_uuids_are_those_of_the_real_controller() {
        assert_eq!(
            firmware_uuid("vm-pool-cirros-0"),
            "5dc37d5b-01d9-5b69-9949-50c281de47c1"
        );
        assert_eq!(firmware_uuid("p-0"), "181b264e-a38b-5366-a88d-ae9bd079fcb0");
    }

    #[test]
    fn unknown_fields_of_the_template_reach_the_instance() {
        let vm = json!({
            "metadata": {"name": "x", "namespace": "a", "uid": "u", "generation": 3},
            "spec": {"template": {"metadata": {"labels": {"l": "1"}, "annotations": {"n": "2"}},
                                  "spec": {"domain": {"devices": {}, "new": {"deep": 1.50}},
                                           "volumes": [{"name": "v", "containerDisk": {}}]}}},
        });
        let vmi = vmi(&vm, false);
        assert_eq!(vmi["spec"]["domain"]["new"], json!({"deep": 1.5}));
        assert_eq!(
            vmi["spec"]["domain"]["devices"]["disks"],
            json!([{"name": "v"}])
        );
        assert_eq!(vmi["metadata"]["labels"], json!({"l": "1"}));
        assert_eq!(vmi["metadata"]["annotations"]["n"], "2");
        assert_eq!(vmi["metadata"]["annotations"][VM_GENERATION], "3");
        assert_eq!(
            vmi["status"]["virtualMachineRevisionName"],
            "revision-start-vm-u-3"
        );
    }
}
