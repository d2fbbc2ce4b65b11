//! Bringing a member to another stamp: what its config changes is done to it, what others did stays.

#![expect(
    clippy::items_after_statements,
    clippy::too_many_lines,
    reason = "tables of what is done to a VM, and what it is to be after that"
)]

use super::*;
use crate::api::annotations;
use crate::stamp::{Base, Update, UpdateInput, update};

/// A config as people have it.
fn spec() -> Value {
    json!({
        "runStrategy": "Always",
        "instancetype": {"name": "small"},
        "preference": {"name": "fedora", "kind": "VirtualMachinePreference"},
        "dataVolumeTemplates": [{
            "metadata": {"name": "root"},
            "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}, "source": {"blank": {}}},
        }],
        "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"note": "a"}},
            "spec": {
                "hostname": "a",
                "domain": {
                    "memory": {"guest": "1Gi"},
                    "devices": {
                        "disks": [
                            {"name": "root", "disk": {"bus": "virtio"}},
                            {"name": "image", "disk": {"bus": "virtio"}},
                            {"name": "init", "disk": {"bus": "virtio"}},
                        ],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "volumes": [
                    {"name": "root", "dataVolume": {"name": "root"}},
                    {"name": "image", "containerDisk": {"image": "v1", "command": ["a", "b"]}},
                    {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "init"}}},
                ],
            },
        },
    })
}

fn with(spec: &Value, pointer: &str, value: Value) -> Value {
    let mut spec = spec.clone();
    set(&mut spec, pointer, value);
    spec
}

/// Sets a value; the parents are there. `null` takes it out.
fn set(target: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = target
        .pointer_mut(parent)
        .unwrap_or_else(|| panic!("{pointer}"));
    match parent {
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        Value::Object(map) if value.is_null() => drop(map.remove(key)),
        _ => parent[key.replace("~1", "/")] = value,
    }
}

/// Member 1 as the API server has it after its creation.
fn created(spec: &Value, inputs: &PoolInputs) -> Value {
    let mut vm = stamped(spec, inputs, 1);
    vm["metadata"]["uid"] = json!("u");
    vm["metadata"]["resourceVersion"] = json!("7");
    vm
}

struct Change<'a> {
    from: Option<(&'a Value, &'a PoolInputs)>,
    to: (&'a Value, &'a PoolInputs),
    keeps_run_strategy: bool,
}

impl Change<'_> {
    fn update(&self, live: &Value) -> Update {
        let input = |(spec, inputs): (&Value, &PoolInputs)| {
            let spec = spec.as_object().unwrap().clone();
            (revision_hash(&spec), spec, inputs.clone())
        };
        let (from, to) = (self.from.map(input), input(self.to));
        let names = |hash: &str| revision_name("cfg", hash);
        let (from_name, to_name) = (
            from.as_ref()
                .map(|(hash, ..)| names(hash))
                .unwrap_or_default(),
            names(&to.0),
        );
        fn whole<'a>(
            (hash, spec, inputs): &'a (String, Map<String, Value>, PoolInputs),
            name: &'a str,
        ) -> StampInput<'a> {
            StampInput {
                namespace: "t",
                pool: PoolIdentity {
                    name: "a",
                    uid: "1f0c",
                },
                config: "cfg",
                revision: Revision {
                    name,
                    content_hash: hash,
                    spec,
                },
                inputs,
                ordinal: 1,
            }
        }
        update(&UpdateInput {
            base: from
                .as_ref()
                .map_or(Base::Unknown, |from| Base::Known(whole(from, &from_name))),
            target: whole(&to, &to_name),
            live,
            keeps_run_strategy: self.keeps_run_strategy,
        })
    }

    /// The VM after it.
    fn done(&self, live: &Value) -> Value {
        let mut vm = live.clone();
        json_patch::patch(&mut vm, &self.update(live).patch).unwrap();
        vm
    }
}

/// From one spec to another, onto what `touch` made of the member.
fn merged(from: &Value, to: &Value, touch: impl Fn(&mut Value)) -> Value {
    let inputs = inputs(json!({}));
    let mut live = created(from, &inputs);
    touch(&mut live);
    Change {
        from: Some((from, &inputs)),
        to: (to, &inputs),
        keeps_run_strategy: false,
    }
    .done(&live)
}

/// Without a known base.
fn merged_blindly(to: &Value, live: &Value) -> Value {
    Change {
        from: None,
        to: (to, &inputs(json!({}))),
        keeps_run_strategy: false,
    }
    .done(live)
}

/// Paths below the VM's spec, with their values.
fn holds(vm: &Value, expected: &[(&str, Value)]) {
    for (pointer, value) in expected {
        let found = vm.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, value, "{pointer} in {vm:#}");
    }
}

const TEMPLATE: &str = "/spec/template/spec";

#[test]
fn an_untouched_member_becomes_exactly_the_new_stamp() {
    let old = spec();
    for (pointer, value) in [
        ("/template/spec/domain/memory/guest", json!("2Gi")),
        ("/template/spec/hostname", Value::Null),
        ("/template/spec/domain/devices/tpm", json!({})),
        ("/template/spec/tolerations", Value::Null),
        ("/template/spec/tolerations", json!([])),
        ("/template/spec/tolerations/0", json!({"key": "b"})),
        (
            "/template/spec/volumes/1",
            json!({"name": "image", "emptyDisk": {"capacity": "1Gi"}}),
        ),
        (
            "/template/spec/volumes/1/containerDisk",
            json!({"image": "v2"}),
        ),
        (
            "/template/spec/domain/devices/disks/0",
            json!({"name": "root", "cdrom": {"bus": "sata"}}),
        ),
        (
            "/template/spec/domain/devices/interfaces/0",
            json!({"name": "default", "bridge": {}}),
        ),
        (
            "/template/spec/domain/devices/disks",
            json!([
                {"name": "init", "disk": {"bus": "virtio"}},
                {"name": "root", "disk": {"bus": "virtio"}},
            ]),
        ),
        ("/template/metadata/labels", Value::Null),
        (
            "/template/metadata",
            json!({"labels": {"app": "db", "tier": "1"}}),
        ),
        ("/runStrategy", json!("Halted")),
        ("/instancetype", json!({"name": "large"})),
        ("/instancetype", Value::Null),
        ("/preference", json!({"inferFromVolume": "root"})),
    ] {
        let new = with(&old, pointer, value);
        for (from, to) in [(&old, &new), (&new, &old)] {
            let expected = created(to, &inputs(json!({})));
            assert_eq!(merged(from, to, |_| {}), expected, "{pointer}");
        }
    }
}

#[test]
fn the_patch_is_for_that_very_vm_as_it_was_read_and_empty_when_nothing_is_to_be_done() {
    let (old, inputs) = (spec(), inputs(json!({})));
    let new = with(&old, "/template/spec/hostname", json!("b"));
    let live = created(&old, &inputs);
    let change = |to| Change {
        from: Some((&old, &inputs)),
        to: (to, &inputs),
        keeps_run_strategy: false,
    };
    let patch = serde_json::to_value(change(&new).update(&live).patch).unwrap();
    assert_eq!(
        patch[0],
        json!({"op": "test", "path": "/metadata/uid", "value": "u"})
    );
    assert_eq!(
        patch[1],
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"})
    );
    assert!(change(&old).update(&live).patch.0.is_empty());
    let once = change(&new).done(&live);
    assert!(change(&new).update(&once).patch.0.is_empty(), "again");
}

#[test]
fn ro_09_what_users_and_webhooks_did_to_a_member_stays() {
    let old = spec();
    let mut new = with(&old, "/template/spec/hostname", json!("b"));
    set(
        &mut new,
        "/template/spec/domain/devices/disks/1/disk/bus",
        json!("sata"),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/interfaces/0",
        json!({"name": "default", "bridge": {}}),
    );
    set(
        &mut new,
        "/template/spec/tolerations",
        json!([{"key": "b"}]),
    );
    let vm = merged(&old, &new, |vm| {
        set(vm, "/metadata/labels/keep", json!("yes"));
        set(vm, "/metadata/annotations/note", json!("mine"));
        set(
            vm,
            "/metadata/annotations/vmpool.dev~1protected",
            json!("scale-in"),
        );
        set(vm, "/spec/runStrategy", json!("Halted"));
        set(vm, "/spec/instancetype/revisionName", json!("small-v1-x"));
        let spec = &mut vm["spec"]["template"]["spec"];
        spec["architecture"] = json!("amd64");
        spec["domain"]["machine"] = json!({"type": "pc-q35-9"});
        spec["domain"]["firmware"] = json!({"uuid": "f", "serial": "s"});
        spec["domain"]["devices"]["interfaces"][0]["macAddress"] = json!("02:00:00:00:00:01");
        set(spec, "/tolerations/-", json!({"key": "webhook"}));
        set(
            spec,
            "/volumes/-",
            json!({"name": "plugged", "dataVolume": {"name": "p", "hotpluggable": true}}),
        );
        set(
            spec,
            "/domain/devices/disks/-",
            json!({"name": "plugged", "disk": {"bus": "scsi"}}),
        );
        vm["spec"]["template"]["metadata"]["annotations"]["kubevirt.io/pci-topology-version"] =
            json!("v3");
    });
    let at = |path: &str| format!("{TEMPLATE}{path}");
    holds(
        &vm,
        &[
            ("/metadata/labels/keep", json!("yes")),
            ("/metadata/annotations/note", json!("mine")),
            (
                "/metadata/annotations/vmpool.dev~1protected",
                json!("scale-in"),
            ),
            ("/spec/runStrategy", json!("Halted")),
            ("/spec/instancetype/revisionName", json!("small-v1-x")),
            (
                "/spec/template/metadata/annotations/kubevirt.io~1pci-topology-version",
                json!("v3"),
            ),
            (&at("/hostname"), json!("b")),
            (&at("/architecture"), json!("amd64")),
            (&at("/domain/machine/type"), json!("pc-q35-9")),
            (&at("/domain/firmware"), json!({"uuid": "f", "serial": "s"})),
            (
                &at("/domain/devices/interfaces"),
                json!([
                    {"name": "default", "bridge": {}, "macAddress": "02:00:00:00:00:01"},
                ]),
            ),
            (
                &at("/domain/devices/disks/1"),
                json!({"name": "image", "disk": {"bus": "sata"}}),
            ),
            (&at("/domain/devices/disks/3/name"), json!("plugged")),
            (&at("/volumes/3/name"), json!("plugged")),
            (
                &at("/tolerations"),
                json!([{"key": "webhook"}, {"key": "b"}]),
            ),
        ],
    );
}

#[test]
fn what_the_config_changes_it_decides_and_what_it_drops_stays_if_it_is_somebody_elses() {
    let old = spec();
    let touch = |vm: &mut Value| set(vm, "/spec/template/spec/hostname", json!("users"));
    let other = with(&old, "/template/spec/domain/memory/guest", json!("2Gi"));
    holds(
        &merged(&old, &other, touch),
        &[("/spec/template/spec/hostname", json!("users"))],
    );
    let changed = with(&old, "/template/spec/hostname", json!("b"));
    holds(
        &merged(&old, &changed, touch),
        &[("/spec/template/spec/hostname", json!("b"))],
    );
    let dropped = with(&old, "/template/spec/hostname", Value::Null);
    holds(
        &merged(&old, &dropped, touch),
        &[("/spec/template/spec/hostname", json!("users"))],
    );
}

#[test]
fn dropped_firmware_leaves_the_identity_that_kubevirt_gave() {
    let old = with(
        &spec(),
        "/template/spec/domain/firmware",
        json!({"bootloader": {"efi": {}}}),
    );
    let vm = merged(&old, &spec(), |vm| {
        set(vm, "/spec/template/spec/domain/firmware/uuid", json!("f"));
    });
    holds(
        &vm,
        &[("/spec/template/spec/domain/firmware", json!({"uuid": "f"}))],
    );
}

#[test]
fn a_run_strategy_that_somebody_changed_stays_and_another_one_follows_the_config() {
    let to = |strategy: &str| with(&spec(), "/runStrategy", json!(strategy));
    // Strategy of the old and the new config, run fields of the VM, and what they become.
    for (from, new, live, expected) in [
        (
            "Always",
            "Manual",
            json!({"runStrategy": "Always"}),
            json!({"runStrategy": "Manual"}),
        ),
        (
            "Always",
            "Manual",
            json!({"runStrategy": "Halted"}),
            json!({"runStrategy": "Halted"}),
        ),
        (
            "Halted",
            "Manual",
            json!({"runStrategy": "Always"}),
            json!({"runStrategy": "Always"}),
        ),
        (
            "Always",
            "Always",
            json!({"runStrategy": "Halted"}),
            json!({"runStrategy": "Halted"}),
        ),
        (
            "Always",
            "Halted",
            json!({"running": true}),
            json!({"running": false}),
        ),
        (
            "Halted",
            "Always",
            json!({"running": false}),
            json!({"running": true}),
        ),
        (
            "Always",
            "Manual",
            json!({"running": true}),
            json!({"runStrategy": "Manual"}),
        ),
        (
            "Always",
            "Manual",
            json!({"running": false}),
            json!({"running": false}),
        ),
    ] {
        let vm = merged(&to(from), &to(new), |vm| {
            set(vm, "/spec/runStrategy", Value::Null);
            vm["spec"]
                .as_object_mut()
                .unwrap()
                .append(live.clone().as_object_mut().unwrap());
        });
        let run: Map<_, _> = vm["spec"]
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .filter(|(key, _)| key.starts_with("run"))
            .collect();
        assert_eq!(Value::Object(run), expected, "{from} to {new} on {live}");
    }
    let (old, halted, inputs) = (spec(), to("Halted"), inputs(json!({})));
    let kept = Change {
        from: Some((&old, &inputs)),
        to: (&halted, &inputs),
        keeps_run_strategy: true,
    };
    holds(
        &kept.done(&created(&old, &inputs)),
        &[("/spec/runStrategy", json!("Always"))],
    );
}

#[test]
fn a_changed_instance_type_clears_the_revision_that_was_resolved() {
    let old = spec();
    let resolved = |vm: &mut Value| {
        vm["spec"]["instancetype"] = json!({"name": "small", "kind": "VirtualMachineClusterInstancetype", "revisionName": "r"});
        vm["spec"]["preference"]["revisionName"] = json!("p");
    };
    let new = with(&old, "/instancetype", json!({"name": "large"}));
    let vm = merged(&old, &new, resolved);
    holds(
        &vm,
        &[
            ("/spec/instancetype", json!({"name": "large"})),
            ("/spec/preference/revisionName", json!("p")),
        ],
    );
    // Said in another way, it is the same.
    let same = with(
        &old,
        "/instancetype",
        json!({"name": "small", "kind": "virtualmachineclusterinstancetype"}),
    );
    holds(
        &merged(&old, &same, resolved),
        &[("/spec/instancetype/revisionName", json!("r"))],
    );
    let kind = with(
        &old,
        "/instancetype",
        json!({"name": "small", "kind": "VirtualMachineInstancetype"}),
    );
    holds(
        &merged(&old, &kind, resolved),
        &[("/spec/instancetype/revisionName", Value::Null)],
    );
    // One that KubeVirt found by a volume is no change of somebody's.
    let inferred = with(&old, "/instancetype", json!({"inferFromVolume": "root"}));
    let none = with(&old, "/instancetype", Value::Null);
    holds(
        &merged(&inferred, &none, resolved),
        &[("/spec/instancetype", Value::Null)],
    );
    holds(
        &merged(&inferred, &old, resolved),
        &[("/spec/instancetype/revisionName", json!("r"))],
    );
}

#[test]
fn m113_no_merge_points_a_disk_elsewhere() {
    let old = spec();
    let root = "/template/spec/volumes/0";
    let live_root = json!({"name": "root", "dataVolume": {"name": "a-1-root"}});
    let mut renamed = with(
        &old,
        "/dataVolumeTemplates/0/metadata/name",
        json!("system"),
    );
    set(
        &mut renamed,
        root,
        json!({"name": "root", "dataVolume": {"name": "system"}}),
    );
    let bigger = with(
        &old,
        "/dataVolumeTemplates/0/spec/storage/resources/requests/storage",
        json!("2Gi"),
    );
    let image = with(
        &old,
        root,
        json!({"name": "root", "containerDisk": {"image": "x"}}),
    );
    let mut gone = with(&old, "/dataVolumeTemplates", Value::Null);
    set(&mut gone, root, json!({"name": "root", "emptyDisk": {}}));
    for new in [&renamed, &bigger, &image, &gone] {
        let vm = merged(&old, new, |_| {});
        holds(
            &vm,
            &[
                ("/spec/template/spec/volumes/0", live_root.clone()),
                (
                    "/spec/dataVolumeTemplates",
                    created(&old, &inputs(json!({})))["spec"]["dataVolumeTemplates"].clone(),
                ),
            ],
        );
    }
    // A restored disk stays too, even where the config drops its volume.
    let restored = |vm: &mut Value| {
        set(
            vm,
            "/spec/template/spec/volumes/0/dataVolume/name",
            json!("restore-1"),
        );
    };
    let mut dropped = old.clone();
    dropped["template"]["spec"]["volumes"]
        .as_array_mut()
        .unwrap()
        .remove(0);
    dropped["template"]["spec"]["domain"]["devices"]["disks"]
        .as_array_mut()
        .unwrap()
        .remove(0);
    for new in [&image, &dropped, &renamed] {
        holds(
            &merged(&old, new, restored),
            &[
                (
                    "/spec/template/spec/volumes/0/dataVolume/name",
                    json!("restore-1"),
                ),
                (
                    "/spec/template/spec/domain/devices/disks/0/name",
                    json!("root"),
                ),
            ],
        );
    }
    // ... and is taken out with its volume where it is the config's.
    let vm = merged(&old, &dropped, |_| {});
    holds(
        &vm,
        &[
            ("/spec/template/spec/volumes/0/name", json!("image")),
            (
                "/spec/template/spec/domain/devices/disks/0/name",
                json!("image"),
            ),
            (
                "/spec/dataVolumeTemplates/0/metadata/name",
                json!("a-1-root"),
            ),
        ],
    );
}

#[test]
fn a_new_disk_is_added_with_its_template_unless_somebody_has_a_volume_of_that_name() {
    let old = spec();
    let mut new = old.clone();
    set(
        &mut new,
        "/dataVolumeTemplates/-",
        json!({"metadata": {"name": "data"}, "spec": {}}),
    );
    set(
        &mut new,
        "/template/spec/volumes/-",
        json!({"name": "data", "dataVolume": {"name": "data"}}),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/disks/-",
        json!({"name": "data", "disk": {"bus": "virtio"}}),
    );
    let vm = merged(&old, &new, |_| {});
    assert_eq!(vm, created(&new, &inputs(json!({}))));
    let users = json!({"name": "data", "persistentVolumeClaim": {"claimName": "mine", "hotpluggable": true}});
    let device = json!({"name": "data", "disk": {"bus": "scsi"}, "serial": "x"});
    let vm = merged(&old, &new, |vm| {
        set(vm, "/spec/template/spec/volumes/-", users.clone());
        set(
            vm,
            "/spec/template/spec/domain/devices/disks/-",
            device.clone(),
        );
    });
    holds(
        &vm,
        &[
            ("/spec/template/spec/volumes/3", users),
            ("/spec/template/spec/domain/devices/disks/3", device),
            ("/spec/dataVolumeTemplates/1", Value::Null),
        ],
    );
}

#[test]
fn a_volume_that_its_user_took_out_stays_out_with_its_device() {
    let old = spec();
    let mut new = with(
        &old,
        "/template/spec/volumes/1/containerDisk/image",
        json!("v2"),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/disks/1/disk/bus",
        json!("sata"),
    );
    let vm = merged(&old, &new, |vm| {
        for list in ["/volumes", "/domain/devices/disks"] {
            let list = vm.pointer_mut(&format!("{TEMPLATE}{list}")).unwrap();
            list.as_array_mut().unwrap().remove(1);
        }
    });
    let names = |list: &str| -> Vec<String> {
        let list = vm.pointer(&format!("{TEMPLATE}{list}")).unwrap();
        list.as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("/volumes"), ["root", "init"]);
    assert_eq!(names("/domain/devices/disks"), ["root", "init"]);
}

#[test]
fn the_order_is_the_configs_unless_somebody_has_changed_it() {
    let old = spec();
    let mut new = old.clone();
    let disks = new["template"]["spec"]["domain"]["devices"]["disks"]
        .as_array_mut()
        .unwrap();
    disks.swap(0, 2);
    disks.insert(1, json!({"name": "more", "disk": {}}));
    let names = |touch: &dyn Fn(&mut Vec<Value>)| -> String {
        let vm = merged(&old, &new, |vm| {
            let disks = vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"].as_array_mut();
            touch(disks.unwrap());
        });
        let disks = vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"].clone();
        let names: Vec<_> = disks
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["name"].as_str().unwrap().to_owned())
            .collect();
        names.join(" ")
    };
    assert_eq!(names(&|_| {}), "init more image root");
    assert_eq!(
        names(&|disks| disks.insert(1, json!({"name": "theirs"}))),
        "init more image root theirs"
    );
    assert_eq!(names(&|disks| disks.swap(0, 1)), "image root init more");
}

#[test]
fn m75_labels_and_annotations_of_the_pool_come_and_go_and_users_stay() {
    let spec = spec();
    let metadata = |labels: Value| inputs(json!({"virtualMachineMetadata": {"labels": labels}}));
    let (before, after) = (
        metadata(json!({"team": "a", "tier": "1"})),
        metadata(json!({"team": "b"})),
    );
    let change = Change {
        from: Some((&spec, &before)),
        to: (&spec, &after),
        keeps_run_strategy: false,
    };
    let mut live = created(&spec, &before);
    assert_eq!(change.done(&live), created(&spec, &after));
    set(&mut live, "/metadata/labels/tier", json!("users"));
    set(&mut live, "/metadata/labels/own", json!("x"));
    let vm = change.done(&live);
    holds(
        &vm,
        &[
            ("/metadata/labels/team", json!("b")),
            ("/metadata/labels/tier", json!("users")),
            ("/metadata/labels/own", json!("x")),
        ],
    );
    assert_eq!(
        vm["spec"]["template"]["spec"],
        live["spec"]["template"]["spec"]
    );
}

#[test]
fn without_a_base_nothing_that_can_not_be_made_again_is_touched() {
    let old = spec();
    let inputs = inputs(json!({}));
    let mut new = with(&old, "/runStrategy", json!("Halted"));
    set(
        &mut new,
        "/template/spec/domain/firmware",
        json!({"bootloader": {"bios": {}}}),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/interfaces/0/macAddress",
        json!("02:00:00:00:00:02"),
    );
    set(
        &mut new,
        "/dataVolumeTemplates/0/metadata/name",
        json!("system"),
    );
    set(
        &mut new,
        "/template/spec/volumes/0/dataVolume/name",
        json!("system"),
    );
    set(
        &mut new,
        "/template/spec/volumes/1/containerDisk/image",
        json!("v2"),
    );
    set(&mut new, "/template/spec/hostname", json!("b"));
    set(
        &mut new,
        "/dataVolumeTemplates/-",
        json!({"metadata": {"name": "data"}, "spec": {}}),
    );
    set(
        &mut new,
        "/template/spec/volumes/-",
        json!({"name": "data", "dataVolume": {"name": "data"}}),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/disks/-",
        json!({"name": "data", "disk": {}}),
    );
    set(
        &mut new,
        "/template/spec/volumes/-",
        json!({"name": "more", "emptyDisk": {}}),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/disks/-",
        json!({"name": "more", "disk": {}}),
    );
    let mut live = created(&old, &inputs);
    set(
        &mut live,
        "/spec/template/spec/domain/devices/interfaces/0/macAddress",
        json!("02:00:00:00:00:01"),
    );
    set(
        &mut live,
        "/spec/template/spec/domain/firmware",
        json!({"uuid": "f"}),
    );
    set(
        &mut live,
        "/metadata/annotations/vmpool.dev~1stamp",
        json!("gone"),
    );
    set(
        &mut live,
        "/metadata/annotations/restore.kubevirt.io~1lastRestoreUID",
        json!("r-1"),
    );
    let vm = merged_blindly(&new, &live);
    holds(
        &vm,
        &[
            ("/spec/runStrategy", json!("Always")),
            (
                "/spec/dataVolumeTemplates",
                live["spec"]["dataVolumeTemplates"].clone(),
            ),
            ("/spec/template/spec/domain/firmware", json!({"uuid": "f"})),
            (
                "/spec/template/spec/domain/devices/interfaces/0/macAddress",
                json!("02:00:00:00:00:01"),
            ),
            ("/spec/template/spec/hostname", json!("b")),
            (
                "/spec/template/spec/domain/devices/disks/3",
                json!({"name": "more", "disk": {}}),
            ),
            ("/spec/template/spec/domain/devices/disks/4", Value::Null),
        ],
    );
    let volumes = vm["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .unwrap();
    let before = live["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .unwrap();
    assert_eq!(volumes[..3], before[..]);
    assert_eq!(volumes[3..], [json!({"name": "more", "emptyDisk": {}})]);
    // It is at the new stamp now, and the restore is known.
    let mark = StampMark::parse(
        vm["metadata"]["annotations"][annotations::STAMP]
            .as_str()
            .unwrap(),
    );
    assert_eq!(mark.as_ref().unwrap().restored.as_deref(), Some("r-1"));
    assert_eq!(
        mark.unwrap().hash,
        stamp_hash(&revision_hash(new.as_object().unwrap()), &inputs)
    );
}

#[test]
fn which_templates_kept_disks_are_of_is_noted_until_they_are_the_configs_again() {
    let old = spec();
    let bigger = with(
        &old,
        "/dataVolumeTemplates/0/spec/storage/resources/requests/storage",
        json!("2Gi"),
    );
    let other = with(&bigger, "/template/spec/hostname", json!("b"));
    let inputs = inputs(json!({}));
    let change = |from, to| Change {
        from: Some((from, &inputs)),
        to: (to, &inputs),
        keeps_run_strategy: false,
    };
    let note = |vm: &Value| vm["metadata"]["annotations"][annotations::DISKS_OF].clone();
    let first = created(&old, &inputs);
    assert!(change(&old, &bigger).update(&first).keeps_disks);
    let second = change(&old, &bigger).done(&first);
    assert_eq!(note(&second), disks_hash(old.as_object().unwrap()));
    let third = change(&bigger, &other).done(&second);
    assert_eq!(note(&third), note(&second));
    let back = change(&other, &old).done(&third);
    assert_eq!(back, first);
    // A template more changes nothing about the disks that there are.
    let more = with(
        &old,
        "/dataVolumeTemplates/-",
        json!({"metadata": {"name": "x"}, "spec": {}}),
    );
    assert!(!change(&old, &more).update(&first).keeps_disks);
}

#[test]
fn marks_that_somebody_took_off_come_back_with_the_update() {
    let old = spec();
    let new = with(&old, "/template/spec/hostname", json!("b"));
    let vm = merged(&old, &new, |vm| {
        vm["metadata"]["labels"] = json!({"mine": "1"});
        vm["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
        vm["spec"]["template"]
            .as_object_mut()
            .unwrap()
            .remove("metadata");
    });
    let mut expected = created(&new, &inputs(json!({})));
    expected["metadata"]["labels"]["mine"] = json!("1");
    let template = &mut expected["spec"]["template"]["metadata"];
    template["labels"].as_object_mut().unwrap().remove("app");
    template["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("note");
    assert_eq!(vm, expected);
}
