//! Bringing a member to another stamp: what its config changes is done to it, what others did stays.

#![expect(
    clippy::items_after_statements,
    reason = "tables of what is done to a VM, and what it is to be after that"
)]

use super::*;
use crate::stamp::{Base, Update, UpdateInput, update};

/// A config as people have it.
pub(super) fn spec() -> Value {
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

pub(super) fn with(spec: &Value, pointer: &str, value: Value) -> Value {
    let mut spec = spec.clone();
    set(&mut spec, pointer, value);
    spec
}

/// Sets a value; the parents are there. `null` takes it out.
pub(super) fn set(target: &mut Value, pointer: &str, value: Value) {
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
pub(super) fn created(spec: &Value, inputs: &PoolInputs) -> Value {
    let mut vm = stamped(spec, inputs, 1);
    vm["metadata"]["uid"] = json!("u");
    vm["metadata"]["resourceVersion"] = json!("7");
    vm
}

pub(super) struct Change<'a> {
    pub(super) from: Option<(&'a Value, &'a PoolInputs)>,
    pub(super) to: (&'a Value, &'a PoolInputs),
    pub(super) keeps_run_strategy: bool,
}

impl Change<'_> {
    pub(super) fn update(&self, live: &Value) -> Update {
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
    pub(super) fn done(&self, live: &Value) -> Value {
        let mut vm = live.clone();
        json_patch::patch(&mut vm, &self.update(live).patch).unwrap();
        vm
    }
}

/// From one spec to another, onto what `touch` made of the member.
pub(super) fn merged(from: &Value, to: &Value, touch: impl Fn(&mut Value)) -> Value {
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
pub(super) fn merged_blindly(to: &Value, live: &Value) -> Value {
    Change {
        from: None,
        to: (to, &inputs(json!({}))),
        keeps_run_strategy: false,
    }
    .done(live)
}

/// Paths below the VM's spec, with their values.
pub(super) fn holds(vm: &Value, expected: &[(&str, Value)]) {
    for (pointer, value) in expected {
        let found = vm.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, value, "{pointer} in {vm:#}");
    }
}

pub(super) const TEMPLATE: &str = "/spec/template/spec";

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
